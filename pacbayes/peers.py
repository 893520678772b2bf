"""What published compression bounds would charge for a message, and certify from it; for comparison only.

Lotfi et al., "PAC-Bayes compression bounds so tight that they can explain generalization" (arXiv 2211.13609, code
tight-pac-bayes) and "Non-vacuous generalization bounds for large language models" (SubLoRA, arXiv 2312.17173) quantize
a vector to levels learned from it. What they send is a codebook of the levels, the histogram of the symbols, and the
symbols in an arithmetic code under that histogram: l bits. A prefix makes it self-delimiting: K <= l + 2 log2 l.
SubLoRA then bounds the risk by Hoeffding, tight-pac-bayes by Catoni with the parameter tuned.

Each choice is taken in its best version, so that the comparison does not flatter our own accounting:

- the levels are the values that occur in the vector, no more, and are taken to be exact in float16;
- the symbols cost their empirical entropy, rounded up to whole bits, without what an arithmetic coder adds;
- a vector of zeros costs nothing, as there, though a code with an empty word has no room for others; and the prefix is
  taken as they take it, though the sum of 2^-K over all messages is then pi^2/6, .72 bits above what a code may have;
- nothing is paid for samples tried before, for the number of levels, or for a choice among hyperparameters;
- Catoni's parameter comes from a grid whose union bound costs ln 69 = 4.2 nats. Theirs costs 2 ln(2 + g/ln(1 + alpha))
  with alpha = 1e-4 and g the parameter's logarithm: above 18 nats from g = 1 on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pacbayes.bounds.binomial import log_failure_probability
from pacbayes.bounds.concentration import catoni_risk_upper, hoeffding_risk_upper, kl_risk_upper

LEVEL_BITS = 16
"""A level in the codebook: float16."""


@dataclass(frozen=True, slots=True)
class CodebookMessage:
    """The parts of a message with a learned codebook, in bits."""

    levels: int
    symbols: int
    codebook: int
    histogram: int

    @property
    def length(self) -> int:
        """l: the message without its prefix."""
        return self.symbols + self.codebook + self.histogram

    @property
    def prefix(self) -> float:
        """2 log2 l, what makes the message self-delimiting; 0 for an empty message."""
        return 2 * math.log2(self.length) if self.length else 0.0

    @property
    def bits(self) -> float:
        """K = l + 2 log2 l."""
        return self.length + self.prefix


def codebook_message(q: Sequence[int]) -> CodebookMessage:
    """What a learned codebook charges for the integers q; levels and histogram are those of q itself.

    Raises:
        ValueError: q is empty.
    """
    if not q:
        raise ValueError("expected at least one integer")
    counts = Counter(q)
    if set(counts) == {0}:
        return CodebookMessage(0, 0, 0, 0)
    # Less a little: an entropy of a whole number of bits must not be rounded up by floating point.
    entropy = -sum(count * math.log2(count / len(q)) for count in counts.values())
    levels = len(counts)
    return CodebookMessage(
        levels=levels,
        symbols=max(0, math.ceil(entropy - 1e-9)),
        codebook=LEVEL_BITS * levels,
        histogram=math.ceil(math.log2(len(q))) * levels,
    )


def looser_accuracies(losses: float, n: int, *, bits: float, delta: float) -> dict[str, float]:
    """Certified accuracy by Hoeffding, by Catoni, and by Chernoff's kl, each by itself and rounded down; 0: nothing.

    They hold for losses in [0, 1], also for draws without replacement from a pool, where they are about the whole pool
    (Hoeffding, JASA 58 (1963), Theorem 4).

    Args:
        losses: the sum over prompts of the losses, each the mean over the prompt's draws.
        n: number of prompts.
        bits: what the policy is charged.
        delta: probability with which the statement may fail.

    Raises:
        ValueError: an argument is out of range.
    """
    log_eta = log_failure_probability(bits, delta)
    upper = {
        "hoeffding": hoeffding_risk_upper(losses, n, log_eta=log_eta),
        "catoni": catoni_risk_upper(losses, n, log_eta=log_eta),
        "kl": kl_risk_upper(losses, n, log_eta=log_eta),
    }
    return {name: max(0.0, 1.0 - risk - 2.0**-53) for name, risk in upper.items()}
