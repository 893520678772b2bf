"""Ledgers: lines add up exactly, are rounded outward, and are the declared ones."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import mpmath
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacbayes.ledger import BitLedger, DeltaLedger, LedgerError, bits_of, delta_as_float, round_up


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=8))
def test_the_total_is_the_sum_that_a_reader_gets(values: list[float]) -> None:
    ledger = BitLedger.of((f"line {i}", value, "a test") for i, value in enumerate(values))
    assert Decimal(repr(ledger.total)) == sum(Decimal(repr(line.value)) for line in ledger.lines)
    for line, value in zip(ledger.lines, values, strict=True):
        assert value <= line.value < value + 1.01e-4
    assert BitLedger.model_validate_json(ledger.to_bytes()) == ledger


def test_rounding_is_outward() -> None:
    assert round_up(1.00001, 4) == 1.0001
    assert round_up(1.0, 4) == 1.0
    assert round_up(0.0, 4) == 0.0
    for bad in (-1.0, float("nan"), float("inf")):
        with pytest.raises(LedgerError, match="finite number"):
            round_up(bad, 4)


def test_lines_are_exactly_the_declared_ones() -> None:
    ledger = BitLedger.of([("menu entry", 3.0, "1/8"), ("vector", 40.5, "code")])
    assert ledger.declare(["menu entry", "vector"]) is ledger
    with pytest.raises(LedgerError, match="'vector' of the bits ledger is not declared"):
        ledger.declare(["menu entry"])
    with pytest.raises(LedgerError, match="declares the line 'projection seed'"):
        ledger.declare(["menu entry", "vector", "projection seed"])
    with pytest.raises(LedgerError, match="order"):
        ledger.declare(["vector", "menu entry"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"total": 43.4999}, "add up to 43.5, its total says 43.4999"),
        ({"total": float("nan")}, "finite"),
        ({"lines": []}, "at least 1"),
        ({"lines": [{"name": "a", "value": -1.0, "why": "x"}], "total": 0.0}, "greater than or equal to 0"),
        ({"lines": [{"name": "a", "value": 1.00001, "why": "x"}], "total": 1.00001}, "more than 4 decimals"),
        ({"lines": [{"name": "a", "value": 1.0, "why": "x"}] * 2, "total": 2.0}, "appears twice"),
        ({"extra": 1}, "Extra inputs"),
    ],
)
def test_a_ledger_that_does_not_add_up_is_refused(changes: dict[str, object], message: str) -> None:
    ledger = BitLedger.of([("menu entry", 3.0, "1/8"), ("vector", 40.5, "code")])
    with pytest.raises(pydantic.ValidationError, match=message):
        BitLedger(**{**ledger.to_json(), **changes})


def test_delta_adds_up_as_written() -> None:
    ledger = DeltaLedger.of((name, Decimal("0.01"), "a statement") for name in "abcdefg")
    assert ledger.total == 0.07  # the doubles would add up to 0.07000000000000002


@given(st.fractions(min_value=Fraction(1, 10**30), max_value=1).filter(lambda p: p > 0))
def test_bits_are_never_too_few(probability: Fraction) -> None:
    with mpmath.workdps(60):
        exact = mpmath.log(probability.denominator, 2) - mpmath.log(probability.numerator, 2)
        assert exact <= bits_of(probability) <= exact + 1e-12


def test_bits_of_powers_of_two_are_exact() -> None:
    assert [bits_of(Fraction(1, 2**k)) for k in range(5)] == [0, 1, 2, 3, 4]
    assert bits_of(Fraction(1, 2**60 + 1)) > 60
    with pytest.raises(LedgerError):
        bits_of(Fraction(0))


def test_delta_is_never_rounded_up() -> None:
    for text in ("0.05", "0.1", "0.025", "0.3", "0.000000000001"):
        value = delta_as_float(text)
        assert Fraction(value) <= Fraction(text) < Fraction(math.nextafter(value, 1))
