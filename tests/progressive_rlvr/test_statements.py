"""Statements beside the accuracy: declared in a configuration, locked, and certified from a real small run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from small_runs import SMALL, forge, prlvr, write_config

from pacbayes.evidence import read_evidence
from pacbayes.sample import MethodLock, read_lock
from progressive_rlvr.config import RunConfig
from progressive_rlvr.declare import declare
from progressive_rlvr.errors import UserError

STATEMENTS = {
    "gain": {"base": "0.01", "paired": "0.01"},
    "holdout": "0.01",
    "transfer": {"policy": "lora", "prompts": 60, "teachers": 2, "delta": "0.02"},
    "joint": "0.2",
}


def config(**statements: object) -> RunConfig:
    return RunConfig.model_validate(
        {**SMALL, "domains": {"knowledge": {}, "mathematics": {}}, "statements": statements}
    )


def test_shares_are_taken_from_the_accuracy_s() -> None:
    declared = declare(config(**STATEMENTS))
    shares = {share.name: share.value for share in declared.shares}
    assert declared.delta == "0.1"  # 0.2 for two domains
    assert shares == {
        "accuracy": "0.05",
        "base accuracy": "0.01",
        "paired gain": "0.01",
        "hold-out": "0.01",
        "disagreement": "0.02",
    }
    assert declared.joint is not None
    assert [(share.domain, share.delta) for share in declared.joint.shares] == [
        ("knowledge", "0.1"),
        ("mathematics", "0.1"),
    ]
    plain = declare(RunConfig.model_validate(SMALL))
    assert (plain.delta, plain.transfer, plain.joint) == ("0.05", None, None)
    assert [(share.name, share.value) for share in plain.shares] == [("accuracy", "0.05")]


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        ({"holdout": "0.05"}, "nothing is left for the accuracy"),
        ({"holdout": "a tenth"}, "is a decimal such as"),
        ({"holdout": "1e-3"}, "pattern"),
        ({"joint": "1.5"}, "pattern|delta"),
    ],
)
def test_a_split_of_delta_that_makes_no_sense_is_one_line(statements: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        declare(config(**statements))
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("statements")
    file = write_config(folder, domains={"knowledge": {}, "mathematics": {}}, statements=STATEMENTS)
    prlvr("run", file, "--runs", folder / "runs", timeout=900)
    return folder / "runs" / "small"


@pytest.mark.slow
def test_all_kinds_of_a_run(finished: Path) -> None:
    """One run, three kinds of certificates, each verified by the command line."""
    method = read_lock(finished / "knowledge" / "method.lock.json", MethodLock)
    assert method.transfer is not None
    certificate = json.loads((finished / "knowledge" / "certificate.json").read_text())
    assert certificate["gain"] is not None
    assert [line["name"] for line in certificate["deltas"]["lines"]][-1] == "disagreement"

    said = json.loads(prlvr("bound", "certify-transfer", "--run", finished, "--domain", "knowledge").stdout)
    assert said["prompts"] == 60
    transfer = finished / "knowledge" / "transfer-1.json"
    before = transfer.read_bytes()
    prlvr("bound", "certify-transfer", "--run", finished, "--domain", "knowledge")  # the same comparison again
    assert transfer.read_bytes() == before
    again = ("bound", "certify-transfer", "--run", finished, "--domain", "knowledge", "--beacon")
    second = json.loads(prlvr(*again, "a lottery").stdout)["certificate"]
    assert second.endswith("transfer-2.json")
    assert "FAIL" not in prlvr("verify", second).stdout
    assert "declares 2 comparisons, this is number 3" in prlvr(*again, "another lottery", code=2).stderr
    joint = json.loads(prlvr("bound", "certify-joint", finished).stdout)
    assert joint["delta"] == 0.2
    assert set(joint["certified_accuracy"]) == {"knowledge", "mathematics"}
    for file in (transfer, finished / "joint.json", finished / "knowledge" / "certificate.json"):
        assert "FAIL" not in prlvr("verify", file).stdout

    assert "accuracy certificate of the same sample" in prlvr("verify", transfer, "--level", "1", code=2).stderr
    assert prlvr("verify", finished / "joint.json", "--level", "1").stdout.count("V1 recount") == 2

    both = [finished / "certificates" / f"{name}.json" for name in ("knowledge", "mathematics")]
    assert "jointly, as locked: With 80 % confidence, all of these hold at once" in prlvr("verify", *both).stdout
    assert "NOT jointly: the joint statement is about" in prlvr("verify", both[0], both[0]).stdout

    good = (finished / "mathematics" / "message.bin").read_bytes()
    (finished / "mathematics" / "message.bin").write_bytes(good + b"x")
    said = prlvr("bound", "certify-joint", finished, code=2).stderr
    assert "the certificate of mathematics does not hold: message" in said
    (finished / "mathematics" / "message.bin").write_bytes(good)

    rows = (finished / "knowledge" / "transfer-1" / "comparison.parquet").read_bytes()
    (finished / "knowledge" / "transfer-1" / "comparison.parquet").write_bytes(rows[:-1])
    assert "comparison" in prlvr("verify", transfer, code=1).stdout


@pytest.mark.slow
def test_a_gain_is_verified_with_the_base_model(finished: Path, tmp_path: Path) -> None:
    """The base model's losses flatter a gain: right ones called wrong fail V1, answers it never gave fail V2."""
    certificate = finished / "certificates" / "knowledge.json"
    said = json.loads(prlvr("verify", certificate, "--level", "2", "--prompts", "500", "--json").stdout)
    measured = {check["name"]: check["measured"] for check in said["checks"]}
    stored = list(read_evidence(finished / "knowledge" / "evidence.parquet").part("base", "sample"))
    assert measured["regenerated completions of base"]["regenerated"] == sum(not o.correct for o in stored)
    assert measured["regenerated completions of base"]["wrong_to_right"] == 0
    assert measured["gain with flips"]["certified_gain_with_flips"] == measured["gain with flips"]["claimed_gain"]

    right = [o.index for o in stored if o.correct][:5]
    for name, change, level, failure in (
        ("verdicts", {"correct": False, "reason": "wrong"}, 1, "V1 verdicts of base"),
        ("answers", {"correct": False, "reason": "wrong", "completion": " Z"}, 2, "V2 regenerated completions of base"),
    ):
        shutil.copytree(finished, tmp_path / name)
        forge(tmp_path / name, "base", lambda o, change=change: replace(o, **change) if o.index in right else o)
        path = tmp_path / name / "certificates" / "knowledge.json"
        said = prlvr("verify", path, "--level", "2", "--prompts", "500", code=1).stdout
        failed = [line for line in said.splitlines() if line.startswith("FAIL")]
        assert failed[0].startswith(f"FAIL  {failure}"), failed
        assert all(f"sample prompt {index} " in failed[0] for index in right)
        assert "FAIL" not in prlvr("verify", path, "--level", str(level - 1)).stdout


def test_a_run_that_declared_nothing_says_so(tmp_path: Path) -> None:
    file = write_config(tmp_path)
    prlvr("lock", file, "--runs", tmp_path / "runs")
    run = tmp_path / "runs" / "small"
    assert (
        "declares no transfer"
        in prlvr("bound", "certify-transfer", "--run", run, "--domain", "knowledge", code=2).stderr
    )
    assert "has no certificates" in prlvr("bound", "certify-joint", run, code=2).stderr
    for shorthand in (
        ("/nope", "--run", run, "--domain", "knowledge"),
        ("--run", run, "--domain", "knowledge", "/nope"),
    ):
        assert "there is no checkpoint /nope" in prlvr("bound", *shorthand, code=2).stderr
    answer = json.loads(prlvr("bound", "holdout", "--n", "100", "--correct", "80", "--delta", "0.05").stdout)
    assert 0.7 < answer["certified_accuracy"] < 0.8
    assert "argument --n" in prlvr("bound", "holdout", "--n", "ten", "--correct", "8", "--delta", "0.05", code=2).stderr
    assert "--right" in prlvr("bound", "draws", "--help").stdout
