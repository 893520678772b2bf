"""Does the whole chain keep its promise? Lock, prompts, noise, evidence and certificate, with an adversary inside.

In the negative control the verdict is a keyed hash bit of (prompt, completion). Nothing can be learned, every policy is
right on a fresh prompt with probability exactly 1/2, and so a certificate above 1/2 is false. How often the adversary
gets one is predicted exactly and must be at most delta. The rules that keep it there (bits for a choice, for an
attempt, an occurrence for a repeated prompt) are then switched off one by one, and the rate that this must give is
predicted and found as well.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from lookup import ENGINE, KINDS, VOCABULARY, Chain, boosts, complete, draw, method_lock, true_accuracy
from scipy import special
from switched_off import LEAST_VISIBLE, RATES

from pacbayes.bounds import certified_accuracy, certified_pool_accuracy
from pacbayes.canonical import digest
from pacbayes.certificate import build_certificate, verify_certificate
from pacbayes.codes import Menu, MenuEntry, parse_code
from pacbayes.evidence import Outcome, read_evidence, write_evidence
from pacbayes.gumbel import gumbel, gumbel_integers, key_words, prompt_key
from pacbayes.sample import AttemptLog, attempt_bits, attempt_weight, sample_seed

DELTA = 0.05
CHOICES = 256
N = 200


def choices_menu() -> tuple[MenuEntry, ...]:
    """One integer of 256: the policy that always answers with that token. Eight bits."""
    code = parse_code({"kind": "fixed", "low": 0, "high": CHOICES - 1})
    return (
        MenuEntry(
            name="token",
            probability="1",
            dimension=1,
            step="1",
            code=code,
            structure={},
            prior_artifact=digest(b"token"),
        ),
    )


def verdict_bits(prompt_digest: str, key: bytes = b"verdict") -> np.ndarray:
    """The verdict on each of the 256 possible completions of a prompt: (256,) of 0 and 1, independent fair bits."""
    raw = hashlib.blake2b(bytes.fromhex(prompt_digest), key=key, digest_size=CHOICES // 8).digest()
    return np.unpackbits(np.frombuffer(raw, np.uint8))


def critical_losses(n: int, bits: float, accuracy: float = 0.5, delta: float = DELTA) -> int:
    """The most losses with which a certificate exceeds the true accuracy; -1 if none does."""
    k = -1
    while k + 1 <= n and certified_accuracy(k + 1, n, bits=bits, delta=delta) > accuracy:
        k += 1
    return k


def false_certificate_probability(n: int, bits: float, accuracy: float = 0.5) -> float:
    """P[Bin(n, 1 - accuracy) <= critical losses], exactly."""
    k = critical_losses(n, bits, accuracy)
    return float(special.bdtr(k, n, 1 - accuracy)) if k >= 0 else 0.0


def check_rate(violations: int, runs: int, predicted: float) -> None:
    """Within 4.5 standard errors of the prediction, on both sides."""
    error = math.sqrt(predicted * (1 - predicted) / runs)
    assert abs(violations / runs - predicted) <= 4.5 * error + 1 / runs, (violations / runs, predicted)


def best_choice(chain: Chain) -> tuple[int, np.ndarray]:
    """The adversary: the token whose verdicts on the sample are best."""
    verdicts = np.array([verdict_bits(item.prompt_digest) for item in chain.sample.items])
    winner = int(verdicts.sum(axis=0).argmax())
    return winner, verdicts[:, winner]


def certify(chain: Chain, folder: Path, integers: tuple[int, ...], correct: np.ndarray, entry: int = 0) -> float:
    """Encode, write evidence, build the certificate, verify it; returns the certified accuracy."""
    folder.mkdir(parents=True)
    message = Menu(entries=chain.method.menu).encode(entry, integers)
    rows = [
        Outcome(
            "coded",
            "sample",
            i,
            item.prompt_digest,
            item.occurrence,
            0,
            bool(right),
            "right" if right else "wrong",
            1,
            "",
        )
        for i, (item, right) in enumerate(zip(chain.sample.items, correct, strict=True))
    ]
    path = folder / "evidence.parquet"
    write_evidence(path, rows, sample_lock=chain.sample.digest, policies={"coded": digest(message)})

    certificate = build_certificate(
        method=chain.method,
        sample=chain.sample,
        message=message,
        evidence=path.read_bytes(),
        policy=digest(message),
        engine=ENGINE,
    )
    return certificate.bound.certified_accuracy


def choose_and_certify(folder: Path, runs: int) -> None:
    """Each run: lock, draw, let the adversary choose among 256 policies, certify what it chose."""
    violations = uncharged = 0
    bits = 8 + attempt_bits(1)
    free = critical_losses(N, attempt_bits(1))
    for run in range(runs):
        method = method_lock(menu=choices_menu(), prompts=N, heldout=0, verifier=f"hash {run}")
        chain = Chain.draw(method, folder / f"{run}.jsonl")
        winner, correct = best_choice(chain)
        accuracy = certify(chain, folder / str(run), (winner,), correct)
        losses = N - int(correct.sum())
        assert accuracy == pytest.approx(certified_accuracy(losses, N, bits=bits, delta=DELTA), abs=2e-4)
        violations += accuracy > 0.5
        uncharged += losses <= free
    one = false_certificate_probability(N, bits)
    predicted = 1 - (1 - one) ** CHOICES
    assert predicted <= DELTA
    check_rate(violations, runs, predicted)
    # Switched off: the choice among 256 is not in the ledger.
    check_rate(uncharged, runs, 1 - (1 - false_certificate_probability(N, attempt_bits(1))) ** CHOICES)


def test_an_adversary_among_256_policies(tmp_path: Path) -> None:
    choose_and_certify(tmp_path, 150)


@pytest.mark.slow
def test_an_adversary_among_256_policies_in_2000_runs(tmp_path: Path) -> None:
    choose_and_certify(tmp_path, 2000)


def climb(folder: Path, runs: int, steps: int) -> None:
    """An adversary that knows sample, noise and verdicts, and searches a space of 31^8 sampled policies for its
    best.
    """
    code = parse_code({"kind": "laplace", "ratio": "1/2", "bound": 15})
    artifact = digest(b"features")
    entry = MenuEntry(
        name="features", probability="1", dimension=8, step="0.5", code=code, structure={}, prior_artifact=artifact
    )
    features = np.random.default_rng(0).choice([-1.0, 1.0], size=(8, CHOICES))
    generator = np.random.default_rng(1)
    violations = 0
    for run in range(runs):
        method = method_lock(menu=(entry,), prompts=N, heldout=0, verifier=f"hash {run}")
        chain = Chain.draw(method, folder / f"{run}.jsonl")
        noise = gumbel(gumbel_integers(chain.keys(), 0, CHOICES))
        verdicts = np.array([verdict_bits(item.prompt_digest) for item in chain.sample.items])
        menu = Menu(entries=(entry,))

        def outcomes(integers: np.ndarray, noise: np.ndarray = noise, verdicts: np.ndarray = verdicts) -> np.ndarray:
            tokens = np.argmax(0.5 * integers @ features + noise, axis=1)
            return verdicts[np.arange(N), tokens]

        best, best_value = np.zeros(8, int), -1.0
        for _ in range(steps):
            integers = np.clip(best + generator.integers(-1, 2, 8) * (generator.random(8) < 0.3), -15, 15)
            losses = N - int(outcomes(integers).sum())
            value = certified_accuracy(losses, N, bits=menu.bits(0, integers), delta=DELTA)
            if value > best_value:
                best, best_value = integers, value
        violations += certify(chain, folder / str(run), tuple(int(i) for i in best), outcomes(best)) > 0.5
    assert violations <= runs * DELTA + 4.5 * math.sqrt(runs * DELTA)


def test_an_adversary_that_climbs(tmp_path: Path) -> None:
    climb(tmp_path, 12, 150)


@pytest.mark.slow
def test_an_adversary_that_climbs_in_150_runs(tmp_path: Path) -> None:
    climb(tmp_path, 150, 250)


# --- attempts ----------------------------------------------------------------------------------------------


def best_of_ten_attempts(folder: Path, runs: int) -> None:
    """Ten samples for one claim and a policy fixed beforehand: the best certificate, with attempts paid and unpaid."""
    n, paid, unpaid = 60, 0, 0
    menu = (choices_menu()[0].model_copy(update={"code": parse_code({"kind": "fixed", "low": 0, "high": 0})}),)
    for run in range(runs):
        log = AttemptLog(folder / f"{run}.jsonl")
        any_paid = any_unpaid = False
        for attempt in range(1, 11):
            method = method_lock(menu=menu, prompts=n, heldout=0, verifier=f"{run}, version {attempt}")
            sample = log.register(method, draw(sample_seed(method.digest, None), n))
            assert sample.attempt == attempt
            losses = n - sum(int(verdict_bits(item.prompt_digest)[0]) for item in sample.items)
            any_paid |= certified_accuracy(losses, n, bits=attempt_bits(attempt), delta=DELTA) > 0.5
            any_unpaid |= certified_accuracy(losses, n, bits=0, delta=DELTA) > 0.5
        paid += any_paid
        unpaid += any_unpaid
    each = [false_certificate_probability(n, attempt_bits(t)) for t in range(1, 11)]
    predicted = 1 - math.prod(1 - p for p in each)
    assert predicted <= sum(float(attempt_weight(t)) for t in range(1, 11)) * DELTA
    check_rate(paid, runs, predicted)
    switched_off = 1 - (1 - false_certificate_probability(n, 0)) ** 10
    check_rate(unpaid, runs, switched_off)
    assert unpaid / runs > DELTA + 10 * math.sqrt(DELTA * (1 - DELTA) / runs)


def test_the_best_of_ten_attempts(tmp_path: Path) -> None:
    best_of_ten_attempts(tmp_path, 80)


@pytest.mark.slow
def test_the_best_of_ten_attempts_in_2000_runs(tmp_path: Path) -> None:
    best_of_ten_attempts(tmp_path, 2000)


# --- repeated prompts --------------------------------------------------------------------------------------


def repeats(runs: int) -> None:
    """300 prompts from a population of 300; whether a policy is right is decided by the noise alone, a fair bit."""
    n, population = 300, 300
    limit = critical_losses(n, 0)
    kept = dropped = 0
    predicted_dropped = 0.0
    for run in range(runs):
        prompts = draw(f"repeats {run}", n, population)
        seen: Counter[str] = Counter()
        with_occurrence, without = [], []
        root = digest(f"root {run}".encode())
        for prompt in prompts:
            with_occurrence.append(prompt_key(root, prompt.prompt_digest, seen[prompt.prompt_digest], 0))
            without.append(prompt_key(root, prompt.prompt_digest, 0, 0))
            seen[prompt.prompt_digest] += 1

        def losses(keys: list[bytes]) -> int:
            g = gumbel(gumbel_integers(key_words(keys), 0, 2))
            return int((g[:, 0] < g[:, 1]).sum())

        kept += losses(with_occurrence) <= limit
        dropped += losses(without) <= limit
        # Exactly: equal prompts are lost together.
        distribution = np.zeros(n + 1)
        distribution[0] = 1
        for count in seen.values():
            shifted = np.zeros(n + 1)
            shifted[count:] = distribution[: n + 1 - count]
            distribution = (distribution + shifted) / 2
        predicted_dropped += float(distribution[: limit + 1].sum()) / runs
    predicted = false_certificate_probability(n, 0)
    assert predicted <= DELTA
    check_rate(kept, runs, predicted)
    check_rate(dropped, runs, predicted_dropped)
    assert predicted_dropped == pytest.approx(RATES["repeats keyed without an occurrence index"], abs=0.002)


def test_repeats_without_an_occurrence_would_break_the_promise() -> None:
    repeats(500)


@pytest.mark.slow
def test_repeats_without_an_occurrence_in_20000_runs() -> None:
    repeats(20000)


# --- a grid tuned on the sample ------------------------------------------------------------------------------


GRIDS = 16


def grids_menu() -> tuple[MenuEntry, ...]:
    """Sixteen steps of the grid at equal weights; the one integer is 1, so that the step names the policy."""
    code = parse_code({"kind": "fixed", "low": 1, "high": 1})
    return tuple(
        MenuEntry(
            name=f"step {step}",
            probability=f"1/{GRIDS}",
            dimension=1,
            step=str(step),
            code=code,
            structure={},
            prior_artifact=digest(b"grid"),
        )
        for step in range(1, GRIDS + 1)
    )


def tune_the_grid(folder: Path, runs: int) -> None:
    """The step whose policy does best on the sample: from the declared menu at four bits, or for nothing."""
    violations = uncharged = 0
    declared, free = 4 + attempt_bits(1), critical_losses(N, attempt_bits(1))
    for run in range(runs):
        method = method_lock(menu=grids_menu(), prompts=N, heldout=0, verifier=f"grid {run}")
        chain = Chain.draw(method, folder / f"{run}.jsonl")
        verdicts = np.array([verdict_bits(item.prompt_digest) for item in chain.sample.items])[:, :GRIDS]
        best = int(verdicts.sum(axis=0).argmax())
        accuracy = certify(chain, folder / str(run), (1,), verdicts[:, best], entry=best)
        losses = N - int(verdicts[:, best].sum())
        assert accuracy == pytest.approx(certified_accuracy(losses, N, bits=declared, delta=DELTA), abs=2e-4)
        violations += accuracy > 0.5
        uncharged += losses <= free
    predicted = 1 - (1 - false_certificate_probability(N, declared)) ** GRIDS
    assert predicted <= DELTA
    check_rate(violations, runs, predicted)
    tuned = 1 - (1 - false_certificate_probability(N, attempt_bits(1))) ** GRIDS
    assert tuned == pytest.approx(RATES["a grid tuned on S"], abs=0.005)
    check_rate(uncharged, runs, tuned)


def test_a_grid_tuned_on_the_sample(tmp_path: Path) -> None:
    tune_the_grid(tmp_path, 100)


@pytest.mark.slow
def test_a_grid_tuned_on_the_sample_in_2000_runs(tmp_path: Path) -> None:
    tune_the_grid(tmp_path, 2000)


# --- a base model that has read the prompts ------------------------------------------------------------------


def memorising_base(runs: int) -> None:
    """A benchmark of 400 prompts, 40 of which the base model knows by heart; elsewhere it is right half of the time.

    Drawn from the benchmark and read as independent draws of fresh prompts, its accuracy there (1/2) is exceeded far
    too often. Read as what it is, a uniform subset of a pool, the statement about the pool holds.
    """
    pool, known, n = 400, 40, 200
    rng = np.random.default_rng(8)
    remembered = rng.hypergeometric(known, pool - known, n, size=runs)
    losses = rng.binomial(n - remembered, 0.5)
    as_iid = losses <= critical_losses(n, 0)
    truth = (known + 0.5 * (pool - known)) / pool
    claims = [
        certified_pool_accuracy(k, n, pool, bits=0.0, delta=DELTA, part="pool", outcome="expected")
        for k in range(n + 1)
    ]
    as_pool = np.array(claims)[losses] > truth
    ways = np.array([math.comb(known, j) * math.comb(pool - known, n - j) for j in range(known + 1)], dtype=object)
    weights = np.array([float(Fraction(way, math.comb(pool, n))) for way in ways])
    limit = critical_losses(n, 0)
    predicted = float(sum(w * special.bdtr(limit, n - j, 0.5) for j, w in enumerate(weights)))
    assert predicted == pytest.approx(RATES["a memorising base under iid"], abs=0.005)
    check_rate(int(as_iid.sum()), runs, predicted)
    assert float(as_pool.mean()) <= DELTA + 4.5 * math.sqrt(DELTA / runs)


def test_a_memorising_base_under_the_iid_design() -> None:
    memorising_base(20_000)


# --- what the switched-off rules cost ------------------------------------------------------------------------


def test_every_switched_off_rule_would_be_seen() -> None:
    """Ten standard errors of 20,000 repetitions above delta, each of the eleven."""
    assert len(RATES) == 11
    assert min(RATES.values()) > LEAST_VISIBLE == pytest.approx(0.0654, abs=1e-4)


# --- failures ----------------------------------------------------------------------------------------------


def test_failures_that_are_dropped_would_break_the_promise(tmp_path: Path) -> None:
    """A policy that crashes on what it gets wrong: left out, its accuracy would be certified near 1;
    counted, near 1/2.
    """
    method = method_lock(menu=choices_menu(), prompts=N, heldout=0)
    chain = Chain.draw(method, tmp_path / "log")
    _, correct = best_choice(chain)
    message = Menu(entries=method.menu).encode(0, (0,))
    rows = [
        Outcome("coded", "sample", i, item.prompt_digest, item.occurrence, 0, True, "right", 1, "")
        for i, item in enumerate(chain.sample.items)
        if correct[i]
    ]
    path = tmp_path / "evidence.parquet"
    write_evidence(path, rows, sample_lock=chain.sample.digest, policies={"coded": digest(message)})
    count = read_evidence(path).count("coded", "sample", chain.sample)
    assert (count.n, count.correct, count.losses) == (N, len(rows), N - len(rows))
    assert certified_accuracy(0, len(rows), bits=8, delta=DELTA) > 0.9
    assert certified_accuracy(count.losses, count.n, bits=8, delta=DELTA) < 0.6


# --- the chain, end to end ---------------------------------------------------------------------------------


def lookup_policies(folder: Path, runs: int) -> None:
    """A policy with a known accuracy, chosen beforehand at K bits; how often its certificate exceeds that accuracy."""
    n, integers = 150, (3, 3, 2, 3)
    violations, lowest = 0, 1.0
    for run in range(runs):
        method = method_lock(prompts=n, heldout=0, verifier=f"run {run}")
        chain = Chain.draw(method, folder / f"{run}.jsonl")
        certificate = chain.certify(folder / str(run), 0, integers)
        truth = true_accuracy(boosts(method, 0, integers))
        violations += certificate.bound.certified_accuracy > truth
        lowest = min(lowest, certificate.bound.certified_accuracy)
        if run % 20 == 0:
            assert all(check.ok for check in verify_certificate(folder / str(run) / "certificate.json"))
    predicted = false_certificate_probability(n, certificate.bits.total, truth)
    assert predicted <= DELTA * 2**-certificate.bits.total * 1.001
    check_rate(violations, runs, predicted)
    assert lowest > 0.3  # and it says something


def test_lookup_policies_end_to_end(tmp_path: Path) -> None:
    lookup_policies(tmp_path, 60)


@pytest.mark.slow
def test_lookup_policies_end_to_end_in_2000_runs(tmp_path: Path) -> None:
    lookup_policies(tmp_path, 2000)


def test_lookup_policies_at_zero_bits() -> None:
    """The edge itself: at K = 0 the rate is a little below delta, and it is that rate and not another."""
    n, runs = 300, int(os.environ.get("PRLVR_RUNS", "1500"))
    boost = np.array([3.0, 2.0, 1.0, 4.0])
    truth = true_accuracy(boost)
    limit = critical_losses(n, 0, truth)
    violations = 0
    for run in range(runs):
        prompts = draw(f"edge {run}", n)
        keys = [prompt_key(digest(f"edge root {run}".encode()), prompt.prompt_digest, 0, 0) for prompt in prompts]
        tokens = complete(prompts, keys, boost)
        wrong = sum(int(token) != prompt.number % VOCABULARY for token, prompt in zip(tokens, prompts, strict=True))
        violations += wrong <= limit
    predicted = false_certificate_probability(n, 0, truth)
    assert 0.02 < predicted <= DELTA
    check_rate(violations, runs, predicted)


def test_the_kinds_of_prompts_are_equally_frequent() -> None:
    """What true_accuracy of the table rests on."""
    counts = Counter(prompt.number // VOCABULARY % KINDS for prompt in draw("kinds", 4000))
    assert all(abs(count - 1000) < 150 for count in counts.values())
