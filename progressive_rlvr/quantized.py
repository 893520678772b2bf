"""Base models whose linear layers hold 8- or 4-bit weights (bitsandbytes), and what is added to such layers.

    model = load_quantized(folder, "nf4", torch.float32)
    dense_weight(model.get_submodule("model.layers.0.mlp.up_proj"))     # (out, in), what the packed bytes mean

A quantized layer computes Q x, with Q what its bytes mean. It cannot hold W + B R A: rounding that to 8 or 4 bits gives
another policy (`prlvr audit merge` measures how different). So a tuned policy keeps Q and adds B R A x beside it, in
training and in certification alike.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel

from pacbayes.canonical import digest

Scheme = Literal["int8", "nf4"]
DOWN, UP = ".down", ".up"  # names of the two factors of an update, after the module's name


def load_quantized(folder: Path, scheme: Scheme, dtype: torch.dtype, device: str) -> PreTrainedModel:
    """The model with every linear layer but the head quantized as it is loaded; `dtype` is that of all the rest."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # a line for every call of a layer
    config = (
        BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_compute_dtype=dtype,
            bnb_4bit_use_double_quant=False,
        )
        # Outliers are looked for in all rows of a batch at once: with a threshold, a prompt's answer depends on its
        # batch mates.
        if scheme == "nf4"
        else BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0)
    )
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=dtype,
        quantization_config=config,
        device_map={"": device},
        trust_remote_code=False,
        use_safetensors=True,
    ).eval()
    keep_precision(model)
    return model


def keep_precision(model: nn.Module) -> None:
    """Have packed layers on a CPU multiply in the dtype of their input.

    In evaluation mode bitsandbytes rounds activations to 8 bits (int8) or, where the CPU has AVX-512 BF16, repacks the
    weights and multiplies in bfloat16 (nf4). In training mode it does neither.
    """
    for module in quantized_modules(model).values():
        if module.weight.device.type == "cpu":
            module.train()


def quantized_modules(model: nn.Module) -> dict[str, nn.Module]:
    """The layers with packed weights, by name."""
    return {name: module for name, module in model.named_modules() if is_quantized(module)}


def is_quantized(module: nn.Module) -> bool:
    """Whether the module's weight is packed bytes of bitsandbytes."""
    return type(getattr(module, "weight", None)).__name__ in ("Params4bit", "Int8Params")


def dense_weight(module: nn.Module) -> Tensor:
    """The weight (out, in) of a linear layer as numbers, whether packed or not."""
    weight = module.weight
    assert isinstance(weight, Tensor)
    if not is_quantized(module):
        return weight.detach()
    from peft.utils.integrations import dequantize_module_weight

    dense = dequantize_module_weight(module)
    assert isinstance(dense, Tensor)
    return dense.detach()


def packed_digest(model: nn.Module) -> str:
    """Digest (hex) of all packed weights with their scales: names, dtypes, shapes and bytes."""
    hashed = {}
    for name, module in quantized_modules(model).items():
        for key, tensor in module.state_dict().items():
            data = tensor.detach().cpu().contiguous().reshape(-1)
            content = hashlib.sha256(data.view(torch.uint8).numpy().tobytes()).hexdigest()
            hashed[f"{name}.{key}"] = [str(tensor.dtype), list(tensor.shape), content]
    return digest(hashed)


@contextmanager
def added(model: nn.Module, updates: Mapping[str, Tensor]) -> Iterator[None]:
    """For the time of a `with` block, modules also give up(down(x)); x and the sum keep their dtype.

    updates: `<module>.down` (r, in) and `<module>.up` (out, r).
    """
    handles = []
    try:
        for key, down in updates.items():
            if key.endswith(DOWN):
                name = key.removesuffix(DOWN)
                module = model.get_submodule(name)
                device = next(module.parameters()).device
                hook = _Adding(down.to(device), updates[name + UP].to(device))
                handles.append(module.register_forward_hook(hook))
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Adding:
    """A forward hook: the layer's output and, computed in the factors' dtype, up(down(x))."""

    def __init__(self, down: Tensor, up: Tensor) -> None:
        self.down, self.up = down, up

    def __call__(self, module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        x = inputs[0].to(self.down.dtype)
        return output + functional.linear(functional.linear(x, self.down), self.up).to(output.dtype)
