"""What goes into an engine and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from torch import Tensor
from transformers import PreTrainedTokenizerBase

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Request:
    """One completion to generate: the prompt's text and its noise key (32 bytes)."""

    prompt: str
    key: bytes


@dataclass(frozen=True)
class Settings:
    """The stop rule and the sampling: part of the policy, and therefore locked.

    A completion ends with the tokenizer's end token, with the first token whose text contains `stop`, or, truncated,
    after `max_new_tokens` tokens.
    """

    max_new_tokens: int
    temperature: float
    stop: str | None
    batch_size: int


@dataclass(frozen=True)
class Completion:
    """Generated text without the end token and without `stop` and what follows it; `tokens` counts what was
    generated, and `ids` are those tokens where the engine knows them. `lost`: the engine could not generate it, which
    is a loss of whatever policy.
    """

    text: str
    tokens: int
    truncated: bool
    lost: bool = False
    ids: tuple[int, ...] = field(default=(), compare=False, repr=False)


class Engine(Protocol):
    """Weights, prompts and keys in, completions out."""

    def serving(self, weights: Mapping[str, Tensor]) -> AbstractContextManager[None]:
        """For the time of a `with` block the base with these weights replaced, by name; then the base again."""
        ...

    def generate(self, requests: Sequence[Request], settings: Settings, progress: Progress = ...) -> list[Completion]:
        """Completions in the order of the requests; `progress` is told how many more are finished."""
        ...


def completed(tokenizer: PreTrainedTokenizerBase, tokens: list[int], stops: list[int], stop: str | None) -> Completion:
    """What generated tokens (at least one) are as a completion; `stops`: ids of the tokens that end one."""
    body = tokens[:-1] if tokens[-1] == tokenizer.eos_token_id else tokens
    text = cut(tokenizer.decode(body), stop)
    return Completion(text, len(tokens), truncated=tokens[-1] not in stops, ids=tuple(tokens))


def cut(text: str, stop: str | None) -> str:
    """The text up to the first `stop`."""
    return text if stop is None else text.split(stop, 1)[0]


def common_prefix(rows: Sequence[Sequence[int] | np.ndarray]) -> int:
    """Length of the longest prefix that all rows of token ids share, but at least one token short of the shortest
    row.
    """
    first, length = np.asarray(rows[0]), min(map(len, rows)) - 1
    for row in rows:
        same = first[:length] == np.asarray(row[:length])
        length = length if same.all() else int(same.argmin())
    return length
