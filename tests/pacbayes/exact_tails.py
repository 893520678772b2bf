"""Tails summed with fifty digits or with fractions: what the library's float arithmetic is measured against.

Nothing is imported from the library. The sums run over every term that matters, from the edge of the tail outwards.
"""

from fractions import Fraction
from math import comb

from mpmath import mp, mpf

mp.dps = 50


def log_eta(bits: float, delta: float) -> mpf:
    return mp.log(mpf(delta)) - mpf(bits) * mp.log(2)


def _sum(first: mpf, ratio_from, most: int) -> mpf:
    """first (1 + r_0 + r_0 r_1 + …) over at most `most` ratios, until the rest is below 1e-45 of it."""
    total = term = mpf(1)
    for i in range(most):
        ratio = ratio_from(i)
        term *= ratio
        total += term
        if ratio < 1 and term * ratio < total * (1 - ratio) * mpf(10) ** -45:
            break
    return first * total


def binomial_cdf(k: int, n: int, p: float) -> mpf:
    """P[Bin(n, p) <= k] for the float p, exactly as given."""
    p = mpf(p)
    q = 1 - p
    if k >= n or p <= 0:
        return mpf(1)
    if q <= 0:
        return mpf(0)
    if k < n * p:
        return _sum(_binomial_term(k, n, p), lambda i: mpf(k - i) / (n - k + 1 + i) * q / p, k)
    return 1 - _sum(_binomial_term(k + 1, n, p), lambda i: mpf(n - k - 1 - i) / (k + 2 + i) * p / q, n - k - 1)


def _binomial_term(k: int, n: int, p: mpf) -> mpf:
    log_choose = mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1)
    return mp.exp(log_choose + k * mp.log(p) + (n - k) * mp.log(1 - p))


def hypergeometric_cdf(k: int, population: int, losses: int, n: int) -> Fraction:
    """P[Hypergeometric <= k] exactly; for populations of a few thousand."""
    ways = sum(
        comb(losses, j) * comb(population - losses, n - j) for j in range(max(0, n + losses - population), k + 1)
    )
    return Fraction(ways, comb(population, n))


def log_hypergeometric(k: int, population: int, losses: int, n: int) -> mpf:
    """ln P[Hypergeometric <= k] for k below the mean, in large populations."""

    def log_choose(a: int, b: int) -> mpf:
        return mp.loggamma(a + 1) - mp.loggamma(b + 1) - mp.loggamma(a - b + 1)

    log_term = log_choose(losses, k) + log_choose(population - losses, n - k) - log_choose(population, n)
    low = max(0, n + losses - population)
    ratios = _sum(
        mpf(1),
        lambda i: mpf(k - i) * (population - losses - n + k - i) / (losses - k + 1 + i) / (n - k + 1 + i),
        k - low,
    )
    return log_term + mp.log(ratios)


def bernoulli_kl(x: float, p: float) -> mpf:
    x, p = mpf(x), mpf(p)
    return sum((a * mp.log(a / b) for a, b in ((x, p), (1 - x, 1 - p)) if a > 0), mpf(0))


__all__ = ["bernoulli_kl", "binomial_cdf", "hypergeometric_cdf", "log_eta", "log_hypergeometric"]
