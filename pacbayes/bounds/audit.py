"""What regenerating a random part of the evidence says about all of it.

A checker generates m of the c completions that a certificate counts as right again, a uniform subset that nobody knew
before the evidence was fixed, and finds f of them wrong. If L of the c would flip, f is Hypergeometric(c, L, m), so
with probability 1 - delta over the subset

    L <= L+ = max { L : P[Hypergeometric(c, L, m) <= f] >= delta },

exactly f if all are generated again. The losses are then at most k + L+, and the bound on them holds for the policy as
the checker runs it, with the checker's delta added to the certificate's. Completions stored as wrong need no look: they
could only flip in the claim's favour.
"""

from operator import index

from pacbayes.bounds.binomial import log_failure_probability
from pacbayes.bounds.finite_pool import pool_losses_upper


def flips_upper(flips: int, regenerated: int, total: int, *, delta: float) -> int:
    """L+: how many of `total` stored outcomes flip, at most; a uniform subset was generated again.

    Args:
        flips: f, outcomes of the subset that came out otherwise.
        regenerated: m, size of the subset; 0 says nothing, and all may flip.
        total: c, stored outcomes of which the subset was drawn.
        delta: probability, over the draw of the subset, with which the limit may fail, in (0, 1).

    Raises:
        ValueError: not 0 <= flips <= regenerated <= total, or delta is not in (0, 1).
        TypeError: a count is not an integer.
    """
    flips, regenerated, total = index(flips), index(regenerated), index(total)
    if not 0 <= flips <= regenerated <= total:
        raise ValueError(
            f"expected 0 <= flips <= regenerated <= total, got flips={flips}, regenerated={regenerated}, total={total}"
        )
    log_delta = log_failure_probability(0.0, delta)
    if regenerated == 0:
        return total
    return pool_losses_upper(flips, regenerated, total, log_eta=log_delta)
