"""Gain, transfer, hold-out and joint statements, and the inverse questions."""

import math

import pytest

from pacbayes.bounds import (
    JointClaim,
    PairedCounts,
    betting_mean_lower,
    binomial_risk_upper,
    certified_accuracy,
    certified_gain,
    certified_pool_accuracy,
    expected_pool_risk_upper,
    holdout_accuracy,
    joint_accuracies,
    pool_losses_upper,
    required_accuracy,
    required_bits,
    required_n,
    transfer_accuracy,
    transfer_pool_accuracy,
)


def test_gain_is_built_of_its_parts() -> None:
    counts = PairedCounts(won=300, lost=50, both=400, n=1000)
    gain = certified_gain(counts, bits=20, delta_accuracy=0.02, delta_base=0.01, delta_paired=0.03)
    coded = certified_accuracy(300, 1000, bits=20, delta=0.02)
    base = binomial_risk_upper(450, 1000, log_eta=math.log(0.01))
    assert gain.marginal == pytest.approx(coded - base, abs=1e-14)
    halves = [1.0] * 300 + [0.0] * 50 + [0.5] * 650
    paired = betting_mean_lower(halves, log_eta=math.log(0.03) - 20 * math.log(2))
    assert gain.paired == pytest.approx(2 * paired - 1, abs=1e-13)
    assert gain.gain == max(gain.marginal, gain.paired) < 0.25


def test_pairing_helps_when_few_verdicts_differ() -> None:
    levels = {"bits": 30.0, "delta_accuracy": 0.02, "delta_base": 0.01, "delta_paired": 0.02}
    alike = certified_gain(PairedCounts(won=400, lost=20, both=2500, n=5000), **levels)
    assert alike.paired > alike.marginal + 0.02
    different = certified_gain(PairedCounts(won=3500, lost=300, both=500, n=5000), **levels)
    assert different.marginal > different.paired


def test_a_gain_may_be_negative() -> None:
    worse = certified_gain(
        PairedCounts(won=0, lost=500, both=0, n=1000), bits=0, delta_accuracy=0.02, delta_base=0.01, delta_paired=0.02
    )
    assert worse.gain < -0.4


def test_transfer_is_student_plus_disagreement() -> None:
    got = transfer_accuracy(1500, 7500, 100, 5000, bits=60, delta_student=0.03, delta_differ=0.02, teachers=4)
    student = certified_accuracy(1500, 7500, bits=60, delta=0.03)
    differ = binomial_risk_upper(100, 5000, log_eta=math.log(0.02 / 4))
    assert got == pytest.approx(student - differ, abs=1e-14)
    assert got < student - differ
    once = transfer_accuracy(1500, 7500, 100, 5000, bits=60, delta_student=0.03, delta_differ=0.02)
    assert once > got  # four teachers tried cost two bits


def test_transfer_on_a_pool() -> None:
    shares = {"bits": 60.0, "delta_student": 0.03, "delta_differ": 0.02}
    realised = transfer_pool_accuracy(1500, 7500, 40, 2000, 20_000, outcome="realised", **shares)
    student = certified_pool_accuracy(1500, 7500, 20_000, bits=60, delta=0.03)
    differ = pool_losses_upper(40, 2000, 12_500, log_eta=math.log(0.02)) / 12_500
    assert realised == pytest.approx(student - differ, abs=1e-12)
    expected = transfer_pool_accuracy(1500, 7500, 40, 2000, 20_000, outcome="expected", **shares)
    student = certified_pool_accuracy(1500, 7500, 20_000, bits=60, delta=0.03, outcome="expected")
    assert expected == pytest.approx(student - expected_pool_risk_upper(40, 2000, log_eta=math.log(0.02)), abs=1e-12)
    assert expected < realised


def test_joint_claims_use_their_shares() -> None:
    claims = {"a": JointClaim(200, 1000, 30, 0.02), "b": JointClaim(100, 2000, 60, 0.03)}
    assert joint_accuracies(claims) == {
        "a": certified_accuracy(200, 1000, bits=30, delta=0.02),
        "b": certified_accuracy(100, 2000, bits=60, delta=0.03),
    }


@pytest.mark.parametrize("deltas", [(0.5, 0.5), (0.0, 0.1), (-0.1, 0.2), (1.0, 0.01)])
def test_shares_must_leave_something(deltas: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match=r"shares of delta .* a="):
        joint_accuracies({"a": JointClaim(1, 10, 0, deltas[0]), "b": JointClaim(1, 10, 0, deltas[1])})
    with pytest.raises(ValueError, match="student="):
        transfer_accuracy(1, 10, 1, 10, bits=0, delta_student=deltas[0], delta_differ=deltas[1])


def test_refusals() -> None:
    with pytest.raises(ValueError, match="disjoint"):
        PairedCounts(won=6, lost=3, both=2, n=10)
    with pytest.raises(ValueError, match="disjoint"):
        PairedCounts(won=-1, lost=3, both=2, n=10)
    with pytest.raises(ValueError, match="teachers >= 1"):
        transfer_accuracy(1, 10, 1, 10, bits=0, delta_student=0.1, delta_differ=0.1, teachers=0)
    with pytest.raises(ValueError, match="compared <= population - n = 10"):
        transfer_pool_accuracy(1, 10, 1, 11, 20, bits=0, delta_student=0.1, delta_differ=0.1, outcome="realised")


def losses_at(n: int, per_cent: int) -> int:
    return -(-n * (100 - per_cent) // 100)


@pytest.mark.parametrize(("per_cent", "target", "bits"), [(80, 0.7, 10), (80, 0.7, 0), (95, 0.85, 10), (70, 0.5, 6)])
def test_required_n_is_the_smallest(per_cent: int, target: float, bits: float) -> None:
    n = required_n(target, accuracy=per_cent / 100, bits=bits, delta=0.05)
    assert n is not None
    reached = [
        m for m in range(1, n + 1) if certified_accuracy(losses_at(m, per_cent), m, bits=bits, delta=0.05) >= target
    ]
    assert reached == [n]


def test_required_n_against_every_smaller_n() -> None:
    for per_cent, target in ((50, 0.2), (50, 0.25), (50, 0.3), (80, 0.4), (80, 0.5), (80, 0.55), (80, 0.6), (80, 0.65)):
        n = required_n(target, accuracy=per_cent / 100, bits=0, delta=0.2)
        assert n is not None
        claims = [certified_accuracy(losses_at(m, per_cent), m, bits=0, delta=0.2) for m in range(1, n + 1)]
        assert [claim >= target for claim in claims] == [False] * (n - 1) + [True]


def test_required_n_without_losses_and_without_hope() -> None:
    n = required_n(0.99, accuracy=1.0, bits=0, delta=0.05)
    assert n == math.ceil(math.log(0.05) / math.log(0.99)) == 299  # the rule of three
    assert required_n(0.8, accuracy=0.8, bits=0, delta=0.05) is None
    assert required_n(0.9, accuracy=0.8, bits=0, delta=0.05) is None
    assert required_n(0.5, accuracy=0.0, bits=0, delta=0.05) is None


def test_holdout_that_equals_a_certificate() -> None:
    certified = certified_accuracy(1500, 7500, bits=200, delta=0.05)
    labels = required_n(certified, accuracy=0.8, bits=0, delta=0.05)
    assert labels is not None
    assert holdout_accuracy(losses_at(labels, 80), labels, delta=0.05) >= certified
    assert 50 < labels < 150


@pytest.mark.parametrize(
    ("n", "per_cent", "gap", "expected"),
    [(2000, 80, 0.06, 27), (7500, 80, 0.06, 107), (7500, 80, 0.11, 332), (20000, 80, 0.11, 887)],
)
def test_required_bits_of_the_design_points(n: int, per_cent: int, gap: float, expected: int) -> None:
    losses = losses_at(n, per_cent)
    bits = required_bits(per_cent / 100 - gap, losses=losses, n=n, delta=0.05)
    assert bits is not None
    assert math.floor(bits) == expected
    assert certified_accuracy(losses, n, bits=bits, delta=0.05) >= per_cent / 100 - gap
    assert certified_accuracy(losses, n, bits=bits + 1 / 512, delta=0.05) < per_cent / 100 - gap


def test_required_bits_at_its_extremes() -> None:
    assert required_bits(0.8, losses=200, n=1000, delta=0.05) is None
    whole = required_bits(0.5, losses=0, n=1000, delta=0.05)
    assert whole == pytest.approx(1000 + math.log2(0.05), abs=0.002)


@pytest.mark.parametrize("bound", ["binomial", "kl", "hoeffding"])
def test_required_accuracy_is_the_smallest(bound: str) -> None:
    needed = required_accuracy(0.75, n=1000, bits=40, delta=0.05, bound=bound)
    assert needed is not None
    correct = round(needed * 1000)
    assert certified_accuracy(1000 - correct, 1000, bits=40, delta=0.05, bound=bound) >= 0.75
    assert certified_accuracy(1001 - correct, 1000, bits=40, delta=0.05, bound=bound) < 0.75
    assert required_accuracy(0.75, n=10, bits=40, delta=0.05, bound=bound) is None


@pytest.mark.parametrize("target", [0.0, 1.0, -0.1, math.nan])
def test_targets_lie_inside(target: float) -> None:
    with pytest.raises(ValueError, match=r"target in \(0, 1\)"):
        required_n(target, accuracy=0.8, bits=0, delta=0.05)
    with pytest.raises(ValueError, match=r"target in \(0, 1\)"):
        required_bits(target, losses=1, n=10, delta=0.05)
    with pytest.raises(ValueError, match=r"target in \(0, 1\)"):
        required_accuracy(target, n=10, bits=0, delta=0.05)
