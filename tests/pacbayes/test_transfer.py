"""Transfer certificates: recomputed by hand, tampered with, and refused where the order of events would not hold."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pydantic
import pytest
from lookup import ENGINE, Chain, Prompt, boosts, draw, method_lock, true_accuracy
from statements_lookup import (
    POOL_SHARES,
    SHARES,
    TEACHER,
    answers,
    build_transfer,
    compare,
    teacher_digest,
    transfer_method,
    true_disagreement,
)

from pacbayes.bounds import binomial_risk_upper, certified_accuracy, certified_pool_accuracy, expected_pool_risk_upper
from pacbayes.canonical import canonical_json, digest
from pacbayes.certificate import (
    CertificateError,
    Check,
    not_checked_in,
    read_transfer_certificate,
    verify_certificate,
)
from pacbayes.declarations import Transfer
from pacbayes.evidence import EvidenceError, read_evidence, write_evidence
from pacbayes.pool import Pool
from pacbayes.sample import AttemptLog, DeltaShare, LockError, attempt_bits, read_lock, sample_seed
from pacbayes.transfer import TransferLock, disagreement, draw_unseen, register_comparison, transfer_seed

STUDENT = [4, 4, 3, 4]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Chain, Path]:
    folder = tmp_path_factory.mktemp("transfer")
    chain = Chain.draw(transfer_method(), folder / "log")
    compare(chain, folder / "run", AttemptLog(folder / "log"), STUDENT)
    return chain, folder / "run"


@pytest.fixture
def copy(run: tuple[Chain, Path], tmp_path: Path) -> Path:
    shutil.copytree(run[1], tmp_path / "run")
    return tmp_path / "run"


def failures(folder: Path) -> list[Check]:
    return [check for check in verify_certificate(folder / "transfer.json") if not check.ok]


def test_every_number_follows_by_hand(run: tuple[Chain, Path]) -> None:
    chain, folder = run
    shown = json.loads((folder / "transfer.json").read_text())
    fresh = read_evidence(folder / "comparison.parquet")
    student, teacher = fresh.part("coded", "fresh"), fresh.part("lora", "fresh")
    differing = sum(a.completion != b.completion for a, b in zip(student, teacher, strict=True))
    assert (shown["disagreement"]["differing"], shown["disagreement"]["prompts"]) == (differing, 300)
    bits = 1 + math.ceil(1e4 * attempt_bits(1)) / 1e4  # two comparisons declared, first sample
    assert shown["comparison_bits"]["total"] == pytest.approx(bits, abs=1e-12)
    upper = binomial_risk_upper(differing, 300, log_eta=math.log(0.02) - bits * math.log(2))
    assert upper <= shown["disagreement"]["upper"] < upper + 1.1e-6
    losses = 300 - read_evidence(folder / "evidence.parquet").count("coded", "sample", chain.sample).correct
    limit = certified_accuracy(losses, 300, bits=shown["bits"]["total"], delta=0.03)
    assert limit - 1.1e-6 < shown["student"]["certified_accuracy"] <= limit
    assert shown["certified_accuracy"] == float(
        Decimal(repr(shown["student"]["certified_accuracy"])) - Decimal(repr(shown["disagreement"]["upper"]))
    )
    assert [(line["name"], line["value"]) for line in shown["deltas"]["lines"]] == [
        ("accuracy", 0.03),
        ("disagreement", 0.02),
    ]
    assert 0.5 < shown["certified_accuracy"] < true_accuracy(TEACHER)
    assert shown["statement"].startswith("With 95 % confidence, the policy 'lora', which was not compressed")


def test_v0_accepts_it_and_says_what_it_did_not_check(run: tuple[Chain, Path]) -> None:
    checks = verify_certificate(run[1] / "transfer.json")
    assert all(check.ok for check in checks), checks
    assert {"transfer lock", "comparison", "disagreement", "student", "claim", "words"} <= {c.name for c in checks}
    assert any("fixed before the fresh prompts" in text for text in not_checked_in(run[1] / "transfer.json"))
    assert read_transfer_certificate(run[1] / "transfer.json").kind == "transfer"
    assert all(check.ok for check in verify_certificate(run[1] / "certificate.json"))


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
            return ("1" if value[0] != "1" else "2") + value[1:]
    return digest(b"something")


def test_no_value_can_be_changed(copy: Path) -> None:
    original = json.loads((copy / "transfer.json").read_text())
    for leaf in _leaves(original):
        if leaf[0] == "engine" and leaf[1] in ("device", "versions"):
            continue  # shown as the producer wrote it
        shown = json.loads(json.dumps(original))
        parent = shown
        for key in leaf[:-1]:
            parent = parent[key]
        parent[leaf[-1]] = _other(parent[leaf[-1]])
        (copy / "transfer.json").write_text(json.dumps(shown))
        assert failures(copy), leaf


def test_no_value_of_the_transfer_lock_can_be_changed(copy: Path) -> None:
    original = json.loads((copy / "transfer.lock.json").read_bytes())
    for leaf in [leaf for leaf in _leaves(original) if leaf[0] != "items" or leaf[1] in (0, 299)]:
        content = json.loads(json.dumps(original))
        parent = content
        for key in leaf[:-1]:
            parent = parent[key]
        parent[leaf[-1]] = _other(parent[leaf[-1]])
        (copy / "transfer.lock.json").write_bytes(canonical_json(content))
        assert any("transfer lock" in f"{check.name} {check.detail}" for check in failures(copy)), leaf


@pytest.mark.parametrize("name", ["transfer.lock.json", "comparison.parquet", "evidence.parquet", "message.bin"])
def test_a_missing_or_foreign_file_is_named(copy: Path, name: str) -> None:
    (copy / name).write_bytes(b"{}")
    assert failures(copy)
    (copy / name).unlink()
    assert len(failures(copy)) == 1
    assert name in failures(copy)[0].detail


def rewrite(copy: Path, change: Any) -> None:
    """Forge the comparison: the rows changed, in a new file."""
    path = copy / "comparison.parquet"
    old = read_evidence(path)
    rows = [row for row in (change(row) for row in old.outcomes.values()) if row is not None]
    path.unlink()
    write_evidence(path, rows, sample_lock=old.sample_lock, policies=old.policies)


def test_agreement_that_was_made_up_is_noticed(copy: Path) -> None:
    rewrite(copy, lambda row: dataclasses.replace(row, completion="7"))
    named = {check.name for check in failures(copy)}
    assert {"comparison", "disagreement"} <= named


def test_what_cannot_be_compared_differs(run: tuple[Chain, Path], copy: Path) -> None:
    chain, _ = run
    lock = read_lock(copy / "transfer.lock.json", TransferLock)

    def counted() -> tuple[int, int]:
        found = disagreement(read_evidence(copy / "comparison.parquet"), lock, "lora")
        return found.differing, found.incomparable

    rewrite(copy, lambda row: dataclasses.replace(row, completion="7"))
    assert counted() == (0, 0)
    rewrite(copy, lambda row: None if (row.policy, row.index) == ("lora", 3) else row)
    assert counted() == (1, 1)
    rewrite(copy, lambda row: dataclasses.replace(row, reason="timeout") if row.index == 5 else row)
    assert counted() == (2, 2)  # both timed out alike: that is no agreement
    truncated = lambda row: dataclasses.replace(row, reason="truncated")  # noqa: E731
    rewrite(copy, lambda row: truncated(row) if (row.policy, row.index) == ("coded", 9) else row)
    assert counted() == (3, 2)
    certificate = build_transfer(chain, copy, lock)
    assert certificate.disagreement.differing == 3
    assert any("2 prompts" in text for text in certificate.assumptions)


def test_training_prompts_passed_off_as_fresh_are_told(tmp_path: Path) -> None:
    """Teacher and student agree on what both were trained on; who uses those prompts again is seen in the numbers."""
    chain = Chain.draw(transfer_method(), tmp_path / "log")
    chain.certify(tmp_path / "run", 0, STUDENT)
    message = (tmp_path / "run" / "message.bin").read_bytes()
    names = {"student": digest(message), "teacher": teacher_digest(TEACHER)}
    lock = register_comparison(AttemptLog(tmp_path / "log"), chain.method, chain.sample, chain.prompts, **names)
    rows = answers(lock, chain.prompts, "coded", TEACHER) + answers(lock, chain.prompts, "lora", TEACHER)
    policies = {"coded": names["student"], "lora": names["teacher"]}
    write_evidence(tmp_path / "run" / "comparison.parquet", rows, sample_lock=lock.digest, policies=policies)
    certificate = build_transfer(chain, tmp_path / "run", lock)
    assert certificate.disagreement.in_sample == 300
    assert any("300 of them stand in the sample too" in text for text in certificate.assumptions)


def test_rows_of_another_lock_policy_or_prompt_are_refused(run: tuple[Chain, Path], copy: Path) -> None:
    lock = read_lock(copy / "transfer.lock.json", TransferLock)
    good = read_evidence(copy / "comparison.parquet")
    cases = [
        (dataclasses.replace(good, sample_lock=digest(b"x")), "belongs to transfer lock"),
        (dataclasses.replace(good, policies={**good.policies, "lora": digest(b"x")}), "no policy 'lora'"),
        (dataclasses.replace(good, policies={**good.policies, "coded": digest(b"x")}), "no policy 'coded'"),
    ]
    for evidence, text in cases:
        with pytest.raises(EvidenceError, match=text):
            disagreement(evidence, lock, "lora")
    rewrite(copy, lambda row: dataclasses.replace(row, occurrence=1) if row.index == 2 else row)
    with pytest.raises(EvidenceError, match="not the prompt or occurrence"):
        disagreement(read_evidence(copy / "comparison.parquet"), lock, "lora")


def test_the_student_of_another_message_is_refused(run: tuple[Chain, Path], tmp_path: Path) -> None:
    chain, folder = run
    log = AttemptLog(tmp_path / "log")
    student, teacher = digest(b"another message"), teacher_digest(TEACHER)
    seed = transfer_seed(chain.method.digest, chain.sample.digest, student, teacher, None)
    lock = register_comparison(log, chain.method, chain.sample, draw(seed, 300), student=student, teacher=teacher)
    shutil.copytree(folder, tmp_path / "run")
    with pytest.raises(CertificateError, match="student of another message"):
        build_transfer(chain, tmp_path / "run", lock)


def test_comparisons_are_counted_and_limited(run: tuple[Chain, Path], tmp_path: Path) -> None:
    chain, _ = run
    log = AttemptLog(tmp_path / "log")

    def register(teacher: bytes, m: int = 300) -> TransferLock:
        student, of_teacher = digest(b"message"), digest(teacher)
        seed = transfer_seed(chain.method.digest, chain.sample.digest, student, of_teacher, None)
        return register_comparison(log, chain.method, chain.sample, draw(seed, m), student=student, teacher=of_teacher)

    first, second = register(b"one"), register(b"two")
    assert (first.number, second.number, second.previous) == (1, 2, first.digest)
    assert register(b"one") == first
    assert first.noise_root != second.noise_root
    with pytest.raises(LockError, match="declares 2 comparisons, this is number 3"):
        register(b"three")
    with pytest.raises(LockError, match="declares 300 fresh prompts, the transfer lock holds 299"):
        register(b"one", 299)
    assert len(log.entries()) == 2  # what was refused is not in the log


def test_a_teacher_that_is_not_the_one_in_the_evidence(run: tuple[Chain, Path], copy: Path) -> None:
    chain, _ = run
    rows = list(read_evidence(copy / "evidence.parquet").outcomes.values())
    policies = dict(read_evidence(copy / "evidence.parquet").policies)
    (copy / "evidence.parquet").unlink()
    write_evidence(
        copy / "evidence.parquet",
        rows + chain.outcomes("lora", TEACHER),
        sample_lock=chain.sample.digest,
        policies={**policies, "lora": digest(b"another teacher")},
    )
    with pytest.raises(CertificateError, match="is not the teacher of the comparison"):
        build_transfer(chain, copy, read_lock(copy / "transfer.lock.json", TransferLock))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transfer": None}, "'disagreement' is for a transfer, and the lock declares none"),
        ({"delta_shares": SHARES[:1]}, "takes a share of delta called 'disagreement'"),
        ({"delta_shares": POOL_SHARES}, "under the iid design"),
        ({"transfer": Transfer(policy="lora", teachers=1, prompts=9, drawn="unseen")}, "under the iid design"),
        ({"delta_shares": (*SHARES, DeltaShare(name="teacher", value="0.0001"))}, "add up to"),
        ({"delta": "0.06", "delta_shares": (*SHARES, DeltaShare(name="Disagreement", value="0.01"))}, "no statement"),
    ],
)
def test_a_transfer_is_declared_whole_or_not_at_all(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=message):
        transfer_method(**changes)


def test_the_coded_policy_needs_no_transfer() -> None:
    with pytest.raises(pydantic.ValidationError, match="'coded' is the student"):
        Transfer(policy="coded", teachers=1, prompts=9, drawn="population")


def test_a_lock_without_a_transfer_certifies_none(tmp_path: Path) -> None:
    chain = Chain.draw(method_lock(prompts=20, heldout=0), tmp_path / "log")
    student, teacher = digest(b"message"), digest(b"teacher")
    with pytest.raises(LockError, match="declares no transfer"):
        register_comparison(
            AttemptLog(tmp_path / "log"), chain.method, chain.sample, draw("x", 5), student=student, teacher=teacher
        )


def pool_chain(tmp_path: Path) -> Chain:
    prompts = [Prompt(i) for i in range(900)]
    transfer = Transfer(policy="lora", teachers=1, prompts=200, drawn="unseen")
    method = transfer_method(
        design=Pool.of(prompts).design, bound="hypergeometric", delta_shares=POOL_SHARES, transfer=transfer
    )
    return Chain.from_pool(method, tmp_path / "log", prompts)


def test_on_a_pool_the_fresh_prompts_are_unseen_items(tmp_path: Path) -> None:
    chain = pool_chain(tmp_path)
    certificate = compare(chain, tmp_path / "run", AttemptLog(tmp_path / "log"), STUDENT)
    lock = read_lock(tmp_path / "run" / "transfer.lock.json", TransferLock)
    assert len({item.digest for item in lock.items} | {item.digest for item in chain.sample.items}) == 500
    d, losses = certificate.disagreement.differing, certificate.student.losses
    bits = certificate.bits.total
    student = certified_pool_accuracy(losses, 300, 900, bits=bits, delta=0.02, part="unseen", outcome="expected")
    eta = math.log(0.02) - certificate.comparison_bits.total * math.log(2)
    differ = expected_pool_risk_upper(d, 200, log_eta=eta)
    assert certificate.certified_accuracy == pytest.approx(student - differ, abs=2.1e-6)
    assert certificate.certified_accuracy <= student - differ
    assert "of the 600 remainders prompts (numbers) of the pool that were not drawn" in certificate.statement
    assert failures(tmp_path / "run") == []
    # Other items of the pool than those that the seed draws: noticed without a domain.
    prompts = [Prompt(i) for i in range(900)]
    seen = {item.digest for item in chain.sample.items}
    chosen = [prompt for prompt in prompts if prompt.digest not in seen][:200]
    with pytest.raises(LockError, match="which the seed draws there"):
        register_comparison(
            AttemptLog(tmp_path / "log2"),
            chain.method,
            chain.sample,
            chosen,
            student=lock.student,
            teacher=lock.teacher,
            pool=chain.pool,
        )


def test_draw_unseen_leaves_the_sample_out(tmp_path: Path) -> None:
    chain = pool_chain(tmp_path)
    drawn = draw_unseen(digest(b"seed"), chain.method, chain.sample, 600)
    assert chain.pool is not None
    of_sample = {item.digest for item in chain.sample.items}
    assert len(set(drawn)) == 600
    assert not {chain.pool.items[i].digest for i in drawn} & of_sample
    with pytest.raises(ValueError, match="cannot draw 601 of 600"):
        draw_unseen(digest(b"seed"), chain.method, chain.sample, 601)


def component_events(runs: int) -> None:
    """Student and disagreement at the edges of their limits: each fails at its own share, together at most the sum.

    The policies are tables under shared noise, so that both true rates are known; only the edges are looked up.
    """
    n, m, student, teacher = 200, 200, np.array([3.0] * 4), np.array([1.9] * 4)
    risk, differ = 1 - true_accuracy(student), true_disagreement(student, teacher)
    assert true_accuracy(teacher) == pytest.approx(1 - risk - differ, abs=1e-12)  # the transfer inequality is tight
    rng = np.random.default_rng(11)
    losses, differing = rng.binomial(n, risk, runs), rng.binomial(m, differ, runs)
    limits = [certified_accuracy(k, n, bits=0.0, delta=0.03) for k in range(n + 1)]
    uppers = [binomial_risk_upper(d, m, log_eta=math.log(0.02)) for d in range(m + 1)]
    student_failed = np.array([limits[k] for k in losses]) > 1 - risk
    differ_failed = np.array([uppers[d] for d in differing]) < differ
    both = np.array([limits[k] - uppers[d] for k, d in zip(losses, differing, strict=True)])
    for failed, share in ((student_failed, 0.03), (differ_failed, 0.02)):
        assert float(failed.mean()) <= share + 4.5 * math.sqrt(share / runs)
        assert float(failed.mean()) > share / 4  # close enough to be wrong now and then
    violated = float((both > true_accuracy(teacher)).mean())
    assert violated <= float((student_failed | differ_failed).mean()) <= 0.05 + 4.5 * math.sqrt(0.05 / runs)


def test_component_events_keep_to_their_shares() -> None:
    component_events(20_000)


def test_the_true_disagreement_is_what_the_noise_gives(run: tuple[Chain, Path]) -> None:
    """The formula that the component test rests on, against the keyed noise itself."""
    _, folder = run
    lock = read_lock(folder / "transfer.lock.json", TransferLock)
    prompts = [Prompt(i) for i in range(300)]
    student, teacher = np.array([3.0] * 4), np.array([1.0] * 4)
    first, second = (answers(lock, prompts, name, boost) for name, boost in (("coded", student), ("lora", teacher)))
    found = sum(a.completion != b.completion for a, b in zip(first, second, strict=True)) / 300
    expected = true_disagreement(student, teacher)
    assert abs(found - expected) < 4.5 * math.sqrt(expected * (1 - expected) / 300)


def transfer_end_to_end(folder: Path, runs: int) -> None:
    """Through locks, noise, evidence and comparison: how often the teacher's certificate exceeds its accuracy."""
    truth, violations = true_accuracy(TEACHER), 0
    for i in range(runs):
        method = transfer_method(prompts=60, verifier=f"run {i}")
        chain = Chain.draw(method, folder / f"{i}.log")
        certificate = compare(chain, folder / str(i), AttemptLog(folder / f"{i}.log"), STUDENT)
        violations += certificate.certified_accuracy > truth
        if i % 50 == 0:
            assert failures(folder / str(i)) == []
    assert violations <= runs * 0.05 + 4.5 * math.sqrt(runs * 0.05)


def test_transfer_end_to_end(tmp_path: Path) -> None:
    transfer_end_to_end(tmp_path, 20)


@pytest.mark.slow
def test_transfer_end_to_end_in_2000_runs(tmp_path: Path) -> None:
    transfer_end_to_end(tmp_path, 2000)


def test_several_draws_on_the_sample_and_one_on_the_fresh_prompts(tmp_path: Path) -> None:
    chain = Chain.draw(transfer_method(prompts=100, draws=3, bound="betting"), tmp_path / "log")
    certificate = compare(chain, tmp_path / "run", AttemptLog(tmp_path / "log"), STUDENT)
    assert certificate.draws == 3
    assert certificate.student.name == "betting"
    assert failures(tmp_path / "run") == []
    assert boosts(chain.method, 0, STUDENT).tolist() == [4.0, 4.0, 3.0, 4.0]
    assert ENGINE.name == "table"


def test_golden_locks_and_seeds(tmp_path: Path) -> None:
    """Any change here makes transfers that were locked unreadable, or draws other prompts and noise for them."""
    method, log = transfer_method(), AttemptLog(tmp_path / "log")
    assert method.digest == "50fe93661cc04378df78da826eaf7b5a27b68c522c878588dd4bb2b9cea12705"
    sample = log.register(method, draw(sample_seed(method.digest, None), 300))
    names = {"student": digest(b"message"), "teacher": digest(b"teacher")}
    seed = transfer_seed(method.digest, sample.digest, *names.values(), None)
    assert seed == "e83a5758ab7c0b317c1ce18f869ec7342c19ca1b179ce27cf95ed1443ae500a0"
    by_hand = ["prlvr/1", "transfer sample", method.digest, sample.digest, *names.values(), None]
    assert seed == digest(by_hand)
    lock = register_comparison(log, method, sample, draw(seed, 300), **names)
    assert lock.digest == "874fb87825db82a29ee3662dc815e11aff1f0209305fdd4840eb4445ac400f37"
    assert lock.noise_root == "c23bf86d58e806dd0daeda30e39f075352435bfe92a1b17a67548d3b3d6e4a6b"
    assert lock.noise_root == digest(["prlvr/1", "transfer noise", lock.digest])
