"""Generation with keyed Gumbel noise: given weights, prompts and keys, the completion is a function, not a sample."""

from __future__ import annotations

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from progressive_rlvr.engines.base import Completion, Engine, Request, Settings
from progressive_rlvr.engines.hf import HfEngine

__all__ = ["Completion", "Engine", "Request", "Settings", "open_engine"]


def open_engine(name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Engine:
    """The engine of that name over a base model."""
    if name != "hf":
        raise ValueError(f"no engine {name!r}; there is hf")
    return HfEngine(model, tokenizer)
