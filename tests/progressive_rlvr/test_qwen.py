"""The architecture of the larger configurations, with few layers and random weights, through every stage on a CPU.

Random weights learn nothing in a few steps; what is shown is that every stage, the message and the certificate take
Qwen2: biases on q, k and v, grouped keys, and bfloat16 training of a TinyLoRA student with r = 2, u = 1 and ties.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from small_runs import STAGES, prlvr, write_config
from transformers import Qwen2Config, Qwen2ForCausalLM

from pacbayes.certificate import read_certificate
from progressive_rlvr.config import load_config
from progressive_rlvr.models import find_base

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="module")
def few_layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Qwen2 of two layers behind the pocket tokenizer, heads grouped 7 to 1 as in the 0.5B and 7B."""
    folder = tmp_path_factory.mktemp("qwen2")
    tokenizer = find_base("pocket").load_tokenizer()
    torch.manual_seed(11)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=112,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=14,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.2,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_every_stage_takes_the_architecture(few_layers: Path, tmp_path: Path) -> None:
    shipped = load_config(CONFIGS / "qwen2.5-0.5b-arc.yaml")
    config = write_config(
        tmp_path,
        base={"model": str(few_layers), "training_dtype": shipped.base.training_dtype},
        student={"r": shipped.student.r, "u": shipped.student.u, "groups": 7},
        menu=shipped.menu.model_dump(mode="json"),
        stages={**STAGES, "micro_batch": 8},
    )
    assert json.loads(prlvr("run", config, "--dry-run", "--json").stdout)[0]["student"] == 7
    prlvr("run", config, "--runs", tmp_path / "runs")
    path = tmp_path / "runs" / "small" / "certificates" / "knowledge.json"
    certificate = read_certificate(path)
    assert [s["kind"] for s in certificate.stages] == ["base", "rlvr", "distill", "tinylora", "quantize"]
    assert len(certificate.message.integers) == 7
    assert "FAIL" not in prlvr("verify", path).stdout


def test_the_shipped_files_are_qwens_own_sizes() -> None:
    """A model made from a shipped file of sizes is a Qwen2, and has as many weights as a plan counts."""
    from progressive_rlvr.plan import ARCHITECTURES, find_architecture

    for file in sorted(ARCHITECTURES.glob("qwen2.5-*.json")):
        config = Qwen2Config(**json.loads(file.read_text()))
        with torch.device("meta"):
            model = Qwen2ForCausalLM(config)
        model.tie_weights()
        assert sum(p.numel() for p in model.parameters()) == find_architecture(file.stem).parameters
