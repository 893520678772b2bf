"""`prlvr compare` and the accounting beside a certificate, on certificates that are published here."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import mpmath
import pytest
from small_runs import prlvr

import bounds_reports
from bounds_reports import ReportError
from progressive_rlvr.accounting import account
from progressive_rlvr.compare import compare
from progressive_rlvr.errors import UserError
from progressive_rlvr.show import jointly_line

PUBLISHED = Path(bounds_reports.__file__).parent / "published" / "pocket"
SEED0 = "mathematics-seed0"


@pytest.fixture
def pocket(tmp_path: Path) -> Path:
    """One published certificate with its files, and the same again as another seed."""
    folder = tmp_path / "pocket"
    folder.mkdir()
    for name in (SEED0, "mathematics-seed1"):
        shutil.copytree(PUBLISHED / SEED0, folder / name)
        shutil.copyfile(PUBLISHED / f"{SEED0}.json", folder / f"{name}.json")
    shutil.copytree(PUBLISHED / "mathematics", folder / "mathematics")
    return folder


def certificate(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{SEED0}.json").read_text())
    return found


def test_seeds_under_one_pair_of_locks_on_one_page(pocket: Path) -> None:
    html, data, text = compare([pocket], None)
    assert [path.parent for path in (html, data, text)] == [pocket / "reports"] * 3
    assert json.loads(data.read_text())["verified"] is True
    assert "Every certificate was checked against its files first (V0)." in text.read_text()
    claim = json.loads(data.read_text())["claims"][0]
    made = certificate(pocket)
    assert [entry["seed"] for entry in claim["certificates"]] == [0, 1]
    assert claim["pairs_of_locks"] == 1
    assert claim["median"]["certified"] == made["bound"]["certified_accuracy"]
    assert claim["accounting"]["charges"][0]["bits"] == made["bits"]["total"]
    again = compare([pocket / f"{SEED0}.json", pocket], pocket / "elsewhere")
    assert again[1].read_bytes() == data.read_bytes()


def test_the_same_evidence_by_hand(pocket: Path) -> None:
    """Bits from the integers on the certificate, Hoeffding in mpmath; our own row is the certificate's."""
    made = certificate(pocket)
    found = account(pocket / f"{SEED0}.json")
    assert found.missing == ""
    own, learned, lora = found.charges
    assert float(own.bits) == made["bits"]["total"]
    assert float(own.certified["binomial"]) == made["bound"]["certified_accuracy"]
    q = made["message"]["integers"]
    counts = Counter(q)
    with mpmath.workdps(30):
        symbols = int(mpmath.ceil(sum(c * mpmath.log(mpmath.mpf(len(q)) / c, 2) for c in counts.values())))
        length = symbols + len(counts) * (16 + math.ceil(math.log2(len(q))))
        bits = length + 2 * mpmath.log(length, 2)
        assert abs(float(learned.bits) - bits) < 1e-9
        risk = mpmath.mpf(made["bound"]["losses"]) / made["n"]
        hoeffding = 1 - risk - mpmath.sqrt((bits * mpmath.log(2) + mpmath.log(20)) / (2 * made["n"]))
    assert abs(float(learned.certified["hoeffding"]) - hoeffding) < 1e-9
    assert learned.certified["binomial"] < own.certified["binomial"]
    assert float(lora.bits) == next(stage["bits_bfloat16"] for stage in made["stages"] if stage["kind"] == "rlvr")
    assert all(float(value) < 1e-6 for value in lora.certified.values())


def test_an_accounting_of_other_files_is_refused_with_a_reason(pocket: Path) -> None:
    path = pocket / f"{SEED0}.json"
    made = certificate(pocket)
    path.write_text(json.dumps(made | {"message": {**made["message"], "hex": "00" + made["message"]["hex"][2:]}}))
    assert "not the one that the certificate names" in account(path).missing
    path.write_text(json.dumps(made))
    (pocket / "mathematics" / "method.lock.json").unlink()
    assert "method.lock.json is missing" in account(path).missing
    path.write_text("{")
    assert account(path).missing


def test_a_certificate_that_does_not_hold_ends_it_in_one_line(pocket: Path) -> None:
    path = pocket / "mathematics-seed1.json"
    made = certificate(pocket)
    made["bound"]["certified_accuracy"] += 0.01
    path.write_text(json.dumps(made))
    result = prlvr("compare", pocket, code=2)
    assert result.stderr.startswith(f"prlvr: error: {path} does not hold (V0), so nothing is compared: ")
    assert result.stderr.count("\n") == 1
    assert not (pocket / "reports").exists()
    with pytest.raises(UserError, match="does not hold"):
        compare([path], None)


def test_verify_says_that_seeds_under_one_pair_of_locks_hold_together(pocket: Path) -> None:
    """A development run's do not, and locks that differ need a joint statement."""
    seeds = [pocket / f"{SEED0}.json", pocket / "mathematics-seed1.json"]
    assert "with probability at least 95 %" in jointly_line(seeds)
    assert jointly_line(seeds).startswith("jointly, under one pair of locks")
    made = certificate(pocket)
    seeds[1].write_text(json.dumps(made | {"digests": {**made["digests"], "sample_lock": "0" * 64}}))
    assert jointly_line(seeds).startswith("NOT jointly")
    for seed in seeds:
        seed.write_text(json.dumps(made | {"purpose": "development"}))
    assert jointly_line(seeds).startswith("NOT jointly")


def test_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="no certificate found"):
        compare([tmp_path], None)


def test_a_report_shows_the_accounting(pocket: Path) -> None:
    prlvr("report", pocket)
    report = json.loads((pocket / "reports" / "report.json").read_text())
    assert [charge["kind"] for charge in report["domains"][0]["accounting"]["charges"]] == [
        "declared",
        "codebook",
        "bfloat16",
    ]
    assert report["unfinished"] == []
