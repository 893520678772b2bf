"""Hold-out test sets for comparison: what the same labels would have said had they been kept out of training."""

from __future__ import annotations

from scipy.special import betaincinv

_SAFETY = 1e-9
_MOST = 10_000_000


def lower(correct: float, n: int, delta: float) -> float:
    """Clopper-Pearson lower bound on accuracy from `correct` of `n` held-out prompts, one-sided at `delta`."""
    return 0.0 if correct <= 0 else max(0.0, float(betaincinv(correct, n - correct + 1, delta)) - _SAFETY)


def interval(correct: float, n: int, delta: float = 0.05) -> tuple[float, float]:
    """Two-sided Clopper-Pearson interval at 1 - delta."""
    return lower(correct, n, delta / 2), 1.0 - lower(n - correct, n, delta / 2)


def labels_for(certified: float, accuracy: float, delta: float) -> int | None:
    """About how many held-out labels give `certified` when the policy is right on a share `accuracy` of them.

    Returns:
        None when no test set of a practical size does.
    """
    if not 0 < certified < accuracy:
        return None

    def enough(n: int) -> bool:
        return lower(int(accuracy * n), n, delta) >= certified

    high = 1
    while not enough(high):
        high *= 2
        if high > _MOST:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
