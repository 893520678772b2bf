"""A tuned policy on a base with packed weights is Q x + B R A x: in training, in what is decoded, in what is served."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from peft import TinyLoraConfig, get_peft_model
from small_runs import prlvr, write_config
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pacbayes.codes import LaplaceCode, Menu, MenuEntry
from progressive_rlvr.config import Student
from progressive_rlvr.decoder import get_vector, inject, make_prior, merged, set_vector, target_modules, tensors_digest
from progressive_rlvr.engines import Request, Settings
from progressive_rlvr.engines.hf import HfEngine
from progressive_rlvr.errors import UserError
from progressive_rlvr.merge_audit import merge
from progressive_rlvr.models import BaseModel, find_base, replaced
from progressive_rlvr.policies import decode_message
from progressive_rlvr.quantized import Scheme, dense_weight, packed_digest, quantized_modules

STUDENT = Student(r=2, u=1, groups=7, seed=3)
NF4 = torch.tensor(  # the sixteen levels, arXiv 2305.14314, appendix E
    [
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
        -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
        0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ]
)  # fmt: skip


@pytest.fixture(scope="module")
def pocket_base() -> BaseModel:
    return find_base("pocket")


def quantized(scheme: Scheme) -> BaseModel:
    return find_base("pocket", scheme=scheme)


@pytest.fixture(scope="module")
def nf4() -> BaseModel:
    return quantized("nf4")


def unpacked(module: nn.Module) -> Tensor:
    """The weight of an nf4 layer by the format's definition: two levels a byte, one scale for 64 of them."""
    data, state = module.weight.data.reshape(-1), module.weight.quant_state
    levels = torch.stack([NF4[(data >> 4).long()], NF4[(data & 15).long()]], dim=1).reshape(-1, 64)
    return (levels * state.absmax.reshape(-1, 1)).reshape(state.shape)


def dense_twin(base: BaseModel, model: PreTrainedModel, changes: dict[str, Tensor]) -> PreTrainedModel:
    """An ordinary float32 model with what the packed weights mean, and W + B R A where something changes."""
    twin = BaseModel(base.name, base.folder, base.weights, base.tokenizer, base.config).load()
    with torch.no_grad():
        for name, module in quantized_modules(model).items():
            twin.get_submodule(name).weight.copy_(dense_weight(module) + changes.get(name, 0))
    return twin


def logits(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return model(input_ids=torch.tensor([[5, 9, 30, 77, 12, 200, 31]])).logits


def message_and_menu(modules: int, artifact: str) -> tuple[bytes, Menu, tuple[int, ...]]:
    q = tuple((k * 5) % 7 - 3 for k in range(7))
    entry = MenuEntry(
        name="one",
        probability="1",
        dimension=7,
        step="0.2",
        code=LaplaceCode(ratio="1/2", bound=15),
        structure={"adapter": "tinylora", **STUDENT.model_dump(mode="json")},
        prior_artifact=artifact,
    )
    menu = Menu(entries=(entry,))
    return menu.encode(0, q), menu, q


def test_a_message_on_an_nf4_base_is_its_dequantized_weights_and_the_low_rank_update(
    nf4: BaseModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    model = nf4.load()
    modules = target_modules(model, STUDENT.targets)
    prior = make_prior(model, STUDENT)
    message, menu, q = message_and_menu(len(modules), tensors_digest(prior))
    changes = {}
    for index, (name, module) in enumerate(modules.items()):
        assert torch.equal(dense_weight(module), unpacked(module))
        R = 0.2 * q[index // 4] * prior[f"{name}.P"][0]
        changes[name] = prior[f"{name}.B"].float() @ R @ prior[f"{name}.A"].float()
    twin = dense_twin(nf4, model, changes)
    before = logits(model)
    requests = [Request(f"{k} + 1 =", hashlib.sha256(bytes([k])).digest()) for k in range(10)]
    settings = Settings(6, 1.0, None, 4)
    with replaced(model, decode_message(model, menu, message, prior)):
        assert (logits(model) - before).abs().max() > 0.5
        assert torch.allclose(logits(model), logits(twin), atol=2e-4)
        served = HfEngine(model, tokenizer).generate(requests, settings)
    assert served == HfEngine(twin, tokenizer).generate(requests, settings)
    assert torch.equal(logits(model), before)


@pytest.mark.parametrize("scheme", ["nf4", "int8"])
def test_the_student_in_training_is_the_policy_that_is_served(scheme: Scheme) -> None:
    base = quantized(scheme)
    model = base.load()
    prior = make_prior(model, STUDENT)
    tuned = inject(base.load(), STUDENT, prior)
    assert torch.equal(logits(tuned), logits(model)), "v = 0 is the base"
    v = torch.randn(7, generator=torch.Generator().manual_seed(0))
    set_vector(tuned, v)
    assert torch.equal(get_vector(tuned), v)
    assert [n for n, p in tuned.named_parameters() if p.requires_grad and "tinylora_v" not in n] == []
    with replaced(model, merged(model, STUDENT, prior, v)):
        assert torch.allclose(logits(model), logits(tuned), atol=2e-4)
    tuned(input_ids=torch.tensor([[5, 9, 30]])).logits.square().sum().backward()
    gradients = [p.grad for p in tuned.parameters() if p.requires_grad]
    assert len(gradients) == 7
    assert all(g is not None and torch.isfinite(g).all() and g.abs().max() > 0 for g in gradients)


@pytest.mark.parametrize("scheme", ["nf4", "int8"])
def test_serving_multiplies_by_the_weights_and_by_nothing_coarser(scheme: Scheme) -> None:
    """bitsandbytes' evaluation mode on a CPU rounds activations too; then completions depend on the machine."""
    model = quantized(scheme).load()
    assert len(quantized_modules(model)) == 28
    twin = logits(dense_twin(find_base("pocket"), model, {}))
    assert torch.allclose(logits(model), twin, atol=1e-4)
    if scheme == "int8":  # nf4 differs where the CPU has AVX-512 BF16
        assert (logits(model.eval()) - twin).abs().max() > 0.01


@pytest.mark.parametrize("scheme", ["nf4", "int8"])
def test_batch_mates_change_nothing_on_a_quantized_base(scheme: Scheme, tokenizer: PreTrainedTokenizerBase) -> None:
    requests = [Request("1+" * (k % 5) + f"{k} =", hashlib.sha256(bytes([k])).digest()) for k in range(24)]
    engine = HfEngine(quantized(scheme).load(), tokenizer)
    alone = engine.generate(requests, Settings(6, 1.0, None, 1))
    assert engine.generate(requests[::-1], Settings(6, 1.0, None, 10))[::-1] == alone


def test_the_base_is_what_it_was_quantized_to(nf4: BaseModel) -> None:
    model = nf4.load()
    assert nf4.quantized is not None
    assert nf4.quantized.weights == packed_digest(model)
    assert nf4.weights == find_base("pocket").weights
    assert len({nf4.digest, quantized("int8").digest, find_base("pocket").digest}) == 3
    quantized_modules(model)["model.layers.0.mlp.up_proj"].weight.data[0] ^= 1
    assert packed_digest(model) != nf4.quantized.weights
    other = BaseModel(
        nf4.name, nf4.folder, nf4.weights, nf4.tokenizer, nf4.config, type(nf4.quantized)("nf4", "0" * 64)
    )
    with pytest.raises(UserError, match="gives other weights"):
        other.load()


@pytest.mark.parametrize("scheme", ["nf4", "int8"])
def test_the_fault_in_peft_that_the_student_goes_around(scheme: Scheme) -> None:
    """peft 0.21: v takes the dtype of the packed bytes, and A, B are an SVD of them. If this fails, it was mended."""
    config = TinyLoraConfig(r=2, u=1, target_modules=["q_proj"], projection_seed=0, task_type="CAUSAL_LM")
    with pytest.raises(RuntimeError, match="Only Tensors of floating point"):
        get_peft_model(quantized(scheme).load(), config)


def test_merging_rounds_the_sum_again(nf4: BaseModel) -> None:
    """The merged twin holds packed weights near W + B R A, and not W + B R A: nf4 has sixteen levels a block."""
    model = nf4.load()
    prior = make_prior(model, STUDENT)
    update = merged(model, STUDENT, prior, torch.linspace(0.2, 0.8, 7))
    wanted = {
        name: dense_weight(module) + update[f"{name}.up"] @ update[f"{name}.down"]
        for name, module in quantized_modules(model).items()
    }
    twin = merge(nf4.load(), update)
    assert list(quantized_modules(twin)) == list(wanted)
    for name, module in quantized_modules(twin).items():
        off = (dense_weight(module) - wanted[name]).norm() / wanted[name].norm()
        assert 0.005 < off < 0.15, name


def test_only_quantized_runs_have_a_merge_to_audit(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "small"
    folder.mkdir(parents=True)
    write_config(tmp_path).rename(folder / "config.resolved.yaml")
    assert "not quantized" in prlvr("audit", "merge", folder, "knowledge", code=2).stderr
    assert "no domain" in prlvr("audit", "merge", folder, "mathematics", code=2).stderr
    assert "is no run" in prlvr("audit", "merge", tmp_path, "knowledge", code=2).stderr


def test_a_quantized_base_has_one_dtype(tmp_path: Path) -> None:
    base = {"model": "pocket", "quantization": "nf4", "training_dtype": "bfloat16"}
    assert "must be generation.dtype" in prlvr("lock", write_config(tmp_path, base=base), code=2).stderr


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["nf4", "int8"])
def test_a_quantized_base_from_the_lock_to_the_audit(scheme: Scheme, tmp_path: Path) -> None:
    config = write_config(tmp_path, base={"model": "pocket", "quantization": scheme})
    runs = tmp_path / "runs"
    prlvr("run", config, "--runs", runs, timeout=900)
    domain = runs / "small" / "knowledge"
    lock = json.loads((domain / "method.lock.json").read_text())
    base = quantized(scheme)
    assert base.quantized is not None
    assert lock["claim"]["base"] == f"pocket ({scheme})"
    assert lock["model"]["quantization"] == {"scheme": scheme, "weights": base.quantized.weights}
    assert lock["claim"]["base_digest"] == base.digest
    prlvr("verify", domain / "certificate.json", "--level", "2", timeout=900)
    assert "bitsandbytes" in json.loads((domain / "certificate.json").read_text())["engine"]["versions"]
    audit = json.loads(prlvr("audit", "merge", runs / "small", "knowledge", "--prompts", "60").stdout)
    assert audit["prompts"] == 60
    assert audit["completions"]["as_in_the_evidence"] == 60, "the policy before merging is the certified one"
    verdicts = audit["verdicts"]
    turned = verdicts["wrong_to_right"] - verdicts["right_to_wrong"]
    assert verdicts["right_after"] - verdicts["right_before"] == turned
    prlvr("report", runs / "small")
    assert "Merged into the weights" in (runs / "small" / "reports" / "report.html").read_text()
    log = (domain / "logs" / "worker.log").read_text()
    assert "inputs will be cast" not in log
