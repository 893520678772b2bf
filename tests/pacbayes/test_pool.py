"""Finite pools: the draw is uniform and can be checked; certificates over pools and over several draws per prompt."""

from __future__ import annotations

import itertools
import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pydantic
import pytest
from lookup import Chain, Prompt, boosts, draw, method_lock, true_accuracy
from scipy import special

from pacbayes.bounds import certified_mean_accuracy, certified_pool_accuracy, certified_unseen_mean_accuracy
from pacbayes.canonical import canonical_json, digest
from pacbayes.certificate import CertificateError, verify_certificate
from pacbayes.evidence import read_evidence
from pacbayes.pool import Pool, draw_from_pool
from pacbayes.sample import POOL_STATEMENTS, AttemptLog, LockError

POOL = draw("pool", 600)
DESIGN = Pool.of(POOL).design


def test_every_order_is_equally_likely() -> None:
    counts = Counter(tuple(draw_from_pool(digest([i]), 4, 3)) for i in range(12_000))
    assert len(counts) == 24
    statistic = sum((count - 500) ** 2 / 500 for count in counts.values())
    assert special.chdtrc(23, statistic) > 1e-4


def test_a_draw_is_without_replacement_and_the_sample_is_its_beginning() -> None:
    seed = digest(b"seed")
    order = draw_from_pool(seed, 1000, 1000)
    assert sorted(order) == list(range(1000))
    assert draw_from_pool(seed, 1000, 10) == order[:10]
    assert order[:6] == [852, 562, 963, 546, 200, 690]
    with pytest.raises(ValueError, match="cannot draw 5 of 4"):
        draw_from_pool(seed, 4, 5)


def test_a_pool_has_no_prompt_twice() -> None:
    with pytest.raises(pydantic.ValidationError, match="items 1 and 2 of the pool have the same prompt"):
        Pool.of([Prompt(1), Prompt(2), Prompt(2)])


def test_a_sample_of_ones_own_choosing_is_refused(tmp_path: Path) -> None:
    method = method_lock(design=DESIGN, prompts=100, heldout=0)
    chosen = AttemptLog(tmp_path / "log").register(method, POOL[:100])
    with pytest.raises(LockError, match="is not item"):
        Pool.of(POOL).check_draw(method, chosen)
    with pytest.raises(LockError, match="another pool"):
        Pool.of(POOL[:-1]).check_draw(method, chosen)


@pytest.mark.parametrize(
    ("bound", "part", "outcome", "words"),
    [
        ("binomial", "pool", "expected", "of the 600 remainders prompts (numbers) of the pool correctly"),
        (
            "hypergeometric",
            "unseen",
            "realised",
            "of the 300 remainders prompts (numbers) of the pool that were not drawn",
        ),
    ],
)
def test_a_pool_certificate(tmp_path: Path, bound: str, part: str, outcome: str, words: str) -> None:
    method = method_lock(design=DESIGN, prompts=300, heldout=20, bound=bound)
    certificate = Chain.from_pool(method, tmp_path / "log", POOL).certify(tmp_path / "run", 0, [4, 4, 4, 4])
    expected = certified_pool_accuracy(
        certificate.bound.losses, 300, 600, bits=certificate.bits.total, delta=0.05, part=part, outcome=outcome
    )  # type: ignore[call-overload]
    assert certificate.bound.certified_accuracy == pytest.approx(expected, abs=1e-6)
    assert certificate.bound.certified_accuracy <= expected
    assert words in certificate.statement
    assert certificate.pool is not None
    assert certificate.pool.size == 600
    assert all(check.ok for check in verify_certificate(tmp_path / "run" / "certificate.json"))


def test_the_pool_is_checked(tmp_path: Path) -> None:
    method = method_lock(design=DESIGN, prompts=300, heldout=0)
    chain = Chain.from_pool(method, tmp_path / "log", POOL)
    chain.certify(tmp_path / "run", 0, [4, 4, 4, 4])
    content = json.loads((tmp_path / "run" / "pool.json").read_bytes())
    content["items"][0]["digest"] = digest(b"a corrected gold")
    (tmp_path / "run" / "pool.json").write_bytes(canonical_json(content))
    failed = [check.detail for check in verify_certificate(tmp_path / "run" / "certificate.json") if not check.ok]
    assert "another pool" in failed[0]
    (tmp_path / "run" / "pool.json").unlink()
    failed = [check.detail for check in verify_certificate(tmp_path / "run" / "certificate.json") if not check.ok]
    assert "pool.json is missing" in failed[0]
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(CertificateError, match="the pool is missing"):
        Chain(chain.method, chain.sample, chain.prompts, chain.heldout).certify(tmp_path / "run", 0, [4, 4, 4, 4])


def test_several_draws_per_prompt(tmp_path: Path) -> None:
    method = method_lock(draws=4, bound="betting", prompts=300, heldout=30)
    chain = Chain.draw(method, tmp_path / "log")
    certificate = chain.certify(tmp_path / "run", 0, [4, 4, 4, 4])
    rows = read_evidence(tmp_path / "run" / "evidence.parquet").correct_per_prompt(
        "coded", "sample", chain.sample, draws=4
    )
    assert set(rows) <= {0, 1, 2, 3, 4}
    assert len(set(rows)) > 2  # the draws differ
    assert certificate.coded.n == 1200
    assert certificate.bound.n == 300
    assert certificate.bound.losses == 1200 - sum(rows)
    expected = certified_mean_accuracy([right / 4 for right in rows], bits=certificate.bits.total, delta=0.05)
    assert certificate.bound.certified_accuracy == pytest.approx(expected, abs=1e-6)
    assert certificate.bound.certified_accuracy < true_accuracy(boosts(method, 0, [4, 4, 4, 4]))
    assert any("4 times" in text for text in certificate.assumptions)
    assert all(check.ok for check in verify_certificate(tmp_path / "run" / "certificate.json"))


STATEMENTS = [(bound, part, outcome) for bound, pairs in POOL_STATEMENTS.items() for part, outcome in pairs]


@pytest.mark.parametrize("draws", [1, 4])
@pytest.mark.parametrize(("bound", "part", "outcome"), STATEMENTS)
def test_every_statement_about_a_pool(tmp_path: Path, bound: str, part: str, outcome: str, draws: int) -> None:
    """Both parts and both outcomes, each by the function of the library that is about it."""
    if draws > 1 and bound != "betting":
        with pytest.raises(pydantic.ValidationError, match="need the bound 'betting'"):
            method_lock(design=DESIGN, prompts=300, heldout=0, bound=bound, draws=draws)
        return
    design = DESIGN.model_copy(update={"part": part, "outcome": outcome})
    method = method_lock(design=design, prompts=300, heldout=20, bound=bound, draws=draws)
    chain = Chain.from_pool(method, tmp_path / "log", POOL)
    certificate = chain.certify(tmp_path / "run", 0, [4, 4, 4, 4])
    bits, losses = certificate.bits.total, certificate.bound.losses
    if bound == "betting":
        evidence = read_evidence(tmp_path / "run" / "evidence.parquet")
        rewards = np.array(evidence.correct_per_prompt("coded", "sample", chain.sample, draws=draws)) / draws
        size = None if outcome == "expected" else 600
        expected = certified_mean_accuracy(rewards, bits=bits, delta=0.05, population=size)
        if part == "unseen":
            expected = (600 * expected - rewards.sum()) / 300
    else:
        expected = certified_pool_accuracy(losses, 300, 600, bits=bits, delta=0.05, part=part, outcome=outcome)  # type: ignore[arg-type]
    assert certificate.bound.certified_accuracy == pytest.approx(expected, abs=1.1e-6)
    assert certificate.bound.certified_accuracy <= expected + 1e-12
    assert ("that were not drawn" in certificate.statement) == (part == "unseen")
    assert any("under the committed noise" in text for text in certificate.assumptions) == (outcome == "realised")
    assert all(check.ok for check in verify_certificate(tmp_path / "run" / "certificate.json"))


def test_the_unseen_rewards_of_a_pool_are_never_overstated() -> None:
    """Over all orders of a small pool: how often the realised mean of the items not drawn is below its limit."""
    pool, n, delta = (1.0, 1.0, 1.0, 0.5, 0.5, 0.25, 0.0), 4, 0.3
    orders = list(itertools.permutations(range(len(pool)), n))
    missed = 0
    for order in orders:
        rest = [pool[i] for i in range(len(pool)) if i not in order]
        limit = certified_unseen_mean_accuracy([pool[i] for i in order], bits=0.0, delta=delta, population=len(pool))
        missed += limit > sum(rest) / len(rest)
    assert missed / len(orders) <= delta
    with pytest.raises(ValueError, match="population above n"):
        certified_unseen_mean_accuracy([1.0, 1.0], bits=0.0, delta=0.05, population=2)
