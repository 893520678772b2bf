"""The binomial inversion against summed tails of fifty digits, at the edge and on the safe side."""

import math
import random

import pytest
from exact_tails import binomial_cdf, log_eta
from mpmath import mp, mpf
from scipy.special import betaincinv

from pacbayes.bounds import (
    binomial_risk_lower,
    binomial_risk_upper,
    certified_accuracy,
    holdout_accuracy,
    log_failure_probability,
)
from pacbayes.bounds.tails import log_binomial_cdf

TOLERANCE = 1e-10


def assert_exact(losses: int, n: int, bits: float, delta: float) -> None:
    """The limit excludes everything above it, and nothing more than rounding lies between it and the truth."""
    upper = binomial_risk_upper(losses, n, log_eta=log_failure_probability(bits, delta))
    edge = log_eta(bits, delta)
    assert mp.log(binomial_cdf(losses, n, upper)) <= edge, "on the flattering side"
    if upper > TOLERANCE:
        assert mp.log(binomial_cdf(losses, n, upper - TOLERANCE)) > edge, "looser than it need be"


def random_case(rng: random.Random) -> tuple[int, int, float, float]:
    n = int(10 ** rng.uniform(0, 5))
    rate = rng.choice([rng.random(), rng.random() ** 4, 0.0])
    bits = rng.choice([0.0, 10 ** rng.uniform(0, 4)])
    return round(rate * n) if n > 1 else 0, n, bits, rng.choice([0.05, 0.01, 0.5, 0.9, 1e-6])


def test_agrees_with_summed_tails() -> None:
    rng = random.Random(0)
    for _ in range(250):
        losses, n, bits, delta = random_case(rng)
        if losses < n:
            assert_exact(losses, n, bits, delta)


@pytest.mark.slow
def test_agrees_with_summed_tails_in_full() -> None:
    rng = random.Random(1)
    for _ in range(4000):
        losses, n, bits, delta = random_case(rng)
        if losses < n:
            assert_exact(losses, n, bits, delta)


def test_every_edge_of_small_samples() -> None:
    for n in (1, 2, 3, 7, 20):
        for losses in range(n):
            for bits in (0.0, 1.0, 6.0, 40.0, 300.0):
                assert_exact(losses, n, bits, 0.05)


def test_large_samples_and_long_messages() -> None:
    for losses, n, bits in ((200_000, 10**6, 10_000.0), (50_000, 10**6, 0.0), (0, 10**6, 3.0), (999_990, 10**6, 1.0)):
        assert_exact(losses, n, bits, 0.05)
    # Ten times more of both is still valid and precise.
    assert_exact(2_000_000, 10**7, 100_000.0, 0.05)


def test_confidence_near_one_half_and_above() -> None:
    for delta in (0.5, 0.99, 1 - 1e-9):
        for losses, n in ((0, 5), (3, 5), (400, 1000)):
            assert_exact(losses, n, 0.0, delta)


@pytest.mark.parametrize(("losses", "n"), [(0, 20), (3, 20), (17, 20), (100, 1000), (250, 500)])
def test_without_bits_it_is_clopper_pearson(losses: int, n: int) -> None:
    expected = float(betaincinv(losses + 1, n - losses, 0.95))
    assert binomial_risk_upper(losses, n, log_eta=math.log(0.05)) == pytest.approx(expected, abs=1e-12)
    assert holdout_accuracy(losses, n, delta=0.05) == pytest.approx(1 - expected, abs=1e-12)


def test_no_losses_in_closed_form() -> None:
    # (1 - p)^n = eta
    for n, bits in ((10, 0.0), (1000, 50.0), (10**6, 1000.0)):
        eta = log_failure_probability(bits, 0.01)
        assert binomial_risk_upper(0, n, log_eta=eta) == pytest.approx(-math.expm1(eta / n), rel=1e-13)


def test_one_success_keeps_relative_precision() -> None:
    # All but one lost and 2000 bits: accuracy of about eta/n, far below the spacing of floats near 1.
    eta = log_failure_probability(1000.0, 0.05)
    assert certified_accuracy(99, 100, bits=1000.0, delta=0.05) == pytest.approx(math.exp(eta) / 100, rel=1e-10)
    assert certified_accuracy(100, 100, bits=0.0, delta=0.05) == 0.0


@pytest.mark.parametrize(
    ("n", "accuracy", "expected"),
    [
        (500, 0.8, (0.768, 0.627, 0.436, 0.097)),
        (2000, 0.8, (0.784, 0.718, 0.628, 0.393)),
        (7500, 0.8, (0.792, 0.759, 0.716, 0.599)),
        (7500, 0.95, (0.945, 0.926, 0.896, 0.801)),
    ],
)
def test_reference_table(n: int, accuracy: float, expected: tuple[float, ...]) -> None:
    losses = round(n * (1 - accuracy))
    got = [certified_accuracy(losses, n, bits=bits, delta=0.05) for bits in (0, 50, 200, 1000)]
    assert tuple(math.floor(1000 * value) / 1000 for value in got) == expected


def test_reference_value() -> None:
    assert 0.5436 <= certified_accuracy(200, 1000, bits=208, delta=0.05) < 0.5437


def test_lower_limit_mirrors_the_upper() -> None:
    eta = log_failure_probability(13.0, 0.05)
    for losses, n in ((0, 10), (3, 10), (10, 10), (700, 1000)):
        lower = binomial_risk_lower(losses, n, log_eta=eta)
        assert lower == pytest.approx(1 - binomial_risk_upper(n - losses, n, log_eta=eta), abs=1e-15)
        if lower > 0:  # P[Bin(n, lower) >= losses] is at most eta, and above it just beyond
            assert 1 - binomial_cdf(losses - 1, n, lower) <= mp.exp(eta)
            assert 1 - binomial_cdf(losses - 1, n, lower + TOLERANCE) > mp.exp(log_eta(13.0, 0.05))


def test_coverage_by_enumeration() -> None:
    """The probability, over all outcomes, that the limit lies below the truth is at most eta; and comes close."""
    n, delta, bits = 12, 0.2, 1.0
    eta = log_failure_probability(bits, delta)
    limits = [binomial_risk_upper(k, n, log_eta=eta) for k in range(n + 1)]
    worst = 0.0
    for p in [*(i / 200 for i in range(1, 200)), *(limit + 1e-12 for limit in limits[:-1])]:
        missed = sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1) if limits[k] < p)
        worst = max(worst, missed)
    assert 0.1 - 1e-9 < worst <= 0.1 + 1e-12


def test_tail_errors_are_bounds() -> None:
    rng = random.Random(2)
    for _ in range(60):
        n = int(10 ** rng.uniform(0.5, 5))
        k = rng.randrange(n)
        p = min(max(k / n + rng.uniform(-1, 6) * math.sqrt(n) / n / 2, 1e-6), 1 - 1e-6)
        value, error = log_binomial_cdf(k, n, p, 1 - p)
        true = mp.log(binomial_cdf(k, n, p))
        assert abs(mpf(value) - true) <= error
        assert error < 1e-7


def test_monotone_in_everything() -> None:
    base = certified_accuracy(200, 1000, bits=50, delta=0.05)
    assert certified_accuracy(201, 1000, bits=50, delta=0.05) < base
    assert certified_accuracy(200, 1001, bits=50, delta=0.05) > base
    assert certified_accuracy(200, 1000, bits=50.001, delta=0.05) < base
    assert certified_accuracy(200, 1000, bits=50, delta=0.0501) > base


@pytest.mark.parametrize(
    ("losses", "n", "bits", "delta", "named"),
    [
        (-1, 10, 0.0, 0.05, "losses=-1"),
        (11, 10, 0.0, 0.05, "losses"),
        (0, 0, 0.0, 0.05, "n=0"),
        (0, 10, -0.1, 0.05, "bits >= 0"),
        (0, 10, math.nan, 0.05, "bits >= 0"),
        (0, 10, math.inf, 0.05, "bits >= 0"),
        (0, 10, 0.0, 0.0, "delta in"),
        (0, 10, 0.0, 1.0, "delta in"),
        (0, 10, 0.0, math.nan, "delta in"),
    ],
)
def test_refuses_what_makes_no_sense(losses: int, n: int, bits: float, delta: float, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        certified_accuracy(losses, n, bits=bits, delta=delta)


def test_refuses_a_mean_over_draws() -> None:
    with pytest.raises(TypeError):
        certified_accuracy(200.25, 1000, bits=0.0, delta=0.05)


def test_refuses_an_unknown_bound() -> None:
    with pytest.raises(ValueError, match="unknown bound 'bernstein'; expected one of binomial"):
        certified_accuracy(1, 10, bits=0.0, delta=0.05, bound="bernstein")
