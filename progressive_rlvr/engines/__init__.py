"""Generation with keyed Gumbel noise: given weights, prompts and keys, the completion is a function, not a sample."""

from __future__ import annotations

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from progressive_rlvr.engines.base import Completion, Engine, Request, Settings
from progressive_rlvr.engines.hf import HfEngine
from progressive_rlvr.engines.vllm import VllmEngine, interpreter, versions

__all__ = ["Completion", "Engine", "Request", "Settings", "engine_versions", "open_engine"]


def open_engine(name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Engine:
    """The engine of that name over a base model.

    Raises:
        UserError: the engine is not installed, or cannot serve this model.
    """
    if name == "hf":
        return HfEngine(model, tokenizer)
    if name == "vllm":
        return VllmEngine(model, tokenizer)
    raise ValueError(f"no engine {name!r}; there are hf and vllm")


def engine_versions(name: str) -> dict[str, str]:
    """Versions of what an engine computes with beyond this environment's packages.

    Raises:
        UserError: the engine is not installed.
    """
    return versions(interpreter()) if name == "vllm" else {}
