"""Bounds for losses in [0, 1] by concentration inequalities; for zero-one losses the exact inversion is tighter.

Each function takes the sum of n independent losses in [0, 1] and returns an upper limit of the risk that fails with
probability at most eta. `kl_risk_upper` is a certificate in its own right for losses that are not zero-one. The
others are here so that a report can show what a looser accounting would have said.

References: Hoeffding, JASA 58 (1963), Theorem 1; Langford, JMLR 6 (2005), section 3; A. Maurer, "A note on the PAC
Bayesian theorem", arXiv cs/0411099 (2004), Theorem 5; O. Catoni, "PAC-Bayesian supervised classification", IMS
Lecture Notes 56 (2007), Theorem 1.2.1; Lotfi et al., "PAC-Bayes compression bounds so tight that they can explain
generalization", NeurIPS 2022.
"""

import math
from collections.abc import Sequence

from pacbayes.bounds.binomial import check_counts, check_log_eta
from pacbayes.bounds.inversion import probabilities, round_up, smallest_true_logit
from pacbayes.bounds.tails import binomial_deviance

# Catoni's parameter, the optimum of which depends on the data, is chosen from this fixed grid; each value pays
# ln(grid size).
CATONI_GRID = tuple(2.0 ** (j / 4) for j in range(-48, 21))


def kl_risk_upper(losses: float, n: int, *, log_eta: float) -> float:
    """The largest p with n kl(losses/n || p) <= -log_eta, rounded up: Chernoff's bound.

    Valid for independent losses in [0, 1] with any distribution.

    Args:
        losses: the sum of the losses, 0 <= losses <= n.
        n: number of independent trials, n >= 1.
        log_eta: ln of the failure probability in nats, < 0.

    Raises:
        ValueError: an argument is out of range.
    """
    check_counts(losses, n)
    check_log_eta(log_eta)
    if losses == n:
        return 1.0

    def excluded(p: float, q: float) -> bool:
        deviance, error = binomial_deviance(losses, n, p, q)
        return losses < n * p and deviance - error > -log_eta

    return round_up(probabilities(smallest_true_logit(excluded))[0])


def kl_risk_lower(losses: float, n: int, *, log_eta: float) -> float:
    """The smallest p with n kl(losses/n || p) <= -log_eta, rounded down. Arguments as `kl_risk_upper`."""
    check_counts(losses, n)
    return max(0.0, 1.0 - kl_risk_upper(n - losses, n, log_eta=log_eta) - 2.0**-53)


def maurer_seeger_risk_upper(losses: float, n: int, *, log_eta: float) -> float:
    """The largest p with n kl(losses/n || p) <= ln(2 sqrt n) - log_eta: Maurer's form of Seeger's PAC-Bayes bound."""
    check_counts(losses, n)
    return kl_risk_upper(losses, n, log_eta=log_eta - math.log(2 * math.sqrt(n)))


def hoeffding_risk_upper(losses: float, n: int, *, log_eta: float) -> float:
    """losses/n + sqrt(-log_eta / 2n), rounded up."""
    check_counts(losses, n)
    check_log_eta(log_eta)
    return round_up(losses / n + math.sqrt(-log_eta / (2 * n)))


def catoni_risk_upper(losses: float, n: int, *, log_eta: float, grid: Sequence[float] = CATONI_GRID) -> float:
    """min over C of (1 - exp(-C losses/n - c/n)) / (1 - exp(-C)) with c = -log_eta + ln |grid|, rounded up.

    The union over the grid is charged: taking the best C after seeing the data without it is not a bound.
    """
    check_counts(losses, n)
    check_log_eta(log_eta)
    if not grid or not all(0.0 < c < math.inf for c in grid):
        raise ValueError("expected a grid of positive parameters")
    charge = (math.log(len(grid)) - log_eta) / n
    return round_up(min(math.expm1(-c * losses / n - charge) / math.expm1(-c) for c in grid))


def gaussian_kl(mean: Sequence[float], *, scale: float, prior_scale: float) -> float:
    """KL(N(mean, scale^2 I) || N(0, prior_scale^2 I)) in nats.

    Raises:
        ValueError: a scale is not positive.
    """
    if not (scale > 0 and prior_scale > 0):
        raise ValueError(f"expected positive scales, got {scale} and {prior_scale}")
    ratio = (scale / prior_scale) ** 2
    return 0.5 * (math.fsum(x * x for x in mean) / prior_scale**2 + len(mean) * (ratio - 1 - math.log(ratio)))


def pac_bayes_kl_risk_upper(losses: float, n: int, *, kl_nats: float, delta: float) -> float:
    """The PAC-Bayes-kl bound for a randomised policy whose expected number of losses on the sample is `losses`.

    For comparison only: it speaks about a policy drawn anew from the posterior for every prompt, and `losses` must be
    the exact expectation under that posterior (an estimate needs a bound of its own).

    Raises:
        ValueError: an argument is out of range.
    """
    if not 0.0 <= kl_nats < math.inf or not 0.0 < delta < 1.0:
        raise ValueError(f"expected finite kl_nats >= 0 and delta in (0, 1), got {kl_nats} and {delta}")
    return maurer_seeger_risk_upper(losses, n, log_eta=math.log(delta) - kl_nats)
