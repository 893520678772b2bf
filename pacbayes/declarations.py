"""What a method lock can declare beside one accuracy: shares of δ, a transfer, a joint statement, a prior's data.

All of it is optional, and what is not declared leaves no trace in the lock: a lock without it has the digest that it
always had.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from pacbayes.schema import DecimalFraction, FileName, Frozen, HexDigest, Name, Text

MAXIMUM_PROMPTS: Final = 10_000_000
ACCURACY_SHARE: Final = "accuracy"
"""Name of the share of δ that the certified accuracy may fail with."""
GAIN_SHARES: Final = ("base accuracy", "paired gain")
"""Names of the shares of δ that a certified gain over the base model spends beside the accuracy's."""
HOLDOUT_SHARE: Final = "hold-out"
"""Name of the share of δ with which the hold-out's bound holds jointly with the certificate."""
STUDENT_SHARE: Final = "student"
"""Name of the share of δ of a transfer's student on a finite pool, where its event is another than the accuracy's."""
DISAGREEMENT_SHARE: Final = "disagreement"
"""Name of the share of δ of a transfer's disagreement between teacher and student."""
KNOWN_SHARES: Final = (ACCURACY_SHARE, *GAIN_SHARES, HOLDOUT_SHARE, STUDENT_SHARE, DISAGREEMENT_SHARE)


class DeltaShare(Frozen):
    """The part of δ that one statement may fail with, as a decimal text such as "0.05"."""

    name: Name
    value: DecimalFraction


class Transfer(Frozen):
    """A statement about a policy that has no message, through its disagreement with the coded student.

    Attributes:
        policy: name of that policy in the evidence, such as "lora".
        teachers: j, how many pairs of a teacher and a student may be compared; each comparison pays log2 j bits.
        prompts: m, the fresh unlabelled prompts of one comparison.
        drawn: how they are drawn once both policies are hashed: independently from the population, or as a uniform
            subset of the part of the pool that was not drawn.
    """

    policy: Name
    teachers: Annotated[int, Field(ge=1, le=1_000_000)]
    prompts: Annotated[int, Field(ge=1, le=MAXIMUM_PROMPTS)]
    drawn: Literal["population", "unseen"]

    @model_validator(mode="after")
    def _not_coded(self) -> Self:
        if self.policy == "coded":
            raise ValueError("a transfer is about a policy that was not coded; 'coded' is the student")
        return self


class DomainShare(Frozen):
    """The δ that one domain's statements may fail with, all of them together."""

    domain: FileName
    delta: DecimalFraction


class Joint(Frozen):
    """A statement over several domains at once, which fails with probability at most ``delta``.

    Each domain's own lock carries the same declaration, and has its share as its δ.
    """

    delta: DecimalFraction
    shares: Annotated[tuple[DomainShare, ...], Field(strict=False, min_length=2)]

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if not 0 < Decimal(self.delta) < 1 or any(Decimal(share.delta) == 0 for share in self.shares):
            raise ValueError("a joint statement and each of its domains need a delta in (0, 1)")
        total = sum((Decimal(share.delta) for share in self.shares), Decimal(0))
        if total > Decimal(self.delta):
            raise ValueError(f"the domains' shares add up to {total}, more than the joint delta of {self.delta}")
        return self

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains, in order."""
        return tuple(share.domain for share in self.shares)


class PriorData(Frozen):
    """The labelled prompts from which the prior (menu, grids, fixed tensors) was made.

    Attributes:
        description: what they are and what was made of them.
        prompts: their prompt digests, sorted; the certification sample and the held-out prompts may hold none of them.
    """

    description: Text
    prompts: Annotated[tuple[HexDigest, ...], Field(strict=False, min_length=1, max_length=MAXIMUM_PROMPTS)]

    @model_validator(mode="after")
    def _sorted(self) -> Self:
        if any(first >= second for first, second in zip(self.prompts, self.prompts[1:], strict=False)):
            raise ValueError("the digests of the prior's prompts must be sorted, each of them once")
        return self
