"""Generation with keyed Gumbel noise: given weights, prompts and keys, the completion is a function, not a sample."""

from progressive_rlvr.engines.base import Completion, Request, Settings

__all__ = ["Completion", "Request", "Settings"]
