"""What regenerating a random part of the evidence says about all of it.

A checker generates m of the c completions that a certificate counts as right again, a uniform subset that nobody knew
before the evidence was fixed, and finds f of them wrong. If L of the c would flip, f is Hypergeometric(c, L, m), so
with probability 1 - delta over the subset

    L <= L+ = max { L : P[Hypergeometric(c, L, m) <= f] >= delta },

exactly f if all are generated again. The losses are then at most k + L+, and the bound on them holds for the policy as
the checker runs it, with the checker's delta added to the certificate's. Completions stored as wrong need no look: they
could only flip in the claim's favour. In a gain over the base model it is the base's losses that could.
"""

from operator import index

from pacbayes.bounds.binomial import log_failure_probability
from pacbayes.bounds.finite_pool import pool_losses_upper
from pacbayes.bounds.statements import CertifiedGain, PairedCounts, certified_gain


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


def gain_with_flips(
    counts: PairedCounts,
    *,
    coded_flips: int,
    base_flips: int,
    bits: float,
    delta_accuracy: float,
    delta_base: float,
    delta_paired: float,
    base_bits: float = 0.0,
) -> CertifiedGain:
    """`certified_gain` if, at worst, so many right answers of the coded policy are wrong, and so many wrong ones of the
    base model right.

    Every flip lowers the difference d of one prompt by 1; which prompt is not known. For the bet it is worst where d
    was 0: with x = (d + 1)/2 the factor 1 + t (x - m) of a bet loses more from 1/2 to 0 than from 1 to 1/2, at every
    stake t, so the wealth is least and the limit lowest. Where not that many prompts have d = 0, the bet is taken to
    say nothing.

    Args:
        counts: the stored verdicts.
        coded_flips, base_flips: limits of the flips; at most the right answers of coded and the wrong ones of base.
        bits, delta_accuracy, delta_base, delta_paired, base_bits: as `certified_gain`.

    Raises:
        ValueError: an argument is out of range.
    """
    n, flips = counts.n, coded_flips + base_flips
    coded, base = counts.won + counts.both - coded_flips, counts.lost + counts.both + base_flips
    if min(coded_flips, base_flips, coded) < 0 or base > n:
        raise ValueError(f"expected flips that fit into {counts}, got {coded_flips} and {base_flips}")
    both = max(0, coded + base - n)

    def gain(worst: PairedCounts) -> CertifiedGain:
        return certified_gain(
            worst,
            bits=bits,
            delta_accuracy=delta_accuracy,
            delta_base=delta_base,
            delta_paired=delta_paired,
            base_bits=base_bits,
        )

    marginal = gain(PairedCounts(won=coded - both, lost=base - both, both=both, n=n)).marginal
    if flips > n - counts.won - counts.lost:
        return CertifiedGain(marginal=marginal, paired=-1.0)
    paired = gain(PairedCounts(won=counts.won, lost=counts.lost + flips, both=0, n=n)).paired
    return CertifiedGain(marginal=marginal, paired=paired)
