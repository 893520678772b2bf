"""The accounting of published compression bounds, against values worked out by hand and by mpmath."""

from __future__ import annotations

import math

import mpmath
import pytest

from pacbayes.bounds import CATONI_GRID, certified_accuracy
from pacbayes.codes import parse_code
from pacbayes.peers import codebook_message, looser_accuracies


@pytest.mark.parametrize(
    ("q", "levels", "symbols", "codebook", "histogram"),
    [
        ([0, 0, 1, 1], 2, 4, 32, 4),  # one bit a symbol; counts of 2 bits
        ([0, 0, 0, 0, 0, 0, 0, 1], 2, 5, 32, 6),  # 7 log2(8/7) + 3 = 4.349 bits
        ([0, 0, 0, 0, 1, 1, -2, 5], 4, 14, 64, 12),  # 4 * 1 + 2 * 2 + 2 * 3 bits, exactly
        ([3, 3], 1, 0, 16, 1),
        ([5], 1, 0, 16, 0),
        ([0, 0, 0], 0, 0, 0, 0),  # nothing is sent
    ],
)
def test_parts_of_a_message(q: list[int], levels: int, symbols: int, codebook: int, histogram: int) -> None:
    message = codebook_message(q)
    assert (message.levels, message.symbols, message.codebook, message.histogram) == (
        levels,
        symbols,
        codebook,
        histogram,
    )
    assert message.length == symbols + codebook + histogram


def test_the_prefix_is_twice_the_logarithm_of_the_length() -> None:
    assert codebook_message([5]).bits == 16 + 2 * 4
    assert codebook_message([0, 0, 1, 1]).bits == pytest.approx(50.6438561897747, abs=1e-12)  # 40 + 2 log2 40
    assert codebook_message([0, 0]).bits == 0


def test_the_order_of_the_integers_and_what_they_are_called_does_not_matter() -> None:
    assert codebook_message([4, 4, 9, 0]) == codebook_message([0, -1, 4, 4])


def test_an_empty_vector_is_no_message() -> None:
    with pytest.raises(ValueError, match="at least one integer"):
        codebook_message([])


def test_their_symbols_are_not_dearer_than_ours() -> None:
    """What the learned codebook costs is the codebook: the symbols alone take fewer bits than a declared code."""
    q = [0] * 26 + [1, 1, -1, -3, 2, 5]
    code = parse_code({"kind": "sparse", "values": {"kind": "laplace", "ratio": "1/2", "bound": 31}})
    assert codebook_message(q).symbols <= math.ceil(-code.log2_probability(q))


@pytest.mark.parametrize(("losses", "n", "bits"), [(40.0, 200, 10.0), (540.0, 8000, 176.7), (61.25, 500, 54.4)])
def test_the_bounds_are_their_formulas(losses: float, n: int, bits: float) -> None:
    found = looser_accuracies(losses, n, bits=bits, delta=0.05)
    with mpmath.workdps(40):
        nats = mpmath.mpf(bits) * mpmath.log(2) + mpmath.log(20)
        risk = mpmath.mpf(losses) / n
        hoeffding = 1 - risk - mpmath.sqrt(nats / (2 * n))
        charge = (nats + mpmath.log(len(CATONI_GRID))) / n
        catoni = 1 - min((1 - mpmath.exp(-c * risk - charge)) / (1 - mpmath.exp(-c)) for c in CATONI_GRID)
        p = 1 - mpmath.mpf(found["kl"])
        spent = n * (risk * mpmath.log(risk / p) + (1 - risk) * mpmath.log((1 - risk) / (1 - p)))
    assert hoeffding - 1e-12 < found["hoeffding"] <= hoeffding
    assert catoni - 1e-12 < found["catoni"] <= catoni
    assert nats <= spent < nats * (1 + 1e-9)


def test_ours_is_the_tightest_at_the_same_bits() -> None:
    for losses, n, bits in ((540, 8000, 54.4), (139, 8000, 47.2), (1650, 3000, 174.5)):
        found = looser_accuracies(losses, n, bits=bits, delta=0.05)
        assert max(found.values()) <= certified_accuracy(losses, n, bits=bits, delta=0.05)
        assert found["hoeffding"] <= found["kl"]


def test_a_lora_adapter_in_bfloat16_certifies_nothing() -> None:
    """81,920 parameters at 16 bits and 8,000 prompts, not one of them wrong: the logarithm is 113 nats a prompt."""
    found = looser_accuracies(0, 8000, bits=16 * 81920, delta=0.05)
    assert found["hoeffding"] == found["catoni"] == 0
    assert found["kl"] < 1e-40


@pytest.mark.parametrize(("losses", "n", "bits", "delta"), [(-1, 10, 1, 0.05), (11, 10, 1, 0.05), (1, 10, -1, 0.05)])
def test_bad_arguments(losses: float, n: int, bits: float, delta: float) -> None:
    with pytest.raises(ValueError, match="expected"):
        looser_accuracies(losses, n, bits=bits, delta=delta)
