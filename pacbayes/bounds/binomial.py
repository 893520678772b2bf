"""Exact inversion of the binomial tail.

For a fixed policy with risk p the number of losses on n independent prompts is Bin(n, p), and

    P[ p > BinTailInverse(k, n, eta) ] <= eta,    BinTailInverse(k, n, eta) = max { p : P[Bin(n, p) <= k] >= eta }.

With eta = delta 2^-K and a union over coded policies (sum of 2^-K at most 1) it holds for all of them at once with
probability 1 - delta. No function of k alone gives a smaller valid upper limit that is monotone in k. K = 0 is
Clopper-Pearson.

References: Clopper and Pearson, Biometrika 26 (1934); J. Langford, "Tutorial on practical prediction theory for
classification", JMLR 6 (2005), Theorems 3.3 and 4.1.
"""

import math
from operator import index

from pacbayes.bounds.inversion import probabilities, round_down, round_up, smallest_true_logit
from pacbayes.bounds.tails import log_binomial_cdf

# Above, a tail's sum takes more memory than a laptop has, and counts are no longer exact once multiplied.
_MOST = 10**12


def binomial_risk_upper(losses: int, n: int, *, log_eta: float) -> float:
    """The largest p with P[Bin(n, p) <= losses] >= eta, rounded up.

    Args:
        losses: k, the number of losses, 0 <= k <= n.
        n: number of independent trials, n >= 1.
        log_eta: ln of the failure probability in nats, < 0 (ln delta - K ln 2).

    Raises:
        ValueError: a count or log_eta is out of range.
        TypeError: a count is not an integer.
    """
    return round_up(probabilities(_upper_logit(losses, n, log_eta))[0])


def binomial_risk_lower(losses: int, n: int, *, log_eta: float) -> float:
    """The smallest p with P[Bin(n, p) >= losses] >= eta, rounded down. Arguments as `binomial_risk_upper`."""
    check_counts(losses, n)
    return round_down(probabilities(_upper_logit(n - losses, n, log_eta))[1])


def _upper_logit(losses: int, n: int, log_eta: float) -> float:
    losses, n = index(losses), index(n)  # a mean over several draws is not binomial: refused, not rounded
    check_counts(losses, n)
    check_log_eta(log_eta)
    if losses == n:
        return math.inf

    def excluded(p: float, q: float) -> bool:
        value, error = log_binomial_cdf(losses, n, p, q)
        return value + error < log_eta

    return smallest_true_logit(excluded)


def check_counts(losses: float, n: int) -> None:
    """Raise ValueError unless 0 <= losses <= n and 1 <= n <= 10^12."""
    if n < 1 or not 0 <= losses <= n:
        raise ValueError(f"expected 0 <= losses <= n and n >= 1, got losses={losses}, n={n}")
    check_size("n", n)


def check_size(name: str, count: int) -> None:
    """Raise ValueError where a count is beyond what float64 tells apart and a sum over its tail fits into memory."""
    if count > _MOST:
        raise ValueError(f"expected {name} <= 10^12, got a number of {len(str(count))} digits")


def check_log_eta(log_eta: float) -> None:
    """Raise ValueError unless log_eta is finite and below 0 (a probability below 1)."""
    if not -math.inf < log_eta < 0.0:
        raise ValueError(f"expected a finite log_eta < 0, the logarithm of a probability in (0, 1), got {log_eta}")


def log_failure_probability(bits: float, delta: float) -> float:
    """ln(delta 2^-bits) in nats, rounded down.

    Raises:
        ValueError: bits is negative or not finite, or delta is not in (0, 1).
    """
    if not 0.0 <= bits < math.inf:
        raise ValueError(f"expected finite bits >= 0, got {bits}")
    if not 0.0 < delta < 1.0:
        raise ValueError(f"expected delta in (0, 1), got {delta}")
    return (math.log(delta) - bits * math.log(2.0)) * (1 + 2.0**-50)
