"""Finite pools: N fixed items, n of them drawn uniformly without replacement, a statement about the pool or its rest.

The prior may depend on the pool, labels included, because only the drawing is random. For a policy with L losses in the
pool under the committed noise the sample shows Hypergeometric(N, L, n) of them, so with probability 1 - eta

    L <= L+ = max { L : P[Hypergeometric(N, L, n) <= k] >= eta }.

That is about *realised* losses: what the policy answers under that noise. What it answers on average over fresh
noise, the *expected* pass@1, is another quantity, with other bounds (see the functions).

References: W. Hoeffding, "On the distribution of the number of successes in independent trials", Ann. Math. Stat. 27
(1956), Theorem 4; Jogdeo and Samuels, "Monotone convergence of binomial probabilities", Ann. Math. Stat. 39 (1968),
for the median; Borcea, Branden and Liggett, "Negative dependence and the geometry of polynomials", J. AMS 22 (2009).
"""

import math
from fractions import Fraction
from operator import index
from typing import Literal

from pacbayes.bounds.binomial import (
    binomial_risk_upper,
    check_counts,
    check_log_eta,
    check_size,
    log_failure_probability,
)
from pacbayes.bounds.inversion import largest_true
from pacbayes.bounds.tails import log_hypergeometric_cdf


def pool_losses_upper(losses: int, n: int, population: int, *, log_eta: float) -> int:
    """L+, the largest L with P[Hypergeometric(N, L, n) <= losses] >= eta: realised losses in the pool.

    `L+ - losses` of them are in the part that was not drawn; both statements hold together.

    Args:
        losses: k, losses among the items drawn.
        n: items drawn, 1 <= n <= population.
        population: N, items in the pool.
        log_eta: ln of the failure probability in nats, < 0.

    Raises:
        ValueError: a count or log_eta is out of range.
        TypeError: a count is not an integer.
    """
    losses, n, population = index(losses), index(n), index(population)
    check_counts(losses, n)
    check_log_eta(log_eta)
    check_size("population", population)
    if n > population:
        raise ValueError(f"expected n <= population, got n={n}, population={population}")

    def possible(pool_losses: int) -> bool:
        value, error = log_hypergeometric_cdf(losses, population, pool_losses, n)
        return value + error >= log_eta

    largest = largest_true(possible, losses, population - n + losses)
    assert largest is not None  # with no losses but those seen, seeing at most as many is certain
    return largest


def pool_losses_lower(losses: int, n: int, population: int, *, log_eta: float) -> int:
    """The smallest L with P[Hypergeometric(N, L, n) >= losses] >= eta. Arguments as `pool_losses_upper`."""
    check_counts(losses, n)
    return population - pool_losses_upper(n - losses, n, population, log_eta=log_eta)


def expected_pool_risk_upper(losses: int, n: int, *, log_eta: float) -> float:
    """Upper limit of the pool's mean expected loss: the larger of the binomial inversion and (losses + 1)/n.

    Uniform sampling without replacement followed by independent noise gives a count with a real-rooted generating
    function (Borcea, Branden and Liggett), that is a sum of n independent, unequal zero-one variables; the lower tail
    at c of such a sum is at most the binomial one when c <= np - 1 (Hoeffding). The size of the pool does not help:
    noise alone can have the binomial's variance.
    """
    return max(binomial_risk_upper(losses, n, log_eta=log_eta), min(1.0, math.nextafter((losses + 1) / n, 2.0)))


def certified_pool_accuracy(
    losses: int,
    n: int,
    population: int,
    *,
    bits: float,
    delta: float,
    part: Literal["pool", "unseen"] = "unseen",
    outcome: Literal["realised", "expected"] = "realised",
) -> float:
    """Certified accuracy of a coded policy on a finite pool, or on the part of it that was not drawn; rounded down.

    Args:
        losses: wrong answers on the n items drawn.
        n: items drawn.
        population: items in the pool; above n for a statement about the unseen part.
        bits: -log2 of the policy's prior probability.
        delta: probability with which the statement may fail.
        part: all items, or those not drawn. The two realised statements hold together.
        outcome: under the committed noise, or expected over fresh noise.

    Raises:
        ValueError: an argument is out of range.
    """
    log_eta = log_failure_probability(bits, delta)
    if part == "pool" and outcome == "expected":
        return max(0.0, 1.0 - expected_pool_risk_upper(losses, n, log_eta=log_eta) - 2.0**-53)
    if part == "pool":
        return _share_below(population - pool_losses_upper(losses, n, population, log_eta=log_eta), population)
    if n >= population:
        raise ValueError(f"expected n < population for a statement about the unseen part, got {n} and {population}")
    unseen = population - n
    upper = unseen_losses_upper(losses, n, population, log_eta=log_eta, outcome=outcome)
    return _share_below(max(0, unseen - upper), unseen)


def unseen_losses_upper(
    losses: int, n: int, population: int, *, log_eta: float, outcome: Literal["realised", "expected"]
) -> int:
    """Upper limit of the losses, realised or expected, among the items not drawn.

    Expected: the realised losses of the unseen part are a sum of independent zero-one variables, whose median is
    within one of its mean. So if the mean exceeded the limit, the realised count would, with probability 1/2 and by
    noise independent of the sample, exceed L+ at half the failure probability.
    """
    if outcome == "realised":
        return pool_losses_upper(losses, n, population, log_eta=log_eta) - losses
    return pool_losses_upper(losses, n, population, log_eta=log_eta - math.log(2.0)) - losses + 1


def _share_below(part: int, whole: int) -> float:
    """The largest float64 that is not above part/whole."""
    share = part / whole
    return share if Fraction(share) <= Fraction(part, whole) else math.nextafter(share, 0.0)
