"""Finite pools: N fixed prompts, committed before the draw, of which a uniform subset is the sample.

Only the draw is random, so the prior may depend on the pool, right answers included, and the base model may know it by
heart. Prompts that appear twice are removed from the pool, by a rule that does not look at answers, before it is
committed; never from a sample.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from pacbayes.declarations import MAXIMUM_PROMPTS
from pacbayes.sample import (
    FinitePool,
    HasDigests,
    Lock,
    LockError,
    MethodLock,
    SampleLock,
    sample_seed,
)
from pacbayes.schema import Frozen, HexDigest


class PoolItem(Frozen):
    """One prompt of a pool; digests as in a sample lock."""

    digest: HexDigest
    prompt_digest: HexDigest


class Pool(Lock):
    """The pool as a file, ``pool.json``: its digest is the ``pool_digest`` of the method lock."""

    kind_of_lock: ClassVar[str] = "pool"

    schema_: Annotated[Literal["prlvr/pool/1"], Field(alias="schema")] = "prlvr/pool/1"
    items: Annotated[tuple[PoolItem, ...], Field(strict=False, min_length=1, max_length=MAXIMUM_PROMPTS)]

    @classmethod
    def of(cls, items: Iterable[HasDigests]) -> Self:
        """The pool of these items, in this order."""
        return cls(items=tuple(PoolItem(digest=item.digest, prompt_digest=item.prompt_digest) for item in items))

    @model_validator(mode="after")
    def _no_duplicates(self) -> Self:
        seen: dict[str, int] = {}
        for index, item in enumerate(self.items):
            if (first := seen.setdefault(item.prompt_digest, index)) != index:
                raise ValueError(
                    f"items {first} and {index} of the pool have the same prompt: remove one before the draw"
                )
        return self

    @property
    def design(self) -> FinitePool:
        """What the method lock says of this pool; ``part`` and ``outcome`` are its own choice."""
        return FinitePool(pool_digest=self.digest, pool_size=len(self.items))

    def check_draw(self, method: MethodLock, sample: SampleLock) -> None:
        """Raise LockError unless the sample and the held-out prompts are those that the seed draws from this pool."""
        design = method.design
        if not isinstance(design, FinitePool) or (design.pool_digest, design.pool_size) != (
            self.digest,
            len(self.items),
        ):
            raise LockError(
                f"the method lock is about another pool than this one of {len(self.items)} items, {self.digest[:12]}…"
            )
        drawn = draw_from_pool(
            sample_seed(method.digest, sample.beacon), len(self.items), method.prompts + method.heldout
        )
        for place, (index, item) in enumerate(zip(drawn, (*sample.items, *sample.heldout), strict=True)):
            if (self.items[index].digest, self.items[index].prompt_digest) != (item.digest, item.prompt_digest):
                raise LockError(
                    f"prompt {place} of the sample is not item {index} of the pool, which the seed draws there"
                )


def draw_from_pool(seed: str, size: int, count: int) -> list[int]:
    """The first ``count`` elements of a uniform random order of range(size): the sample, then the held-out prompts.

    Fisher-Yates with integers from SHA-256(seed, i), rejected where they would favour small values.

    Raises:
        ValueError: count exceeds size, or the seed is no digest.
    """
    if not 0 <= count <= size:
        raise ValueError(f"cannot draw {count} of {size} items")
    integers = _integers(seed)
    moved: dict[int, int] = {}
    order = []
    for place in range(count):
        other = place + _below(size - place, integers)
        order.append(moved.get(other, other))
        moved[other] = moved.get(place, place)
    return order


def _integers(seed: str) -> Iterator[int]:
    root = bytes.fromhex(seed)
    for i in itertools.count():
        yield int.from_bytes(hashlib.sha256(root + i.to_bytes(8, "little")).digest()[:8], "little")


def _below(limit: int, integers: Iterator[int]) -> int:
    """A uniform integer in [0, limit) from uniform 64-bit integers."""
    largest = 2**64 - 2**64 % limit
    return next(value for value in integers if value < largest) % limit
