"""What tests share: one finished run, and a base model of a few thousand random weights behind the real tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_runs import copy_of, prlvr, write_config
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from progressive_rlvr.models import POCKET, BaseModel, find_base


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random two-layer Llama and the pocket tokenizer."""
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = find_base("pocket").load_tokenizer()
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.4,  # logits that differ by several nats, so that completions differ
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> BaseModel:
    return find_base(str(tiny_folder))


@pytest.fixture
def model(tiny: BaseModel) -> PreTrainedModel:
    torch.set_num_threads(1)
    return tiny.load()


@pytest.fixture(scope="session")
def tokenizer(tiny: BaseModel) -> PreTrainedTokenizerBase:
    return tiny.load_tokenizer()


@pytest.fixture(scope="session")
def pocket() -> Path:
    return POCKET


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run; who changes files takes a `copy`."""
    folder = tmp_path_factory.mktemp("finished")
    prlvr("run", write_config(folder), "--runs", folder / "runs")
    return folder / "runs" / "small"


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, to be damaged."""
    return copy_of(finished, tmp_path)
