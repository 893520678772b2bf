"""Tails of the binomial and hypergeometric distributions, as logarithms with a bound on their own rounding error.

A certificate evaluates these tails at probabilities of 2^-50 to 2^-100000, where `binom.logsf` and `beta.ppf(1 - x)`
return zeros and ones, and it needs to know on which side of the truth a computed value may lie. So every function
returns a pair (logarithm in nats, absolute error), with |computed - true| <= error.

A tail is its largest term times a sum of ratios. The term comes from Loader's saddle-point form, in which nothing large
cancels; the ratios of neighbouring terms are simple rational functions and fall monotonically, so the sum is short
and what is cut off is bounded by a geometric series.

References: C. Loader, "Fast and accurate computation of binomial probabilities" (2000).
"""

import math

import numpy as np

_UNIT = 2.0**-53
# Each logarithm below is a handful of float operations; 16 units per operation chain is several times what was ever
# seen.
_SLACK = 16 * _UNIT
# Ratios of neighbouring terms fall at least as fast as exp(-i / top): the sum of the first sqrt(2 * 45 * top) terms
# leaves less than e^-45 of it, far below one unit in the last place.
_NATS_KEPT = 45.0


def log_binomial_cdf(k: int, n: int, p: float, q: float) -> tuple[float, float]:
    """ln P[Bin(n, p) <= k] and a bound on its error.

    Args:
        k: number of losses, 0 <= k < n.
        n: number of trials.
        p: probability of a loss, 0 < p < 1.
        q: 1 - p, given separately so that neither loses its relative precision near 0.

    Returns:
        (value, error) in nats; the error covers a relative rounding of one unit in p and in q.
    """
    if k < n * p:
        return _log_light_tail(k, n, p, q)
    # Below the mean the lower tail holds most of the mass; the upper tail is the one that is small and precise.
    log_upper, error = _log_light_tail(n - k - 1, n, q, p)
    upper = math.exp(log_upper)
    return math.log1p(-upper), upper * math.expm1(2 * error) / (1.0 - upper) + 4 * _UNIT * upper


def _log_light_tail(k: int, n: int, p: float, q: float) -> tuple[float, float]:
    """`log_binomial_cdf` where k is at most about the mean np, by summing downwards from the term at k."""
    log_term, error = _log_binomial_term(k, n, p, q)
    i = np.arange(1 + min(k, 8 + math.isqrt(int(2 * _NATS_KEPT * k))), dtype=np.float64)
    ratios = (k - i) / (n - k + 1 + i) * (q / p)
    return log_term + math.log(_one_plus_products(ratios)), error + _SLACK * (1 + i.size)


def _one_plus_products(ratios: np.ndarray) -> float:
    """1 + r_0 + r_0 r_1 + …, plus a geometric bound on what follows the last ratio.

    The ratios must not increase. Where the tail ends within them the last one is 0 and nothing follows.
    """
    products = np.cumprod(ratios)
    last = float(ratios[-1])
    rest = float(products[-1]) * last / (1.0 - last) if last < 1.0 else 0.0
    return 1.0 + float(products.sum()) + rest


def _log_binomial_term(k: int, n: int, p: float, q: float) -> tuple[float, float]:
    """ln of the binomial probability of exactly k, and its error."""
    deviance, error = binomial_deviance(k, n, p, q)
    if k in (0, n):
        return -deviance, error
    stirling = _stirling_error(n) - _stirling_error(k) - _stirling_error(n - k)
    scale = 0.5 * math.log(n / (2 * math.pi * k * (n - k)))
    return stirling + scale - deviance, error + _SLACK * (4 + abs(scale))


def binomial_deviance(losses: float, n: int, p: float, q: float) -> tuple[float, float]:
    """n kl(losses/n || p) in nats, with kl the divergence of Bernoulli distributions, and a bound on its error.

    Args:
        losses: a count or a sum of losses in [0, 1]; 0 <= losses <= n.
        n: number of trials.
        p: probability of a loss, 0 < p < 1.
        q: 1 - p, to full relative precision.
    """
    if losses in (0, n):
        value = -n * (_log_of_larger(q, p) if losses == 0 else _log_of_larger(p, q))
        return value, _SLACK * (1 + value)
    value = _deviance(losses, n * p) + _deviance(n - losses, n * q)
    # Rounding p and q by one unit changes the deviance by |np - losses| units and no more: its slope there is small.
    return value, _SLACK * (1 + value + abs(n * p - losses))


def _log_of_larger(x: float, complement: float) -> float:
    """ln x for x = 1 - complement, from whichever of the two is further from 1."""
    return math.log(x) if x < 0.5 else math.log1p(-complement)


def _deviance(x: float, mean: float) -> float:
    """x ln(x / mean) + mean - x, without cancellation when x is close to mean (Loader's bd0); x, mean > 0."""
    if abs(x - mean) >= 0.1 * (x + mean):
        return x * math.log(x / mean) + mean - x
    v = (x - mean) / (x + mean)
    total = (x - mean) * v
    power = 2 * x * v
    j = 1
    while True:
        power *= v * v
        j += 2
        following = total + power / j
        if following == total:
            return total
        total = following


def _stirling_error(n: int) -> float:
    """ln n! - [(n + 1/2) ln n - n + ln(2 pi)/2], the error of Stirling's formula; n >= 1."""
    if n < 16:
        return math.lgamma(n + 1.0) - (n + 0.5) * math.log(n) + n - 0.5 * math.log(2 * math.pi)
    r = 1.0 / (n * n)
    return (1 / 12 - r * (1 / 360 - r * (1 / 1260 - r * (1 / 1680 - r * (1 / 1188 - r * 691 / 360360))))) / n


def log_hypergeometric_cdf(k: int, population: int, losses: int, n: int) -> tuple[float, float]:
    """ln P[X <= k], X the losses among n items drawn without replacement, and a bound on its error.

    Args:
        k: losses seen in the draw.
        population: N, the size of the pool.
        losses: L, how many of the N items are losses.
        n: how many items are drawn.

    Returns:
        (value, error) in nats; (0, 0) where the tail is certain and (-inf, 0) where it is impossible.
    """
    low, high = max(0, n + losses - population), min(n, losses)
    if k < low:
        return -math.inf, 0.0
    if k >= high:
        return 0.0, 0.0
    if k * population < n * losses:
        return _log_light_hypergeometric_tail(k, population, losses, n)
    # The upper tail counts successes: at most n - k - 1 of them among the population - losses.
    log_upper, error = _log_light_hypergeometric_tail(n - k - 1, population, population - losses, n)
    upper = math.exp(log_upper)
    return math.log1p(-upper), upper * math.expm1(2 * error) / (1.0 - upper) + 4 * _UNIT * upper


def _log_light_hypergeometric_tail(k: int, population: int, losses: int, n: int) -> tuple[float, float]:
    """`log_hypergeometric_cdf` where k is at most about its mean, by summing downwards from the term at k."""
    log_term, error = _log_hypergeometric_term(k, population, losses, n)
    low = max(0, n + losses - population)
    i = np.arange(1 + min(k - low, 8 + math.isqrt(int(2 * _NATS_KEPT * k))), dtype=np.float64)
    ratios = (k - i) / (losses - k + 1 + i) * ((population - losses - n + k - i) / (n - k + 1 + i))
    return log_term + math.log(_one_plus_products(ratios)), error + _SLACK * (1 + i.size)


def _log_hypergeometric_term(k: int, population: int, losses: int, n: int) -> tuple[float, float]:
    """ln of C(L, k) C(N-L, n-k) / C(N, n): three binomial probabilities at the common rate n/N."""
    if n == population:
        return 0.0, 0.0
    p, q = n / population, (population - n) / population
    drawn, drawn_error = _log_binomial_term_or_one(k, losses, p, q)
    others, others_error = _log_binomial_term_or_one(n - k, population - losses, p, q)
    whole, whole_error = _log_binomial_term(n, population, p, q)
    return drawn + others - whole, drawn_error + others_error + whole_error


def _log_binomial_term_or_one(k: int, n: int, p: float, q: float) -> tuple[float, float]:
    return (0.0, 0.0) if n == 0 else _log_binomial_term(k, n, p, q)
