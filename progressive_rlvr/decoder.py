"""From (lock, message) to weights: what a TinyLoRA vector means, and nothing that was learned.

TinyLoRA (arXiv 2602.04118) changes a weight by W' = W + B R A, R = sum_i v_i P_i, where B A is the rank-r part of W's
singular value decomposition and the P_i are fixed random r x r matrices, or where all three are such that the v_i move
the base model's own answers (directions.py). One vector v of u numbers is shared by the modules of a group.

The *prior artifact* holds A, B and P of every target module. Neither an SVD nor a random generator is the same on
every machine, so the artifact is made once, hashed into the method lock, shipped, and a message is decoded against
that one only. A and B are rounded to bfloat16, P to float32: the student is then the same in every training dtype.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from peft import PeftModel, TinyLoraConfig, get_peft_model
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from transformers import PreTrainedModel

from pacbayes.canonical import digest, write_atomic
from progressive_rlvr.config import Student
from progressive_rlvr.errors import UserError
from progressive_rlvr.quantized import DOWN, UP, dense_weight, is_quantized

ADAPTER = "default"


def target_modules(model: nn.Module, targets: Sequence[str]) -> dict[str, nn.Linear]:
    """The linear modules whose last name is in `targets`, in the model's own order.

    Raises:
        UserError: a name in `targets` fits no module.
    """
    found = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name.rsplit(".", 1)[-1] in targets
    }
    missing = set(targets) - {name.rsplit(".", 1)[-1] for name in found}
    if missing:
        raise UserError(f"student.targets names {sorted(missing)}, which this model does not have")
    return found


def group_count(student: Student, modules: int) -> int:
    """How many vectors there are; groups are runs of equally many modules.

    Raises:
        UserError: the number of groups does not divide the number of modules (PEFT would give the rest to the last
        group).
    """
    groups = student.groups or modules
    if modules % groups:
        divisors = [g for g in range(1, modules + 1) if modules % g == 0]
        raise UserError(f"student.groups is {groups}, but {modules} modules split evenly only into {divisors} groups")
    return groups


def _signed(u: Tensor, vh: Tensor) -> tuple[Tensor, Tensor]:
    """Fix the signs of singular pairs: the largest entry of each right vector (the first, in a tie) is positive."""
    largest = vh.abs().argmax(dim=1)
    signs = torch.sign(vh[torch.arange(len(vh)), largest])
    return u * signs, vh * signs[:, None]


def make_prior(model: PreTrainedModel, student: Student) -> dict[str, Tensor]:
    """A (r, in), B (out, r) in bfloat16 and P (u, r, r) in float32 for every target module, keyed `<module>.A` and so
    on.

    sqrt(S) goes to both A and B; the entries of P are N(0, 1/r), as in `peft`. Takes one full SVD per module, of what
    its weight means if that is packed.
    """
    prior: dict[str, Tensor] = {}
    for index, (name, module) in enumerate(target_modules(model, student.targets).items()):
        u, s, vh = torch.linalg.svd(dense_weight(module).double().cpu(), full_matrices=False)
        r = min(student.r, len(s))
        u, vh = _signed(u[:, :r], vh[:r])
        root = s[:r].sqrt()
        generator = torch.Generator().manual_seed(student.seed + index)
        prior[f"{name}.A"] = (root[:, None] * vh).to(torch.bfloat16).contiguous()
        prior[f"{name}.B"] = (u * root).to(torch.bfloat16).contiguous()
        prior[f"{name}.P"] = torch.randn(student.u, r, r, generator=generator, dtype=torch.float32) / r**0.5
    return prior


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Digest (hex) of the content: names, dtypes, shapes and bytes, in the order of the names."""
    hashed = {
        name: [
            str(t.dtype),
            list(t.shape),
            hashlib.sha256(t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest(),
        ]
        for name, t in tensors.items()
    }
    return digest(hashed)


def write_prior(path: Path, prior: Mapping[str, Tensor]) -> None:
    """Write the artifact as safetensors."""
    write_atomic(path, save(dict(prior)))


def read_prior(path: Path, expected: str | None = None) -> dict[str, Tensor]:
    """Read an artifact, and refuse another one than the lock names.

    Raises:
        UserError: unreadable, or its digest is not `expected`.
    """
    try:
        prior = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot read the prior artifact {path}: {error}") from error
    if expected is not None and (found := tensors_digest(prior)) != expected:
        raise UserError(
            f"the prior artifact {path} has digest {found[:16]}…, the lock names {expected[:16]}…: refuse to decode"
        )
    return prior


def inject(model: PreTrainedModel, student: Student, prior: Mapping[str, Tensor]) -> PeftModel:
    """The model with a trainable TinyLoRA student, v = 0, whose A, B and P are the artifact's.

    `peft` makes v in the dtype of a module's weight and A, B by an SVD of it. Of packed bytes both are nonsense
    (docs/ENGINES.md), so packed modules stand aside, behind zeros of their shape, while the student is put in.
    """
    modules = target_modules(model, student.targets)
    groups = group_count(student, len(modules))
    config = TinyLoraConfig(
        r=student.r,
        u=student.u,
        weight_tying=1 - groups / len(modules),
        target_modules=list(student.targets),
        projection_seed=student.seed,
        task_type="CAUSAL_LM",
    )
    packed = {name: module for name, module in modules.items() if is_quantized(module)}
    for name, module in packed.items():
        model.set_submodule(name, _placeholder(module, model.dtype))
    tuned = get_peft_model(model, config)
    for name, layer in tuned.base_model.model.named_modules():
        if hasattr(layer, "tinylora_P"):
            if name in packed:
                layer.base_layer = packed[name]
            layer.tinylora_A[ADAPTER] = prior[f"{name}.A"].to(layer.tinylora_A[ADAPTER])
            layer.tinylora_B[ADAPTER] = prior[f"{name}.B"].to(layer.tinylora_B[ADAPTER])
            layer.tinylora_P[ADAPTER] = prior[f"{name}.P"].clone()
    vectors = tuned.base_model.tinylora_v[ADAPTER]
    if len(vectors) != groups:
        raise UserError(f"peft made {len(vectors)} tied groups where {groups} were asked for")
    for vector in vectors.values():
        vector.data = vector.data.float()
    return tuned


def _placeholder(module: nn.Linear, dtype: torch.dtype) -> nn.Linear:
    """A linear layer of the same shape that takes no memory."""
    stand_in = nn.Linear(module.in_features, module.out_features, bias=False, device="meta")
    zeros = torch.zeros(1, 1, dtype=dtype, device=module.weight.device).expand(module.out_features, module.in_features)
    stand_in.weight = nn.Parameter(zeros, requires_grad=False)
    return stand_in


def _vectors(tuned: PeftModel) -> list[nn.Parameter]:
    """The parameters of an injected student in the order of their groups."""
    vectors = tuned.base_model.tinylora_v[ADAPTER]
    return [vectors[str(group)] for group in range(len(vectors))]


def get_vector(tuned: PeftModel) -> Tensor:
    """v of an injected student: (groups * u,) float32, group after group."""
    return torch.cat([v.detach().float().cpu() for v in _vectors(tuned)])


@torch.no_grad()
def set_vector(tuned: PeftModel, v: Tensor) -> None:
    """Write v, (groups * u,), into an injected student."""
    parameters = _vectors(tuned)
    for parameter, part in zip(parameters, v.split(len(parameters[0])), strict=True):
        parameter.copy_(part)


@torch.no_grad()
def merged(model: PreTrainedModel, student: Student, prior: Mapping[str, Tensor], v: Tensor) -> dict[str, Tensor]:
    """The changed weights W + B R A, computed in float64 and rounded once to the model's dtype, by parameter name.

    A module with a packed weight keeps it: for such a module the result holds what is added beside it, `<module>.down`,
    A, and `<module>.up`, B R, both float32.

    Args:
        model: the base, untouched.
        v: (groups * u,), any float dtype.
    """
    modules = target_modules(model, student.targets)
    per_group = len(modules) // group_count(student, len(modules))
    vectors = v.double().reshape(-1, student.u)
    weights = {}
    for index, (name, module) in enumerate(modules.items()):
        R = torch.einsum("i,ijk->jk", vectors[index // per_group], prior[f"{name}.P"].double())
        up, down = prior[f"{name}.B"].double() @ R, prior[f"{name}.A"].double()
        if is_quantized(module):
            weights[name + DOWN], weights[name + UP] = down.float(), up.float()
        else:
            weights[f"{name}.weight"] = (module.weight.double() + (up @ down).to(module.weight.device)).to(
                module.weight.dtype
            )
    return weights
