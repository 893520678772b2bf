"""Bisections end on the side that was seen to be safe."""

import math

from pacbayes.bounds.inversion import (
    largest_true,
    probabilities,
    round_down,
    round_up,
    smallest_true,
    smallest_true_logit,
)


def test_the_end_returned_is_one_that_was_excluded() -> None:
    """A peer's inversion returned the midpoint, which nobody had checked."""
    for edge in (1e-200, 1e-9, 0.1, 0.3, 0.5, 0.999):
        seen: dict[float, bool] = {}

        def excluded(p: float, q: float, edge: float = edge, seen: dict[float, bool] = seen) -> bool:
            assert abs(p + q - 1) < 1e-15
            seen[p] = p >= edge
            return seen[p]

        p, _ = probabilities(smallest_true_logit(excluded))
        assert seen[p]
        assert edge <= p <= edge * (1 + 1e-12)


def test_never_excluded() -> None:
    assert smallest_true_logit(lambda p, q: False) == math.inf
    assert probabilities(math.inf) == (1.0, 0.0)


def test_both_probabilities_are_precise() -> None:
    for logit in (-600.0, -40.0, 0.0, 40.0, 600.0):
        p, q = probabilities(logit)
        assert (q, p) == probabilities(-logit)
        assert math.isclose(math.log(min(p, q)), -abs(logit) if logit else math.log(0.5), abs_tol=1e-12, rel_tol=1e-15)


def test_rounding_stays_inside() -> None:
    assert round_up(1.0) == 1.0
    assert round_down(0.0) == 0.0
    assert round_down(0.3) < 0.3 < round_up(0.3) < 0.3 + 1e-15


def test_integer_bisections() -> None:
    for edge in range(-2, 12):
        expected = edge if 0 <= edge <= 9 else None
        assert smallest_true(lambda i, edge=edge: i >= edge, 0, 9) == (0 if edge < 0 else expected)
        assert largest_true(lambda i, edge=edge: i <= edge, 0, 9) == (9 if edge > 9 else expected)
    assert smallest_true(lambda i: True, 5, 4) is None
    assert largest_true(lambda i: True, 5, 4) is None
