"""Certificates of a finished run beside the accuracy's: a transfer to a policy without a message, all domains at once.

What they need was declared when the run was locked. A transfer draws its fresh prompts now, from a seed that the
digests of both policies go into, and scores nothing: only whether the two answer alike is looked at. The k-th
comparison of a domain is `transfer-k.json`, with the lock of its prompts and its evidence in the folder `transfer-k`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from domains.base import Item, Reason
from pacbayes.canonical import file_digest
from pacbayes.certificate import (
    CertificateError,
    build_joint_certificate,
    build_transfer_certificate,
    find_file,
    find_part,
    read_certificate,
    verify_certificate,
    write_certificate,
)
from pacbayes.evidence import Outcome, read_evidence, write_evidence
from pacbayes.gumbel import prompt_key
from pacbayes.sample import AttemptLog, MethodLock, read_lock, write_lock
from pacbayes.transfer import TransferLock, register_comparison, transfer_seed
from progressive_rlvr.certify import engine_record
from progressive_rlvr.chain import Chain, open_chain
from progressive_rlvr.config import load_config
from progressive_rlvr.engines import Engine, Request
from progressive_rlvr.errors import UserError
from progressive_rlvr.evaluate import EVIDENCE_FILE, Policy, policies
from progressive_rlvr.pipeline import CONFIG_FILE, only_process
from progressive_rlvr.stages import StageResult, run_stage, stage_folders
from progressive_rlvr.stages.quantize import MESSAGE_FILE

COMPARISON_FILE = "comparison.parquet"
TRANSFER_LOCK = "transfer.lock.json"
JOINT_FILE = "joint.json"
# Typed outcomes of completions that nobody judges.
ENDED, TRUNCATED = "ended", "truncated"


def certify_transfer(run_folder: Path, domain: str, beacon: str | None = None) -> dict[str, Any]:
    """Compare the policy that the lock names with the coded student on fresh prompts, and certify it.

    Args:
        run_folder, domain: a finished run, and one of its domains.
        beacon: public randomness dated after both policies were fixed, if there is one.

    Returns: a JSON object with `certified_accuracy`, `differing`, `prompts`, `certificate`.

    Raises:
        UserError: no such run or domain, no transfer in its configuration, or the run is not finished.
        LockError: more comparisons than the lock declares.
    """
    config = load_config(run_folder / CONFIG_FILE) if (run_folder / CONFIG_FILE).is_file() else None
    if config is None:
        raise UserError(f"{run_folder} is no run: it has no {CONFIG_FILE}")
    if domain not in config.domains:
        raise UserError(f"the run {run_folder} has no domain {domain!r}; it has {', '.join(config.domains)}")
    if config.statements is None or config.statements.transfer is None:
        raise UserError(
            f"the run {run_folder} declares no transfer; a transfer is locked with the method: give "
            "`statements: {transfer: {delta: …}}` in the configuration of a new run"
        )
    folder = run_folder / domain
    for name in (MESSAGE_FILE, EVIDENCE_FILE):
        if not (folder / name).is_file():
            raise UserError(f"{folder} has no {name}: finish the run first, with `prlvr run`")
    with only_process(folder):
        chain = open_chain(config, run_folder, domain)
        try:
            return _certify_transfer(chain, AttemptLog(run_folder.parent / "attempts.jsonl"), beacon)
        finally:
            chain.domain.close()


def _certify_transfer(chain: Chain, log: AttemptLog, beacon: str | None) -> dict[str, Any]:
    transfer = chain.method.transfer
    assert transfer is not None
    stages: list[StageResult] = []
    for kind in stage_folders(chain):
        stages.append(run_stage(chain, kind, stages[-1] if stages else None))
    model = chain.certified_model()
    pair = {p.name: p for p in policies(chain, model, stages) if p.name in ("coded", transfer.policy)}
    if transfer.policy not in pair:
        raise UserError(f"the run has no policy {transfer.policy!r}: its configuration leaves that stage out")
    student, teacher = pair["coded"], pair[transfer.policy]
    if student.digest != file_digest(chain.folder / MESSAGE_FILE):
        raise UserError(f"{chain.folder / MESSAGE_FILE} is not the message of the last stage")
    seed = transfer_seed(chain.method.digest, chain.sample.digest, student.digest, teacher.digest, beacon)
    items = chain.population.draw(seed, transfer.prompts)
    lock = register_comparison(
        log, chain.method, chain.sample, items, student=student.digest, teacher=teacher.digest, beacon=beacon
    )
    path = chain.folder / f"transfer-{lock.number}.json"
    folder = path.with_suffix("")
    folder.mkdir(exist_ok=True)
    write_lock(folder / TRANSFER_LOCK, lock)
    comparison = folder / COMPARISON_FILE
    engine = chain.engine(model)
    for policy in (student, teacher):
        if not _answered(comparison, policy, lock):
            with engine.serving(policy.weights):
                _answer(chain, engine, policy, lock, items, comparison)
    certificate = build_transfer_certificate(
        method=chain.method,
        sample=chain.sample,
        transfer=lock,
        message=(chain.folder / MESSAGE_FILE).read_bytes(),
        evidence=(chain.folder / EVIDENCE_FILE).read_bytes(),
        comparison=comparison.read_bytes(),
        engine=engine_record(chain, model),
    )
    write_certificate(path, certificate)
    return {
        "policy": certificate.policy,
        "certified_accuracy": certificate.certified_accuracy,
        "differing": certificate.disagreement.differing,
        "prompts": certificate.disagreement.prompts,
        "certificate": str(path),
    }


def _answered(comparison: Path, policy: Policy, lock: TransferLock) -> bool:
    if not comparison.is_file():
        return False
    evidence = read_evidence(comparison)
    return (
        evidence.sample_lock == lock.digest
        and evidence.policies.get(policy.name) == policy.digest
        and len(evidence.part(policy.name, "fresh")) == len(lock.items)
    )


def _answer(
    chain: Chain, engine: Engine, policy: Policy, lock: TransferLock, items: list[Item], comparison: Path
) -> None:
    """What a policy answers to all fresh prompts; the engine's model has its weights."""
    requests = [
        Request(item.prompt, prompt_key(lock.noise_root, item.prompt_digest, locked.occurrence, 0))
        for item, locked in zip(items, lock.items, strict=True)
    ]
    completions = engine.generate(requests, chain.settings)
    rows = [
        Outcome(
            policy=policy.name,
            split="fresh",
            index=i,
            prompt_digest=locked.prompt_digest,
            occurrence=locked.occurrence,
            draw=0,
            correct=False,
            reason=str(Reason.CRASHED) if completion.lost else TRUNCATED if completion.truncated else ENDED,
            tokens=completion.tokens,
            completion=completion.text,
        )
        for i, (locked, completion) in enumerate(zip(lock.items, completions, strict=True))
    ]
    write_evidence(comparison, rows, sample_lock=lock.digest, policies={policy.name: policy.digest})


def certify_joint(run_folder: Path) -> dict[str, Any]:
    """Join the certificates of a run's domains, as their locks declare; writes `joint.json`.

    Returns: a JSON object with `delta`, `certified_accuracy` by domain and `certificate`.

    Raises:
        UserError: there are no certificates in this folder.
        CertificateError: they were not locked jointly, one is missing, or one does not hold.
    """
    found = sorted(run_folder.glob("*/certificate.json"))
    if not found:
        raise UserError(f"{run_folder} has no certificates: expected DOMAIN/certificate.json in it")
    path = run_folder / JOINT_FILE
    parts = []
    for shown in map(read_certificate, found):
        file = find_part(path, shown.domain)
        failed = next((check for check in verify_certificate(file) if not check.ok), None)
        if failed is not None:
            raise CertificateError(f"the certificate of {shown.domain} does not hold: {failed.name}: {failed.detail}")
        method = read_lock(find_file(file, shown.domain, "method.lock.json"), MethodLock)
        parts.append((shown, method))
    certificate = build_joint_certificate(parts)
    write_certificate(path, certificate)
    return {
        "delta": certificate.delta,
        "certified_accuracy": {part.domain: part.certified_accuracy for part in certificate.domains},
        "certificate": str(path),
    }
