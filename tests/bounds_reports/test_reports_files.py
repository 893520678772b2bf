"""Reading and writing: layouts, the JSON's numbers, and one clear error for what is missing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from report_run import ACCURACY, write_certificate, write_domain, write_run

from bounds_reports import ReportError, ReportPaths, build_report


def test_json_has_the_certificates_numbers(run_dir: Path, report: ReportPaths) -> None:
    data = json.loads(report.json.read_text("utf-8"))
    assert [entry["domain"] for entry in data["domains"]] == ["mathematics", "programming", "knowledge", "text_to_sql"]
    for entry in data["domains"]:
        made = json.loads((run_dir / entry["domain"] / "certificate.json").read_text("utf-8"))
        assert entry["certificate"] == made
        assert entry["certified_accuracy"] == made["bound"]["certified_accuracy"]
        assert entry["bits"] == made["bits"]["total"]
        assert entry["n"] == made["n"]
        assert entry["accuracy"] == {key: made[key]["accuracy"] for key in entry["accuracy"]}
        assert set(entry["accuracy"]) == {"base", "lora", "distilled", "tinylora", "coded"}
        gap = made["coded"]["accuracy"] - made["bound"]["certified_accuracy"]
        assert entry["gaps"]["coded_minus_certified"] == pytest.approx(gap, abs=1e-12)
        assert sum(entry["reasons"].values()) == made["n"]
        assert entry["warning"] is None


def test_markdown_has_the_table(report: ReportPaths) -> None:
    lines = report.markdown.read_text("utf-8").splitlines()
    assert "| domain | base | LoRA | coded | bits | n | certified | gap |" in lines
    assert sum(line.startswith(("| Mathematics |", "| Text-to-SQL |")) for line in lines) == 2


def test_published_layout(tmp_path: Path) -> None:
    folder = tmp_path / "pocket"
    for name in ("mathematics", "mathematics-seed3"):
        made = write_domain(folder / name, "mathematics", n=60, heldout=20)
        write_certificate(folder / f"{name}.json", made)
        (folder / name / "certificate.json").unlink()
    (folder / "comparison.json").write_text('{"schema": "something else"}')
    data = json.loads(build_report(folder).json.read_text())
    assert [entry["label"] for entry in data["domains"]] == ["mathematics", "mathematics-seed3"]
    assert data["domains"][1]["verify"] == "prlvr verify mathematics-seed3.json"
    assert data["unfinished"] == []


def test_copies_in_a_run_find_their_evidence(tmp_path: Path) -> None:
    write_run(tmp_path / "run", n=60, heldout=20)
    copies = tmp_path / "run" / "certificates"
    copies.mkdir()
    for domain in ACCURACY:
        shutil.copy(tmp_path / "run" / domain / "certificate.json", copies / f"{domain}.json")
    assert len(json.loads(build_report(copies).json.read_text())["domains"]) == 4
    assert len(json.loads(build_report(tmp_path / "run").json.read_text())["domains"]) == 4


def test_a_run_needs_neither_config_nor_metrics_nor_holdout_nor_other_policies(tmp_path: Path) -> None:
    made = write_domain(tmp_path / "run" / "mathematics", "mathematics", n=60, heldout=20)
    (tmp_path / "run" / "mathematics" / "metrics.jsonl").unlink()
    for policy in ("base", "lora", "distilled", "tinylora"):
        del made[policy]
    made["coded"]["heldout"] = None
    made["message"]["integers"] = []
    made["stages"] = []
    write_certificate(tmp_path / "run" / "mathematics" / "certificate.json", made)
    page = build_report(tmp_path / "run").html.read_text("utf-8")
    assert "No held-out prompts were scored" in page
    assert "certified − base" not in page


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def spoil(name: str, content: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_text(content, "utf-8")

    return change


def drop(key: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        made = json.loads((folder / "certificate.json").read_text())
        del made[key]
        write_certificate(folder / "certificate.json", made)

    return change


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (remove("certificate.json"), "no certificate found"),
        (remove("evidence.parquet"), "evidence is missing"),
        (spoil("evidence.parquet", "not parquet"), "evidence cannot be read"),
        (spoil("certificate.json", '{"schema": '), "certificate cannot be read"),
        (spoil("certificate.json", '{"n": NaN}'), "certificate cannot be read"),
        (spoil("certificate.json", "[]"), "certificate does not follow its schema"),
        (drop("purpose"), "certificate does not follow its schema"),
        (drop("bound"), "certificate does not follow its schema"),
        (spoil("prompts.jsonl", "{"), "prompts cannot be read"),
    ],
)
def test_one_clear_error(tmp_path: Path, change: Callable[[Path], None], what: str) -> None:
    folder = tmp_path / "run" / "mathematics"
    write_domain(folder, "mathematics", n=30, heldout=10)
    change(folder)
    with pytest.raises(ReportError) as caught:
        build_report(tmp_path / "run")
    assert caught.value.what == what
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in caught.value.value
    assert caught.value.remedy in str(caught.value)
    assert not (tmp_path / "run" / "reports").exists()


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="no such run folder"):
        build_report(tmp_path / "missing")


def test_unwritable_folder(tmp_path: Path) -> None:
    write_domain(tmp_path / "run" / "mathematics", "mathematics", n=30, heldout=10)
    (tmp_path / "run" / "reports").write_text("a file where the folder should be")
    with pytest.raises(ReportError, match="report cannot be written"):
        build_report(tmp_path / "run")
