"""Betting: e-values by enumeration, exact edges by an independent evaluation, and coverage over all outcomes."""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp, mpf

from pacbayes.bounds import (
    STAKES,
    betting_mean_lower,
    betting_mean_lower_from_counts,
    betting_mean_upper,
    certified_accuracy,
    certified_mean_accuracy,
    kl_risk_upper,
    log_failure_probability,
)

FEW = (0.1, 0.5, 0.9)


def e_value(values: Sequence[float], mean: float, stakes: Sequence[float] = FEW, population: int | None = None) -> mpf:
    """The mixture's wealth with fifty digits, from its definition."""
    total = mpf(0)
    for c in stakes:
        wealth, seen = mpf(1), mpf(0)
        for t, x in enumerate(values):
            m = mpf(mean) if population is None else (population * mpf(mean) - seen) / (population - t)
            wealth *= 1 - mpf(c) + mpf(c) * mpf(x) / m
            seen += mpf(x)
        total += wealth / len(stakes)
    return total


def test_expectation_is_one_at_the_boundary() -> None:
    """Over all outcomes of five draws from {0, 1/2, 1} with mean m the e-value averages to exactly one."""
    masses = {0.0: 0.2, 0.5: 0.3, 1.0: 0.5}
    mean = sum(x * p for x, p in masses.items())
    total = sum(math.prod(masses[x] for x in xs) * e_value(xs, mean) for xs in itertools.product(masses, repeat=5))
    assert float(total) == pytest.approx(1.0, abs=1e-12)
    # A higher mean than the hypothesis makes it exceed one: the test has power.
    assert sum(math.prod(masses[x] for x in xs) * e_value(xs, 0.5) for xs in itertools.product(masses, repeat=5)) > 1.2


def test_expectation_is_one_without_replacement() -> None:
    pool = (0.0, 0.25, 0.5, 1.0, 1.0, 0.75)
    mean = sum(pool) / len(pool)
    orders = list(itertools.permutations(pool, 4))
    average = sum(e_value(order, mean, population=6) for order in orders) / len(orders)
    assert float(average) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("population", [None, 40, 400])
def test_limit_is_the_edge_of_rejection(population: int | None) -> None:
    rng = np.random.default_rng(0)
    for bits in (0.0, 3.0, 10.0):
        eta = log_failure_probability(bits, 0.05)
        values = rng.choice((0.25, 0.5, 1.0), size=30)
        limit = betting_mean_lower(values, log_eta=eta, stakes=FEW, population=population)
        assert limit > 0.1
        assert mp.log(e_value(values, limit, population=population)) >= -eta
        assert mp.log(e_value(values, limit + 1e-10, population=population)) < -eta


@pytest.mark.parametrize("population", [None, 40])
def test_upper_limit_mirrors_the_lower(population: int | None) -> None:
    """The wealth of bets on losses, from its definition: enough at the limit, and not yet just below it."""
    values = np.random.default_rng(3).choice((0.0, 0.25, 0.5), size=30)
    eta = log_failure_probability(3.0, 0.05)
    limit = betting_mean_upper(values, log_eta=eta, stakes=FEW, population=population)
    assert values.mean() < limit < 0.9
    assert mp.log(e_value(1 - values, 1 - limit, population=population)) >= -eta
    assert mp.log(e_value(1 - values, 1 - limit + 1e-10, population=population)) < -eta
    assert betting_mean_upper([1.0] * 10, log_eta=eta) == 1.0
    with pytest.raises(ValueError, match="vector of values"):
        betting_mean_upper([1.1], log_eta=eta)


def test_coverage_by_enumeration() -> None:
    """All 3^7 outcomes: the limit exceeds the mean with probability at most eta, and not hardly ever."""
    eta = 0.1
    worst = 0.0
    for masses in ((0.1, 0.0, 0.9), (0.3, 0.4, 0.3), (0.7, 0.2, 0.1), (0.5, 0.0, 0.5)):
        mean = 0.5 * masses[1] + masses[2]
        missed = 0.0
        for a in range(8):
            for b in range(8 - a):
                counts = (a, b, 7 - a - b)
                limit = betting_mean_lower_from_counts((0.0, 0.5, 1.0), counts, log_eta=math.log(eta), stakes=FEW)
                if limit > mean:
                    ways = math.factorial(7) / math.prod(map(math.factorial, counts))
                    missed += ways * math.prod(p**k for p, k in zip(masses, counts, strict=True))
        worst = max(worst, missed)
        assert missed <= eta
    assert worst > 0.01


def test_coverage_without_replacement_by_enumeration() -> None:
    pool = (0.0, 0.0, 0.5, 0.5, 1.0, 1.0, 1.0)
    orders = list(itertools.permutations(range(7), 5))
    missed = sum(
        betting_mean_lower([pool[i] for i in order], log_eta=math.log(0.2), stakes=FEW, population=7) > 4 / 7 + 1e-12
        for order in orders
    )
    assert missed / len(orders) <= 0.2


def test_counts_and_values_agree() -> None:
    values = [0.25] * 7 + [1.0] * 30 + [0.0] * 3
    eta = log_failure_probability(2.0, 0.05)
    counted = betting_mean_lower_from_counts((0.0, 0.25, 1.0), (3, 7, 30), log_eta=eta)
    assert betting_mean_lower(values, log_eta=eta) == pytest.approx(counted, abs=1e-14)


def test_several_draws_beat_the_kl_bound_and_one_draw_loses_little() -> None:
    """Eight thousand prompts at .8 and 50 bits: what averaging 16 draws a prompt is worth."""
    eta = log_failure_probability(50.0, 0.05)
    rng = np.random.default_rng(0)
    for spread, least in ((0.5, 0.001), (1.0, 0.005), (3.0, 0.01)):
        means = rng.binomial(16, rng.beta(0.8 * spread, 0.2 * spread, 8000)) / 16
        kl = 1 - kl_risk_upper(8000 - float(means.sum()), 8000, log_eta=eta)
        assert betting_mean_lower(means, log_eta=eta) > kl + least
    once = np.repeat((1.0, 0.0), (6400, 1600))
    exact = certified_accuracy(1600, 8000, bits=50, delta=0.05)
    assert exact - 0.004 < betting_mean_lower(once, log_eta=eta) < exact


def test_order_matters_only_without_replacement() -> None:
    rng = np.random.default_rng(1)
    values = rng.random(200)
    eta = math.log(0.05)
    other = rng.permutation(values)
    assert betting_mean_lower(values, log_eta=eta) == betting_mean_lower(other, log_eta=eta)
    assert betting_mean_lower(values, log_eta=eta, population=250) != betting_mean_lower(
        other, log_eta=eta, population=250
    )


def test_several_draws_count_as_one_prompt() -> None:
    rng = np.random.default_rng(2)
    draws = rng.random((300, 4)) < 0.8
    means = draws.mean(axis=1)
    got = certified_mean_accuracy(draws, bits=12, delta=0.05)
    assert got == certified_mean_accuracy(means, bits=12, delta=0.05)
    assert got == betting_mean_lower(means, log_eta=log_failure_probability(12, 0.05))
    # Copies of one draw are no new evidence: the bound is that of one draw, and n M would have claimed much more.
    once = draws[:, :1]
    copied = certified_mean_accuracy(np.repeat(once, 16, axis=1), bits=12, delta=0.05)
    assert copied == certified_mean_accuracy(once, bits=12, delta=0.05)
    right = int(once.sum())
    assert copied < certified_accuracy(300 - right, 300, bits=12, delta=0.05)
    assert copied + 0.05 < certified_accuracy(16 * (300 - right), 16 * 300, bits=12, delta=0.05)
    with pytest.raises(ValueError, match="rewards in"):
        certified_mean_accuracy([[1.5, -0.5]], bits=0, delta=0.05)


def test_degenerate_samples() -> None:
    eta = math.log(0.05)
    assert betting_mean_lower([0.0] * 10, log_eta=eta) == 0.0
    assert 0.7 < betting_mean_lower([1.0] * 20, log_eta=eta) < 1.0
    assert betting_mean_lower([1.0] * 20, log_eta=eta, population=20) <= 1.0
    assert betting_mean_lower([0.5] * 8, log_eta=eta, population=8) <= 0.5


def test_the_stakes_are_a_fixed_grid() -> None:
    assert all(0 < c < 1 for c in STAKES)
    assert Fraction(1, len(STAKES)) * len(STAKES) == 1
    assert len(STAKES) == 27


@pytest.mark.parametrize("values", [[], [1.1], [-0.1], [math.nan], [[0.5]]])
def test_refuses_what_is_not_a_sample(values: list[float]) -> None:
    with pytest.raises(ValueError, match="vector of values"):
        betting_mean_lower(values, log_eta=-1.0)


def test_refuses_a_pool_smaller_than_the_sample() -> None:
    with pytest.raises(ValueError, match="population >= n"):
        betting_mean_lower([0.5] * 5, log_eta=-1.0, population=4)
