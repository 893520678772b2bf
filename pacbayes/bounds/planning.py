"""The inverse questions: what would make a certificate reach a target, in prompts, in bits, or in right answers."""

import math
from collections.abc import Callable
from fractions import Fraction

from pacbayes.bounds.accuracy import certified_accuracy
from pacbayes.bounds.inversion import largest_true, smallest_true

# Samples beyond this are not a plan.
_MOST_PROMPTS = 10**9
_STEPS_PER_BIT = 1024


def required_n(target: float, *, accuracy: float, bits: float, delta: float, bound: str = "binomial") -> int | None:
    """The smallest n at which an empirical accuracy certifies the target, with ceil(n (1 - accuracy)) losses.

    With bits = 0 it is the number of held-out labels that would certify the same number.

    Returns:
        n, or None if no n up to 10^9 does (the target is not below the accuracy, or hardly).

    Raises:
        ValueError: an argument is out of range or the bound is not known.
    """
    _check_target(target)
    if not 0.0 <= accuracy <= 1.0:
        raise ValueError(f"expected an accuracy in [0, 1], got {accuracy}")
    # The simple fraction that was meant and not the float beside it, so that .8 of 1000 is 800.
    risk = 1 - Fraction(accuracy).limit_denominator(_MOST_PROMPTS)

    def reached(losses: int, n: int) -> bool:
        return certified_accuracy(losses, n, bits=bits, delta=delta, bound=bound) >= target

    if risk == 0:
        return _smallest_by_doubling(lambda n: reached(0, n), 1, _MOST_PROMPTS)
    # With the losses fixed more prompts help, but the next loss is a step back: find the first count of losses with
    # which the target is reached at the most prompts that have this count, then the fewest prompts with it that do.
    losses = _smallest_by_doubling(lambda k: reached(k, int(k / risk)), 1, int(_MOST_PROMPTS * risk))
    if losses is None:
        return None
    return smallest_true(lambda n: reached(losses, n), int((losses - 1) / risk) + 1, int(losses / risk))


def required_bits(target: float, *, losses: int, n: int, delta: float, bound: str = "binomial") -> float | None:
    """The largest message, in bits and rounded down, with which the evidence certifies the target; None if 0 is too
    many.

    Raises:
        ValueError: an argument is out of range or the bound is not known.
    """
    _check_target(target)

    def reached(steps: int) -> bool:
        return certified_accuracy(losses, n, bits=steps / _STEPS_PER_BIT, delta=delta, bound=bound) >= target

    # Without any loss the certified accuracy is at most 2^(-bits/n), so that more bits than these are too many.
    most = 1 + math.ceil(-n * math.log2(target))
    steps = largest_true(reached, 0, most * _STEPS_PER_BIT)
    return None if steps is None else steps / _STEPS_PER_BIT


def required_accuracy(target: float, *, n: int, bits: float, delta: float, bound: str = "binomial") -> float | None:
    """The smallest empirical accuracy (right answers / n) that certifies the target; None if n of n do not.

    Raises:
        ValueError: an argument is out of range or the bound is not known.
    """
    _check_target(target)

    def reached(correct: int) -> bool:
        return certified_accuracy(n - correct, n, bits=bits, delta=delta, bound=bound) >= target

    correct = smallest_true(reached, 0, n)
    return None if correct is None else correct / n


def _smallest_by_doubling(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """`smallest_true` that doubles its way up, so that it evaluates nothing much larger than its answer."""
    probe = low
    while probe < high and not holds(probe):
        low, probe = probe + 1, 2 * probe
    return smallest_true(holds, low, min(probe, high))


def _check_target(target: float) -> None:
    if not 0.0 < target < 1.0:
        raise ValueError(f"expected a target in (0, 1), got {target}")
