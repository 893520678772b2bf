"""Statements beyond one accuracy. Each names the failure probability of every event that it rests on; they add up.

A share of delta is an argument, never a default: it is fixed with the method, before the sample is drawn.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import Literal

from pacbayes.bounds.accuracy import certified_accuracy
from pacbayes.bounds.betting import betting_mean_lower_from_counts
from pacbayes.bounds.binomial import binomial_risk_lower, binomial_risk_upper, log_failure_probability
from pacbayes.bounds.finite_pool import expected_pool_risk_upper, pool_losses_upper, unseen_losses_upper


@dataclass(frozen=True)
class PairedCounts:
    """The coded policy beside the base model on the same prompts and noise.

    Args:
        won: coded right, base wrong.
        lost: coded wrong, base right.
        both: both right.
        n: prompts; on the other n - won - lost - both neither is right.

    Raises:
        ValueError: a count is negative or they exceed n.
        TypeError: a count is not an integer.
    """

    won: int
    lost: int
    both: int
    n: int

    def __post_init__(self) -> None:
        for count in (self.won, self.lost, self.both, self.n):
            index(count)
        if min(self.won, self.lost, self.both) < 0 or not 1 <= self.n >= self.won + self.lost + self.both:
            raise ValueError(f"expected counts of disjoint sets of n >= 1 prompts, got {self}")


@dataclass(frozen=True)
class CertifiedGain:
    """Lower limits of accuracy(coded) - accuracy(base); both hold, so their larger does.

    `marginal` is the certified accuracy minus the base model's upper limit, `paired` bets on the difference.
    """

    marginal: float
    paired: float

    @property
    def gain(self) -> float:
        """The larger of the two."""
        return max(self.marginal, self.paired)


def certified_gain(
    counts: PairedCounts,
    *,
    bits: float,
    delta_accuracy: float,
    delta_base: float,
    delta_paired: float,
    base_bits: float = 0.0,
) -> CertifiedGain:
    """Certified improvement over the base model under shared noise, failing with at most the sum of the three deltas.

    The difference of the verdicts, d in {-1, 0, 1}, has a variance of at most the share of prompts on which they
    differ, and betting on (d + 1)/2 gains from that. What fails to run must have been counted against the claim:
    wrong for the coded policy, right for the base.

    Args:
        counts: verdicts on the sample, both policies under the same noise.
        bits: -log2 of the coded policy's prior probability.
        delta_accuracy: of the coded policy's accuracy; the same event as the accuracy certificate's at this delta.
        delta_base: of the base model's accuracy.
        delta_paired: of the bet on the difference.
        base_bits: what the base model's limit pays. It was fixed beforehand, so nothing for its name; but where
            earlier samples were drawn for the same claim, -log2 of this attempt's weight (in `bits` it is included).

    Raises:
        ValueError: an argument is out of range or the deltas sum to 1 or more.
    """
    _check_shares(accuracy=delta_accuracy, base=delta_base, paired=delta_paired)
    coded = certified_accuracy(counts.n - counts.won - counts.both, counts.n, bits=bits, delta=delta_accuracy)
    # The upper limit of the base's accuracy is the one of a "risk" whose losses are its right answers.
    base = binomial_risk_upper(
        counts.lost + counts.both, counts.n, log_eta=log_failure_probability(base_bits, delta_base)
    )
    half = betting_mean_lower_from_counts(
        (0.0, 0.5, 1.0),
        (counts.lost, counts.n - counts.won - counts.lost, counts.won),
        log_eta=log_failure_probability(bits, delta_paired),
    )
    return CertifiedGain(marginal=_below(coded - base), paired=_below(2 * half - 1))


def transfer_accuracy(
    losses: int,
    n: int,
    differing: int,
    compared: int,
    *,
    bits: float,
    delta_student: float,
    delta_differ: float,
    teachers: int = 1,
) -> float:
    """Certified accuracy of a policy that was not coded, through its disagreement with a coded one; rounded down.

    risk(teacher) <= risk(student) + P(differ); it fails with at most delta_student + delta_differ.

    Args:
        losses: wrong answers of the coded student on the sample.
        n: size of the sample.
        differing: prompts on which the verifier got another input or gave another outcome; not comparable is differing.
        compared: m fresh prompts from the same distribution, unlabelled, drawn after both policies were fixed.
        bits: -log2 of the student's prior probability.
        delta_student: of the student's risk.
        delta_differ: of the disagreement.
        teachers: how many were tried; the choice among them is paid for.

    Raises:
        ValueError: an argument is out of range or the deltas sum to 1 or more.
    """
    log_eta, log_eta_differ = _transfer_levels(bits, delta_student, delta_differ, teachers)
    accuracy = binomial_risk_lower(n - losses, n, log_eta=log_eta)
    return max(0.0, _below(accuracy - binomial_risk_upper(differing, compared, log_eta=log_eta_differ)))


def disagreement_upper(differing: int, compared: int, *, bits: float, delta: float) -> float:
    """Upper limit of the probability that two policies differ, from fresh prompts; rounded up.

    Holds for independent prompts, and for a uniform subset of a finite pool (the expected disagreement there).

    Args:
        differing: prompts on which they differ or cannot be compared.
        compared: m, the fresh prompts, drawn after both policies were fixed.
        bits: log2 of how many pairs of policies were compared, plus that of earlier samples.
        delta: probability with which the statement may fail, in (0, 1).

    Raises:
        ValueError: an argument is out of range.
    """
    return expected_pool_risk_upper(differing, compared, log_eta=log_failure_probability(bits, delta))


def transfer_pool_accuracy(
    losses: int,
    n: int,
    differing: int,
    compared: int,
    population: int,
    *,
    bits: float,
    delta_student: float,
    delta_differ: float,
    outcome: Literal["realised", "expected"],
    teachers: int = 1,
) -> float:
    """`transfer_accuracy` on the unseen part of a finite pool, `compared` of whose items were drawn uniformly.

    Args:
        population: items in the pool, above n; n + compared <= population.
        outcome: "realised" only if the disagreement was measured under the noise that the statement is about; with
            noise of its own it is an "expected" disagreement and the statement one about expected accuracies.

    Raises:
        ValueError: as `transfer_accuracy`.
    """
    unseen = population - n
    if not 1 <= compared <= unseen:
        raise ValueError(f"expected 1 <= compared <= population - n = {unseen}, got {compared}")
    log_eta, log_eta_differ = _transfer_levels(bits, delta_student, delta_differ, teachers)
    student = unseen_losses_upper(losses, n, population, log_eta=log_eta, outcome=outcome)
    if outcome == "realised":
        differ = pool_losses_upper(differing, compared, unseen, log_eta=log_eta_differ) / unseen
    else:
        differ = expected_pool_risk_upper(differing, compared, log_eta=log_eta_differ)
    return max(0.0, _below(1.0 - student / unseen - differ))


def holdout_accuracy(losses: int, n: int, *, delta: float) -> float:
    """Certified accuracy from n held-out labels that no choice has touched: Clopper-Pearson, rounded down."""
    return certified_accuracy(losses, n, bits=0.0, delta=delta)


@dataclass(frozen=True)
class JointClaim:
    """One domain's part of a joint statement: losses on n prompts, bits, and its locked share of delta."""

    losses: int
    n: int
    bits: float
    delta: float


def joint_accuracies(claims: Mapping[str, JointClaim]) -> dict[str, float]:
    """Certified accuracies that hold all at once, failing with at most the sum of the claims' deltas.

    Raises:
        ValueError: an argument is out of range or the deltas sum to 1 or more.
    """
    _check_shares(**{name: claim.delta for name, claim in claims.items()})
    return {name: certified_accuracy(c.losses, c.n, bits=c.bits, delta=c.delta) for name, c in claims.items()}


def _transfer_levels(bits: float, delta_student: float, delta_differ: float, teachers: int) -> tuple[float, float]:
    _check_shares(student=delta_student, differ=delta_differ)
    if index(teachers) < 1:
        raise ValueError(f"expected teachers >= 1, got {teachers}")
    return log_failure_probability(bits, delta_student), log_failure_probability(math.log2(teachers), delta_differ)


def _check_shares(**deltas: float) -> None:
    if not all(0.0 < delta < 1.0 for delta in deltas.values()) or math.fsum(deltas.values()) >= 1.0:
        listed = ", ".join(f"{name}={delta}" for name, delta in deltas.items())
        raise ValueError(f"expected shares of delta in (0, 1) with a sum below 1, got {listed}")


def _below(difference: float) -> float:
    """A float certainly below a sum of a few numbers of size at most 2 that was rounded to nearest."""
    return difference - 2.0**-50
