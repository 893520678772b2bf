"""Where to spend labels: what N labelled prompts can be expected to certify, by design, from the numbers of a pilot.

*All*: train on all N, count all N, pay K bits. *Prior*: train on a share first, fix the prior there, count the others
only and pay for what the message moves away from it. *Hold-out*: train on N - h, count h that nothing has touched, pay
no bits; any policy will do. Every number is the bound of a certificate (`certified_accuracy`), averaged over the losses
that a policy of the pilot's accuracy would have. It is a plan and no statement about any policy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlog1py, xlogy

from pacbayes.bounds.accuracy import certified_accuracy
from pacbayes.bounds.inversion import largest_true, smallest_true

# A polynomial through so many counts of losses stands for the bound between them; it is smooth in the losses.
_NODES = (-2.6, -1.3, 0.0, 1.3, 2.6)
# Shares of the labels that are tried as hold-outs; the best is then refined between its neighbours.
_SHARES = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, *(i / 10 for i in range(2, 10)), 0.95)
_STEPS_PER_BIT = 8
_ACCURACY_STEPS = 10_000


@dataclass(frozen=True)
class LearningCurve:
    """Accuracy by the number of labels trained on: interpolated in log n, and flat beyond both ends.

    Beyond the largest size that promises no more than was measured. Below the smallest it flatters: `measured` tells.

    Raises:
        ValueError: no point, a size below 1, the same size twice, or an accuracy outside [0, 1].
    """

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.points))
        if not ordered:
            raise ValueError("expected at least one point (labels trained on, accuracy)")
        for size, accuracy in ordered:
            if size < 1 or not 0.0 <= accuracy <= 1.0:
                raise ValueError(f"expected a size of at least 1 and an accuracy in [0, 1], got {size}:{accuracy}")
        for (size, _), (other, _) in pairwise(ordered):
            if size == other:
                raise ValueError(f"the learning curve has two accuracies for {size} labels")
        object.__setattr__(self, "points", ordered)

    def at(self, size: int) -> float:
        """The accuracy after training on `size` labels, or that of the nearest end of the curve."""
        sizes, accuracies = zip(*self.points, strict=True)
        return float(np.interp(math.log(max(size, 1)), np.log(sizes), accuracies))

    def measured(self, size: int) -> bool:
        """Whether a pilot was trained on as few labels as these."""
        return size >= self.points[0][0]


@dataclass(frozen=True)
class Design:
    """One way to spend the labels, and the certified accuracy to be expected of it.

    `assumed` where no pilot was trained on so few labels, so that the accuracy flatters. In nine of ten samples the
    certified accuracy is at least `nine_in_ten`, if the accuracy is the pilot's.
    """

    trained_on: int
    counted: int
    bits: float
    accuracy: float
    assumed: bool
    expected: float
    nine_in_ten: float


@dataclass(frozen=True)
class PriorDesign:
    """A prior learned on a share of the labels. What it does hangs on its bits, which only a pilot can tell.

    `planned` is there if the bits are known. Otherwise it lies between `unhelpful`, as many bits as without such a
    prior, and `ideal`, no bits at all and yet the accuracy of training on all. If really nothing is moved after the
    prior was fixed, then it *is* the hold-out of these labels. The break-even bits are the longest messages with which
    it certifies as much as certifying on all, and as the better of that and the hold-outs; None: not with any.
    """

    planned: Design | None
    unhelpful: Design
    ideal: Design
    bits_to_match_all: float | None
    bits_to_match_best: float | None


@dataclass(frozen=True)
class HoldOutDesign:
    """A hold-out of one policy: the size that was asked for or is best, and what other sizes would do.

    `optimal`: the size is the best of those that leave as many labels for training as a pilot had; otherwise it is as
    asked for, or by default a fifth. `accuracy_needed` is the accuracy, after training on fewer labels, at which it
    certifies as much as certifying on all; None: not with any.
    """

    policy: str
    chosen: Design
    optimal: bool
    accuracy_needed: float | None
    sizes: tuple[Design, ...]


@dataclass(frozen=True)
class LabelPlan:
    """The three designs side by side; a tie goes to the one named first: all, prior, hold-out."""

    n: int
    delta: float
    certify_all: Design
    prior: PriorDesign
    holdouts: tuple[HoldOutDesign, ...]

    @property
    def ranking(self) -> list[tuple[str, Design]]:
        """("all" | "prior" | "hold-out POLICY", design), best first; a prior of unknown bits is not among them."""
        known = [("all", self.certify_all)]
        known += [("prior", self.prior.planned)] if self.prior.planned else []
        known += [(f"hold-out {one.policy}", one.chosen) for one in self.holdouts]
        return sorted(known, key=lambda entry: -entry[1].expected)


def expected_certified_accuracy(accuracy: float, n: int, *, bits: float, delta: float) -> float:
    """The mean of `certified_accuracy` over losses ~ Bin(n, 1 - accuracy).

    The bound is evaluated at five counts of losses, or at all that matter if they are few, and a polynomial stands for
    it between them: the mean is right to about 1e-4, not rounded down. It is for planning.

    Raises:
        ValueError: an argument is out of range.
    """
    losses, weights = _loss_distribution(accuracy, n)
    if len(losses) > 12:
        mean, deviation = float(losses @ weights), math.sqrt(n * accuracy * (1 - accuracy))
        wanted = (round(mean + step * max(deviation, 1.0)) for step in _NODES)
        nodes = sorted({min(max(node, int(losses[0])), int(losses[-1])) for node in wanted})
        weights = np.array([_lagrange(node, nodes, losses) @ weights for node in nodes])
        losses = np.array(nodes)
    values = [certified_accuracy(int(k), n, bits=bits, delta=delta) for k in losses]
    return min(max(float(np.array(values) @ weights), 0.0), 1.0)


def plan_labels(
    n: int,
    *,
    coded: LearningCurve,
    bits: float,
    delta: float,
    fresh: LearningCurve | None = None,
    teacher: LearningCurve | None = None,
    share: float = 0.5,
    prior_bits: float | None = None,
    holdout: int | None = None,
    attempt_bits: float = 0.0,
    holdout_bits: float = 0.0,
) -> LabelPlan:
    """What n labelled prompts can be expected to certify: all of them, a prior on a share, or a hold-out.

    Args:
        n: labelled prompts, at least 2.
        coded: accuracy of the policy with a message, on the prompts that it was trained on.
        bits: its message with the choice from the menu, without the attempt.
        delta: probability with which the statement may fail.
        fresh: its accuracy on other prompts, which a hold-out would certify; none: as `coded`, which flatters.
        teacher: accuracy on other prompts of a policy without a message, which a hold-out can certify as well.
        share: of the labels that the prior is learned on; the others are counted.
        prior_bits: the message under that prior, from a pilot; none: not known.
        holdout: labels held out; none: the best number of which the pilots can tell, or else a fifth.
        attempt_bits: price of the attempt, for certificates; `holdout_bits`: the same, for hold-outs.

    Raises:
        ValueError: an argument is out of range.
    """
    if n < 2:
        raise ValueError(f"expected at least 2 labelled prompts, got {n}")
    if not 0.0 < share < 1.0:
        raise ValueError(f"expected a share in (0, 1), got {share}")
    for paid in (bits, prior_bits or 0.0, attempt_bits, holdout_bits):
        if not 0.0 <= paid < math.inf:
            raise ValueError(f"expected finite bits >= 0, got {paid}")
    if holdout is not None and not 1 <= holdout < n:
        raise ValueError(f"expected a hold-out of 1 to {n - 1} of {n} labels, got {holdout}")

    everything = _design(coded, n, n, bits + attempt_bits, delta)
    policies = {"coded": fresh or coded} | ({"teacher": teacher} if teacher else {})
    holdouts = tuple(
        _hold_out(policy, curve, n, holdout, holdout_bits, delta, everything.expected)
        for policy, curve in policies.items()
    )
    counted = n - min(max(round(share * n), 1), n - 1)

    def with_prior(message: float) -> Design:
        return _design(coded, n, counted, message + attempt_bits, delta)

    def break_even(target: float) -> float | None:
        def reached(steps: int) -> bool:
            paid = steps / _STEPS_PER_BIT + attempt_bits
            return expected_certified_accuracy(everything.accuracy, counted, bits=paid, delta=delta) >= target

        # Without any loss the certified accuracy is at most 2^(-bits/n), so that more bits than these are too many.
        most = min(bits, 1 - counted * math.log2(max(target, 1e-300)))
        steps = largest_true(reached, 0, math.ceil(most * _STEPS_PER_BIT))
        return None if steps is None else steps / _STEPS_PER_BIT

    prior = PriorDesign(
        planned=None if prior_bits is None else with_prior(prior_bits),
        unhelpful=with_prior(bits),
        ideal=with_prior(0.0),
        bits_to_match_all=break_even(everything.expected),
        bits_to_match_best=break_even(max(everything.expected, *(one.chosen.expected for one in holdouts))),
    )
    return LabelPlan(n, delta, everything, prior, holdouts)


def _design(curve: LearningCurve, trained_on: int, counted: int, bits: float, delta: float) -> Design:
    accuracy = curve.at(trained_on)
    losses, weights = _loss_distribution(accuracy, counted)
    many = int(losses[min(int(np.searchsorted(np.cumsum(weights), 0.9)), len(losses) - 1)])
    return Design(
        trained_on=trained_on,
        counted=counted,
        bits=bits,
        accuracy=accuracy,
        assumed=not curve.measured(trained_on),
        expected=expected_certified_accuracy(accuracy, counted, bits=bits, delta=delta),
        nine_in_ten=certified_accuracy(many, counted, bits=bits, delta=delta),
    )


def _hold_out(
    policy: str, curve: LearningCurve, n: int, asked: int | None, bits: float, delta: float, target: float
) -> HoldOutDesign:
    def held_out(labels: Iterable[int]) -> list[Design]:
        return [_design(curve, n - h, h, bits, delta) for h in sorted(set(labels))]

    def best(designs: list[Design]) -> Design:
        return max(designs, key=lambda one: one.expected)

    most = n - curve.points[0][0]  # labels to spare if as many are trained on as in the smallest pilot
    shares = {min(max(round(share * n), 1), n - 1) for share in _SHARES}
    sizes = held_out(shares | {h for h in (most, asked or most) if h >= 1})
    optimal = asked is None and most >= 1
    if asked is not None:
        chosen = next(one for one in sizes if one.counted == asked)
    elif optimal:
        known = [one for one in sizes if not one.assumed]
        at = known.index(best(known))
        low, high = known[max(at - 1, 0)].counted, known[min(at + 1, len(known) - 1)].counted
        chosen = best([*known, *held_out(round(low + (high - low) * i / 10) for i in range(1, 10))])
    else:
        chosen = held_out([max(round(n / 5), 1)])[0]

    def reached(steps: int) -> bool:
        accuracy = steps / _ACCURACY_STEPS
        return expected_certified_accuracy(accuracy, chosen.counted, bits=bits, delta=delta) >= target

    needed = smallest_true(reached, 0, _ACCURACY_STEPS)
    return HoldOutDesign(policy, chosen, optimal, None if needed is None else needed / _ACCURACY_STEPS, tuple(sizes))


def _loss_distribution(accuracy: float, n: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Counts of losses within ten standard deviations, and some, of their mean, and their probabilities."""
    if not 0.0 <= accuracy <= 1.0:
        raise ValueError(f"expected an accuracy in [0, 1], got {accuracy}")
    reach = 10 * math.sqrt(n * accuracy * (1 - accuracy)) + 30
    middle = n * (1 - accuracy)
    losses = np.arange(max(0, math.floor(middle - reach)), min(n, math.ceil(middle + reach)) + 1)
    ways = gammaln(n + 1) - gammaln(losses + 1) - gammaln(n - losses + 1)
    log_weights = ways + xlog1py(losses, -accuracy) + xlogy(n - losses, accuracy)
    weights = np.exp(log_weights - log_weights.max())
    kept = weights > 1e-9 * weights.max()
    return losses[kept], weights[kept] / weights[kept].sum()


def _lagrange(node: int, nodes: list[int], at: NDArray[np.int64]) -> NDArray[np.float64]:
    """The polynomial that is 1 at one node and 0 at the others."""
    value = np.ones(len(at))
    for other in nodes:
        if other != node:
            value *= (at - other) / (node - other)
    return value
