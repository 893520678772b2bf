"""`prlvr plan labels`: what is typed in, what a certificate tells, what is answered, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import Result
from typer.testing import CliRunner

import bounds_reports
from pacbayes.bounds import expected_certified_accuracy
from progressive_rlvr.cli import app
from progressive_rlvr.errors import EXPECTED

PUBLISHED = Path(bounds_reports.__file__).parent / "published" / "smollm2-135m"
TYPED = ("--n", "400", "--accuracy", ".9", "--bits", "30")


def plan(*options: str | Path) -> Result:
    return CliRunner().invoke(app, ["plan", "labels", *map(str, options)])


def answered(*options: str | Path) -> dict[str, Any]:
    result = plan(*options, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def one_line(error: BaseException | None) -> str:
    """What `main` prints for it: an error that users are meant to read."""
    assert isinstance(error, EXPECTED), repr(error)
    return " ".join(str(error).split())


def test_a_holdout_that_wins_is_said_to_win() -> None:
    found = answered(*TYPED)
    assert found["answer"].startswith("A plain hold-out wins.")
    assert "takes for granted that training on 320 labels costs no accuracy" in found["answer"]
    assert found["holdouts"][0]["chosen"]["assumed"] is True
    everything = expected_certified_accuracy(0.9, 400, bits=30 + 0.09310940439148147, delta=0.05)
    assert found["certify_all"]["expected"] == pytest.approx(everything, abs=1e-6)
    assert any("before the sample is drawn" in note for note in found["notes"])
    assert any("another policy, of which the hold-out says nothing" in note for note in found["notes"])


def test_certifying_on_all_that_wins_is_said_to_win() -> None:
    found = answered("--n", "400", "--bits", "4", "--curve", "50:.2", "--curve", "360:.5", "--curve", "400:.95")
    assert found["answer"].startswith("Certify on all.")
    assert found["ranking"][0]["design"] == "all"
    assert found["holdouts"][0]["optimal"] is True


def test_a_prior_takes_part_only_with_its_bits() -> None:
    curve = ("--n", "400", "--bits", "60", "--curve", "50:.2", "--curve", "360:.5", "--curve", "400:.95")
    without = answered(*curve)
    assert without["prior"]["planned"] is None
    assert "known from a pilot only" in without["about_prior"]
    found = answered(*curve, "--prior-bits", "1")
    assert found["answer"].startswith("The data-dependent prior wins.")
    assert found["ranking"][0]["design"] == "prior"
    assert found["prior"]["planned"]["counted"] == 200


def test_a_prior_that_cannot_win_is_said_not_to() -> None:
    found = answered(*TYPED, "--teacher-accuracy", ".99")
    assert found["prior"]["bits_to_match_best"] is None
    assert "the better of that and the hold-outs at no length" in found["about_prior"]


def test_nothing_to_certify_is_said() -> None:
    assert "No design can be expected" in answered("--n", "10", "--accuracy", "0", "--bits", "3")["answer"]


def test_the_table_shows_what_the_json_holds() -> None:
    text = plan(*TYPED).stdout
    found = answered(*TYPED)
    assert found["answer"] in text
    assert found["about_prior"] in text
    assert all(note in text for note in found["notes"])
    down = int(1000 * found["holdouts"][0]["chosen"]["expected"]) / 10
    assert f"{down:.1f}" in text
    assert "90.0*" in text


@pytest.fixture(scope="module")
def from_pilot() -> dict[str, Any]:
    return answered("--n", "500", "--pilot", PUBLISHED / "mathematics.json")


def test_a_certificate_is_a_pilot(from_pilot: dict[str, Any]) -> None:
    """By hand from the published file: 1,350 of 3,000 and 442 of 1,000 right, LoRA 594 of 1,000; 3 + 171.4418 bits."""
    assert from_pilot["certify_all"]["accuracy"] == 0.45
    assert {one["policy"]: one["chosen"]["accuracy"] for one in from_pilot["holdouts"]} == {
        "coded": 0.442,
        "teacher": 0.594,
    }
    # It was the first attempt at its claim: the next is the second, 1/32, also for a hold-out.
    assert from_pilot["certify_all"]["bits"] == pytest.approx(174.4418 + 5)
    assert from_pilot["holdouts"][0]["chosen"]["bits"] == 5
    assert from_pilot["delta"] == 0.05
    notes = " ".join(from_pilot["notes"])
    assert "was measured on 1,000, which leaves about ±3.2 points" in notes  # 2 sqrt(.442 * .558 / 1000) = 3.141, up
    assert "No pilot was trained on as few as 500 labels" in notes


def test_attempt_and_delta_can_be_told() -> None:
    other = answered("--n", "50", "--pilot", PUBLISHED / "mathematics.json", "--attempt", "1", "--delta", ".1")
    assert other["certify_all"]["bits"] == pytest.approx(174.4418 + 0.0932, abs=1e-3)
    assert other["holdouts"][0]["chosen"]["bits"] == 0
    assert other["delta"] == 0.1


def test_a_run_is_a_pilot(tmp_path: Path, from_pilot: dict[str, Any]) -> None:
    shutil.copytree(PUBLISHED / "mathematics", tmp_path / "mathematics")
    (tmp_path / "certificates").mkdir()
    shutil.copy(PUBLISHED / "mathematics.json", tmp_path / "certificates")
    assert answered("--n", "500", "--pilot", tmp_path) == from_pilot
    shutil.copy(PUBLISHED / "mathematics.json", tmp_path / "certificates" / "knowledge.json")
    assert "choose one with --domain: knowledge, mathematics" in one_line(
        plan("--n", "500", "--pilot", tmp_path).exception
    )
    assert "no certificate for 'law'" in one_line(plan("--n", "500", "--pilot", tmp_path, "--domain", "law").exception)


@pytest.mark.parametrize(
    ("old", "new"),
    [('"correct": 1350', '"correct": 1450'), ('"value": 171.4418', '"value": 71.4418'), ('"schema"', '"scheme"')],
)
def test_a_certificate_that_does_not_hold_is_no_pilot(tmp_path: Path, old: str, new: str) -> None:
    shutil.copytree(PUBLISHED / "mathematics", tmp_path / "mathematics")
    text = (PUBLISHED / "mathematics.json").read_text("utf-8")
    assert old in text
    (tmp_path / "mathematics.json").write_text(text.replace(old, new, 1), "utf-8")
    message = one_line(plan("--n", "500", "--pilot", tmp_path / "mathematics.json").exception)
    assert "does not hold" in message or "no valid certificate" in message


@pytest.mark.parametrize("damage", ["", "{", "[]", "\x00\x01", '{"schema": "prlvr/certificate/1"}'])
def test_a_damaged_file_is_no_pilot(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "pilot.json"
    file.write_text(damage, "utf-8")
    assert "pilot.json" in one_line(plan("--n", "500", "--pilot", file).exception)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--n", "400", "--accuracy", ".9"), "--bits"),
        (("--n", "400", "--bits", "9"), "--accuracy"),
        (("--n", "400", "--accuracy", "90", "--bits", "9"), "accuracy in [0, 1]"),
        ((*TYPED, "--curve", "5"), "LABELS:ACCURACY"),
        ((*TYPED, "--curve", "a:b"), "LABELS:ACCURACY"),
        ((*TYPED, "--teacher-curve", "5:"), "--teacher-curve"),
        ((*TYPED, "--curve", "400:.8"), "two accuracies for 400"),
        ((*TYPED, "--holdout", "400"), "hold-out of 1 to 399"),
        ((*TYPED, "--share", "1"), "share in (0, 1)"),
        ((*TYPED, "--prior-bits", "-0.01"), "bits >= 0"),
        ((*TYPED, "--delta", "1"), "delta in (0, 1)"),
        ((*TYPED, "--domain", "mathematics"), "--pilot"),
        ((*TYPED, "--pilot", "x.json"), "one or the other"),
        ((*TYPED, "--chart", "plan.png"), "SVG"),
        (("--n", "400", "--pilot", "nowhere"), "there is no pilot nowhere"),
    ],
)
def test_what_is_wrong_is_said(options: tuple[str, ...], says: str) -> None:
    assert says in one_line(plan(*options).exception)


@pytest.mark.parametrize("n", ["-5", "0", "1", "many"])
def test_labels_must_be_counted(n: str) -> None:
    result = plan("--n", n, "--accuracy", ".9", "--bits", "9")
    assert result.exit_code == 2
    assert "--n" in result.output


def test_the_chart_shows_every_design(tmp_path: Path) -> None:
    file = tmp_path / "plan.svg"
    options = ("--teacher-accuracy", ".95", "--curve", "100:.7", "--prior-bits", "12", "--chart", file)
    found = answered(*TYPED, *options)
    root = ElementTree.parse(file).getroot()
    name = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{name}svg"
    texts = [text.text or "" for text in root.iter(f"{name}text")]
    for wanted in ("certify on all 400", "hold-out, with a message", "hold-out, without a message"):
        assert wanted in texts
    dots = {dot.get("class"): dot for dot in root.iter(f"{name}circle")}
    assert set(dots) == {"dot all", "dot coded", "dot lora", "dot prior"}
    # Higher on the page is higher in the plan, and to the right are more labels.
    expected = {
        "dot all": found["certify_all"]["expected"],
        "dot coded": found["holdouts"][0]["chosen"]["expected"],
        "dot lora": found["holdouts"][1]["chosen"]["expected"],
        "dot prior": found["prior"]["planned"]["expected"],
    }
    by_height = sorted(dots, key=lambda key: -float(dots[key].get("cy", "nan")))
    assert by_height == sorted(expected, key=lambda key: expected[key])
    assert float(dots["dot all"].get("cx", "nan")) < float(dots["dot coded"].get("cx", "nan"))
    classes = {line.get("class") for line in root.iter(f"{name}line")}
    assert {"curve coded", "curve coded assumed", "curve lora assumed"} <= classes


def test_the_help_teaches_with_an_example_that_runs() -> None:
    example = plan("--help").output.split("Example: prlvr plan labels", 1)[1].split("\n\n", 1)[0]
    arguments = " ".join(example.split()).replace("- ", "-").split()  # a hyphen may stand at the end of a line
    assert answered(*arguments)["n"] == int(arguments[arguments.index("--n") + 1])
