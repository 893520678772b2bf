"""Betting: a lower limit of a mean of values in [0, 1] that adapts to their variance.

Under the hypothesis that the mean is at most m, every factor of

    E(m) = sum_j w_j prod_i (1 + c_j (X_i / m - 1)),    0 < c_j < 1,  sum_j w_j <= 1,

has expectation at most one, so E(m) is an e-value: it reaches 1/eta with probability at most eta (Markov). E falls
with m, and the limit is the largest m it rejects. The stakes c_j and their weights are fixed in advance; E being an
average over them, nothing is chosen from the data. With M draws per prompt X_i is the mean over the draws, which may
depend on each other; the units are the n prompts, never n M. For zero-one values (M = 1) the exact binomial is a
little tighter.

References: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86 (2024),
sections 4 and 5 (without replacement); Joag-Dev and Proschan, "Negative association of random variables", Ann. Stat.
11 (1983).
"""

import math
from collections.abc import Callable, Sequence
from operator import index

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes.bounds.binomial import check_log_eta, check_size
from pacbayes.bounds.inversion import probabilities, round_down, smallest_true_logit

# The best stake is about (mean - m) m / variance: small for large samples, near one where no loss was seen. Equal
# weights.
STAKES = tuple(1 / (1 + math.exp(-x / 2)) for x in range(-18, 9))

_UNIT = 2.0**-53
# Stakes times values held in memory at once.
_TABLE_SIZE = 2**20

# From a hypothetical mean to (ln E, error).
_Evidence = Callable[[float], tuple[float, float]]


def betting_mean_lower(
    values: ArrayLike, *, log_eta: float, stakes: Sequence[float] = STAKES, population: int | None = None
) -> float:
    """Lower limit of the mean, rounded down.

    Args:
        values: shape (n,), in [0, 1]; independent with the mean in question, or drawn uniformly without replacement
            from items whose mean it is (then also with independent noise per item: the expected form needs no
            `population`).
        log_eta: ln of the failure probability in nats, < 0.
        stakes: c_j in (0, 1), fixed in advance, with equal weights.
        population: N for a statement about *realised* values of a finite pool, which gains from not replacing; the
            values must then stand in the order in which they were drawn.

    Raises:
        ValueError: an argument is out of range.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.size == 0 or not ((x >= 0) & (x <= 1)).all():
        raise ValueError(f"expected a non-empty vector of values in [0, 1], got shape {x.shape}")
    if population is None:
        return betting_mean_lower_from_counts(*np.unique(x, return_counts=True), log_eta=log_eta, stakes=stakes)
    _check_stakes(stakes)
    population = index(population)
    check_size("population", population)
    if population < x.size:
        raise ValueError(f"expected population >= n, got population={population}, n={x.size}")
    return _largest_rejected(_without_replacement(x, population, stakes), log_eta)


def betting_mean_upper(
    values: ArrayLike, *, log_eta: float, stakes: Sequence[float] = STAKES, population: int | None = None
) -> float:
    """Upper limit of the mean, rounded up: 1 minus the lower limit of 1 - values. Else as `betting_mean_lower`."""
    x = np.asarray(values, dtype=np.float64)
    if not ((x >= 0) & (x <= 1)).all():
        raise ValueError(f"expected a non-empty vector of values in [0, 1], got shape {x.shape}")
    # 1 - x and the difference from 1 are each rounded to nearest: two units keep the limit above the exact one.
    return min(1.0, 1.0 - betting_mean_lower(1.0 - x, log_eta=log_eta, stakes=stakes, population=population) + 2.0**-52)


def betting_mean_lower_from_counts(
    values: ArrayLike, counts: ArrayLike, *, log_eta: float, stakes: Sequence[float] = STAKES
) -> float:
    """`betting_mean_lower` of a sample in which values[i] occurred counts[i] times (independent, so in any order).

    Args:
        values: shape (k,), in [0, 1].
        counts: shape (k,), whole numbers >= 0, not all of them 0.
        log_eta, stakes: as `betting_mean_lower`.

    Raises:
        ValueError: an argument is out of range.
    """
    x, times = np.asarray(values, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    if x.ndim != 1 or x.shape != times.shape or not ((x >= 0) & (x <= 1)).all():
        raise ValueError(f"expected values in [0, 1] with a count for each, got shapes {x.shape} and {times.shape}")
    if not ((times >= 0) & (times <= 1e12) & (times == np.floor(times))).all() or not times.any():
        raise ValueError("expected whole counts from 0 to 10^12, not all of them 0")
    _check_stakes(stakes)

    def evidence(mean: float) -> tuple[float, float]:
        return _log_evidence(x / mean, times, stakes)

    return _largest_rejected(evidence, log_eta)


def _check_stakes(stakes: Sequence[float]) -> None:
    if not stakes or not all(0.0 < c < 1.0 for c in stakes):
        raise ValueError("expected stakes in (0, 1): beyond, a factor can be negative and the product is no e-value")


def _without_replacement(x: NDArray[np.float64], population: int, stakes: Sequence[float]) -> _Evidence:
    """ln E(m) when item t is drawn from the N - t + 1 left, whose mean under the hypothesis is what is left of N m."""
    before = np.concatenate(([0.0], np.cumsum(x[:-1])))
    left = population - np.arange(x.size, dtype=np.float64)
    once = np.ones_like(x)

    def evidence(mean: float) -> tuple[float, float]:
        rest = population * mean - before
        rounding = 8 * _UNIT * (population * mean + before)
        if rest[-1] + rounding[-1] < x[-1]:
            return math.inf, 0.0  # the values already seen sum to more than the hypothesis has
        rest = np.maximum(rest, rounding)
        value, error = _log_evidence(x * left / rest, once, stakes)
        return value, error + float(((x > 0) * rounding / rest).sum())

    return evidence


def _log_evidence(
    ratios: NDArray[np.float64], times: NDArray[np.float64], stakes: Sequence[float]
) -> tuple[float, float]:
    """ln of the mean over stakes of prod_i (1 - c + c ratio_i)^times_i, and a bound on its rounding error."""
    columns = np.asarray(stakes, dtype=np.float64)[:, None]
    logs, sizes = np.empty(len(stakes)), np.empty(len(stakes))
    rows = max(1, _TABLE_SIZE // ratios.size)
    for i in range(0, len(stakes), rows):
        c = columns[i : i + rows]
        terms = np.log((1.0 - c) + c * ratios)
        logs[i : i + rows] = terms @ times
        sizes[i : i + rows] = np.abs(terms) @ times
    largest = float(logs.max())
    value = largest + math.log(float(np.exp(logs - largest).mean()))
    return value, 8 * _UNIT * (float(times.sum()) + float(sizes.max()) + 1.0)


def _largest_rejected(evidence: _Evidence, log_eta: float) -> float:
    """The largest mean m whose ln E(m) is certainly at least -log_eta, rounded down; 0 if there is none."""
    check_log_eta(log_eta)

    def rejected(_: float, mean: float) -> bool:
        value, error = evidence(mean)
        return value - error >= -log_eta

    return round_down(probabilities(smallest_true_logit(rejected))[1])
