"""What the four pocket families have in common: a seeded stream of items, and the mistakes that a sloppy source
makes.
"""

from __future__ import annotations

import hashlib
import random
from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from domains.base import Item


def keyed_random(*key: object) -> random.Random:
    """A generator that depends on `key` and on nothing else, so that item i of a draw does not depend on item i-1."""
    text = "/".join(str(part) for part in key)
    return random.Random(int.from_bytes(hashlib.sha256(text.encode()).digest(), "little"))


class Family(ABC):
    """A population of generated prompts with program-checked answers; every draw is independent (design `iid`).

    `write` and `mistake` return completions with their leading space, as they follow the prompt in running text.
    """

    name: ClassVar[str] = "pocket"
    domain: ClassVar[str]
    description: ClassVar[str]
    design: Literal["iid"] = "iid"
    max_new_tokens: ClassVar[int] = 16
    stop: str | None = None

    @abstractmethod
    def item(self, rng: random.Random) -> Item:
        """One prompt with its gold answer."""

    @abstractmethod
    def write(self, item: Item) -> str:
        """The completion that a careful source writes."""

    @abstractmethod
    def mistake(self, rng: random.Random, item: Item) -> str:
        """A completion that a sloppy source writes: well formed, plausible and, but for luck, wrong."""

    def lesson(self, rng: random.Random) -> tuple[str, str] | None:
        """A (prompt, completion) of the pre-training text that no item asks for, but that teaches what items need."""
        return None

    def draw(self, seed: str, n: int) -> list[Item]:
        """`n` independent items; the i-th is a function of (`seed`, i)."""
        return [self.item(keyed_random(self.domain, self.name, seed, i)) for i in range(n)]
