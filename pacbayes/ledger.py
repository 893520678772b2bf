"""Two ledgers, line by line: the bits that name a policy, and the probability δ with which a statement may fail.

A line is rounded up to a stated decimal, and a total is the exact sum of its lines, so that a reader with a pencil gets
the same total.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from typing import Annotated, ClassVar, Final, Self

from pydantic import Field, model_validator

from pacbayes.schema import Frozen, Name, Text

BITS_PLACES: Final = 4
DELTA_PLACES: Final = 12


class LedgerError(ValueError):
    """A ledger does not add up, or has other lines than the lock declares; the message names the line."""


class Line(Frozen):
    """One entry: what is paid for, how much, and why."""

    name: Name
    value: Annotated[float, Field(ge=0)]
    why: Text


class _Ledger(Frozen):
    unit: ClassVar[str]
    places: ClassVar[int]

    total: Annotated[float, Field(ge=0)]
    lines: Annotated[tuple[Line, ...], Field(strict=False, min_length=1)]

    @classmethod
    def of(cls, lines: Iterable[tuple[str, float | Decimal, str]]) -> Self:
        """A ledger from (name, value, why): upper limits, rounded up once more to the unit's decimals."""
        rounded = tuple(Line(name=name, value=round_up(value, cls.places), why=why) for name, value, why in lines)
        return cls(lines=rounded, total=float(sum(Decimal(repr(line.value)) for line in rounded)))

    def declare(self, names: Iterable[str]) -> Self:
        """This ledger, if its lines are exactly those that the lock declares, in that order.

        Raises:
            LedgerError: a line is not declared (a choice made after the lock), or a declared line is missing.
        """
        declared, present = list(names), [line.name for line in self.lines]
        for name in present:
            if name not in declared:
                raise LedgerError(f"the line {name!r} of the {self.unit} ledger is not declared in the method lock")
        for name in declared:
            if name not in present:
                raise LedgerError(
                    f"the method lock declares the line {name!r}, the {self.unit} ledger has no such line"
                )
        if declared != present:
            raise LedgerError(f"the lines of the {self.unit} ledger are not in the order of the method lock")
        return self

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        names = [line.name for line in self.lines]
        if len(set(names)) < len(names):
            raise ValueError(f"a line appears twice in the {self.unit} ledger: {', '.join(names)}")
        for line in self.lines:
            if Decimal(repr(line.value)) != Decimal(repr(round_up(line.value, self.places))):
                raise ValueError(f"the line {line.name!r} has more than {self.places} decimals")
        total = sum((Decimal(repr(line.value)) for line in self.lines), Decimal(0))
        if Decimal(repr(self.total)) != total:
            raise ValueError(f"the lines of the {self.unit} ledger add up to {total}, its total says {self.total}")
        return self


class BitLedger(_Ledger):
    """Bits: -log2 of the prior probability of what was chosen after the lock. The exponent in δ · 2^-total."""

    unit: ClassVar[str] = "bits"
    places: ClassVar[int] = BITS_PLACES


class DeltaLedger(_Ledger):
    """δ: each line is the probability that one statement fails; by the union bound the total is that of any."""

    unit: ClassVar[str] = "delta"
    places: ClassVar[int] = DELTA_PLACES


def round_up(value: float | Decimal, places: int) -> float:
    """The smallest multiple of 10^-places that is not below the value as it is written, as the double that prints so.

    Raises:
        LedgerError: the value is negative or not finite.
    """
    exact = value if isinstance(value, Decimal) else Decimal(repr(value))
    if not exact.is_finite() or exact < 0:
        raise LedgerError(f"a ledger line is a finite number that is not negative, got {value}")
    return float(exact.quantize(Decimal(1).scaleb(-places), rounding=ROUND_CEILING))


def bits_of(probability: Fraction) -> float:
    """-log2 of a probability in (0, 1], not below the true value; exact for powers of two."""
    if not 0 < probability <= 1:
        raise LedgerError(f"a probability lies in (0, 1], got {probability}")
    numerator, denominator = probability.numerator, probability.denominator
    bits = math.log2(denominator) - math.log2(numerator)
    if numerator.bit_count() == 1 and denominator.bit_count() == 1:
        return bits
    return bits + 4 * math.ulp(math.log2(denominator) + 1)


def delta_as_float(delta: str | Decimal) -> float:
    """A decimal δ as the largest double that is not above it."""
    exact = Fraction(Decimal(delta))
    value = float(exact)
    return value if Fraction(value) <= exact else math.nextafter(value, 0.0)
