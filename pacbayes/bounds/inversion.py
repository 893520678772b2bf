"""Bisections that return the safe end of the bracket, never its midpoint."""

import math
from collections.abc import Callable

# Probabilities from 1e-282 up: the tails divide counts by them, and the quotient must stay a finite float64.
_LOGIT_RANGE = 650.0


def smallest_true_logit(excluded: Callable[[float, float], bool]) -> float:
    """The smallest logit x, to the precision of float64, at which `excluded(p, 1 - p)` holds with p = 1/(1 + e^-x).

    `excluded` must be monotone: once true it stays true as p grows. The value returned is one at which it was seen to
    be true (or +inf where it never is). Working in logits keeps p and 1 - p both to full relative precision.
    """
    low, high = -_LOGIT_RANGE, _LOGIT_RANGE
    if not excluded(*probabilities(high)):
        return math.inf
    while True:
        middle = 0.5 * (low + high)
        if middle in (low, high):
            return high
        if excluded(*probabilities(middle)):
            high = middle
        else:
            low = middle


def probabilities(logit: float) -> tuple[float, float]:
    """(p, 1 - p) for p = 1/(1 + e^-logit), each to full relative precision."""
    small = math.exp(-abs(logit))
    p, q = 1.0 / (1.0 + small), small / (1.0 + small)
    return (p, q) if logit >= 0 else (q, p)


def round_up(probability: float) -> float:
    """A float64 in [0, 1] that is certainly not below a probability computed to within two units in the last place."""
    return min(1.0, probability * (1 + 2.0**-51))


def round_down(probability: float) -> float:
    """A float64 in [0, 1] that is certainly not above a probability computed to within two units in the last place."""
    return max(0.0, probability * (1 - 2.0**-51))


def largest_true(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """The largest integer in [low, high] at which `holds`, which turns from true to false once; None if none."""
    if low > high or not holds(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def smallest_true(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """The smallest integer in [low, high] at which `holds`, which turns from false to true once; None if none."""
    if low > high or not holds(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
