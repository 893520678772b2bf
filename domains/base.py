"""What every domain is made of.

    item = Item(prompt="What is 2 + 3?", gold="5")
    domain = get_domain("mathematics")
    domain.verify("2 + 3 = 5", item)          # Verdict(correct=True, reason=Reason.RIGHT, detail="5")

A `Population` says what "new prompts" means and draws them; a `Domain` owns the verifier that scores completions.
Verifiers never raise for what a completion contains. They do raise `GoldError` for an item whose gold cannot be
checked: a broken gold is a fault of the data, and must neither pay nor cost a model anything silently.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Literal, Protocol, runtime_checkable


class Reason(StrEnum):
    """Why a verdict is what it is. Only RIGHT is correct; everything else is a loss."""

    RIGHT = "right"
    WRONG = "wrong"
    UNPARSEABLE = "unparseable"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    FORBIDDEN = "forbidden"
    CRASHED = "crashed"
    TRUNCATED = "truncated"


class GoldError(ValueError):
    """The item itself cannot be checked: its gold does not parse, does not run, or is ambiguous."""


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


@dataclass(frozen=True)
class Item:
    """One prompt with what its verifier needs. `group` joins items that are not independent draws."""

    prompt: str
    gold: str
    tests: str = ""
    database: str = ""
    group: str = ""
    id: str = ""

    @cached_property
    def prompt_digest(self) -> str:
        return _sha256(self.prompt)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the RFC 8785 form of what decides a verdict; `group` and `id` are labels and stay out of it."""
        fields = {"database": self.database, "gold": self.gold, "prompt": self.prompt, "tests": self.tests}
        # For an object of strings with ASCII keys this is exactly the canonical form, without needing the package.
        return _sha256(json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":")))


@dataclass(frozen=True)
class Verdict:
    correct: bool
    reason: Reason
    detail: str = ""

    @classmethod
    def right(cls, detail: str = "") -> Verdict:
        return cls(True, Reason.RIGHT, detail)

    @classmethod
    def loss(cls, reason: Reason, detail: str = "") -> Verdict:
        if reason is Reason.RIGHT:
            raise ValueError("a loss needs a reason other than RIGHT")
        return cls(False, reason, detail)


@runtime_checkable
class Population(Protocol):
    """What "new prompts" means: the i-th item of a draw depends on (seed, i) and on nothing else."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def design(self) -> Literal["iid", "finite_pool"]: ...

    @property
    def max_new_tokens(self) -> int: ...

    @property
    def stop(self) -> str | None: ...

    def draw(self, seed: str, n: int) -> list[Item]: ...


@runtime_checkable
class FinitePopulation(Population, Protocol):
    """A population of design `finite_pool`: its items are all there are, no two with the same prompt."""

    @property
    def items(self) -> list[Item]: ...


@runtime_checkable
class Domain(Protocol):
    """Prompts in, verdicts out. `version` changes whenever a verdict could."""

    name: str
    version: str

    def populations(self) -> Mapping[str, Population]: ...

    def verify(self, completion: str, item: Item) -> Verdict: ...

    def close(self) -> None: ...
