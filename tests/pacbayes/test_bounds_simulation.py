"""What the guarantees guarantee, and what happens when a rule of validity is broken.

The risks stand just above an edge of the limit, where the promised rate is reached and not merely respected: random
scenarios would not see an error of a bit. A broken rule is measured against the rate that theory predicts for
breaking it, so that a test that lost its teeth fails as well.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from exact_tails import binomial_cdf
from switched_off import RATES

from pacbayes.bounds import (
    PairedCounts,
    betting_mean_lower_from_counts,
    binomial_risk_upper,
    certified_accuracy,
    certified_gain,
    certified_mean_accuracy,
    certified_pool_accuracy,
    log_failure_probability,
    transfer_accuracy,
)

DELTA = 0.05
N = 1000
POLICIES, BITS = 64, 6.0
REPETITIONS = 20_000


@cache
def claim(losses: int, n: int, bits: float, delta: float = DELTA) -> float:
    return certified_accuracy(losses, n, bits=bits, delta=delta)


def just_above_an_edge(losses: int, n: int, bits: float, delta: float = DELTA) -> float:
    """A risk that `losses` losses wrongly exclude, by a hair: P[Bin(n, risk) <= losses] is delta 2^-bits."""
    return binomial_risk_upper(losses, n, log_eta=log_failure_probability(bits, delta)) + 1e-9


def most_losses_excluding(risk: float, claimed: Callable[[int], float], n: int) -> int:
    """The largest number of losses whose claimed accuracy is above the true one; -1 if none is."""
    low, high = -1, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if claimed(middle) > 1 - risk else (low, middle)
    return low


def violation_rate(claimed_bits: float, seed: int) -> float:
    """How often the best of 64 policies under one lock is better on paper than in truth."""
    risk = just_above_an_edge(150, N, BITS)
    losses = np.random.default_rng(seed).binomial(N, risk, size=(REPETITIONS, POLICIES)).min(axis=1)
    edge = most_losses_excluding(risk, lambda k: claim(k, N, claimed_bits), N)
    return float((losses <= edge).mean())


def within(rate: float, expected: float, repetitions: int = REPETITIONS) -> bool:
    """Two-sided, four standard errors."""
    return abs(rate - expected) < 4 * math.sqrt(expected * (1 - expected) / repetitions)


def test_adversary_at_the_edge_reaches_the_promised_rate() -> None:
    expected = 1 - (1 - DELTA / POLICIES) ** POLICIES
    assert expected == pytest.approx(0.0488, abs=1e-4)
    assert within(violation_rate(BITS, seed=0), expected)


def test_half_a_bit_too_few_is_seen() -> None:
    rate = violation_rate(BITS - 0.5, seed=0)
    assert rate > 0.06
    assert not within(rate, 0.0488)


def test_broken_rule_a_choice_that_is_not_coded() -> None:
    """The best of 64 policies, charged as if it had been the only one."""
    risk = just_above_an_edge(150, N, 0.0)
    losses = np.random.default_rng(1).binomial(N, risk, size=(REPETITIONS, POLICIES)).min(axis=1)
    rate = float((losses <= most_losses_excluding(risk, lambda k: claim(k, N, 0.0), N)).mean())
    expected = RATES["an uncoded choice among 64"]
    assert pytest.approx(expected, abs=0.001) == 1 - (1 - DELTA) ** POLICIES
    assert within(rate, 1 - (1 - DELTA) ** POLICIES)


def test_broken_rule_the_best_of_ten_noises() -> None:
    risk = just_above_an_edge(150, N, 0.0)
    losses = np.random.default_rng(2).binomial(N, risk, size=(REPETITIONS, 10)).min(axis=1)
    rate = float((losses <= most_losses_excluding(risk, lambda k: claim(k, N, 0.0), N)).mean())
    assert pytest.approx(RATES["the best of ten noises"], abs=0.001) == 1 - (1 - DELTA) ** 10
    assert within(rate, 1 - (1 - DELTA) ** 10)


def test_broken_rule_certificates_read_jointly() -> None:
    """Twenty domains at 95 % each; at their shares of delta all hold together."""
    rng = np.random.default_rng(3)
    for delta, expected in ((DELTA, 1 - (1 - DELTA) ** 20), (DELTA / 20, 1 - (1 - DELTA / 20) ** 20)):
        risk = just_above_an_edge(300, N, 0.0, delta)
        edge = most_losses_excluding(risk, lambda k, delta=delta: claim(k, N, 0.0, delta), N)
        rate = float((rng.binomial(N, risk, size=(REPETITIONS, 20)).min(axis=1) <= edge).mean())
        assert within(rate, expected)
    assert pytest.approx(RATES["20 certificates read jointly"], abs=0.001) == 1 - (1 - DELTA) ** 20


def exact_rate(losses: int, n: int, risk: float) -> float:
    return float(binomial_cdf(losses, n, risk)) if losses >= 0 else 0.0


def test_broken_rule_expected_accuracy_from_realised_losses() -> None:
    """A pool of 9,600 of which 7,500 were drawn, every item with risk 1/2: noise alone decides."""
    n, population, risk = 7500, 9600, 0.5

    def pool(losses: int, outcome: str) -> float:
        return certified_pool_accuracy(
            losses,
            n,
            population,
            bits=0.0,
            delta=DELTA,
            part="pool",
            outcome=outcome,
        )

    wrong = most_losses_excluding(risk, lambda k: pool(k, "realised"), n)
    right = most_losses_excluding(risk, lambda k: pool(k, "expected"), n)
    assert exact_rate(right, n, risk) <= DELTA
    # The hypergeometric's standard deviation is sqrt(1 - n/N) of the binomial's: Phi(-1.645 sqrt(1 - n/N)) = .221.
    assert exact_rate(wrong, n, risk) == pytest.approx(RATES["expected pass@1 from the hypergeometric"], abs=0.01)


def test_broken_rule_clusters_counted_as_items() -> None:
    """Two hundred questions, each asked in ten wordings that stand or fall together."""
    clusters, size = 200, 10
    risk = 0.3
    as_items = most_losses_excluding(risk, lambda k: claim(k, clusters * size, 0.0), clusters * size) // size
    as_clusters = most_losses_excluding(risk, lambda k: claim(k, clusters, 0.0), clusters)
    assert exact_rate(as_clusters, clusters, risk) <= DELTA
    # Phi(-1.645 / sqrt(10)) = .30
    assert exact_rate(as_items, clusters, risk) == pytest.approx(RATES["clusters treated as items"], abs=0.03)

    def betting(losses: int) -> float:
        return betting_mean_lower_from_counts((0.0, 1.0), (losses, clusters - losses), log_eta=math.log(DELTA))

    assert exact_rate(most_losses_excluding(risk, betting, clusters), clusters, risk) <= DELTA


def test_broken_rule_peeking_at_n() -> None:
    """Stopping at the first of twenty sample sizes whose certificate looks good; the rate by dynamic programming."""
    looks = [100 * (i + 1) for i in range(20)]
    risk = just_above_an_edge(600, looks[-1], 0.0)
    alive, stopped = np.ones(1), 0.0
    step = np.array([math.comb(100, j) * risk**j * (1 - risk) ** (100 - j) for j in range(101)])
    for n in looks:
        alive = np.convolve(alive, step)
        edge = most_losses_excluding(risk, lambda k, n=n: claim(k, n, 0.0), n)
        stopped += float(alive[: edge + 1].sum())
        alive[: edge + 1] = 0.0
    assert exact_rate(600, looks[-1], risk) == pytest.approx(DELTA, abs=1e-6)
    assert stopped == pytest.approx(RATES["peeking at n"], abs=0.005)


def test_broken_rule_failures_left_out() -> None:
    """One prompt in thirty times out. As losses they keep the promise; left out of n they break it."""
    failing, wrong = 1 / 30, 0.2
    risk = failing + (1 - failing) * wrong
    rng = np.random.default_rng(4)
    failures = rng.binomial(N, failing, size=REPETITIONS)
    losses = rng.binomial(N - failures, wrong)
    kept = np.array([claim(int(k), N, 0.0) for k in losses + failures])
    dropped = np.array([claim(int(k), int(n), 0.0) for k, n in zip(losses, N - failures, strict=True)])
    assert (kept > 1 - risk).mean() <= DELTA + 0.005
    # The limit is 1.645 standard deviations of .0126 below .8, and the truth .0267: Phi((.0267 - 1.645 * .0129) /
    # .0129).
    assert (dropped > 1 - risk).mean() == pytest.approx(RATES["failures dropped"], abs=0.05)


def test_broken_rule_disagreement_on_training_prompts() -> None:
    """A teacher that learned the sample by heart agrees with its student there and nowhere else knows anything."""
    student_risk, differ = 0.2, 0.3
    teacher_accuracy = 1 - student_risk - differ
    rng = np.random.default_rng(5)
    shares = {"delta_student": 0.03, "delta_differ": 0.02}
    honest = dishonest = 0
    for _ in range(300):
        losses = int(rng.binomial(N, student_risk))
        fresh = int(rng.binomial(N, differ))
        honest += transfer_accuracy(losses, N, fresh, N, bits=0.0, **shares) > teacher_accuracy
        dishonest += transfer_accuracy(losses, N, 0, N, bits=0.0, **shares) > teacher_accuracy
    assert honest <= 5
    assert dishonest == RATES["disagreement measured on training prompts"] * 300


def test_component_events_keep_to_their_shares() -> None:
    """Gain and transfer at their edges: each limit fails at its own share of delta, and they add up."""
    rng = np.random.default_rng(6)
    base_accuracy = just_above_an_edge(400, N, 0.0, 0.01)  # right answers of the base, as "losses" of its upper limit
    coded_risk = just_above_an_edge(150, N, 4.0, 0.02)
    eta = log_failure_probability(0.0, 0.01)
    base_limits = {int(k): binomial_risk_upper(int(k), N, log_eta=eta) for k in range(N + 1)}
    base = rng.binomial(N, base_accuracy, size=REPETITIONS)
    coded = rng.binomial(N, coded_risk, size=REPETITIONS)
    base_failed = np.array([base_limits[int(k)] < base_accuracy for k in base])
    coded_failed = np.array([claim(int(k), N, 4.0, 0.02) > 1 - coded_risk for k in coded])
    assert within(float(base_failed.mean()), 0.01)
    assert within(float(coded_failed.mean()), 0.02 / 16)
    assert float((base_failed | coded_failed).mean()) <= 0.01 + 0.02 / 16 + 0.003


def test_paired_gain_holds_without_any_gain() -> None:
    """Verdicts differ on a few prompts and there is nothing to gain: every positive claim of the bet is a violation."""
    rng = np.random.default_rng(7)
    violations = 0
    for _ in range(500):
        won, lost, both, _rest = (int(x) for x in rng.multinomial(400, (0.05, 0.05, 0.6, 0.3)))
        counts = PairedCounts(won=won, lost=lost, both=both, n=400)
        gain = certified_gain(counts, bits=0.0, delta_accuracy=0.01, delta_base=0.01, delta_paired=0.3)
        violations += gain.paired > 0.0
    assert 5 <= violations <= 0.3 * 500  # it comes close enough to be wrong now and then


def test_stratified_draws_and_exact_probabilities_keep_the_promise_and_say_more() -> None:
    """Draws of one prompt that depend on each other: right where one of M evenly spread uniforms falls below p.

    Prompts are right with probability .5 or .9. M = 4 stratified draws, M = 4 independent ones, and the probabilities
    themselves (one-token answers), each against the true mean of .7: no violation above delta, and less noise, higher.
    """
    rng, n, runs, delta = np.random.default_rng(13), 300, 400, 0.3
    violations, means = {}, {}
    for how in ("independent", "stratified", "exact"):
        limits = []
        for _ in range(runs):
            p = np.where(rng.random(n) < 0.5, 0.5, 0.9)[:, None]
            shift = rng.random((n, 4 if how == "independent" else 1))
            uniforms = shift if how == "independent" else (np.arange(4) + shift) / 4
            rewards = p[:, 0] if how == "exact" else (uniforms < p).astype(float)
            limits.append(certified_mean_accuracy(rewards, bits=0.0, delta=delta))
        violations[how], means[how] = float((np.array(limits) > 0.7).mean()), float(np.mean(limits))
    assert all(rate <= delta + 4 * math.sqrt(delta / runs) for rate in violations.values()), violations
    assert means["exact"] > means["stratified"] > means["independent"]
