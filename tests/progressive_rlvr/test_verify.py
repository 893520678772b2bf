"""The verification ladder on a real small run: what each level sees and the one below cannot, and what is refused."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from small_runs import ENVIRONMENT, certificate_of, forge, locks_of, prlvr, write_config

from domains.knowledge import Knowledge
from domains.pocket.world import POPULATION
from pacbayes.bounds import certified_accuracy, flips_upper
from pacbayes.canonical import digest
from pacbayes.certificate import read_certificate
from pacbayes.evidence import Outcome, read_evidence
from pacbayes.sample import AttemptLog, heldout_seed, sample_seed
from progressive_rlvr.decoder import read_prior, write_prior
from progressive_rlvr.verify import Audit, Options, verify
from progressive_rlvr.verify.regenerate import draw_flip_sample
from progressive_rlvr.verify.rerun import seed_attempts

ALL = Options(prompts=1000)
PUBLISHED = sorted(
    path
    for path in (Path(__file__).parents[2] / "bounds_reports" / "published").glob("*/*.json")
    if path.parent.name != "comparison"
)
SOON_JUDGED = {"smollm2-135m/mathematics", "pocket/mathematics-seed0", "pocket/knowledge-seed0"}


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def audit(run: Path, level: int, options: Options = ALL) -> Audit:
    return verify(certificate_of(run), level, options, lambda what, done, total: None)


def failed(found: Audit) -> list[tuple[int, str]]:
    return [(finding.level, finding.name) for finding in found.findings if not finding.ok]


def measured(found: Audit, name: str) -> dict[str, object]:
    return dict(next(finding.measured for finding in found.findings if finding.name == name))


def flattering_verdicts(count: int, reason: str = "right") -> Callable[[Outcome], Outcome]:
    """The first wrong completions are called right, and stay what they are."""
    left = iter(range(count))

    def change(outcome: Outcome) -> Outcome:
        return (
            outcome if outcome.correct or next(left, None) is None else replace(outcome, correct=True, reason="right")
        )

    return change


def forged_completions(run: Path, count: int) -> Callable[[Outcome], Outcome]:
    """The first wrong completions become right ones that the message never wrote."""
    method, _ = locks_of(run)
    items = POPULATION.draw(sample_seed(method.digest, None), method.prompts)
    left = iter(range(count))

    def change(outcome: Outcome) -> Outcome:
        if outcome.correct or next(left, None) is None:
            return outcome
        text = POPULATION.write(items[outcome.index])
        return replace(outcome, correct=True, reason="right", completion=text, tokens=2)

    return change


# --- what holds --------------------------------------------------------------------------------------------


def test_a_real_run_holds_at_every_level_with_the_same_bytes(finished: Path) -> None:
    """V3 is a whole run elsewhere that ends with the same certificate, byte for byte."""
    result = prlvr("verify", certificate_of(finished), "--level", "3", "--json", "--prompts", "1000")
    said = json.loads(result.stdout)
    assert (said["ok"], said["level"], said["refused"]) == (True, "V3", None)
    assert {check["level"] for check in said["checks"]} == {0, 1, 2, 3}
    by_name = {check["name"]: check["measured"] for check in said["checks"]}
    right = read_certificate(certificate_of(finished)).coded.correct
    assert by_name["verdicts of coded"]["judged"] == 150
    assert by_name["verdicts of coded"]["right_to_wrong"] == by_name["verdicts of coded"]["wrong_to_right"] == 0
    regenerated = by_name["regenerated completions of coded"]
    assert (regenerated["regenerated"], regenerated["right_to_wrong"], regenerated["other_text"]) == (right, 0, 0)
    assert by_name["accuracy with flips"]["certified_accuracy_with_flips"] == by_name["recount"]["claimed_accuracy"]
    assert by_name["decoded weights"]["identical"]
    assert by_name["message again"]["identical"]
    assert by_name["certificate again"]["identical"]


def test_fewer_prompts_leave_a_lower_accuracy_and_the_seed_chooses_them(finished: Path) -> None:
    options = Options(prompts=20, seed="a lottery", delta=0.02)
    found, again = audit(finished, 2, options), audit(finished, 2, options)
    assert found.findings == again.findings
    c = read_certificate(certificate_of(finished))
    limit = flips_upper(0, 20, c.coded.correct, delta=0.02)
    assert limit > 0
    remaining = measured(found, "accuracy with flips")["certified_accuracy_with_flips"]
    expected = certified_accuracy(c.bound.losses + limit, c.n, bits=c.bits.total, delta=c.delta)
    assert remaining <= expected < remaining + 1e-6  # type: ignore[operator]
    detail = next(finding.detail for finding in found.findings if finding.name == "accuracy with flips")
    assert "at 93 % confidence, 2 % less than the certificate's" in detail
    everything = audit(finished, 2).findings[-1]
    assert everything.measured["delta_audit"] == 0, "what was counted whole needs no share of delta"
    assert "at the certificate's 95 % confidence" in everything.detail
    fresh = [measured(audit(finished, 2, Options(prompts=1)), "regenerated completions of coded")["seed"] for _ in "ab"]
    assert fresh[0] != fresh[1]
    assert "completions that were not regenerated" in " ".join(found.not_checked)
    assert "needs the model" not in " ".join(found.not_checked)


def test_level_one_loads_no_torch_and_level_two_asks_for_it(finished: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from progressive_rlvr.verify import Options, verify\n"
        f"path = Path({str(certificate_of(finished))!r})\n"
        "a = verify(path, 1, Options(), lambda *x: None); print(a.ok, a.level, 'torch' in sys.modules)\n"
        "sys.modules['torch'] = None; a = verify(path, 2, Options(), lambda *x: None); print(a.level, a.refused)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, timeout=120)
    assert result.stdout.splitlines() == ["True 1 False", "1 V2 needs torch: pip install 'progressive-rlvr[train]'"]


@pytest.mark.parametrize("certificate", PUBLISHED, ids=_name)
def test_published_certificates_agree_with_their_files(certificate: Path) -> None:
    assert failed(verify(certificate, 0, Options(), lambda what, done, total: None)) == []


@pytest.mark.parametrize(
    "certificate",
    [pytest.param(p, marks=[] if _name(p) in SOON_JUDGED else [pytest.mark.slow]) for p in PUBLISHED],
    ids=_name,
)
def test_published_certificates_hold_as_far_as_this_version_can_look(certificate: Path) -> None:
    """At V0, and the prompts are those of the seed; verdicts only if the verifier is still the locked one."""
    found = verify(certificate, 1, Options(), lambda what, done, total: None)
    assert failed(found) == []
    assert (1, "prompts") in [(finding.level, finding.name) for finding in found.findings]
    assert found.level == 1 or "was scored by the verifier" in (found.refused or "")


# --- tampering -----------------------------------------------------------------------------------------------


def test_a_verdict_that_flatters_passes_v0_and_fails_v1_by_its_index(copy: Path) -> None:
    before = read_certificate(certificate_of(copy)).bound.certified_accuracy
    changed = forge(copy, "coded", flattering_verdicts(3))
    assert failed(audit(copy, 0)) == []
    assert read_certificate(certificate_of(copy)).bound.certified_accuracy > before
    found = audit(copy, 2)
    assert failed(found) == [(1, "verdicts of coded"), (1, "recount")]
    assert found.level == 1, "nothing is generated for a certificate that has failed already"
    assert measured(found, "verdicts of coded")["sample_flips"] == changed
    assert measured(found, "recount")["certified_accuracy"] == before
    said = prlvr("verify", certificate_of(copy), "--level", "1", code=1).stdout
    assert f"sample prompt {changed[0]} (was right, is " in said
    assert said.endswith("the certificate does NOT hold\n")


def test_a_completion_that_was_cut_off_is_never_right(copy: Path) -> None:
    changed = forge(copy, "coded", flattering_verdicts(1, "truncated"))
    found = audit(copy, 1)
    assert failed(found) == [(1, "verdicts of coded"), (1, "recount")]
    assert measured(found, "verdicts of coded")["sample_flips"] == changed


def test_a_verdict_that_was_too_strict_is_reported_and_changes_nothing(copy: Path) -> None:
    right = [
        o.index for o in read_evidence(copy / "knowledge" / "evidence.parquet").part("coded", "sample") if o.correct
    ]

    def stricter(outcome: Outcome) -> Outcome:
        return replace(outcome, correct=False, reason="wrong") if outcome.index == right[0] else outcome

    forge(copy, "coded", stricter)
    found = audit(copy, 1)
    assert failed(found) == []
    assert measured(found, "verdicts of coded")["wrong_to_right"] == 1
    recounted = measured(found, "recount")
    assert recounted["certified_accuracy"] == recounted["claimed_accuracy"]


def test_a_completion_that_the_stop_rule_cannot_leave(copy: Path) -> None:
    done: list[int] = []

    def late(outcome: Outcome) -> Outcome:
        if not outcome.correct or done:
            return outcome
        done.append(outcome.index)
        return replace(outcome, tokens=10_000)

    forge(copy, "coded", late)
    found = audit(copy, 1)
    assert failed(found) == [(1, "stop rule")]
    assert f"coded, sample prompt {done[0]}, draw 0: 10000 tokens, the lock allows" in " ".join(
        finding.detail for finding in found.findings
    )


def test_completions_that_the_message_never_wrote_pass_v1_and_fail_v2(copy: Path) -> None:
    changed = forge(copy, "coded", forged_completions(copy, 12))
    assert failed(audit(copy, 1)) == []
    found = audit(copy, 2)
    assert failed(found) == [(2, "regenerated completions of coded")]
    flips = measured(found, "regenerated completions of coded")
    assert flips["sample_flips"] == changed
    assert flips["other_text"] == 12
    # All were generated again, so the limit is the truth and what remains is what honest evidence would have given.
    c = read_certificate(certificate_of(copy))
    honest = certified_accuracy(c.bound.losses + 12, c.n, bits=c.bits.total, delta=c.delta)
    remaining = measured(found, "accuracy with flips")["certified_accuracy_with_flips"]
    assert remaining <= honest < remaining + 1e-6  # type: ignore[operator]


def test_flips_below_the_checker_s_limit_are_still_counted(copy: Path) -> None:
    forge(copy, "coded", forged_completions(copy, 1))
    found = audit(copy, 2, replace(ALL, max_flips=0.05))
    assert found.ok
    shown = measured(found, "accuracy with flips")
    assert shown["flips_upper"] == 1
    assert shown["certified_accuracy_with_flips"] < shown["claimed_accuracy"]  # type: ignore[operator]


@pytest.mark.slow
def test_another_history_is_seen_by_a_re_run_only_and_is_no_verdict(copy: Path) -> None:
    """The digest of a stage is the producer's word; training elsewhere gives another, too."""
    path = certificate_of(copy)
    shown = json.loads(path.read_text())
    shown["stages"][1]["done"] = "0" * 64
    path.write_text(json.dumps(shown))
    said = prlvr("verify", path, "--level", "3", code=1).stdout
    failed = [line for line in said.splitlines() if line.startswith("FAIL")]
    assert len(failed) == 1
    assert failed[0].startswith("FAIL  V3 certificate again: the run ends with another certificate (stages[1].done is")
    assert "no proof of fraud" in failed[0]
    assert "ok    V3 message again: the run ends with the same" in said
    assert "says nothing against it" in said.splitlines()[-1]


# --- the statement of V2 -------------------------------------------------------------------------------------


def test_the_limit_on_flips_is_violated_no_more_often_than_its_delta() -> None:
    """With as many flips as make it worst, over 3,000 seeds, through the draw that the command makes: two-sided."""
    total, regenerated, delta, seeds = 60, 15, 0.05, 3000
    stored = [Outcome("coded", "sample", i, "0" * 64, 0, 0, True, "right", 1, "") for i in range(total)]
    limits = [flips_upper(seen, regenerated, total, delta=delta) for seen in range(regenerated + 1)]
    rates = {
        flips: sum(
            math.comb(flips, seen) * math.comb(total - flips, regenerated - seen) / math.comb(total, regenerated)
            for seen, limit in enumerate(limits)
            if limit < flips
        )
        for flips in range(total + 1)
    }
    flips, rate = max(rates.items(), key=lambda pair: pair[1])
    assert 0.8 * delta < rate <= delta
    violated = 0
    for seed in range(seeds):
        chosen = draw_flip_sample(stored, regenerated, str(seed), "evidence", "coded")
        violated += limits[sum(outcome.index < flips for outcome in chosen)] < flips
    assert abs(violated / seeds - rate) < 4 * math.sqrt(rate * (1 - rate) / seeds)


# --- refusals ------------------------------------------------------------------------------------------------


def test_another_version_of_the_verifier_is_refused_by_name(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = Knowledge.version
    monkeypatch.setattr(Knowledge, "version", "knowledge/99")
    found = audit(finished, 2)
    assert found.ok
    assert found.level == 0
    assert f"scored by the verifier {locked}, this program has knowledge/99" in (found.refused or "")


def test_another_population_of_the_same_name_fails(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = type(POPULATION).draw
    monkeypatch.setattr(type(POPULATION), "draw", lambda self, seed, n: draw(self, seed + "x", n))
    found = audit(finished, 1)
    assert failed(found) == [(1, "prompts")]
    assert "sample prompt 0 of the lock is not the one that the seed draws" in found.findings[-1].detail


@pytest.mark.parametrize(
    ("base", "said"), [("tiny", "another digest of weights"), ("/no/such/folder", "no base model '/no/such/folder'")]
)
def test_a_base_model_that_is_not_the_locked_one(finished: Path, tiny_folder: Path, base: str, said: str) -> None:
    found = audit(finished, 2, replace(ALL, base=str(tiny_folder) if base == "tiny" else base))
    assert (found.ok, found.level) == (True, 1)
    assert said in (found.refused or "")


def test_a_prior_artifact_that_is_missing_is_made_again_and_another_is_refused(copy: Path) -> None:
    path = copy / "knowledge" / "prior.safetensors"
    prior = read_prior(path)
    path.unlink()
    found = audit(copy, 2, Options(prompts=1))
    assert (found.ok, found.level) == (True, 2)
    assert "made again here" in next(finding.detail for finding in found.findings if finding.name == "prior artifact")
    write_prior(path, {name: tensor + 1 for name, tensor in prior.items()})
    found = audit(copy, 2)
    assert (found.ok, found.level) == (True, 1)
    assert "refuse to decode" in (found.refused or "")


def test_a_re_run_needs_the_configuration_of_the_certificate(copy: Path, tmp_path: Path) -> None:
    options = Options(prompts=1)
    (copy / "config.resolved.yaml").unlink()
    found = audit(copy, 3, options)
    assert (found.ok, found.level) == (True, 2)
    assert "needs the run's config.resolved.yaml" in (found.refused or "")
    other = write_config(tmp_path, sample={"n": 60, "heldout": 0})
    (tmp_path / "other").mkdir()
    other.rename(tmp_path / "other" / "config.resolved.yaml")
    found = audit(copy, 3, replace(options, run=tmp_path / "other"))
    assert (found.ok, found.level) == (True, 2)
    assert "does not lead to the certificate's method lock" in (found.refused or "")
    assert prlvr("verify", certificate_of(copy), "--delta-audit", "1", code=2).stderr.startswith(
        "prlvr: error: --delta"
    )


def test_a_later_attempt_lands_on_the_same_lock(finished: Path, tmp_path: Path) -> None:
    """Of the attempts before it only the number and the last digest are known, and that is enough."""
    method, first = locks_of(finished)
    items = POPULATION.draw(sample_seed(method.digest, None), method.prompts)
    heldout = POPULATION.draw(heldout_seed(method.digest, None), method.heldout)
    fifth = first.model_copy(update={"attempt": 5, "previous": digest(b"the fourth")})
    seed_attempts(tmp_path / "attempts.jsonl", method, fifth)
    assert AttemptLog(tmp_path / "attempts.jsonl").register(method, items, heldout).digest == fifth.digest
    seed_attempts(tmp_path / "first.jsonl", method, first)
    assert AttemptLog(tmp_path / "first.jsonl").register(method, items, heldout).digest == first.digest
