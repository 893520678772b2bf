"""Estimates before a run: sizes as published, counts as they happen, bytes as autograd keeps them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import Result
from small_runs import SMALL, prlvr, write_config
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM
from typer.testing import CliRunner

from pacbayes.certificate import read_certificate
from pacbayes.evidence import read_evidence
from progressive_rlvr.cli import app
from progressive_rlvr.config import RunConfig, load_config
from progressive_rlvr.errors import UserError
from progressive_rlvr.models import find_base
from progressive_rlvr.plan import Architecture, Device, find_architecture, plan

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize(
    ("name", "billions", "without_embeddings"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", 0.49, 0.36),
        ("Qwen/Qwen2.5-1.5B-Instruct", 1.54, 1.31),
        ("Qwen/Qwen2.5-7B-Instruct", 7.61, 6.53),
    ],
)
def test_sizes_are_those_of_the_model_cards(name: str, billions: float, without_embeddings: float) -> None:
    model = find_architecture(name)
    assert model.parameters / 1e9 == pytest.approx(billions, abs=0.006)
    embeddings = model.head * (1 if model.tied else 2)
    assert (model.parameters - embeddings) / 1e9 == pytest.approx(without_embeddings, abs=0.006)


def small_qwen(layers: int = 2) -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config)


def test_parameters_are_counted_to_the_last() -> None:
    for model in (small_qwen(), AutoModelForCausalLM.from_pretrained(find_base("pocket").folder)):
        sizes = Architecture.of(json.loads(model.config.to_json_string(use_diff=False)))
        assert sizes.parameters == sum(p.numel() for p in model.parameters())


def test_flops_are_those_that_torch_counts() -> None:
    """Over a whole forward pass of 48 tokens, by plain matrix products, of which torch counts the whole square."""
    from torch.utils.flop_counter import FlopCounterMode

    model = small_qwen().eval()
    model.set_attn_implementation("eager")
    sizes = Architecture.of(json.loads(model.config.to_json_string(use_diff=False)))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(input_ids=torch.zeros(1, 48, dtype=torch.long), use_cache=False)
    assert sizes.forward(48, 48) == pytest.approx(counter.get_total_flops(), rel=0.02)


def saved_bytes(model: torch.nn.Module, batch: int, length: int) -> int:
    """Bytes that autograd keeps for the backward pass, parameters left out."""
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(input_ids=torch.zeros(batch, length, dtype=torch.long), use_cache=False, logits_to_keep=1)
        found = sum(kept.values())
        del loss
    return found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activations_are_about_what_autograd_keeps(dtype: str) -> None:
    """With LoRA on every matrix, as the first stage trains; two lengths, so that only what grows with tokens counts."""
    from peft import LoraConfig, get_peft_model

    from progressive_rlvr.config import LINEAR_KINDS

    model = small_qwen(layers=4).to(getattr(torch, dtype))
    sizes = Architecture.of(json.loads(model.config.to_json_string(use_diff=False)))
    tuned = get_peft_model(model, LoraConfig(r=2, target_modules=list(LINEAR_KINDS)))
    measured = (saved_bytes(tuned, 2, 96) - saved_bytes(tuned, 2, 32)) / (2 * 64)
    assert sizes.saved(dtype) == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_configuration_of_the_project_is_planned(file: Path) -> None:
    config = load_config(file)
    for domain in config.domains:
        found = plan(config, domain, Device())
        assert [row.stage for row in found.rows] == ["rlvr", "distill", "tinylora", "quantize", "evaluate"]
        assert all(row.memory > 0 and row.seconds > 0 and row.flops > 0 for row in found.rows)


def test_the_configurations_for_larger_models_are_there_and_fit_their_model() -> None:
    for size, layers in (("0.5b", 24), ("1.5b", 28), ("7b", 28)):
        for data in ("gsm8k", "mbpp", "arc", "spider"):
            config = load_config(CONFIGS / f"qwen2.5-{size}-{data}.yaml")
            assert (config.student.r, config.student.u) == (2, 1)
            assert (config.base.training_dtype, config.stages.rollouts) == ("bfloat16", "vllm")
            assert config.student.groups is not None
            assert (layers * 7) % config.student.groups == 0
            for stage in (config.stages.rlvr, config.stages.tinylora):
                assert stage is not None
                assert stage.prompts * stage.samples % (config.stages.micro_batch or 1) == 0


@pytest.mark.slow
def test_what_is_planned_is_what_is_done(tmp_path: Path) -> None:
    """Completions to the last one, prompts' tokens to some per cent, generated tokens within the limit."""
    import pyarrow.parquet as pq

    file = write_config(tmp_path)
    prlvr("run", file, "--runs", tmp_path / "runs")
    said = json.loads(prlvr("run", file, "--dry-run", "--json").stdout)[0]
    planned = {row["stage"]: row for row in said["rows"]}
    folder = tmp_path / "runs" / "small" / "knowledge"
    for number, stage in enumerate(("rlvr", "distill", "tinylora"), start=1):
        done = json.loads((folder / "stages" / f"{number}-{stage}" / "done.json").read_text())
        assert planned[stage]["completions"] == done["summary"]["completions"]
    rows = pq.read_table(folder / "evidence.parquet").to_pylist()
    assert planned["evaluate"]["completions"] == len(rows)
    assert 0 < sum(row["tokens"] for row in rows) <= planned["evaluate"]["new_tokens"]
    prompts = {p["prompt_digest"]: p["prompt"] for p in map(json.loads, (folder / "prompts.jsonl").open())}
    tokenizer = find_base("pocket").load_tokenizer()
    tokens = sum(len(tokenizer(prompts[row["prompt_digest"]])["input_ids"]) for row in rows)
    assert planned["evaluate"]["prompt_tokens"] == pytest.approx(tokens, rel=0.05)
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    answered = max(m["steps"] for m in metrics if m["stage"] == "quantize")
    assert answered <= planned["quantize"]["completions"]


def test_the_published_run_made_the_completions_that_are_planned() -> None:
    """SmolLM2, as it was run: completions to the last one, generated tokens within the limit."""
    folder = Path(__file__).parents[2] / "bounds_reports" / "published" / "smollm2-135m"
    config = load_config(folder / "config.resolved.yaml")
    planned = {row.stage: row for row in plan(config, "mathematics", Device()).rows}
    outcomes = read_evidence(folder / "mathematics" / "evidence.parquet").outcomes.values()
    assert planned["evaluate"].completions == len(outcomes)
    assert sum(o.tokens for o in outcomes) <= planned["evaluate"].new_tokens
    stages = {s["kind"]: s for s in read_certificate(folder / "mathematics.json").stages}
    for kind in ("rlvr", "distill", "tinylora"):
        assert planned[kind].completions == stages[kind]["completions"]


def test_time_is_inverse_to_what_the_device_sustains() -> None:
    config = RunConfig.model_validate(SMALL)
    slow, fast = (plan(config, "knowledge", Device(t, b)).rows for t, b in ((1, 10), (2, 20)))
    assert [s.seconds / f.seconds for s, f in zip(slow, fast, strict=True)] == pytest.approx([2] * 5)


def test_a_generation_step_reads_the_weights_or_computes() -> None:
    """By hand, for the pocket model: 4 layers of 4 d^2 + 3 d f weights, d = 128, f = 384, and a head of 284 d."""
    model = find_architecture("pocket")
    assert model.body == 4 * (4 * 128 * 128 + 3 * 128 * 384)
    assert model.head == 284 * 128
    assert model.forward(1, 0) == 2 * (model.body + model.head)
    assert model.cache(10, "float32") == 10 * 4 * 2 * 128 * 4


def test_the_prior_artifact_takes_an_svd_of_every_matrix() -> None:
    """By hand, for the pocket model: 4 layers of four square matrices and three of 384 by 128."""
    weights = {**SMALL, "student": {"directions": "weights"}}
    found = plan(RunConfig.model_validate(weights), "knowledge", Device()).svd_flops
    assert found == 4 * (4 * 26 * 128**3 + 3 * (6 * 384 * 128**2 + 20 * 128**3))


@pytest.mark.parametrize(
    ("content", "said"),
    [({"model_type": "gpt2"}, "not 'gpt2'"), ({"model_type": "llama"}, "num_attention_heads")],
)
def test_what_cannot_be_planned_is_said_so(tmp_path: Path, content: dict[str, str], said: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=said):
        find_architecture(str(tmp_path))
    with pytest.raises(UserError, match=r"sizes of 'no/such' are not known.*qwen2\.5-7b"):
        find_architecture("no/such")


def test_the_dry_run_makes_nothing_and_says_what_it_assumes(tmp_path: Path) -> None:
    config = write_config(tmp_path)

    def run(*options: str) -> Result:
        return CliRunner().invoke(app, ["run", str(config), "--runs", str(tmp_path / "runs"), *options])

    assert "Assumed, not measured: 3 TFLOP/s" in run("--dry-run", "--tflops", "3").stdout
    assert [row["stage"] for row in json.loads(run("--dry-run", "--json").stdout)[0]["rows"]][-1] == "evaluate"
    for options, said in ((("--dry-run", "--tflops", "0"), "must be positive"), (("--json",), "options of --dry-run")):
        refused = run(*options).exception
        assert isinstance(refused, UserError)
        assert said in str(refused)
    assert not (tmp_path / "runs").exists()
