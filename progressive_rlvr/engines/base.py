"""What goes into an engine and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

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
    generated. `lost`: the engine could not generate it, which is a loss of whatever policy.
    """

    text: str
    tokens: int
    truncated: bool
    lost: bool = False


class Engine(Protocol):
    """Weights, prompts and keys in, completions out."""

    def serving(self, weights: Mapping[str, Tensor]) -> AbstractContextManager[None]:
        """For the time of a `with` block the base with these weights replaced, by name; then the base again."""
        ...

    def generate(self, requests: Sequence[Request], settings: Settings, progress: Progress = ...) -> list[Completion]:
        """Completions in the order of the requests; `progress` is told how many more are finished."""
        ...


def cut(text: str, stop: str | None) -> str:
    """The text up to the first `stop`."""
    return text if stop is None else text.split(stop, 1)[0]


def common_prefix(rows: Sequence[list[int]]) -> int:
    """Length of the longest prefix that all rows share, but at least one token short of the shortest row."""
    first, last = min(rows), max(rows)
    length = 0
    while length < min(map(len, rows)) - 1 and first[length] == last[length]:
        length += 1
    return length
