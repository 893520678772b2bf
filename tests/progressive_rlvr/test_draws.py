"""Several draws per prompt from the lock to V2, on the real pocket model; one draw stays what it was."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_runs import SMALL, certificate_of, copy_of, forge, locks_of, prlvr, run_and_kill, write_config

from domains.registry import get_domain
from pacbayes.bounds import certified_accuracy, certified_mean_accuracy
from pacbayes.canonical import digest
from pacbayes.certificate import read_certificate
from pacbayes.evidence import Outcome, read_evidence, write_evidence
from pacbayes.gumbel import prompt_key
from pacbayes.pool import Pool
from pacbayes.sample import noise_root
from progressive_rlvr.accounting import account
from progressive_rlvr.chain import base_of, lock_method
from progressive_rlvr.config import RunConfig, load_config
from progressive_rlvr.engines import Request, Settings
from progressive_rlvr.engines.replay import ReplayEngine
from progressive_rlvr.errors import UserError
from progressive_rlvr.pipeline import run_domain
from progressive_rlvr.plan import Device, plan
from progressive_rlvr.stages.quantize import Candidate
from progressive_rlvr.verify import Audit, Options, verify
from progressive_rlvr.verify.flips import with_flips

N, HELDOUT, DRAWS = 60, 10, 2
# One stage of training and no search: what is tested comes after them.
STAGES = {
    "rlvr": None,
    "distill": None,
    "tinylora": {"steps": 3, "prompts": 4, "samples": 4},
    "quantize": {"candidates_on": 30},
}
# Of everything in the lock of a configuration without `draws` but model, verifier, claim and population, which have
# digests of their own; taken before `draws` was there.
LOCK_OF_ONE_DRAW = "ab9cc06dba93c9e5085210b5a71b2352ce48dd9a94c68ff49acec68429421a64"


def config_of(folder: Path, **sample: object) -> Path:
    return write_config(folder, stages=STAGES, sample={"n": N, "heldout": HELDOUT, "draws": DRAWS, **sample})


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run with two draws per prompt."""
    folder = tmp_path_factory.mktemp("several")
    prlvr("run", config_of(folder), "--runs", folder / "runs")
    return folder / "runs" / "small"


@pytest.fixture
def copied(several: Path, tmp_path: Path) -> Path:
    return copy_of(several, tmp_path)


def audit(run: Path, level: int, prompts: int = 1000) -> Audit:
    options = Options(prompts=prompts, seed="a lottery")
    return verify(certificate_of(run), level, options, lambda what, done, total: None)


def failed(found: Audit) -> list[tuple[int, str]]:
    return [(finding.level, finding.name) for finding in found.findings if not finding.ok]


def test_other_accountings_take_the_mean_over_draws_and_the_lock_s_bound(several: Path) -> None:
    """The risk is the share of wrong answers, and n the prompts, not the answers."""
    shown = read_certificate(certificate_of(several))
    own = account(certificate_of(several)).charges[0]
    nats = shown.bits.total * np.log(2) + np.log(20)
    assert float(own.certified["hoeffding"]) == pytest.approx(shown.coded.accuracy - np.sqrt(nats / (2 * N)), abs=1e-9)
    assert float(own.certified["betting"]) == shown.bound.certified_accuracy
    assert "binomial" not in own.certified


def test_the_certificate_counts_prompts_as_units(several: Path) -> None:
    c, (method, sample) = read_certificate(certificate_of(several)), locks_of(several)
    assert (method.draws, method.bound, c.draws, c.n, c.bound.n) == (DRAWS, "betting", DRAWS, N, N)
    assert (c.coded.n, c.coded.heldout and c.coded.heldout.n) == (N * DRAWS, HELDOUT * DRAWS)
    evidence = read_evidence(several / "knowledge" / "evidence.parquet")
    rewards = np.zeros((N, DRAWS))
    for o in evidence.part("coded", "sample"):
        rewards[o.index, o.draw] = o.correct
    assert c.bound.losses == N * DRAWS - rewards.sum()
    assert (rewards[:, 0] != rewards[:, 1]).any(), "the draws differ"
    expected = certified_mean_accuracy(rewards.mean(axis=1), bits=c.bits.total, delta=0.05)
    assert c.bound.certified_accuracy <= expected < c.bound.certified_accuracy + 1e-6
    assert "Each prompt was answered 2 times; prompts are the units of the bound, not completions." in c.assumptions
    keys = {
        policy: [o.key[1:] for o in evidence.outcomes.values() if o.policy == policy] for policy in ("base", "coded")
    }
    assert keys["base"] == keys["coded"], "what is compared stands on the same prompts and noise"
    assert len(keys["coded"]) == (N + HELDOUT) * DRAWS
    # Replayed by the committed keys, every draw is found under its own.
    root = noise_root(method.digest, sample.digest, sample.beacon)
    engine = ReplayEngine.of(evidence, "coded", {"sample": root})
    prompts = {p["prompt_digest"]: p["prompt"] for p in _prompts(several)}
    rows = evidence.part("coded", "sample")
    requests = [
        Request(prompts[o.prompt_digest], prompt_key(root, o.prompt_digest, o.occurrence, o.draw)) for o in rows
    ]
    assert [a.text for a in engine.generate(requests, Settings(4, 1.0, None, 1))] == [o.completion for o in rows]
    assert not engine.lost


def _prompts(run: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (run / "knowledge" / "prompts.jsonl").read_text().splitlines()]


def test_it_holds_up_to_v2_and_the_report_makes_no_test_set_of_draws(several: Path) -> None:
    found = audit(several, 2)
    assert failed(found) == []
    assert (found.level, found.refused) == (2, None)
    c = read_certificate(certificate_of(several))
    measured = {finding.name: finding.measured for finding in found.findings}
    assert measured["regenerated completions of coded"]["regenerated"] == c.coded.correct
    assert measured["regenerated completions of coded"]["other_text"] == 0
    assert measured["accuracy with flips"]["certified_accuracy_with_flips"] == c.bound.certified_accuracy
    few = next(finding for finding in audit(several, 2, prompts=20).findings if finding.name == "accuracy with flips")
    assert few.measured["flips_upper"] > 0  # type: ignore[operator]
    assert few.measured["certified_accuracy_with_flips"] < c.bound.certified_accuracy  # type: ignore[operator]
    report = (several / "reports" / "report.md").read_text()
    assert f"In {HELDOUT * DRAWS} answers to held-out prompts, 2 to each" in report
    assert "Clopper-Pearson" not in report
    page = (several / "reports" / "report.html").read_text()
    assert f"of {N * DRAWS} answers, 2 to each of {N} training prompts" in page
    assert "interval for a test" not in page


def test_one_draw_that_is_called_right_is_found_by_its_number(copied: Path) -> None:
    left = iter([True])

    def second_draw(o: Outcome) -> Outcome:
        wrong = o.draw == 1 and not o.correct
        return replace(o, correct=True, reason="right") if wrong and next(left, False) else o

    before = read_certificate(certificate_of(copied)).bound.certified_accuracy
    (index,) = forge(copied, "coded", second_draw)
    assert failed(audit(copied, 0)) == []
    assert read_certificate(certificate_of(copied)).bound.certified_accuracy > before
    found = audit(copied, 1)
    assert failed(found) == [(1, "verdicts of coded"), (1, "recount")]
    detail = next(finding.detail for finding in found.findings if not finding.ok)
    assert f"sample prompt {index}, draw 1 (was right, is " in detail


def test_a_draw_that_was_not_made_is_made_and_nothing_else(copied: Path) -> None:
    """As if the run had been killed between two draws of a prompt."""
    path, before = copied / "knowledge" / "evidence.parquet", certificate_of(copied).read_bytes()
    evidence, bytes_before = read_evidence(path), path.read_bytes()
    kept = [
        o for o in evidence.outcomes.values() if o.policy != "coded" or (o.split, o.index, o.draw) < ("sample", 20, 1)
    ]
    assert len(kept) < len(evidence.outcomes)
    path.unlink()
    write_evidence(path, kept, sample_lock=evidence.sample_lock, policies=dict(evidence.policies))
    certificate_of(copied).unlink()
    (copied / "knowledge" / "certificate.json").unlink()
    run_domain(copied, "knowledge")
    assert path.read_bytes() == bytes_before
    assert certificate_of(copied).read_bytes() == before


@pytest.mark.slow
def test_a_run_killed_in_quantize_and_in_evaluation_ends_with_the_same_certificate(
    several: Path, tmp_path: Path
) -> None:
    config = config_of(tmp_path)
    run_and_kill(config, tmp_path / "runs", ("quantize", "evaluate base", "evaluate coded"))
    prlvr("run", config, "--runs", tmp_path / "runs")
    assert certificate_of(tmp_path / "runs" / "small").read_bytes() == certificate_of(several).read_bytes()


@pytest.mark.slow
def test_ray_workers_give_the_same_certificate(several: Path, tmp_path: Path) -> None:
    prlvr("run", config_of(tmp_path), "--runs", tmp_path / "runs", "--engine", "ray", "--workers", "2", timeout=600)
    assert certificate_of(tmp_path / "runs" / "small").read_bytes() == certificate_of(several).read_bytes()


# --- locks ---------------------------------------------------------------------------------------------------


def method_of(pool: Pool | None = None, **changes: object) -> dict[str, object]:
    config = RunConfig.model_validate(
        {"name": "x", "base": {"model": "pocket"}, "domains": {"knowledge": {}}, **changes}
    )
    domain = get_domain("knowledge")
    lock = lock_method(config, base_of(config), domain, domain.populations()["pocket"], "0" * 64, 28, pool)
    return lock.to_json()


def test_a_lock_of_one_draw_is_what_it_was() -> None:
    for sample in ({}, {"draws": 1}):
        lock = method_of(sample=sample)
        assert digest({k: v for k, v in lock.items() if k not in ("model", "verifier", "claim", "population")}) == (
            LOCK_OF_ONE_DRAW
        )
    several = method_of(sample={"draws": 4})
    changed = {k for k in several if several[k] != lock[k]}
    assert changed == {"draws", "bound"}
    assert (several["draws"], several["bound"]) == (4, "betting")


def test_a_pool_takes_several_draws_for_expected_accuracy_only() -> None:
    items = get_domain("knowledge").populations()["pocket"].draw("a pool", 200)
    pool = Pool.of(list({item.prompt_digest: item for item in items}.values()))
    sample = {"n": 50, "heldout": 0, "draws": 3}
    with pytest.raises(UserError, match=r"give sample\.pool_claim: expected, or sample\.draws: 1"):
        method_of(pool, sample=sample)
    lock = method_of(pool, sample={**sample, "pool_claim": "expected"})
    assert (lock["bound"], lock["draws"]) == ("betting", 3)


@pytest.mark.parametrize("statement", [{"gain": {"base": "0.01", "paired": "0.01"}}, {"holdout": "0.01"}])
def test_statements_for_one_draw_are_refused_in_one_line(tmp_path: Path, statement: dict[str, object]) -> None:
    file = write_config(tmp_path, sample={"n": N, "draws": 2}, statements=statement)
    said = f"statements.{next(iter(statement))} is for one draw per prompt, and sample.draws is 2"
    with pytest.raises(UserError, match=re.escape(said)) as caught:
        load_config(file)
    assert "\n" not in str(caught.value)


def test_a_plan_counts_every_draw() -> None:
    one, four = (
        {row.stage: row for row in plan(RunConfig.model_validate(config), "knowledge", Device()).rows}
        for config in (SMALL, {**SMALL, "sample": {"n": 120, "heldout": 30, "draws": 4}})
    )
    for stage, row in four.items():
        factor = 4 if stage in ("quantize", "evaluate") else 1
        assert row.completions == factor * one[stage].completions
    assert four["evaluate"].completions == 5 * 4 * (120 + 30)


# --- what candidates are compared by, and flips --------------------------------------------------------------


def test_a_candidate_is_worth_what_would_be_certified() -> None:
    right = [2, 2, 1, 0, 2, 1, 2, 2]
    candidate = Candidate("one", 0, (1,), b"", 10.0, right)
    whole = certified_mean_accuracy(np.array(right * 100) / 2, bits=10.0, delta=0.05)
    assert candidate.expected(800, 0.05, 2) == whole, "a sample of the same shape, a hundred times as large"
    assert candidate.accuracy(2) == 0.75
    rounded = certified_mean_accuracy(np.array([2] * 6 + [1] * 2 + [0] * 2) / 2, bits=1.0, delta=0.5)
    assert Candidate("one", 0, (1,), b"", 1.0, right).expected(10, 0.5, 2) == rounded, "6.25, 2.5 and the rest wrong"
    single = Candidate("one", 0, (1,), b"", 10.0, [1, 0, 1])
    assert single.expected(100, 0.05, 1) == certified_accuracy(34, 100, bits=10.0, delta=0.05)


@pytest.mark.parametrize("correct", [[3, 1, 2, 0, 3], [2, 2, 2], [3, 3, 1, 1]])
def test_no_choice_of_flips_leaves_less_than_the_worst(correct: list[int]) -> None:
    """All choices, at several confidences; where whole prompts are emptied the worst is one of them."""
    total = sum(correct)
    choices = list(itertools.product(*(range(k + 1) for k in correct)))

    def certified(rest: list[int], bits: float) -> float:
        return certified_mean_accuracy(np.array(rest * 20) / 3, bits=bits, delta=0.05)

    for flips, bits in itertools.product(range(total + 1), (0.0, 8.0)):
        left = with_flips(correct, flips)
        assert total - sum(left) >= flips
        least = min(
            certified([k - f for k, f in zip(correct, choice, strict=True)], bits)
            for choice in choices
            if sum(choice) == flips
        )
        assert certified(left, bits) <= least + 1e-12
        if total - sum(left) == flips:
            assert certified(left, bits) == pytest.approx(least, abs=1e-12)
    assert with_flips(correct, 0) == correct


def test_with_one_draw_every_flip_is_one_loss() -> None:
    assert [sum(with_flips([1, 0, 1, 1, 1], flips)) for flips in range(5)] == [4, 3, 2, 1, 0]
