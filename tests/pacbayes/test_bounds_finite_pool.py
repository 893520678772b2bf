"""Finite pools against exact integer arithmetic."""

import itertools
import math
import random
from fractions import Fraction

import pytest
from exact_tails import binomial_cdf, hypergeometric_cdf, log_hypergeometric
from mpmath import mp

from pacbayes.bounds import (
    betting_mean_lower,
    binomial_risk_upper,
    certified_pool_accuracy,
    expected_pool_risk_upper,
    log_failure_probability,
    pool_losses_lower,
    pool_losses_upper,
    unseen_losses_upper,
)
from pacbayes.bounds.tails import log_hypergeometric_cdf


def is_edge(losses: int, n: int, population: int, limit: int, eta: Fraction) -> bool:
    """The limit is possible at eta and the next is not; in integers."""
    possible = hypergeometric_cdf(losses, population, limit, n) >= eta
    last = limit == population - n + losses
    return possible and (last or hypergeometric_cdf(losses, population, limit + 1, n) < eta)


def test_every_case_of_small_pools() -> None:
    eta = Fraction(0.05) / 8
    for population in (1, 2, 5, 9, 16):
        for n in range(1, population + 1):
            for losses in range(n + 1):
                limit = pool_losses_upper(losses, n, population, log_eta=log_failure_probability(3.0, 0.05))
                assert is_edge(losses, n, population, limit, eta)


def test_random_cases_of_larger_pools() -> None:
    rng = random.Random(0)
    for _ in range(60):
        population = rng.randrange(10, 3000)
        n = rng.randrange(1, population + 1)
        losses, bits = rng.randrange(n + 1), rng.randrange(200)
        limit = pool_losses_upper(losses, n, population, log_eta=log_failure_probability(bits, 0.05))
        assert is_edge(losses, n, population, limit, Fraction(0.05) / 2**bits)


def test_large_pools_against_summed_tails() -> None:
    rng = random.Random(1)
    for _ in range(40):
        population = int(10 ** rng.uniform(3, 6))
        n = rng.randrange(100, population)
        losses = rng.randrange(1, n)
        at = losses * population // n + rng.randrange(1, 4) * math.isqrt(population)
        if losses < at <= population - n + losses:
            value, error = log_hypergeometric_cdf(losses, population, at, n)
            assert abs(value - log_hypergeometric(losses, population, at, n)) <= error < 1e-5


def test_exact_ties_go_against_us() -> None:
    # One item drawn of four, no loss seen: P = (4 - L)/4 is exactly eta = 1/2 at L = 2, and 2 is then possible.
    assert pool_losses_upper(0, 1, 4, log_eta=math.log(0.5)) == 2


def test_reference_values() -> None:
    accuracy = {
        (part, outcome): certified_pool_accuracy(1500, 7500, 20_000, bits=200, delta=0.05, part=part, outcome=outcome)
        for part in ("pool", "unseen")
        for outcome in ("realised", "expected")
    }
    assert 0.733 <= accuracy["pool", "realised"] < 0.734
    assert 0.694 <= accuracy["unseen", "realised"] < 0.695
    assert accuracy["pool", "expected"] == pytest.approx(
        0.7164680154, abs=1e-9
    )  # the binomial's: no gain from the pool
    assert 0 < accuracy["unseen", "realised"] - accuracy["unseen", "expected"] < 0.001


def test_share_is_rounded_down() -> None:
    for n in range(1, 40):
        got = certified_pool_accuracy(0, n, 40, bits=2.0, delta=0.05, part="pool")
        limit = pool_losses_upper(0, n, 40, log_eta=log_failure_probability(2.0, 0.05))
        assert Fraction(got) <= Fraction(40 - limit, 40) < Fraction(math.nextafter(got, 2))


def test_a_pool_read_to_the_end_is_known() -> None:
    assert pool_losses_upper(30, 100, 100, log_eta=math.log(0.01)) == 30
    assert certified_pool_accuracy(30, 100, 100, bits=500, delta=0.05, part="pool") == 0.7


def test_a_large_pool_is_like_fresh_draws() -> None:
    eta = log_failure_probability(40.0, 0.05)
    fresh = binomial_risk_upper(200, 1000, log_eta=eta)
    limit = pool_losses_upper(200, 1000, 10**7, log_eta=eta)
    assert limit / 10**7 == pytest.approx(fresh, abs=1e-4)
    assert limit / 10**7 < fresh


def test_lower_limit_mirrors_the_upper() -> None:
    eta = log_failure_probability(2.0, 0.05)
    for losses in range(11):
        lower = pool_losses_lower(losses, 10, 30, log_eta=eta)
        exact = Fraction(0.05) / 4
        # P[X >= losses] = P[successes <= n - losses]
        assert hypergeometric_cdf(10 - losses, 30, 30 - lower, 10) >= exact
        assert lower == losses or hypergeometric_cdf(10 - losses, 30, 30 - lower + 1, 10) < exact


def test_expected_losses_of_the_unseen_part_take_half_the_delta_and_one_more() -> None:
    for losses, bits in ((0, 0.0), (30, 10.0), (99, 3.0)):
        eta = log_failure_probability(bits, 0.05)
        realised_at_half = pool_losses_upper(losses, 100, 300, log_eta=eta - math.log(2)) - losses
        assert unseen_losses_upper(losses, 100, 300, log_eta=eta, outcome="expected") == realised_at_half + 1


def poisson_binomial(risks: tuple[float, ...]) -> list[float]:
    masses = [1.0]
    for risk in risks:
        masses = [a * (1 - risk) + b * risk for a, b in zip([*masses, 0.0], [0.0, *masses], strict=True)]
    return masses


def test_expected_risk_by_enumeration() -> None:
    """All subsets of adversarial pools, all noise: the expected-risk limits fail with at most eta."""
    eta = 0.1
    rng = random.Random(3)
    pools = [tuple(rng.choice((0.0, 1.0, rng.random())) for _ in range(8)) for _ in range(40)]
    pools += [(p,) * 8 for p in (0.2, 0.5, 0.9, 0.97)] + [(0.0,) * a + (1.0,) * (8 - a) for a in range(9)]
    for n in (3, 4, 7):
        pool_limits = [expected_pool_risk_upper(k, n, log_eta=math.log(eta)) for k in range(n + 1)]
        unseen_limits = [unseen_losses_upper(k, n, 8, log_eta=math.log(eta), outcome="expected") for k in range(n + 1)]
        for risks in pools:
            pool_missed = unseen_missed = 0.0
            subsets = list(itertools.combinations(range(8), n))
            for subset in subsets:
                masses = poisson_binomial(tuple(risks[i] for i in subset))
                unseen = sum(risks) - sum(risks[i] for i in subset)
                pool_missed += sum(m for k, m in enumerate(masses) if pool_limits[k] < sum(risks) / 8 - 1e-12)
                unseen_missed += sum(m for k, m in enumerate(masses) if unseen_limits[k] < unseen - 1e-12)
            assert pool_missed / len(subsets) <= eta + 1e-9
            assert unseen_missed / len(subsets) <= eta + 1e-9


def test_expected_pool_risk_stops_where_the_comparison_with_the_binomial_does() -> None:
    eta = log_failure_probability(0.0, 0.6)
    assert expected_pool_risk_upper(9, 10, log_eta=eta) == 1.0
    assert expected_pool_risk_upper(10, 10, log_eta=eta) == 1.0
    # The binomial inversion alone would be smaller than (k + 1)/n here.
    assert binomial_risk_upper(4, 10, log_eta=eta) < 0.5 <= expected_pool_risk_upper(4, 10, log_eta=eta)
    # At the usual levels it is the inversion.
    small = log_failure_probability(0.0, 0.05)
    assert expected_pool_risk_upper(4, 10, log_eta=small) == binomial_risk_upper(4, 10, log_eta=small)
    assert mp.log(binomial_cdf(4, 10, 0.5)) > mp.log(0.05)


def test_several_draws_without_replacement_gain_from_the_pool() -> None:
    rng = random.Random(5)
    rewards = [rng.choice((0.25, 0.5, 0.75, 1.0)) for _ in range(600)]
    eta = log_failure_probability(20.0, 0.05)
    fresh = betting_mean_lower(rewards, log_eta=eta)
    half = betting_mean_lower(rewards, log_eta=eta, population=1200)
    whole = betting_mean_lower(rewards, log_eta=eta, population=600)
    assert fresh + 0.01 < half < whole <= sum(rewards) / 600
    assert whole == pytest.approx(sum(rewards) / 600, abs=0.002)


def test_refuses_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="n <= population"):
        pool_losses_upper(1, 10, 9, log_eta=-1.0)
    with pytest.raises(ValueError, match="unseen part"):
        certified_pool_accuracy(1, 10, 10, bits=0.0, delta=0.05)
    with pytest.raises(ValueError, match="losses"):
        pool_losses_upper(11, 10, 20, log_eta=-1.0)
