"""Certified accuracy: from losses on the sample and bits of the message to a number for new prompts."""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from pacbayes.bounds.betting import betting_mean_lower, betting_mean_lower_from_counts
from pacbayes.bounds.binomial import binomial_risk_lower, check_counts, log_failure_probability
from pacbayes.bounds.concentration import (
    catoni_risk_upper,
    hoeffding_risk_upper,
    kl_risk_upper,
    maurer_seeger_risk_upper,
)
from pacbayes.bounds.inversion import round_down


class AccuracyBound(Protocol):
    """A lower limit of the accuracy from the number of correct answers, failing with probability exp(log_eta)."""

    def __call__(self, correct: int, n: int, /, *, log_eta: float) -> float: ...


def _complement(risk_upper: Callable[..., float]) -> AccuracyBound:
    def accuracy_lower(correct: int, n: int, /, *, log_eta: float) -> float:
        # 1 - u is rounded to nearest; one more unit keeps it below the exact difference.
        return max(0.0, 1.0 - risk_upper(n - correct, n, log_eta=log_eta) - 2.0**-53)

    return accuracy_lower


def _betting(correct: int, n: int, /, *, log_eta: float) -> float:
    return betting_mean_lower_from_counts((0.0, 1.0), (n - correct, correct), log_eta=log_eta)


# The binomial's lower limit for the rate of correct answers is computed directly, which keeps tiny accuracies precise.
ACCURACY_BOUNDS: Mapping[str, AccuracyBound] = MappingProxyType(
    {
        "binomial": binomial_risk_lower,
        "betting": _betting,
        "kl": _complement(kl_risk_upper),
        "maurer_seeger": _complement(maurer_seeger_risk_upper),
        "hoeffding": _complement(hoeffding_risk_upper),
        "catoni": _complement(catoni_risk_upper),
    }
)


def certified_accuracy(losses: int, n: int, *, bits: float, delta: float, bound: str = "binomial") -> float:
    """With probability at least 1 - delta, every coded policy is at least this accurate on new prompts; rounded down.

    Args:
        losses: wrong answers of the decoded policy on the n prompts of the sample; every doubt counts as a loss.
        n: number of independent prompts, n >= 1.
        bits: -log2 of the policy's prior probability, everything after the lock included; 0 for a policy fixed
            beforehand.
        delta: probability with which the statement may fail, in (0, 1).
        bound: one of `ACCURACY_BOUNDS`, fixed before the sample was seen. The best of several would be a choice that
            pays.

    Raises:
        ValueError: an argument is out of range or the bound is not known.
    """
    if bound not in ACCURACY_BOUNDS:
        raise ValueError(f"unknown bound {bound!r}; expected one of {', '.join(ACCURACY_BOUNDS)}")
    check_counts(losses, n)
    return ACCURACY_BOUNDS[bound](n - losses, n, log_eta=log_failure_probability(bits, delta))


def certified_mean_accuracy(rewards: ArrayLike, *, bits: float, delta: float, population: int | None = None) -> float:
    """`certified_accuracy` from several draws a prompt, or from exact probabilities of a right answer; by betting.

    The prompts are the units, however many draws each has; draws of one prompt may depend on each other (stratified
    noise).

    Args:
        rewards: shape (n, M), the M rewards of each of the n prompts, or (n,), their means; in [0, 1].
        bits: -log2 of the policy's prior probability.
        delta: probability with which the statement may fail, in (0, 1).
        population: size of a finite pool for a statement about its *realised* rewards; the prompts in order of drawing.

    Raises:
        ValueError: an argument is out of range.
    """
    draws = np.asarray(rewards, dtype=np.float64)
    if draws.ndim == 2 and (draws.size == 0 or not ((draws >= 0) & (draws <= 1)).all()):
        raise ValueError(f"expected rewards in [0, 1], at least one, got shape {draws.shape}")
    means = draws.mean(axis=1) if draws.ndim == 2 else draws
    return betting_mean_lower(means, log_eta=log_failure_probability(bits, delta), population=population)


def certified_unseen_mean_accuracy(rewards: ArrayLike, *, bits: float, delta: float, population: int) -> float:
    """`certified_mean_accuracy` of the realised rewards of a pool's items that were not drawn; the same event.

    The items drawn are known: what the whole pool has at least, less what they have, is left to the others.

    Args:
        rewards: shape (n, M) or (n,), in the order of drawing.
        bits: -log2 of the policy's prior probability.
        delta: probability with which the statement may fail, in (0, 1).
        population: size of the pool, above n.

    Raises:
        ValueError: an argument is out of range.
    """
    draws = np.asarray(rewards, dtype=np.float64)
    means = draws.mean(axis=1) if draws.ndim == 2 else draws
    if population <= len(draws):
        raise ValueError(f"expected a population above n, got population={population}, n={len(draws)}")
    whole = certified_mean_accuracy(draws, bits=bits, delta=delta, population=population)
    left = population * Fraction(whole) - Fraction(math.fsum(means)) - Fraction(len(means), 2**40)
    share = max(Fraction(0), left / (population - len(means)))
    return round_down(float(share))
