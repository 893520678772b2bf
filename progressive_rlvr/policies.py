"""The policies of a chain as changed weights of the base: each is a mapping from parameter name to tensor.

`base` changes nothing; `lora` is the teacher, merged; `distilled` and `tinylora` are the student before quantization;
`coded` is what `message.bin` decodes to. All are merged into the base in float64 and rounded once, so that what is
certified is what is served; on a quantized base they are kept beside its weights, for the same reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor
from transformers import PreTrainedModel

from pacbayes.canonical import write_atomic
from pacbayes.codes import Menu
from progressive_rlvr.config import Student
from progressive_rlvr.decoder import merged
from progressive_rlvr.errors import UserError
from progressive_rlvr.quantized import DOWN, UP, is_quantized

Weights = Mapping[str, Tensor]
VECTOR_FILE = "vector.safetensors"
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")


def write_vector(folder: Path, v: Tensor) -> None:
    """Write a student's v, (dimension,) float32."""
    write_atomic(folder / VECTOR_FILE, save({"v": v.float().contiguous()}))


def read_vector(folder: Path) -> Tensor:
    """Read a student's v. Raises UserError."""
    try:
        return load_file(folder / VECTOR_FILE)["v"]
    except (OSError, SafetensorError, KeyError) as error:
        raise UserError(f"cannot read the student's vector {folder / VECTOR_FILE}: {error}") from error


@torch.no_grad()
def lora_weights(model: PreTrainedModel, folder: Path) -> Weights:
    """W + (alpha / r) B A for every module of a PEFT LoRA adapter; for a module whose weight is packed, the factors.

    Raises:
        UserError: no readable adapter, or one that is not plain LoRA on this model.
    """
    try:
        config = json.loads((folder / "adapter_config.json").read_text())
        tensors = load_file(folder / "adapter_model.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(f"cannot read a PEFT adapter in {folder}: {error}") from error
    if config.get("peft_type") != "LORA" or config.get("use_dora") or config.get("bias", "none") != "none":
        raise UserError(f"{folder} holds a {config.get('peft_type')} adapter; only plain LoRA can be merged here")
    scale = config["lora_alpha"] / config["r"] ** (0.5 if config.get("use_rslora") else 1.0)
    parameters = dict(model.named_parameters())
    weights: dict[str, Tensor] = {}
    for key, a in tensors.items():
        if not key.endswith(".lora_A.weight"):
            continue
        module = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        name = f"{module}.weight"
        if name not in parameters:
            raise UserError(f"the adapter in {folder} changes {name}, which the base model does not have")
        b, weight = tensors[key.replace(".lora_A.", ".lora_B.")], parameters[name]
        if is_quantized(model.get_submodule(module)):
            weights[module + DOWN], weights[module + UP] = a.float(), (scale * b.double()).float()
        else:
            delta = (scale * b.double() @ a.double()).to(weight.device)
            weights[name] = (weight.double() + delta).to(weight.dtype)
    if not weights:
        raise UserError(f"the adapter in {folder} changes no weight")
    return weights


def decode_message(model: PreTrainedModel, menu: Menu, message: bytes, prior: Weights) -> Weights:
    """The pure function (lock, message) -> weights: menu entry and integers, v = step * q, merged into the base.

    Raises:
        CodeError: the bytes are no message of this menu.
    """
    return weights_of(model, menu, *menu.decode(message), prior)


def weights_of(model: PreTrainedModel, menu: Menu, index: int, q: tuple[int, ...], prior: Weights) -> Weights:
    """The changed weights that integers under an entry of the menu stand for."""
    entry = menu.entries[index]
    v = torch.tensor([float(entry.step) * k for k in q], dtype=torch.float64)
    return merged(model, student_of(entry.structure), prior, v)


def student_of(structure: Mapping[str, object]) -> Student:
    """The student that a menu entry's structure describes.

    Raises:
        UserError: it describes another kind of adapter.
    """
    if structure.get("adapter") != "tinylora":
        raise UserError(f"the menu names an adapter {structure.get('adapter')!r}; this version decodes tinylora")
    return Student.model_validate({k: v for k, v in structure.items() if k != "adapter"})
