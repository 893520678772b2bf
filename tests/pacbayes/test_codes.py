"""Codes: normalised by enumeration, within two bits, the same on every platform, and strict about foreign bits."""

import itertools
import math
import random
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from pacbayes.codes import Bits, Code, CodeError, MessageError, SupportError, parse_code
from pacbayes.codes.arithmetic_coding import Encoder, log2_floor

LAPLACE = {"kind": "laplace", "ratio": "1/2", "bound": 31}
GAUSSIAN = {"kind": "gaussian", "ratio": "4/5", "bound": 15}
FIXED = {"kind": "fixed", "low": -8, "high": 7}
ADAPTIVE = {"kind": "adaptive", "bound": 15}
SPARSE = {"kind": "sparse", "values": {"kind": "laplace", "ratio": "3/4", "bound": 15}}
MIXTURE = {
    "kind": "mixture",
    "parts": [{"probability": "1/2", "code": LAPLACE}]
    + [{"probability": "1/8", "code": code} for code in (GAUSSIAN, FIXED, ADAPTIVE, SPARSE)],
}
ALL = [LAPLACE, GAUSSIAN, FIXED, ADAPTIVE, SPARSE, MIXTURE]

# The same kinds with alphabets small enough to enumerate every vector.
SMALL: list[dict[str, Any]] = [
    {"kind": "laplace", "ratio": "1/3", "bound": 2},
    {"kind": "gaussian", "ratio": "1/2", "bound": 2},
    {"kind": "fixed", "low": 1, "high": 5},
    {"kind": "adaptive", "bound": 2},
    {"kind": "sparse", "values": {"kind": "adaptive", "bound": 2}},
    {"kind": "sparse", "values": {"kind": "fixed", "low": 2, "high": 3}},
    {
        "kind": "mixture",
        "parts": [
            {"probability": "1/3", "code": {"kind": "laplace", "ratio": "1/7", "bound": 2}},
            {"probability": "1/6", "code": {"kind": "adaptive", "bound": 1}},
            {"probability": "1/2", "code": {"kind": "sparse", "values": {"kind": "fixed", "low": 1, "high": 2}}},
        ],
    },
]


def kind(spec: dict[str, Any]) -> str:
    return str(spec["kind"])


def probability(code: Code, q: tuple[int, ...]) -> Fraction:
    encoder = Encoder()
    code.write(encoder, q)
    return Fraction(encoder.width, encoder.scale)


def vectors(code: Code, dimension: int) -> dict[tuple[int, ...], Fraction]:
    """Every vector of the dimension that has a probability."""
    found = {}
    for q in itertools.product(range(-3, 7), repeat=dimension):
        try:
            found[q] = probability(code, q)
        except SupportError:
            continue
    return found


@pytest.mark.parametrize("spec", SMALL, ids=kind)
@pytest.mark.parametrize("dimension", [0, 1, 2, 3])
def test_probabilities_sum_to_one_exactly(spec: dict[str, Any], dimension: int) -> None:
    assert sum(vectors(parse_code(spec), dimension).values()) == 1


@pytest.mark.parametrize("spec", SMALL, ids=kind)
def test_kraft_and_prefix_freedom_by_enumeration(spec: dict[str, Any]) -> None:
    code = parse_code(spec)
    strings = {}
    for q, p in vectors(code, 3).items():
        bits = code.encode(q)
        assert -math.log2(p) - 1e-9 <= len(bits) < -math.log2(p) + 2
        assert len(str(bits)) == len(bits)
        strings[str(bits)] = q
    ordered = sorted(strings)
    assert len(ordered) == len(vectors(code, 3))
    # In lexicographic order a prefix stands directly before something that it begins.
    assert not any(longer.startswith(shorter) for shorter, longer in itertools.pairwise(ordered))
    assert sum(Fraction(1, 2 ** len(string)) for string in ordered) <= 1


@pytest.mark.parametrize("spec", ALL, ids=kind)
@settings(deadline=None)
@given(q=st.lists(st.integers(-8, 7), max_size=24))
def test_round_trip(spec: dict[str, Any], q: list[int]) -> None:
    code = parse_code(spec)
    bits = code.encode(q)
    assert code.decode(bits, len(q)) == tuple(q)
    cost = -code.log2_probability(q)
    assert cost - 1e-9 <= len(bits) < cost + 2


@pytest.mark.parametrize("spec", ALL, ids=kind)
def test_a_thousand_integers_within_two_bits_in_under_a_second(spec: dict[str, Any]) -> None:
    rng = random.Random(0)
    q = tuple(max(-8, min(7, round(rng.gauss(0, 1.5)))) for _ in range(1000))
    code = parse_code(spec)
    start = time.process_time()
    bits = code.encode(q)
    encoded = time.process_time()
    assert code.decode(bits, 1000) == q
    assert max(encoded - start, time.process_time() - encoded) < 1.0
    cost = -code.log2_probability(q)
    assert cost <= len(bits) < cost + 2


def test_laplace_is_two_sided_geometric() -> None:
    code = parse_code({"kind": "laplace", "ratio": "3/5", "bound": 40})
    norm = sum(0.6 ** abs(k) for k in range(-40, 41))
    for k in (0, 1, -1, 7, -23):
        assert 2 ** code.log2_probability([k]) == pytest.approx(0.6 ** abs(k) / norm, rel=1e-6)


def test_gaussian_is_the_square_of_it() -> None:
    code = parse_code({"kind": "gaussian", "ratio": "9/10", "bound": 12})
    norm = sum(0.9 ** (k * k) for k in range(-12, 13))
    for k in (0, 1, -2, 10):
        assert 2 ** code.log2_probability([k]) == pytest.approx(0.9 ** (k * k) / norm, rel=1e-6)


def test_what_is_within_the_bound_can_be_sent_however_unlikely() -> None:
    code = parse_code({"kind": "laplace", "ratio": "1/1000", "bound": 100})
    assert 48 <= -code.log2_probability([100]) <= 49.1
    assert code.decode(code.encode([100, -100]), 2) == (100, -100)


def test_adaptive_is_the_dirichlet_mixture() -> None:
    # The integral over all memoryless codes under Dirichlet(1/2, …), in closed form with gamma functions.
    q = [0, 0, 1, 0, -2, 0, 1, 0, 0, 0, 2, 0, 0]
    counts = [q.count(v) for v in range(-2, 3)]
    expected = (
        math.lgamma(2.5) - math.lgamma(2.5 + len(q)) + sum(math.lgamma(c + 0.5) - math.lgamma(0.5) for c in counts)
    )
    assert parse_code({"kind": "adaptive", "bound": 2}).log2_probability(q) == pytest.approx(
        expected / math.log(2), abs=1e-8
    )


def test_adaptive_does_not_depend_on_the_order() -> None:
    code = parse_code(ADAPTIVE)
    assert code.log2_probability([3, 0, 0, -1, 0]) == code.log2_probability([0, -1, 3, 0, 0])


def test_sparse_is_the_pattern_times_the_values() -> None:
    q = [0] * 90 + [1, -1, 2, 1, 0, 0, 0, 1, 0, 0]
    m = sum(v != 0 for v in q)
    beta = math.lgamma(m + 0.5) + math.lgamma(len(q) - m + 0.5) - math.lgamma(len(q) + 1) - 2 * math.lgamma(0.5)
    norm = 2 * sum(0.75**k for k in range(1, 16))
    values = sum(abs(v) * math.log(0.75) - math.log(norm) for v in q if v)
    assert parse_code(SPARSE).log2_probability(q) == pytest.approx((beta + values) / math.log(2), abs=1e-5)
    assert -parse_code(SPARSE).log2_probability(q) < 50  # a fixed width of 16 values would take 400


def test_mixture_is_the_sum_of_its_parts() -> None:
    rng = random.Random(4)
    code = parse_code(MIXTURE)
    for length in (1, 5, 40, 200):
        q = [max(-8, min(7, round(rng.gauss(0, 2)))) for _ in range(length)]
        parts = [
            mpf(Fraction(part["probability"]).numerator)
            / Fraction(part["probability"]).denominator
            * mp.power(2, parse_code(part["code"]).log2_probability(q))
            for part in MIXTURE["parts"]
        ]
        assert code.log2_probability(q) == pytest.approx(float(mp.log(sum(parts), 2)), abs=1e-7)


def test_mixture_goes_on_where_a_part_cannot() -> None:
    # 20 is outside every part but the first.
    code = parse_code(MIXTURE)
    q = (0, 20, 0, 1, 20, -1)
    assert code.decode(code.encode(q), 6) == q
    assert -code.log2_probability(q) <= -parse_code(LAPLACE).log2_probability(q) + 1 + 1e-6


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (LAPLACE, "100100110100010001011111011101100100010010"),
        (GAUSSIAN, "10001110100010000111001011000101101100110011101111101010111"),
        (FIXED, "1000100110000101100010001010011110001101100010000000"),
        (ADAPTIVE, "100000000111110101100111101010000101110111001011001001"),
        (SPARSE, "1011000100110100001100101111110011110010"),
        (MIXTURE, "100100101101101000100010011111010111010001"),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_golden_messages(spec: dict[str, Any], expected: str) -> None:
    """Messages already sent must decode for ever: the bits are pinned."""
    q = [0, 1, 0, -3, 0, 0, 2, -1, 0, 5, 0, 0, -8]
    assert str(parse_code(spec).encode(q)) == expected


@pytest.mark.parametrize("spec", ALL, ids=kind)
def test_other_bits_are_refused(spec: dict[str, Any]) -> None:
    code = parse_code(spec)
    q = (0, 1, -2, 0, 3, 0, 0, 7)
    bits = code.encode(q)
    for length in range(bits.length):
        with pytest.raises(MessageError, match=r"not the \d+ bits"):
            code.decode(Bits(bits.value >> (bits.length - length), length), 8)
    for tail in ("0", "1", "00000000", "10110"):
        longer = str(bits) + tail
        with pytest.raises(MessageError, match=r"not the \d+ bits"):
            code.decode(Bits(int(longer, 2), len(longer)), 8)
    with pytest.raises(MessageError):
        code.decode(bits, 9)


def test_outside_the_support_is_an_error() -> None:
    with pytest.raises(SupportError, match="32 has probability zero here; the code covers -31 to 31"):
        parse_code(LAPLACE).log2_probability([0, 32])
    with pytest.raises(SupportError, match="covers -8 to 7"):
        parse_code(FIXED).encode([8])
    with pytest.raises(SupportError):
        parse_code({"kind": "sparse", "values": {"kind": "fixed", "low": 2, "high": 3}}).encode([1])


def test_takes_numpy_integers_and_no_floats() -> None:
    code = parse_code(LAPLACE)
    assert code.encode(np.array([1, -2, 0], dtype=np.int64)) == code.encode([1, -2, 0])
    with pytest.raises(TypeError):
        code.encode([1.0])


@pytest.mark.parametrize("spec", [*ALL, *SMALL], ids=kind)
def test_declarations_round_trip(spec: dict[str, Any]) -> None:
    code = parse_code(spec)
    assert code.spec == spec
    assert parse_code(code.spec) == code


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"kind": "huffman"}, "huffman"),
        ({}, "kind"),
        ({"kind": "laplace", "bound": 3}, "ratio"),
        ({"kind": "laplace", "ratio": "2/4", "bound": 3}, "'1/2' and not '2/4'"),
        ({"kind": "laplace", "ratio": "0.5", "bound": 3}, "lowest terms"),
        ({"kind": "laplace", "ratio": "3/2", "bound": 3}, "in \\(0, 1\\]"),
        ({"kind": "laplace", "ratio": "1/0", "bound": 3}, "a fraction such as"),
        ({"kind": "laplace", "ratio": "1/2", "bound": "3"}, "bound"),
        ({"kind": "laplace", "ratio": "1/2", "bound": True}, "bound"),
        ({"kind": "laplace", "ratio": "1/2", "bound": 0}, "bound"),
        ({"kind": "laplace", "ratio": "1/2", "bound": 3, "scale": 2}, "scale"),
        ({"kind": "fixed", "low": 3, "high": 2}, "low <= high"),
        ({"kind": "sparse", "values": {"kind": "fixed", "low": 0, "high": 0}}, "other than zero"),
        ({"kind": "mixture", "parts": []}, "parts"),
        ({"kind": "mixture", "parts": [{"probability": "1/2", "code": FIXED}]}, "sum to 1, got 1/2"),
    ],
)
def test_bad_declarations_are_refused(spec: dict[str, Any], named: str) -> None:
    with pytest.raises(CodeError, match=named):
        parse_code(spec)


def test_logarithms_are_rounded_down_and_exact_for_powers_of_two() -> None:
    rng = random.Random(6)
    for _ in range(300):
        denominator = rng.getrandbits(rng.choice((3, 40, 200, 3000))) + 1
        numerator = rng.randrange(1, denominator + 1)
        true = mp.log(mpf(numerator) / denominator, 2)
        assert 0 <= true - log2_floor(numerator, denominator) < 2.0**-31
    for exponent in (0, 1, 8, 1000):
        assert log2_floor(1, 1 << exponent) == log2_floor(3, 3 << exponent) == -exponent
    with pytest.raises(ValueError, match="probability"):
        log2_floor(0, 5)
