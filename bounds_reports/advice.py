"""What to shrink when a certificate promises too little: prompts, bits or risk, and by how much.

The figures are sufficient, not necessary: by Chernoff's bound (K ln 2 + ln 1/delta) / n <= kl(risk, target) certifies
the target, and the exact inversion that certificates use is at least as tight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """Any one of these, the others unchanged, is enough to certify `target` accuracy; None where nothing is."""

    target: float
    prompts: int | None
    bits: int | None
    accuracy: float | None


def relative_entropy(q: float, p: float) -> float:
    """kl(q, p) between coins, in nats, for p in (0, 1)."""
    left = q * math.log(q / p) if q > 0 else 0.0
    right = (1 - q) * math.log((1 - q) / (1 - p)) if q < 1 else 0.0
    return left + right


def advise(*, target: float, accuracy: float, n: int, bits: float, delta: float) -> Advice | None:
    """What would certify `target`, from a policy that is right on a share `accuracy` of n prompts at `bits` bits."""
    if not 0 < target < 1:
        return None
    confidence = math.log(1 / delta)
    price = bits * math.log(2) + confidence
    prompts = allowed = None
    if accuracy > target:
        nats = relative_entropy(1 - accuracy, 1 - target)
        prompts = math.ceil(price / nats)
        spare = math.floor((n * nats - confidence) / math.log(2))
        allowed = spare if spare >= 0 else None
    needed = None
    if -math.log(target) >= price / n:
        low, high = 0.0, 1 - target  # the risk that is enough lies between them
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if relative_entropy(middle, 1 - target) >= price / n else (low, middle)
        needed = 1 - low
    return Advice(target, prompts, allowed, needed)
