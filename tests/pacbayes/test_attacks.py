"""A sceptic's attacks: whatever would make a certificate say more than its files support, one by one.

Tampering with single values is in `test_certificate`, `test_transfer` and `test_joint`; here are inputs that once were
accepted, or that nobody sends by accident.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pydantic
import pytest
from lookup import BASE, ENGINE, Chain, Prompt, draw, method_lock
from mpmath import mp, mpf

from pacbayes.bounds import (
    ACCURACY_BOUNDS,
    PairedCounts,
    betting_mean_lower,
    betting_mean_lower_from_counts,
    catoni_risk_upper,
    certified_accuracy,
    certified_mean_accuracy,
    certified_pool_accuracy,
    pool_losses_upper,
    transfer_accuracy,
)
from pacbayes.canonical import canonical_json, digest
from pacbayes.certificate import CertificateError, build_certificate, read_certificate, verify_certificate
from pacbayes.codes import Menu, parse_code
from pacbayes.declarations import PriorData, Transfer
from pacbayes.evidence import write_evidence
from pacbayes.pool import Pool
from pacbayes.sample import Claim, DeltaShare, LockError, MethodLock, Reported, lock_items, parse_lock

EXTREME_BITS = (0.0, 5e-324, 1e-300, 0.5, 1e3, 1e5, 1e308)
EXTREME_DELTAS = (5e-324, 1e-300, 0.05, 0.999999, 1 - 2**-53)


# --- numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", sorted(ACCURACY_BOUNDS))
def test_extreme_numbers_give_a_safe_number_and_no_warning(bound: str) -> None:
    """All or no losses, one prompt, denormal delta, more bits than atoms: the safe side of the exact tail."""
    for n, losses in ((1, 0), (1, 1), (2, 1), (10, 0), (10, 9), (10, 10), (1000, 500), (1000, 1000)):
        for bits in EXTREME_BITS:
            for delta in EXTREME_DELTAS:
                with np.errstate(all="raise", under="ignore"):
                    accuracy = certified_accuracy(losses, n, bits=bits, delta=delta, bound=bound)
                assert 0.0 <= accuracy <= 1.0
                assert losses < n or accuracy == 0.0 or delta > 0.5
                if bound in ("binomial", "hoeffding", "kl") and accuracy > 0.0 and bits <= 1e5 and n <= 10:
                    right = mpf(accuracy)
                    tail = sum(
                        (mp.binomial(n, i) * (1 - right) ** i * right ** (n - i) for i in range(losses + 1)), mpf(0)
                    )
                    assert tail <= mp.exp(mp.log(mpf(delta)) - mpf(bits) * mp.log(2)), (losses, n, bits, delta)


def test_ten_million_bits_certify_nothing_and_do_not_fail() -> None:
    assert certified_accuracy(0, 1000, bits=1e7, delta=0.05) < 1e-200
    assert certified_pool_accuracy(0, 1000, 2000, bits=1e5, delta=0.05) == 0.0
    assert certified_mean_accuracy(np.ones((1000, 4)), bits=1e7, delta=0.05) < 1e-200


@pytest.mark.parametrize(
    "claim",
    [
        lambda: betting_mean_lower_from_counts((0.0, 2.0), (10, 10), log_eta=-3.0),
        lambda: betting_mean_lower_from_counts((0.0, 1.0), (-10, 20), log_eta=-3.0),
        lambda: betting_mean_lower_from_counts((0.0, 1.0), (0.5, 20), log_eta=-3.0),
        lambda: betting_mean_lower_from_counts((0.0, 1.0), (math.nan, 20), log_eta=-3.0),
        lambda: betting_mean_lower_from_counts((0.0, 1.0), (math.inf, 20), log_eta=-3.0),
        lambda: betting_mean_lower_from_counts((0.0, 1.0), (0, 0), log_eta=-3.0),
        lambda: betting_mean_lower_from_counts((0.0, 1.0), (20,), log_eta=-3.0),
        lambda: betting_mean_lower([0.9] * 20, log_eta=-3.0, stakes=(1.5,)),
        lambda: betting_mean_lower([0.9] * 20, log_eta=-3.0, stakes=()),
        lambda: betting_mean_lower([0.9] * 20, log_eta=-3.0, population=19),
        lambda: certified_mean_accuracy([[1.0, 2.0]], bits=0.0, delta=0.05),
        lambda: certified_mean_accuracy([math.nan], bits=0.0, delta=0.05),
        lambda: certified_mean_accuracy(np.zeros((3, 0)), bits=0.0, delta=0.05),
        lambda: catoni_risk_upper(1, 10, log_eta=-3.0, grid=(-5.0,)),
        lambda: catoni_risk_upper(1, 10, log_eta=-3.0, grid=()),
        lambda: certified_accuracy(0, 10**13, bits=0.0, delta=0.05),
        lambda: transfer_accuracy(0, 10, 0, 0, bits=0.0, delta_student=0.01, delta_differ=0.01),
        lambda: transfer_accuracy(0, 10, 11, 10, bits=0.0, delta_student=0.01, delta_differ=0.01),
        lambda: pool_losses_upper(0, 11, 10, log_eta=-3.0),
    ],
)
def test_what_would_flatter_is_refused(claim: Callable[[], object]) -> None:
    """Values beyond 1, negative counts, stakes that can lose more than everything, a tuned grid, n of nothing."""
    with pytest.raises(ValueError, match="expected"):
        claim()


@pytest.mark.parametrize(
    "claim",
    [
        lambda: certified_accuracy(1.5, 10, bits=0.0, delta=0.05),  # type: ignore[arg-type]
        lambda: pool_losses_upper(1.5, 10, 20, log_eta=-3.0),  # type: ignore[arg-type]
        lambda: betting_mean_lower([0.9] * 20, log_eta=-3.0, population=99.5),  # type: ignore[arg-type]
        lambda: PairedCounts(won=2.5, lost=0, both=0, n=10),  # type: ignore[arg-type]
        lambda: transfer_accuracy(0, 9, 0, 9, bits=0.0, delta_student=0.1, delta_differ=0.1, teachers=1.5),  # type: ignore[arg-type]
    ],
)
def test_a_count_is_a_whole_number(claim: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        claim()


# --- locks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bit_lines": ["menu entry", "vector"]}, None),  # a lock without the charge for attempts: see below
        ({"delta": "0.0500000000001"}, "pattern"),
        ({"delta": "00.05"}, "pattern"),
        ({"delta": "٠.٠٥"}, "pattern"),
        ({"delta": "0.05\n"}, "pattern"),
        ({"prompts": 2**63}, "less than or equal"),
        ({"draws": True}, "integer"),
        ({"heldout": -1}, "greater than or equal"),
        ({"verifier": "exact\u202e1.0"}, "U.202E cannot be seen"),
        ({"verifier": "exact\x1b[2J"}, "U.001B cannot be seen"),
        ({"verifier": "exact\nmatch"}, "one line"),
        ({"transfer": {"policy": "lora", "teachers": 0, "prompts": 9, "drawn": "population"}}, "greater than or equal"),
    ],
)
def test_strange_values_in_a_lock(changes: dict[str, Any], said: str | None) -> None:
    content = {**method_lock().to_json(), **changes}
    if said is None:
        assert parse_lock(canonical_json(content), MethodLock, name="lock").bit_lines == ("menu entry", "vector")
        return
    data = json.dumps(content).encode() if changes.get("prompts") == 2**63 else canonical_json(content)
    with pytest.raises(LockError, match=said if changes.get("prompts") != 2**63 else "larger than") as caught:
        parse_lock(data, MethodLock, name="lock")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", [b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 1, "a": 2}', b'{"a": 1e999}', b"\xef\xbb\xbf{}"]
)
def test_json_that_readers_could_read_differently(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "certificate.json").write_bytes(text)
    assert [check.ok for check in verify_certificate(tmp_path / "certificate.json")] == [False]
    with pytest.raises(LockError):
        parse_lock(text, MethodLock, name="lock")


@pytest.mark.parametrize("name", ["numbers) correctly. Certified: 99.9 % (of all", "x; y", "50%"])
def test_a_population_cannot_write_the_statement(name: str) -> None:
    with pytest.raises(pydantic.ValidationError, match="pattern"):
        Claim(base="table", base_digest=BASE, domain="remainders", population=name)


@pytest.mark.parametrize("upper", ["A" * 64, "１" * 64, "a" * 63, "a" * 65, "a" * 64 + "\n", ""])
def test_a_digest_has_one_spelling(upper: str) -> None:
    with pytest.raises(pydantic.ValidationError):
        PriorData(description="x", prompts=(upper,))
    with pytest.raises(ValueError, match=r"64 hex digits"):
        write_evidence(os.devnull, [], sample_lock=upper, policies={})


def test_shares_cannot_exceed_delta_by_the_last_digit() -> None:
    shares = (DeltaShare(name="accuracy", value="0.05"), DeltaShare(name="hold-out", value="0.000000000001"))
    with pytest.raises(pydantic.ValidationError, match="more than delta"):
        method_lock(delta_shares=shares)
    assert sum(Decimal(share.value) for share in shares) > Decimal("0.05")


def test_a_lock_without_the_charge_for_attempts_certifies_nothing(tmp_path: Path) -> None:
    chain = Chain.draw(method_lock(bit_lines=("menu entry", "vector"), prompts=20, heldout=0), tmp_path / "log")
    with pytest.raises(CertificateError, match="'attempt' of the bits ledger is not declared"):
        chain.certify(tmp_path / "run", 0, [0] * 4)


def test_a_sample_from_outside_the_pool_is_refused_though_the_pool_has_a_statement_of_its_own(tmp_path: Path) -> None:
    pool = draw("pool", 60)
    design = Pool.of(pool).design.model_copy(update={"part": "unseen", "outcome": "expected"})
    method = method_lock(design=design, bound="hypergeometric", prompts=20, heldout=0)
    chain = Chain.from_pool(method, tmp_path / "log", pool)
    chosen = [Prompt(7 + i) for i in range(20)]
    sample = chain.sample.model_copy(update={"items": lock_items(chosen)})
    with pytest.raises(LockError, match="not item"):
        Pool.of(pool).check_draw(method, sample)


def test_transfers_cannot_be_hidden_in_an_old_lock() -> None:
    """An old lock with the new keys set to null would be a second spelling of the same method, and a second sample."""
    content = {**method_lock().to_json(), "joint": None}
    with pytest.raises(LockError, match="not the canonical JSON"):
        parse_lock(canonical_json(content), MethodLock, name="lock")
    transfer = Transfer(policy="lora", teachers=1, prompts=10, drawn="population")
    with pytest.raises(pydantic.ValidationError, match="'disagreement'"):
        method_lock(transfer=transfer)


@pytest.mark.parametrize("step", ["1e-999999999", "1e999999999", "0." + "0" * 60 + "1", "1e-31", "1e31"])
def test_a_step_cannot_keep_a_verifier_busy(step: str) -> None:
    content = method_lock().to_json()
    content["menu"][0]["step"] = step
    with pytest.raises(LockError, match="expected a step from 1E-30 to 1E\\+30"):
        parse_lock(canonical_json(content), MethodLock, name="lock")


@pytest.mark.parametrize(
    "code",
    [
        {"kind": "gaussian", "ratio": "999999/1000000", "bound": 4095},
        {"kind": "laplace", "ratio": f"{10**4000 - 1}/{10**4000}", "bound": 4095},
        {"kind": "sparse", "values": {"kind": "gaussian", "ratio": "999999/1000000", "bound": 4095}},
    ],
)
def test_a_code_cannot_keep_a_verifier_busy(code: dict[str, Any]) -> None:
    """Frequencies of such a code are powers with hundreds of millions of digits."""
    content = method_lock().to_json()
    content["menu"][0]["code"] = code
    started = time.monotonic()
    with pytest.raises(LockError, match=r"takes [0-9]+ bits"):
        parse_lock(canonical_json(content), MethodLock, name="lock")
    assert time.monotonic() - started < 5


def test_a_message_that_never_ends_is_not_decoded(run: Path) -> None:
    (run / "message.bin").write_bytes(bytes(2**20 + 1))
    failed = [check for check in verify_certificate(run / "certificate.json") if not check.ok]
    assert "at most 1,048,576 bytes" in failed[0].detail


def test_the_widest_codes_that_are_let_through_are_quick() -> None:
    for code in (
        {"kind": "gaussian", "ratio": "999/1000", "bound": 4095},
        {"kind": "laplace", "ratio": "1", "bound": 9},
    ):
        started = time.monotonic()
        assert parse_code(code).log2_probability([0, 1, -2]) < 0
        assert time.monotonic() - started < 5


# --- files --------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Path:
    Chain.draw(method_lock(prompts=30, heldout=5), tmp_path / "log").certify(tmp_path / "run", 0, [4, 4, 3, 4])
    return tmp_path / "run"


@pytest.mark.parametrize("domain", ["..", "../../etc", "/etc", "a/b", "a\\..\\b", ".hidden", "a\x00b", "a\n", "ａ"])
def test_a_certificate_s_domain_is_no_path(run: Path, domain: str) -> None:
    shown = json.loads((run / "certificate.json").read_text())
    (run / "certificate.json").write_text(json.dumps({**shown, "domain": domain}))
    failed = [check for check in verify_certificate(run / "certificate.json") if not check.ok]
    assert [check.name for check in failed] == ["certificate"]
    assert "domain" in failed[0].detail


def test_a_pipe_or_a_device_is_not_waited_for(run: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    for path in (tmp_path / "pipe.json", Path("/dev/zero"), tmp_path, Path("/")):
        failed = verify_certificate(path)
        assert [check.ok for check in failed] == [False]
    os.unlink(run / "message.bin")
    os.mkfifo(run / "message.bin")
    assert "message.bin is missing" in verify_certificate(run / "certificate.json")[-1].detail


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("bound", "certified_accuracy"), True),
        (("bound", "losses"), False),
        (("bound", "losses"), -1),
        (("bound", "certified_accuracy"), "0.99"),
        (("bits", "total"), -0.5),
        (("delta",), 0),
        (("n",), 2**53),
    ],
)
def test_a_number_is_a_number(run: Path, place: tuple[str, ...], value: Any) -> None:
    shown = json.loads((run / "certificate.json").read_text())
    parent = shown
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = value
    (run / "certificate.json").write_text(json.dumps(shown))
    assert not all(check.ok for check in verify_certificate(run / "certificate.json"))


def test_a_forged_ledger_that_adds_up_is_recomputed(run: Path) -> None:
    """Ten bits less in the vector's line and in the total, and the accuracy that they would give."""
    shown = json.loads((run / "certificate.json").read_text())
    line = next(line for line in shown["bits"]["lines"] if line["name"] == "vector")
    line["value"] = round(line["value"] - 10, 4)
    shown["bits"]["total"] = float(sum(Decimal(repr(row["value"])) for row in shown["bits"]["lines"]))
    losses, n = shown["bound"]["losses"], shown["n"]
    flattering = certified_accuracy(losses, n, bits=shown["bits"]["total"], delta=0.05)
    shown["bound"]["certified_accuracy"] = math.floor(1e6 * flattering) / 1e6
    (run / "certificate.json").write_text(json.dumps(shown))
    assert read_certificate(run / "certificate.json").bits.total == shown["bits"]["total"]  # it adds up
    failed = {check.name for check in verify_certificate(run / "certificate.json") if not check.ok}
    assert {"claim", "bits", "bound"} <= failed


def test_another_policy_s_evidence_does_not_count(tmp_path: Path) -> None:
    """Rows of a better policy under the name "coded", with the message's own digest: V0 counts them, and says so."""
    chain = Chain.draw(method_lock(prompts=40, heldout=0), tmp_path / "log")
    message = Menu(entries=chain.method.menu).encode(0, [0] * 4)
    better = chain.outcomes("coded", np.full(4, 9.0))
    for policies, refused in (({"coded": digest(message)}, False), ({"coded": digest(b"better")}, True)):
        path = tmp_path / f"{refused}.parquet"
        write_evidence(path, better, sample_lock=chain.sample.digest, policies=policies)
        arguments: dict[str, Any] = {
            "method": chain.method,
            "sample": chain.sample,
            "message": message,
            "evidence": path.read_bytes(),
            "policy": digest(b"policy"),
            "engine": ENGINE,
        }
        if refused:
            with pytest.raises(CertificateError, match="about the message"):
                build_certificate(**arguments)
        else:
            # The arithmetic is right; that the rows are the message's is what V2 is for, and what V0 lists as open.
            assert build_certificate(**arguments).bound.losses < 5


def test_reported_twice_is_refused() -> None:
    with pytest.raises(pydantic.ValidationError, match=r"twice in reported\.domains"):
        method_lock(reported=Reported(domains=("remainders", "remainders"), jointly=True))
