"""The student means what the equation W' = W + B (sum_i v_i P_i) A says, and only against the prior artifact of the
lock.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from progressive_rlvr.config import Student
from progressive_rlvr.decoder import (
    get_vector,
    group_count,
    inject,
    make_prior,
    merged,
    read_prior,
    set_vector,
    target_modules,
    tensors_digest,
    write_prior,
)
from progressive_rlvr.errors import UserError
from progressive_rlvr.models import BaseModel, replaced

STUDENT = Student(r=2, u=1, groups=7, seed=3)


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.tensor([[5, 9, 30, 77, 12]])).logits


def test_merging_equals_the_equation_module_by_module(model: PreTrainedModel) -> None:
    student = Student(r=2, u=3, groups=2)
    prior = make_prior(model, student)
    v = torch.linspace(-1, 1, 6)
    weights = merged(model, student, prior, v)
    names = list(target_modules(model, student.targets))
    assert len(names) == 14
    for index, name in enumerate(names):
        group = 0 if index < 7 else 1
        R = sum(v[3 * group + i] * prior[f"{name}.P"][i] for i in range(3))
        expected = model.get_submodule(name).weight + prior[f"{name}.B"].float() @ R @ prior[f"{name}.A"].float()
        assert torch.allclose(weights[f"{name}.weight"], expected, atol=1e-5)


def test_merged_weights_answer_as_the_injected_student_does(tiny: BaseModel, model: PreTrainedModel) -> None:
    prior = make_prior(model, STUDENT)
    v = torch.randn(7, generator=torch.Generator().manual_seed(0))
    tuned = inject(tiny.load(), STUDENT, prior)
    set_vector(tuned, v)
    assert torch.equal(get_vector(tuned), v)
    with replaced(model, merged(model, STUDENT, prior, v)):
        assert torch.allclose(logits(model), logits(tuned), atol=1e-4)


def test_a_zero_vector_is_the_base_bit_for_bit(tiny: BaseModel, model: PreTrainedModel) -> None:
    prior = make_prior(model, STUDENT)
    before = logits(model)
    assert torch.equal(logits(inject(tiny.load(), STUDENT, prior)), before)
    for name, weight in merged(model, STUDENT, prior, torch.zeros(7)).items():
        assert torch.equal(weight, model.get_parameter(name))


def test_replacing_weights_is_undone_bit_for_bit(model: PreTrainedModel) -> None:
    before = {name: p.clone() for name, p in model.named_parameters()}
    weights = merged(model, STUDENT, make_prior(model, STUDENT), torch.ones(7))
    with replaced(model, weights):
        assert all(torch.equal(model.get_parameter(name), weight) for name, weight in weights.items())
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_factors_rebuild_the_best_approximation_of_rank_r(model: PreTrainedModel) -> None:
    prior = make_prior(model, STUDENT)
    for name, module in target_modules(model, STUDENT.targets).items():
        singular = torch.linalg.svdvals(module.weight.double())
        rest = module.weight.double() - prior[f"{name}.B"].double() @ prior[f"{name}.A"].double()
        optimum = singular[2:].square().sum().sqrt()
        # A and B are rounded to bfloat16, three decimal digits.
        assert rest.norm() <= optimum + 0.02 * singular[:2].norm()


def test_signs_of_the_factors_do_not_depend_on_the_svd(model: PreTrainedModel) -> None:
    """The largest entry of every right vector is positive, whatever sign LAPACK chose."""
    for name, tensor in make_prior(model, STUDENT).items():
        if name.endswith(".A"):
            largest = tensor.float().gather(1, tensor.float().abs().argmax(dim=1, keepdim=True))
            assert (largest > 0).all()


def test_an_artifact_is_repeatable_and_another_one_is_refused(model: PreTrainedModel, tmp_path: Path) -> None:
    prior = make_prior(model, STUDENT)
    digest = tensors_digest(prior)
    assert tensors_digest(make_prior(model, STUDENT)) == digest
    write_prior(tmp_path / "p.safetensors", prior)
    read_prior(tmp_path / "p.safetensors", digest)
    other = make_prior(model, STUDENT.model_copy(update={"seed": 4}))
    write_prior(tmp_path / "p.safetensors", other)
    with pytest.raises(UserError, match="refuse to decode"):
        read_prior(tmp_path / "p.safetensors", digest)
    (tmp_path / "p.safetensors").write_bytes(b"\x00garbage")
    with pytest.raises(UserError, match="cannot read"):
        read_prior(tmp_path / "p.safetensors")


def test_an_artifact_of_rank_one_survives_its_file(model: PreTrainedModel, tmp_path: Path) -> None:
    """Tensors with a dimension of length one have strides that say nothing of their bytes."""
    prior = make_prior(model, Student(r=1, u=1))
    write_prior(tmp_path / "prior.safetensors", prior)
    read = read_prior(tmp_path / "prior.safetensors", tensors_digest(prior))
    assert all(torch.equal(read[name], tensor) for name, tensor in prior.items())


def test_groups_that_do_not_divide_the_modules_are_refused() -> None:
    assert group_count(Student(groups=7), 14) == 7
    assert group_count(Student(), 14) == 14
    with pytest.raises(UserError, match=r"groups is 4.*\[1, 2, 7, 14\]"):
        group_count(Student(groups=4), 14)


def test_an_unknown_target_is_named(model: PreTrainedModel) -> None:
    with pytest.raises(UserError, match="nope_proj"):
        target_modules(model, ("q_proj", "nope_proj"))
