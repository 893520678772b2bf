"""Numbers in print: exact decimal rounding, always in the direction that does not flatter.

Certified accuracy goes down, the base model's accuracy goes up, gaps below the tuned model go up and gains over the
base go down. All of it is done on fractions, so no binary rounding comes between a file and the page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Literal

Rounding = Literal["down", "up", "near"]
Number = Decimal | Fraction | int
MINUS = "\N{MINUS SIGN}"


def to_grid(value: Number, digits: int, rounding: Rounding) -> int:
    """`value` in units of 10^-digits, as an integer."""
    scaled: Fraction = Fraction(value) * Fraction(10) ** digits
    if rounding == "down":
        return math.floor(scaled)
    if rounding == "up":
        return math.ceil(scaled)
    return math.floor(scaled + Fraction(1, 2))


def from_grid(units: int, digits: int) -> str:
    """The decimal number `units` * 10^-digits, with thousands separators and a typographic minus."""
    whole, part = divmod(abs(units), 10**digits)
    sign = MINUS if units < 0 else ""
    return f"{sign}{whole:,}" + (f".{part:0{digits}d}" if digits else "")


def fixed(value: Number, digits: int, rounding: Rounding) -> str:
    """`value` with exactly `digits` decimals."""
    return from_grid(to_grid(value, digits, rounding), digits)


def percent(value: Number, rounding: Rounding, digits: int = 1) -> str:
    """A fraction as per cent: percent(Decimal("0.8819"), "down") is "88.1 %"."""
    return fixed(Fraction(value) * 100, digits, rounding) + " %"


def points(value: Number, rounding: Rounding) -> str:
    """A difference of two fractions in percentage points, one decimal."""
    return fixed(Fraction(value) * 100, 1, rounding)


def probability(delta: Number) -> str:
    """1 - delta as per cent, rounded down, without idle zeros: probability(Decimal("0.05")) is "95 %"."""
    text = fixed((1 - Fraction(delta)) * 100, 4, "down")
    return text.rstrip("0").rstrip(".") + " %"


def apportion(lines: Sequence[Number], total: Number, digits: int) -> tuple[list[str], str] | None:
    """Round a ledger so that the printed lines add up to the printed total.

    The total is rounded up; lines are rounded down and the units left over go to the largest remainders.

    Returns:
        The printed lines and the printed total, or None when the lines do not add up to the total.
    """
    exact = [Fraction(line) * 10**digits for line in lines]
    whole = to_grid(total, digits, "up")
    if abs(sum(exact, Fraction(0)) - Fraction(total) * 10**digits) > Fraction(1, 1000):
        return None
    units = [math.floor(value) for value in exact]
    spare = whole - sum(units)
    order = sorted(range(len(units)), key=lambda i: (units[i] - exact[i], i))
    if not 0 <= spare <= len(units):
        return None
    for i in order[:spare]:
        units[i] += 1
    return [from_grid(unit, digits) for unit in units], from_grid(whole, digits)


def places(values: Sequence[Number], fewest: int, most: int) -> int:
    """How many decimals write every value exactly, within [fewest, most]."""
    digits = fewest
    while digits < most and any((Fraction(value) * 10**digits).denominator != 1 for value in values):
        digits += 1
    return digits
