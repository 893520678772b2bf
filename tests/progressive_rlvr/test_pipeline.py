"""The whole path on the real pocket model: certificate, repetition, kills, tampering, bad input, as users meet it."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from small_runs import ENVIRONMENT, STAGES, certificate_of, command, prlvr, run_and_kill, write_config

from pacbayes.bounds import certified_accuracy
from pacbayes.certificate import read_certificate
from progressive_rlvr.models import POCKET


def test_no_stage_names_a_folder_of_this_machine(finished: Path) -> None:
    """Their digests stand in the certificate, which must come out the same from another installation."""
    texts = [f.read_bytes() for f in (finished / "knowledge" / "stages").rglob("*") if f.is_file()]
    assert len(texts) >= 6
    for folder in (POCKET, finished):
        assert not any(str(folder).encode() in text for text in texts)


def test_the_certificate_says_what_was_run(finished: Path) -> None:
    c = read_certificate(certificate_of(finished))
    assert (c.domain, c.n, c.delta, c.design, c.attempt.number) == ("knowledge", 120, 0.05, "iid", 1)
    assert [s["kind"] for s in c.stages] == ["base", "rlvr", "distill", "tinylora", "quantize"]
    assert all(
        p is not None and p.n == 120 and p.heldout and p.heldout.n == 30
        for p in (c.base, c.lora, c.distilled, c.tinylora)
    )
    assert c.bits.total == pytest.approx(sum(line.value for line in c.bits.lines))
    assert len(c.message.integers) == 6
    recomputed = certified_accuracy(120 - c.coded.correct, 120, bits=c.bits.total, delta=0.05)
    assert c.bound.certified_accuracy <= recomputed < c.bound.certified_accuracy + 1e-5


def test_all_policies_were_scored_under_the_same_prompts_and_noise(finished: Path) -> None:
    table = pq.read_table(finished / "knowledge" / "evidence.parquet").to_pylist()
    by_policy: dict[str, list[tuple[object, ...]]] = {}
    for row in table:
        by_policy.setdefault(row["policy"], []).append(
            (row["split"], row["index"], row["prompt_digest"], row["occurrence"], row["draw"])
        )
    assert set(by_policy) == {"base", "lora", "distilled", "tinylora", "coded"}
    assert len({tuple(keys) for keys in by_policy.values()}) == 1


def test_the_same_command_again_changes_nothing(finished: Path) -> None:
    files = [
        f
        for f in finished.rglob("*")
        if f.is_file() and "logs" not in f.parts and f.name not in (".lock", "metrics.jsonl")
    ]
    before = {f: f.read_bytes() for f in files}
    prlvr("run", write_config(finished.parents[1]), "--runs", finished.parent)
    assert {f: f.read_bytes() for f in files} == before


def test_a_run_killed_in_every_stage_ends_with_the_same_certificate(finished: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path)
    run_and_kill(config, tmp_path / "runs", (*STAGES, "evaluate base", "evaluate coded"))
    prlvr("run", config, "--runs", tmp_path / "runs")
    assert certificate_of(tmp_path / "runs" / "small").read_bytes() == certificate_of(finished).read_bytes()


def test_a_worker_ends_with_its_parent(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    process = subprocess.Popen(
        command("run", config, "--runs", tmp_path / "runs"), env=ENVIRONMENT, stderr=subprocess.DEVNULL
    )
    lock = tmp_path / "runs" / "small" / "knowledge" / ".lock"
    while not lock.exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    time.sleep(1)
    # The lock is free again, so nothing of the killed run works on the folder any more.
    prlvr("compress", config, "--runs", tmp_path / "runs", "--to", "rlvr")


def test_a_finished_run_verifies(finished: Path) -> None:
    said = prlvr("verify", certificate_of(finished)).stdout
    assert "FAIL" not in said
    assert "not checked" in said, "what V0 cannot know must be said"
    assert json.loads(prlvr("verify", certificate_of(finished), "--json").stdout)["ok"] is True


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("message", "message"),
        ("outcome", "evidence"),
        ("ledger", "bits"),
        ("method", "method"),
        ("sample", "sample"),
        ("accuracy", "certified"),
    ],
)
def test_one_change_anywhere_fails_with_its_name(copy: Path, what: str, named: str) -> None:
    domain, path = copy / "knowledge", certificate_of(copy)
    certificate = json.loads(path.read_text())
    if what == "message":
        data = bytearray((domain / "message.bin").read_bytes())
        data[0] ^= 1
        (domain / "message.bin").write_bytes(bytes(data))
    elif what == "outcome":
        table = pq.read_table(domain / "evidence.parquet")
        rows = table.to_pylist()
        wrong = next(r for r in rows if r["policy"] == "coded" and r["split"] == "sample" and not r["correct"])
        wrong["correct"], wrong["reason"] = True, "right"
        pq.write_table(type(table).from_pylist(rows, schema=table.schema), domain / "evidence.parquet")
    elif what == "ledger":
        certificate["bits"]["lines"][1]["value"] -= 1.0
    elif what == "accuracy":
        certificate["bound"]["certified_accuracy"] += 0.001
    else:
        lock = domain / f"{what}.lock.json"
        lock.write_text(lock.read_text().replace("0", "1", 1))
    path.write_text(json.dumps(certificate))
    said = prlvr("verify", path, code=1).stdout
    failed = [line for line in said.splitlines() if line.startswith("FAIL")]
    assert failed
    assert any(named in line for line in failed), failed


def test_status_shows_where_a_run_is(finished: Path) -> None:
    assert json.loads(prlvr("status", finished, "--json").stdout)[0]["stage"] == "done"
    assert "knowledge" in prlvr("status", finished).stdout
    assert "is no run" in prlvr("status", finished.parent, code=2).stderr


def test_a_stage_can_be_left_out(tmp_path: Path) -> None:
    """TinyLoRA-only RLVR: no teacher, no distillation."""
    stages = {**STAGES, "rlvr": None, "distill": None}
    prlvr("run", write_config(tmp_path, stages=stages), "--runs", tmp_path / "runs")
    c = read_certificate(certificate_of(tmp_path / "runs" / "small"))
    assert (c.lora, c.distilled) == (None, None)
    assert c.tinylora is not None


def test_a_damaged_stage_is_named(copy: Path) -> None:
    victim = copy / "knowledge" / "stages" / "2-distill" / "vector.safetensors"
    victim.write_bytes(victim.read_bytes()[:-1] + b"x")
    said = prlvr("run", write_config(copy.parents[1]), "--runs", copy.parent, code=2).stderr
    assert "2-distill is corrupt: vector.safetensors" in said
    (victim.parent / "done.json").write_text("{")
    assert "unreadable done.json" in prlvr("run", write_config(copy.parents[1]), "--runs", copy.parent, code=2).stderr


def test_a_run_keeps_to_its_configuration(copy: Path) -> None:
    said = prlvr("run", write_config(copy.parents[1], delta=0.1), "--runs", copy.parent, code=2).stderr
    assert "delta was 0.05 and now is 0.1" in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"colour": "red"}, "colour: Extra inputs"),
        ({"base": {"model": "no-such-model"}}, "no base model 'no-such-model'"),
        ({"domains": {"astrology": {}}}, "there is no domain 'astrology'"),
        ({"domains": {"knowledge": {"population": "none"}}}, "has no population 'none'"),
        ({"student": {"groups": 5}}, "groups is 5, but 28 modules"),
        ({"student": {"targets": ["x_proj"]}}, "x_proj"),
    ],
)
def test_bad_configurations_end_with_one_line(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    error = prlvr("run", write_config(tmp_path, **changes), "--runs", tmp_path / "runs", code=2).stderr
    lines = [line for line in error.splitlines() if line.startswith("prlvr: error:")]
    assert len(lines) == 1
    assert said in lines[0]


def test_an_unwritable_run_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = prlvr("run", write_config(tmp_path), "--runs", tmp_path / "file" / "runs", code=2).stderr
    assert "cannot write to the run directory" in said


def test_a_second_attempt_at_the_same_claim_is_counted_and_pays(copy: Path) -> None:
    """Another n is another method and draws another sample: the claim's second attempt, at five bits."""
    config = write_config(copy.parents[1], name="again", sample={"n": 121, "heldout": 30})
    prlvr("lock", config, "--runs", copy.parent)
    lock = json.loads((copy.parent / "again" / "knowledge" / "sample.lock.json").read_text())
    first = json.loads((copy / "knowledge" / "sample.lock.json").read_text())
    assert (lock["attempt"], first["attempt"]) == (2, 1)
    assert lock["previous"] == read_certificate(certificate_of(copy)).digests.sample_lock


def test_a_development_run_is_no_certificate(tmp_path: Path) -> None:
    config = write_config(tmp_path, sample={"n": 60, "heldout": 0, "purpose": "development"})
    prlvr("run", config, "--runs", tmp_path / "runs")
    assert read_certificate(certificate_of(tmp_path / "runs" / "small")).purpose == "development"
    assert not (tmp_path / "runs" / "attempts.jsonl").exists()
    assert "development" in (tmp_path / "runs" / "small" / "reports" / "report.md").read_text().lower()
