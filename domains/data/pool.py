"""A dataset as a population: fixed items, a draw without replacement, duplicates removed by a rule that sees no answer.

pool = Pool("gsm8k_train", "GSM8K, training split", load)
pool.draw("seed", 500)                    # 500 different items; the i-th depends on (seed, i) and the pool only
pool.removed                              # {"repeated": 0, "in the test split": 0, ...}
pool.rejected                             # {id: why}: items whose gold cannot be checked
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Literal, NamedTuple

from domains.base import GoldError, Item
from domains.data.rows import DataError

_NOT_WORDS = re.compile(r"[\W_]+")


class Entry(NamedTuple):
    """An item with the text by which repetitions are found: what was asked, never what is the answer."""

    item: Item
    asked: str


class Loaded(NamedTuple):
    entries: list[Entry]
    reserved: frozenset[str] = frozenset()  # `fingerprint`s of the test split
    unusable: int = 0  # left out by the dataset's own flags
    check_gold: Callable[[Item], None] | None = None  # raises GoldError; None where every gold can be checked


class Pool:
    """N fixed items, of which a uniform subset is drawn. Items that share a group are one unit: one of each is
    drawn.

    Left out are repetitions and what the test split asks too, by a rule that sees no answer, and items whose gold
    cannot be checked, by a rule that sees the gold and nothing else.
    """

    design: Literal["finite_pool"] = "finite_pool"

    def __init__(
        self,
        name: str,
        description: str,
        load: Callable[[], Loaded],
        max_new_tokens: int = 256,
        stop: str | None = None,
    ) -> None:
        self.name, self.description = name, description
        self.max_new_tokens, self.stop = max_new_tokens, stop
        self._load = load

    @property
    def items(self) -> list[Item]:
        return self._kept[0]

    @property
    def removed(self) -> dict[str, int]:
        """How many rows were left out, by reason."""
        return self._kept[1]

    @property
    def rejected(self) -> dict[str, str]:
        """The items left out for their gold, by id, and why."""
        return self._kept[2]

    def draw(self, seed: str, n: int) -> list[Item]:
        units = self._units()
        if n > len(units):
            raise DataError(f"{self.name} has {len(units)} independent items, {n} were asked for")
        return [self._one_of(units[key], seed) for key in sorted(units, key=lambda key: _hash(seed, key))[:n]]

    def _units(self) -> dict[str, list[Item]]:
        units: dict[str, list[Item]] = {}
        for item in self.items:
            units.setdefault(f"group {item.group}" if item.group else item.digest, []).append(item)
        return units

    def _one_of(self, items: list[Item], seed: str) -> Item:
        return min(items, key=lambda item: _hash(seed, "one of its group", item.digest))

    @cached_property
    def _kept(self) -> tuple[list[Item], dict[str, int], dict[str, str]]:
        loaded = self._load()
        seen: set[str] = set()
        kept: list[Item] = []
        rejected: dict[str, str] = {}
        removed = {"repeated": 0, "in the test split": 0, "unusable": loaded.unusable}
        for item, asked in loaded.entries:
            mark = fingerprint(asked)
            if mark in loaded.reserved:
                removed["in the test split"] += 1
            elif mark in seen:
                removed["repeated"] += 1
            else:
                seen.add(mark)
                try:
                    if loaded.check_gold is not None:
                        loaded.check_gold(item)
                    kept.append(item)
                except GoldError as error:
                    rejected[item.id or item.digest[:12]] = str(error)
        if not kept:
            raise DataError(f"{self.name} is empty")
        return kept, removed | {"with a gold that cannot be checked": len(rejected)}, rejected


def fingerprint(asked: str) -> str:
    """What two questions share that differ only in case, spacing and punctuation."""
    return _NOT_WORDS.sub(" ", asked.casefold()).strip()


def fingerprints(asked: Iterable[str]) -> frozenset[str]:
    return frozenset(map(fingerprint, asked))


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
