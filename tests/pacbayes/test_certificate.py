"""Certificates: recomputed by hand, tampered with in every place, and read from hostile files."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lookup import ENGINE, MODEL, Chain, boosts, method_lock, true_accuracy

from pacbayes.bounds import binomial_risk_upper, certified_accuracy, holdout_accuracy
from pacbayes.canonical import canonical_json, digest, file_digest
from pacbayes.certificate import (
    Certificate,
    CertificateError,
    Check,
    build_certificate,
    not_checked,
    read_certificate,
    verify_certificate,
    write_certificate,
)
from pacbayes.codes import Menu
from pacbayes.declarations import PriorData
from pacbayes.evidence import read_evidence, write_evidence
from pacbayes.sample import DeltaShare, MethodLock, Reported, SampleLock, read_lock

FILES = ("certificate.json", "method.lock.json", "sample.lock.json", "message.bin", "evidence.parquet")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    Chain.draw(method_lock(), folder / "attempts.jsonl").certify(folder / "remainders", 0, [4, 4, 3, 4])
    return folder / "remainders"


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    shutil.copytree(run, tmp_path / "run")
    return tmp_path / "run"


def failures(folder: Path) -> list[Check]:
    return [check for check in verify_certificate(folder / "certificate.json") if not check.ok]


def build(folder: Path, **changes: Any) -> Certificate:
    """The certificate of a folder's files, with some arguments replaced."""
    arguments: dict[str, Any] = {
        "method": read_lock(folder / "method.lock.json", MethodLock),
        "sample": read_lock(folder / "sample.lock.json", SampleLock),
        "message": (folder / "message.bin").read_bytes(),
        "evidence": (folder / "evidence.parquet").read_bytes(),
        "policy": digest(b"policy"),
        "engine": ENGINE,
    }
    return build_certificate(**{**arguments, **changes})


# --- what it says ------------------------------------------------------------------------------------------


def test_every_number_follows_by_hand(run: Path) -> None:
    shown = json.loads((run / "certificate.json").read_text())
    rows = pq.read_table(run / "evidence.parquet").to_pylist()
    coded = [row for row in rows if (row["policy"], row["split"]) == ("coded", "sample")]
    wrong = sum(not row["correct"] for row in coded)
    # The code of the entry: frequency of k in proportion to 2^-|k| on [-15, 15], message (4, 4, 3, 4), entry 3/4.
    normaliser = sum(Fraction(1, 2 ** abs(k)) for k in range(-15, 16))
    probability = Fraction(3, 4) * Fraction(1, 2**15) / normaliser**4
    bits = math.log2(probability.denominator) - math.log2(probability.numerator) + math.log2(16 / 15)
    assert bits <= shown["bits"]["total"] < bits + 0.01
    assert [line["name"] for line in shown["bits"]["lines"]] == ["menu entry", "vector", "attempt"]
    assert shown["deltas"] == {
        "total": 0.05,
        "lines": [{**shown["deltas"]["lines"][0], "name": "accuracy", "value": 0.05}],
    }
    bound = shown["bound"]
    assert (bound["losses"], bound["n"], len(coded)) == (wrong, 400, 400)
    with mpmath.workdps(40):
        eta = mpmath.mpf("0.05") * mpmath.power(2, -shown["bits"]["total"])

        def tail(risk: Any) -> Any:
            return mpmath.fsum(mpmath.binomial(400, i) * risk**i * (1 - risk) ** (400 - i) for i in range(wrong + 1))

        assert tail(1 - mpmath.mpf(bound["certified_accuracy"])) <= eta * (1 + mpmath.mpf("1e-9"))
        assert tail(1 - mpmath.mpf(bound["certified_accuracy"]) - mpmath.mpf("2e-6")) > eta
    assert shown["coded"]["correct"] == 400 - wrong
    assert shown["message"]["integers"] == [4, 4, 3, 4]
    assert bytes.fromhex(shown["message"]["hex"]) == (run / "message.bin").read_bytes()
    assert 0 <= shown["message"]["bits"] - bits < 10
    for name in ("method.lock.json", "sample.lock.json", "message.bin", "evidence.parquet"):
        key = name.split(".")[0] if "lock" not in name else name.split(".")[0] + "_lock"
        assert shown["digests"][key] == file_digest(run / name)


def test_the_statement_is_a_sentence_with_the_certified_number(run: Path) -> None:
    shown = read_certificate(run / "certificate.json")
    certified = math.floor(1000 * shown.bound.certified_accuracy) / 10
    assert shown.statement.startswith(
        f"With 95 % confidence, the tuned model answers at least {certified:g} % "
        "of new remainders prompts (numbers) correctly"
    )
    assert "its base model" in shown.statement


def test_v0_accepts_it_and_says_what_it_did_not_check(run: Path) -> None:
    checks = verify_certificate(run / "certificate.json")
    assert all(check.ok for check in checks)
    names = [check.name for check in checks]
    for name in ("certificate", "method lock", "sample lock", "message", "evidence", "claim", "bits", "delta", "bound"):
        assert name in names
    text = " ".join(not_checked(read_certificate(run / "certificate.json")))
    assert "locked before the prompts were drawn" in text
    assert "time-stamped" in text


def test_the_same_files_give_the_same_bytes(run: Path, tmp_path: Path) -> None:
    Chain.draw(method_lock(), tmp_path / "attempts.jsonl").certify(tmp_path / "again", 0, [4, 4, 3, 4])
    for name in FILES:
        assert (tmp_path / "again" / name).read_bytes() == (run / name).read_bytes()


@pytest.mark.parametrize("layout", ["beside", "stem", "domain"])
def test_files_are_found_in_three_places(run: Path, tmp_path: Path, layout: str) -> None:
    certificate = tmp_path / "certificates" / "remainders.json"
    folder = {
        "beside": certificate.parent,
        "stem": certificate.with_suffix(""),
        "domain": tmp_path / "remainders",
    }[layout]
    for name in FILES[1:]:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(run / name, folder / name)
    certificate.parent.mkdir(exist_ok=True)
    shutil.copy(run / "certificate.json", certificate)
    assert all(check.ok for check in verify_certificate(certificate))


def test_certificates_of_one_pair_of_locks_share_them(run: Path, tmp_path: Path) -> None:
    """`domain-seed0.json`, `domain-seed1.json`: locks in `domain/`, message and evidence in a folder of each."""
    shared = tmp_path / "remainders"
    shared.mkdir()
    for name in ("method.lock.json", "sample.lock.json"):
        shutil.copy(run / name, shared / name)
    for seed in (0, 1):
        certificate = tmp_path / f"remainders-seed{seed}.json"
        shutil.copy(run / "certificate.json", certificate)
        own = certificate.with_suffix("")
        own.mkdir()
        for name in ("message.bin", "evidence.parquet"):
            shutil.copy(run / name, own / name)
        assert all(check.ok for check in verify_certificate(certificate))
    (shared / "sample.lock.json").unlink()
    assert not all(check.ok for check in verify_certificate(certificate))


def test_assumptions_are_stated(tmp_path: Path) -> None:
    def text(**changes: Any) -> str:
        beacon = changes.pop("beacon", None)
        method = method_lock(prompts=50, heldout=0, **changes)
        certificate = Chain.draw(method, tmp_path / method.digest, beacon).certify(
            tmp_path / f"{method.digest} {beacon}" / "run", 0, [0] * 4
        )
        return " ".join(certificate.assumptions)

    plain = text()
    for phrase in (
        "did not grind",
        "independent draws",
        "no public time stamp",
        "ideal",
        "verifier remainders 1",
        "float64",
    ):
        assert phrase in plain
    assert "held-out" not in plain
    assert "beacon 'lottery' was public" in text(beacon="lottery")
    assert "not all of them jointly" in text(reported=Reported(domains=("remainders", "others"), jointly=False))
    assert "Read jointly" in text(reported=Reported(domains=("remainders", "others"), jointly=True))


def test_a_development_run_is_no_certificate(tmp_path: Path) -> None:
    method = method_lock(purpose="development")
    certificate = Chain.draw(method, tmp_path / "log").certify(tmp_path / "run", 0, [4, 4, 4, 4])
    assert certificate.statement.startswith("Development run, not a certificate")
    assert certificate.assumptions[0].startswith("Development run")
    assert certificate.attempt.number == 0
    assert failures(tmp_path / "run") == []


def test_a_second_sample_pays_for_the_first(tmp_path: Path) -> None:
    Chain.draw(method_lock(verifier="0"), tmp_path / "log")
    certificate = Chain.draw(method_lock(), tmp_path / "log").certify(tmp_path / "run", 0, [4, 4, 4, 4])
    assert certificate.attempt.number == 2
    assert {line.name: line.value for line in certificate.bits.lines}["attempt"] == 5.0
    assert failures(tmp_path / "run") == []


def test_a_share_of_delta_is_all_that_is_spent(tmp_path: Path) -> None:
    shares = (DeltaShare(name="accuracy", value="0.04"), DeltaShare(name="hold-out", value="0.01"))
    certificate = Chain.draw(method_lock(delta_shares=shares), tmp_path / "log").certify(
        tmp_path / "run", 0, [4, 4, 3, 4]
    )
    assert certificate.statement.startswith("With 96 % confidence")
    assert certificate.deltas.total == 0.05
    assert failures(tmp_path / "run") == []


GAIN = tuple(
    DeltaShare(name=name, value=value)
    for name, value in (("accuracy", "0.03"), ("base accuracy", "0.01"), ("paired gain", "0.01"))
)


def test_a_certified_gain_over_the_base_model(tmp_path: Path) -> None:
    chain = Chain.draw(method_lock(delta_shares=GAIN), tmp_path / "log")
    certificate = chain.certify(tmp_path / "run", 0, [4, 4, 3, 4])
    rows = pq.read_table(tmp_path / "run" / "evidence.parquet").to_pylist()
    right = {(row["policy"], row["index"]): row["correct"] for row in rows if row["split"] == "sample"}
    pairs = [(right["coded", i], right["base", i]) for i in range(400)]
    gain = certificate.gain
    assert gain is not None
    assert (gain.won, gain.lost, gain.both) == tuple(
        pairs.count(pair) for pair in ((True, False), (False, True), (True, True))
    )
    assert gain.certified == max(gain.marginal, gain.paired)
    true_gain = true_accuracy(boosts(chain.method, 0, [4, 4, 3, 4])) - 1 / 8
    assert 0.5 < gain.certified < true_gain
    assert "With 95 % confidence, that is at least" in certificate.statement
    assert certificate.statement.startswith("With 97 % confidence")
    assert failures(tmp_path / "run") == []


def test_the_base_s_limit_pays_for_earlier_samples(tmp_path: Path) -> None:
    """A weak base model is luck as well: on the best of several samples its limit would fail more often than it may."""
    Chain.draw(method_lock(verifier="0"), tmp_path / "log")
    certificate = Chain.draw(method_lock(delta_shares=GAIN), tmp_path / "log").certify(tmp_path / "run", 0, [4] * 4)
    gain = certificate.gain
    assert gain is not None
    coded = certified_accuracy(certificate.bound.losses, 400, bits=certificate.bits.total, delta=0.03)
    base = binomial_risk_upper(gain.lost + gain.both, 400, log_eta=math.log(0.01) - 5 * math.log(2))
    assert certificate.attempt.number == 2
    assert gain.marginal == pytest.approx(coded - base, abs=1.1e-6)
    assert gain.marginal <= coded - base


def test_a_hold_out_with_a_share_of_its_own(tmp_path: Path) -> None:
    """It then holds jointly with the certificate, and pays for earlier samples as everything else does."""
    shares = (DeltaShare(name="accuracy", value="0.04"), DeltaShare(name="hold-out", value="0.01"))
    Chain.draw(method_lock(verifier="0"), tmp_path / "log")
    chain = Chain.draw(method_lock(delta_shares=shares), tmp_path / "log")
    certificate = chain.certify(tmp_path / "run", 0, [4, 4, 3, 4])
    assert certificate.holdout is not None
    assert certificate.coded.heldout is not None
    heldout = certificate.coded.heldout
    limit = certified_accuracy(heldout.n - heldout.correct, heldout.n, bits=5.0, delta=0.01)
    assert limit - 1.1e-6 < certificate.holdout.certified_accuracy <= limit
    assert "With 95 % confidence, that accuracy holds and so does what 50 held-out prompts say" in certificate.statement
    assert any("jointly with the certificate, by its own share" in text for text in certificate.assumptions)
    assert {line.name: line.value for line in certificate.deltas.lines} == {"accuracy": 0.04, "hold-out": 0.01}
    assert failures(tmp_path / "run") == []
    # Without a share: Clopper-Pearson at the certificate's confidence, by itself.
    alone = Chain.draw(method_lock(), tmp_path / "log2").certify(tmp_path / "alone", 0, [4, 4, 3, 4])
    assert alone.holdout is not None
    assert alone.coded.heldout is not None
    plain = holdout_accuracy(50 - alone.coded.heldout.correct, 50, delta=0.05)
    assert alone.holdout.certified_accuracy == pytest.approx(plain, abs=1.1e-6)


def test_a_prior_made_from_data_is_told(tmp_path: Path) -> None:
    prior = PriorData(description="a textbook", prompts=tuple(sorted((digest(b"one"), digest(b"two")))))
    certificate = Chain.draw(method_lock(prior_data=prior), tmp_path / "log").certify(tmp_path / "run", 0, [4] * 4)
    assert any("made from 2 labelled prompts (a textbook)" in text for text in certificate.assumptions)
    assert failures(tmp_path / "run") == []


def test_a_base_model_that_timed_out_is_no_gain(tmp_path: Path) -> None:
    chain = Chain.draw(method_lock(delta_shares=GAIN, heldout=0), tmp_path / "log")
    message = Menu(entries=chain.method.menu).encode(0, [0] * 4)
    coded, base = chain.outcomes("coded", np.zeros(4)), chain.outcomes("base", np.zeros(4))
    late = [dataclasses.replace(row, correct=False, reason="timeout") for row in base]
    certificates = []
    for name, rows in (("in time", base), ("late", late)):
        policies = {"coded": digest(message), "base": MODEL.weights}
        write_evidence(tmp_path / name, coded + rows, sample_lock=chain.sample.digest, policies=policies)
        certificates.append(
            build_certificate(
                method=chain.method,
                sample=chain.sample,
                message=message,
                evidence=(tmp_path / name).read_bytes(),
                policy=digest(b"policy"),
                engine=ENGINE,
            ).gain
        )
    in_time, timed_out = certificates
    assert in_time is not None
    assert timed_out is not None
    assert (timed_out.won, timed_out.lost + timed_out.both) == (0, 400)
    assert timed_out.certified < -0.8 < in_time.certified < 0


def test_a_gain_is_claimed_whole_or_not_at_all(tmp_path: Path) -> None:
    for changes in ({"delta_shares": GAIN[:2]}, {"delta_shares": GAIN, "bound": "kl"}, {"delta_shares": GAIN[1:]}):
        with pytest.raises(pydantic.ValidationError, match=r"a gain takes|no share of delta is called 'accuracy'"):
            method_lock(**changes)
    chain = Chain.draw(method_lock(delta_shares=GAIN, prompts=20, heldout=0), tmp_path / "log")
    message = Menu(entries=chain.method.menu).encode(0, [0] * 4)
    rows = chain.outcomes("coded", np.zeros(4))
    write_evidence(tmp_path / "e", rows, sample_lock=chain.sample.digest, policies={"coded": digest(message)})
    with pytest.raises(CertificateError, match="claims a gain over the base model, which was not evaluated"):
        build_certificate(
            method=chain.method,
            sample=chain.sample,
            message=message,
            evidence=(tmp_path / "e").read_bytes(),
            policy=digest(b"policy"),
            engine=ENGINE,
        )


def test_what_is_missing_of_the_base_model_counts_as_right(copy: Path) -> None:
    full = build(copy)
    evidence = read_evidence(copy / "evidence.parquet")
    wrong = [
        row for row in evidence.outcomes.values() if (row.policy, row.split) == ("base", "sample") and not row.correct
    ]
    kept = [row for row in evidence.outcomes.values() if row not in wrong[:5]]
    (copy / "evidence.parquet").unlink()
    write_evidence(copy / "evidence.parquet", kept, sample_lock=evidence.sample_lock, policies=evidence.policies)
    certificate = build(copy)
    assert certificate.base is not None
    assert full.base is not None
    assert certificate.base.correct == full.base.correct + 5
    assert any(
        "5 of the outcomes of 'base' on the sample are missing and were counted as right" in text
        for text in certificate.assumptions
    )


def test_vacuous_is_a_result(tmp_path: Path) -> None:
    certificate = Chain.draw(method_lock(prompts=20), tmp_path / "log").certify(tmp_path / "run", 0, [0, 0, 0, 0])
    assert "says nothing" in certificate.statement
    assert failures(tmp_path / "run") == []


def test_missing_outcomes_are_losses_and_are_told(copy: Path) -> None:
    full = build(copy)
    evidence = read_evidence(copy / "evidence.parquet")
    kept = [row for row in evidence.outcomes.values() if not (row.policy == "coded" and row.index == 7)]
    (copy / "evidence.parquet").unlink()
    write_evidence(copy / "evidence.parquet", kept, sample_lock=evidence.sample_lock, policies=evidence.policies)
    certificate = build(copy)
    assert certificate.coded.n == 400
    assert certificate.coded.correct in (full.coded.correct, full.coded.correct - 1)
    assert any("1 of the outcomes of 'coded'" in text for text in certificate.assumptions)


def test_entries_that_decode_to_the_same_policy_add_up(tmp_path: Path) -> None:
    coarse, fine = method_lock().menu
    twin = fine.model_copy(update={"step": "1", "structure": coarse.structure, "prior_artifact": coarse.prior_artifact})
    method = method_lock(menu=(coarse, twin))
    certificate = Chain.draw(method, tmp_path / "log").certify(tmp_path / "run", 1, [4, 4, 3, 4])
    policy = sum(line.value for line in certificate.bits.lines if line.name != "attempt")
    alone = Menu(entries=(coarse, twin)).bits(0, [4, 4, 3, 4])
    assert policy < alone
    assert policy == pytest.approx(alone + math.log2(3 / 4), abs=2e-3) or policy < alone


# --- what is refused while building ------------------------------------------------------------------------


def test_parts_that_do_not_belong_together_are_refused(copy: Path, tmp_path: Path) -> None:
    other = Chain.draw(method_lock(verifier="2"), tmp_path / "log")
    message = (copy / "message.bin").read_bytes()
    another = Menu(entries=method_lock().menu).encode(0, [4, 4, 4, 4])
    for changes, text in [
        ({"method": other.method}, "belongs to method"),
        ({"method": other.method, "sample": other.sample}, "belongs to sample lock"),
        ({"message": another}, "the evidence is about the message"),
        ({"message": message + b"\0"}, "message"),
        ({"message": b""}, "message"),
        ({"engine": ENGINE.model_copy(update={"dtype": "bfloat16"})}, "dtype is 'bfloat16'"),
        ({"engine": ENGINE.model_copy(update={"batch_size": 8})}, "batch size is 8"),
        ({"policy": "not a digest"}, "pattern"),
        ({"evidence": b"PAR1"}, "Parquet"),
    ]:
        with pytest.raises(CertificateError, match=text) as caught:
            build(copy, **changes)
        assert "\n" not in str(caught.value)


def test_a_bit_line_that_was_not_locked_or_not_paid_is_refused(tmp_path: Path) -> None:
    for lines, text in [
        (("menu entry", "vector"), "'attempt' of the bits ledger is not declared"),
        (("menu entry", "vector", "attempt", "choice of teacher"), "'choice of teacher', the bits ledger has no such"),
    ]:
        chain = Chain.draw(method_lock(bit_lines=lines), tmp_path / str(len(lines)))
        with pytest.raises(CertificateError, match=text):
            chain.certify(tmp_path / f"run {len(lines)}", 0, [0, 0, 0, 0])


def test_what_no_reader_could_read_is_refused(copy: Path) -> None:
    for value in (math.nan, math.inf, 2**60):
        with pytest.raises(CertificateError) as caught:
            build(copy, stages=({"kind": "rlvr", "loss": value},))
        assert "\n" not in str(caught.value)


# --- tampering ---------------------------------------------------------------------------------------------


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in _leaves(inner, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, inner in enumerate(value) for leaf in _leaves(inner, (*path, index))]
    return [path]


def _other(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value + 0.001
        case str():
            return ("1" if value[0] != "1" else "2") + value[1:] if value else "x"
        case _:
            return digest(b"something")


UNCHECKED = {("digests", "policy"), ("engine", "device"), ("engine", "versions", "numpy"), ("stages", 0, "kind")}
"""What V0 shows as the producer wrote it, and says so."""


def test_no_value_of_the_certificate_can_be_changed(copy: Path) -> None:
    path = copy / "certificate.json"
    original = json.loads(path.read_text())
    for leaf in _leaves(original):
        if leaf in UNCHECKED:
            continue
        shown = json.loads(json.dumps(original))
        parent = shown
        for key in leaf[:-1]:
            parent = parent[key]
        parent[leaf[-1]] = _other(parent[leaf[-1]])
        path.write_text(json.dumps(shown))
        failed = failures(copy)
        assert failed, leaf
        place = str(leaf[-1]) if isinstance(leaf[-1], str) else str(leaf[-2])
        said = " ".join(f"{check.name} {check.detail}" for check in failed)
        assert place in said or leaf[0] in said or "digest" in said or "missing" in said, (leaf, said)


def test_no_part_of_the_certificate_can_be_left_out_or_added(copy: Path) -> None:
    path = copy / "certificate.json"
    original = json.loads(path.read_text())
    for key in original:
        path.write_text(json.dumps({name: value for name, value in original.items() if name != key}))
        assert failures(copy), key
    path.write_text(json.dumps({**original, "endorsed_by": "somebody"}))
    assert "endorsed_by" in failures(copy)[0].detail
    path.write_text(json.dumps({**original, "lora": original["base"]}))
    assert any("lora" in check.detail for check in failures(copy))


def test_a_flattering_accuracy_is_named(copy: Path) -> None:
    path = copy / "certificate.json"
    shown = json.loads(path.read_text())
    shown["bound"]["certified_accuracy"] = 0.9
    path.write_text(json.dumps(shown))
    assert any(
        check.detail.startswith("the certificate claims an accuracy of 0.9, the files support")
        for check in failures(copy)
    )


def test_a_key_given_twice_is_refused(copy: Path) -> None:
    path = copy / "certificate.json"
    path.write_text(
        path.read_text().replace('"certified_accuracy":', '"certified_accuracy": 0.99, "certified_accuracy":')
    )
    assert "'certified_accuracy' appears twice" in failures(copy)[0].detail


def test_every_byte_of_the_message_counts(copy: Path) -> None:
    path = copy / "message.bin"
    original = path.read_bytes()
    for place in range(len(original)):
        for bit in range(8):
            path.write_bytes(original[:place] + bytes([original[place] ^ 1 << bit]) + original[place + 1 :])
            assert any("message" in f"{check.name} {check.detail}" for check in failures(copy))
    for changed in (b"", original[:-1], original + b"\0"):
        path.write_bytes(changed)
        assert "message" in failures(copy)[0].name


def test_every_outcome_counts(copy: Path) -> None:
    path = copy / "evidence.parquet"
    table = pq.read_table(path)
    for row in (0, 123, len(table) - 1):
        for name in table.column_names:
            values = table.column(name).to_pylist()
            values[row] = _other(values[row])
            changed = table.set_column(table.column_names.index(name), table.schema.field(name), pa.array(values))
            pq.write_table(changed.cast(table.schema), path)
            assert any("evidence" in f"{check.name} {check.detail}" for check in failures(copy)), name
    values = [not value for value in table.column("correct").to_pylist()]
    index = table.column_names.index("correct")
    pq.write_table(table.set_column(index, table.schema.field("correct"), pa.array(values)).cast(table.schema), path)
    said = [check.detail for check in failures(copy)]
    assert any("evidence.parquet has the digest" in text for text in said)
    assert any("coded.correct is" in text or "coded.accuracy is" in text for text in said)


@pytest.mark.parametrize("name", ["method.lock.json", "sample.lock.json"])
@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_value_of_a_lock_can_be_changed(run: Path, tmp_path: Path, name: str, data: st.DataObject) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder, dirs_exist_ok=True)
    content = json.loads((run / name).read_bytes())
    leaf = data.draw(st.sampled_from(_leaves(content)))
    parent = content
    for key in leaf[:-1]:
        parent = parent[key]
    parent[leaf[-1]] = _other(parent[leaf[-1]])
    (folder / name).write_bytes(canonical_json(content))
    assert any("lock" in f"{check.name} {check.detail}" for check in failures(folder)), leaf


def test_a_consistent_forgery_of_the_certificate_still_needs_the_files(copy: Path) -> None:
    """Twenty losses fewer, and everything in the certificate that follows from it, but the evidence is what it is."""
    certificate = build(copy)
    shown = certificate.to_json()
    shown["coded"]["correct"] += 20
    shown["bound"]["losses"] -= 20
    path = copy / "certificate.json"
    path.write_text(json.dumps(shown))
    assert {check.name for check in failures(copy)} >= {"accuracies", "bound"}


def test_a_resampled_lock_is_noticed(copy: Path, tmp_path: Path) -> None:
    """A producer who draws the prompts from a seed of their own liking."""
    content = json.loads((copy / "sample.lock.json").read_bytes())
    content["beacon"] = "a beacon made up afterwards"
    (copy / "sample.lock.json").write_bytes(canonical_json(content))
    assert "seed does not follow" in failures(copy)[0].detail


# --- hostile files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe\x00",
        b'{"schema": "prlvr/certificate/1"}',
        b'{"schema": "prlvr/certificate/2"}',
        b"[" * 200_000,
        b'{"n": ' + b"9" * 100_000 + b"}",
        b'{"delta": NaN}',
        b'{"delta": 1e999}',
    ],
)
@pytest.mark.parametrize("name", ["certificate.json", "method.lock.json", "sample.lock.json"])
def test_bad_json_is_one_failed_check(copy: Path, name: str, data: bytes) -> None:
    (copy / name).write_bytes(data)
    failed = failures(copy)
    assert len(failed) == 1
    assert "\n" not in failed[0].detail
    assert len(failed[0].detail) < 700


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(copy: Path, name: str) -> None:
    (copy / name).unlink()
    failed = failures(copy)
    assert len(failed) == 1
    assert name in failed[0].detail


@pytest.mark.parametrize("name", FILES)
def test_a_directory_in_place_of_a_file_is_one_failed_check(copy: Path, name: str) -> None:
    (copy / name).unlink()
    (copy / name).mkdir()
    failed = failures(copy)
    assert len(failed) == 1


WRONG_TYPES = [None, True, -1, 1.5, 2**53 - 1, "", "x", "../../../etc/passwd", [], {}, [[]], "\u0000", "9" * 400]


@given(data=st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_wrong_types_anywhere_fail_in_one_line(run: Path, tmp_path: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FILES[:3]))
    folder = tmp_path / "run"
    shutil.copytree(run, folder, dirs_exist_ok=True)
    content = json.loads((run / name).read_bytes())
    leaf = data.draw(st.sampled_from(_leaves(content)))
    if name == "certificate.json" and leaf in UNCHECKED:
        return
    depth = data.draw(st.integers(1, len(leaf)))
    parent = content
    for key in leaf[: depth - 1]:
        parent = parent[key]
    value = data.draw(st.sampled_from(WRONG_TYPES).filter(lambda value: value != parent[leaf[depth - 1]]))
    if (
        name == "certificate.json"
        and leaf[: depth - 1] in {("stages", 0), ("engine", "versions"), ()} | {()}
        and value in ([], {})
    ):
        return  # a producer may show no stages or versions
    parent[leaf[depth - 1]] = value
    (folder / name).write_bytes(canonical_json(content))
    failed = failures(folder)
    if name == "certificate.json" and leaf[0] in ("stages", "engine"):
        failed = failed or [Check("shown", False, "as the producer wrote it")]
    assert failed
    assert all("\n" not in check.detail for check in failed)
    assert not any("cannot be checked" in check.detail for check in failed), failed


def test_writing_and_reading_give_the_same(run: Path, tmp_path: Path) -> None:
    certificate = read_certificate(run / "certificate.json")
    write_certificate(tmp_path / "copy.json", certificate)
    assert (tmp_path / "copy.json").read_bytes() == (run / "certificate.json").read_bytes()
    assert certificate.to_json()["schema"] == "prlvr/certificate/1"
    assert "lora" not in certificate.to_json()


def test_evidence_with_another_base_is_refused(run: Path, tmp_path: Path) -> None:
    chain = Chain.draw(method_lock(prompts=20, heldout=0), tmp_path / "log")
    message = Menu(entries=chain.method.menu).encode(0, [0] * 4)
    rows = chain.outcomes("coded", boosts(chain.method, 0, [0] * 4)) + chain.outcomes("base", np.zeros(4))
    for name, policies, text in [
        ("a", {"coded": digest(message), "base": digest(b"a weaker base")}, "is not the base model"),
        ("b", {"coded": digest(b"another message"), "base": MODEL.weights}, "about the message"),
    ]:
        path = tmp_path / name
        write_evidence(path, rows, sample_lock=chain.sample.digest, policies=policies)
        with pytest.raises(CertificateError, match=text):
            build_certificate(
                method=chain.method,
                sample=chain.sample,
                message=message,
                evidence=path.read_bytes(),
                policy=digest(b"policy"),
                engine=ENGINE,
            )
