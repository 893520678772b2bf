"""Where to spend labels: expectations by enumeration, hold-outs by Clopper-Pearson from elsewhere, who wins."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from exact_tails import binomial_cdf, log_eta
from mpmath import mp, mpf
from scipy.special import betaincinv

from pacbayes.bounds import LabelPlan, LearningCurve, certified_accuracy, expected_certified_accuracy, plan_labels


def flat(accuracy: float, size: int = 10**6) -> LearningCurve:
    return LearningCurve(((size, accuracy),))


def binomial_mass(losses: int, n: int, accuracy: float) -> float:
    return math.comb(n, losses) * (1 - accuracy) ** losses * accuracy ** (n - losses)


def clopper_pearson(correct: int, n: int, delta: float) -> float:
    """The lower limit by the inverse of the incomplete beta function, which the library does not use for it."""
    return float(betaincinv(correct, n - correct + 1, delta)) if correct else 0.0


@pytest.mark.parametrize(("accuracy", "n"), [(0.8, 15), (0.9, 40), (0.5, 300), (0.99, 300), (0.02, 200), (0.999, 250)])
def test_expectation_of_a_holdout_by_enumeration(accuracy: float, n: int) -> None:
    mean = math.fsum(binomial_mass(k, n, accuracy) * clopper_pearson(n - k, n, 0.05) for k in range(n + 1))
    assert expected_certified_accuracy(accuracy, n, bits=0.0, delta=0.05) == pytest.approx(mean, abs=1e-4)


def test_expectation_with_bits_against_fifty_digits() -> None:
    """The certified accuracy of every count of losses from tails summed with mpmath, averaged by hand."""
    n, accuracy, bits = 60, 0.9, 25.0

    def certified(losses: int) -> float:
        low, high = mpf(0), mpf(1)
        for _ in range(40):
            risk = (low + high) / 2
            low, high = (risk, high) if mp.log(binomial_cdf(losses, n, risk)) >= log_eta(bits, 0.1) else (low, risk)
        return float(1 - high)

    mean = math.fsum(binomial_mass(k, n, accuracy) * certified(k) for k in range(25))
    assert expected_certified_accuracy(accuracy, n, bits=bits, delta=0.1) == pytest.approx(mean, abs=1e-4)


def test_without_losses_it_is_one_number() -> None:
    """Accuracy 1: (delta 2^-bits)^(1/n), whatever the sample."""
    expected = (0.05 * 2.0**-12) ** (1 / 40)
    assert expected_certified_accuracy(1.0, 40, bits=12.0, delta=0.05) == pytest.approx(expected, rel=1e-12)
    assert expected_certified_accuracy(0.0, 40, bits=12.0, delta=0.05) == 0.0


def test_learning_curve_by_hand() -> None:
    curve = LearningCurve(((4000, 0.9), (1000, 0.7)))  # in any order
    assert curve.at(2000) == pytest.approx(0.8)  # half way in log n
    assert curve.at(10**6) == 0.9  # never upward
    assert curve.at(10) == 0.7
    assert curve.measured(1000)
    assert not curve.measured(999)


@pytest.mark.parametrize("points", [(), ((0, 0.5),), ((5, 1.1),), ((5, math.nan),), ((5, 0.5), (5, 0.6))])
def test_learning_curves_that_are_none(points: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(ValueError, match=r"expected|two accuracies"):
        LearningCurve(points)


@pytest.fixture(scope="module")
def measured() -> LabelPlan:
    """A policy that learns fast up to 500 labels and slowly from there."""
    coded = LearningCurve(((50, 0.5), (500, 0.9), (1000, 0.92)))
    return plan_labels(1000, coded=coded, bits=40.0, delta=0.05, prior_bits=6.0, attempt_bits=0.0932)


def test_designs_pay_what_they_must(measured: LabelPlan) -> None:
    everything, prior, holdout = measured.certify_all, measured.prior.planned, measured.holdouts[0].chosen
    assert (everything.trained_on, everything.counted, everything.bits) == (1000, 1000, pytest.approx(40.0932))
    assert prior is not None
    assert (prior.trained_on, prior.counted, prior.bits) == (1000, 500, pytest.approx(6.0932))
    assert (holdout.trained_on + holdout.counted, holdout.bits) == (1000, 0.0)
    assert everything.accuracy == prior.accuracy == 0.92
    for one in (everything, prior, holdout):
        again = expected_certified_accuracy(one.accuracy, one.counted, bits=one.bits, delta=0.05)
        assert one.expected == again


def test_no_other_holdout_is_better_than_the_best(measured: LabelPlan) -> None:
    """Every size up to the 950 labels that the pilots allow, in steps of 7, by Clopper-Pearson at the mean loss."""
    [holdout] = measured.holdouts
    assert holdout.optimal
    assert not holdout.chosen.assumed

    def accuracy(size: int) -> float:
        known = ((50, 0.5), (500, 0.9), (1000, 0.92))
        for (m, low), (n, high) in pairwise(known):
            if size <= n:
                return low + (high - low) * math.log(size / m) / math.log(n / m)
        raise AssertionError

    def at_the_mean(h: int) -> float:
        correct = accuracy(1000 - h) * h
        return float(betaincinv(correct, h - correct + 1, 0.05))

    best = max(at_the_mean(h) for h in range(10, 951, 7))
    assert at_the_mean(holdout.chosen.counted) >= best - 5e-4
    assert holdout.chosen.expected == pytest.approx(best, abs=3e-3)


def test_nine_in_ten_is_the_tail_of_the_losses(measured: LabelPlan) -> None:
    one = measured.holdouts[0].chosen
    n, tail = one.counted, 0.0
    for losses in range(n + 1):
        tail += binomial_mass(losses, n, one.accuracy)
        if tail >= 0.9:
            break
    assert one.nine_in_ten == pytest.approx(clopper_pearson(n - losses, n, 0.05), abs=1e-9)


def test_break_even_bits_are_on_the_edge() -> None:
    plan = plan_labels(600, coded=flat(0.9, 600), bits=30.0, delta=0.05, holdout=20)
    most = plan.prior.bits_to_match_all
    assert most is not None
    assert 0 < most < 30

    def with_prior(bits: float) -> float:
        return expected_certified_accuracy(0.9, 300, bits=bits, delta=0.05)

    assert with_prior(most) >= plan.certify_all.expected > with_prior(most + 0.125)
    # A hold-out of 20 is worse than certifying on all, so that the two break-evens are one.
    assert plan.holdouts[0].chosen.expected < plan.certify_all.expected
    assert plan.prior.bits_to_match_best == most


def test_prior_lies_between_no_use_and_the_holdout_of_the_same_labels() -> None:
    plan = plan_labels(400, coded=flat(0.85), bits=50.0, delta=0.05, share=0.25, holdout=300)
    assert plan.prior.ideal.counted == 300
    assert plan.prior.ideal.expected == plan.holdouts[0].chosen.expected  # nothing moved, nothing paid, same accuracy
    assert plan.prior.unhelpful.expected < plan.certify_all.expected
    assert plan.prior.planned is None
    assert "prior" not in [name for name, _ in plan.ranking]


def test_accuracy_needed_is_on_the_edge() -> None:
    plan = plan_labels(500, coded=flat(0.9), bits=60.0, delta=0.05)
    [holdout] = plan.holdouts
    assert not holdout.optimal
    assert holdout.chosen.assumed
    assert holdout.chosen.counted == 100
    needed = holdout.accuracy_needed
    assert needed is not None

    def held_out(accuracy: float) -> float:
        return expected_certified_accuracy(accuracy, 100, bits=0.0, delta=0.05)

    assert held_out(needed) >= plan.certify_all.expected > held_out(needed - 1e-4)


def test_certify_on_all_wins_where_labels_make_the_policy() -> None:
    """A short message, and a policy that is no good before the last labels."""
    coded = LearningCurve(((100, 0.2), (900, 0.4), (1000, 0.95)))
    plan = plan_labels(1000, coded=coded, bits=8.0, delta=0.05)
    assert plan.ranking[0][0] == "all"


def test_a_long_message_loses_to_a_holdout_of_a_few_labels() -> None:
    plan = plan_labels(1000, coded=flat(0.9), bits=5000.0, delta=0.05, holdout=30)
    assert plan.certify_all.expected < 0.05
    assert plan.ranking[0][0] == "hold-out coded"
    assert plan.ranking[0][1].expected > 0.7


def test_a_teacher_can_be_held_out_and_fresh_accuracy_is_used_for_it() -> None:
    plan = plan_labels(300, coded=flat(0.9), fresh=flat(0.85), teacher=flat(0.97), bits=20.0, delta=0.05)
    accuracies = {one.policy: one.chosen.accuracy for one in plan.holdouts}
    assert accuracies == {"coded": 0.85, "teacher": 0.97}
    assert plan.certify_all.accuracy == 0.9
    assert plan.ranking[0][0] == "hold-out teacher"


def test_an_attempt_is_paid_by_every_design() -> None:
    plan = plan_labels(200, coded=flat(0.9), bits=3.0, delta=0.05, attempt_bits=5.0, holdout_bits=5.0, holdout=50)
    assert plan.certify_all.bits == 8.0
    expected = certified_accuracy(0, 50, bits=5.0, delta=0.05)
    assert plan.holdouts[0].chosen.bits == 5.0
    assert plan.holdouts[0].chosen.expected < expected


@pytest.mark.parametrize("n", [2, 3, 7])
def test_tiny_samples(n: int) -> None:
    plan = plan_labels(n, coded=flat(1.0), bits=10.0, delta=0.05)
    assert plan.holdouts[0].chosen.counted == 1
    assert plan.holdouts[0].chosen.expected == pytest.approx(0.05, rel=1e-9)  # one right answer of one: delta
    assert 1 <= plan.prior.ideal.counted < n
    assert plan.certify_all.expected == pytest.approx((0.05 * 2.0**-10) ** (1 / n), rel=1e-9)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": 1},
        {"n": 0},
        {"bits": -0.01},
        {"bits": math.nan},
        {"bits": math.inf},
        {"prior_bits": -0.01, "attempt_bits": 1.0},
        {"delta": 0.0},
        {"delta": 1.0},
        {"share": 0.0},
        {"share": 1.0},
        {"share": math.nan},
        {"holdout": 0},
        {"holdout": 100},
    ],
)
def test_arguments_out_of_range(wrong: dict[str, float]) -> None:
    given = {"n": 100, "bits": 5.0, "delta": 0.05, "coded": flat(0.9)} | wrong
    with pytest.raises(ValueError, match="expected"):
        plan_labels(**given)  # type: ignore[arg-type]
