"""Transfers and joint statements around the table of `lookup`: teachers, fresh prompts, several domains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from lookup import ENGINE, VOCABULARY, Chain, Prompt, boosts, complete, draw, method_lock

from pacbayes.canonical import digest
from pacbayes.certificate import TransferCertificate, build_transfer_certificate, write_certificate
from pacbayes.codes import Menu
from pacbayes.declarations import Transfer
from pacbayes.evidence import Outcome, write_evidence
from pacbayes.gumbel import prompt_key
from pacbayes.sample import AttemptLog, DeltaShare, MethodLock, write_lock
from pacbayes.transfer import TransferLock, draw_unseen, register_comparison, transfer_seed

SHARES = (DeltaShare(name="accuracy", value="0.03"), DeltaShare(name="disagreement", value="0.02"))
POOL_SHARES = (
    DeltaShare(name="accuracy", value="0.01"),
    DeltaShare(name="student", value="0.02"),
    DeltaShare(name="disagreement", value="0.02"),
)
TEACHER = np.array([4.2, 4.0, 3.1, 3.8])


def transfer_method(**changes: Any) -> MethodLock:
    """A method that certifies the teacher "lora" on 300 fresh prompts."""
    fields: dict[str, Any] = {
        "delta_shares": SHARES,
        "transfer": Transfer(policy="lora", teachers=2, prompts=300, drawn="population"),
        "prompts": 300,
        "heldout": 0,
    }
    return method_lock(**{**fields, **changes})


def teacher_digest(teacher: np.ndarray) -> str:
    """The digest of a teacher's weights."""
    return digest(teacher.tobytes())


def answers(lock: TransferLock, prompts: Sequence[Prompt], policy: str, boost: np.ndarray) -> list[Outcome]:
    """What a policy answers to the fresh prompts under their own noise; unlabelled."""
    keys = [prompt_key(lock.noise_root, item.prompt_digest, item.occurrence, 0) for item in lock.items]
    tokens = complete(prompts, keys, boost)
    return [
        Outcome(policy, "fresh", i, item.prompt_digest, item.occurrence, 0, False, "unjudged", 1, str(token))
        for i, (item, token) in enumerate(zip(lock.items, tokens, strict=True))
    ]


def compare(
    chain: Chain, folder: Path, log: AttemptLog, integers: Sequence[int], teacher: np.ndarray = TEACHER
) -> TransferCertificate:
    """Certify the student into a folder, then draw fresh prompts, compare, and certify the teacher beside it."""
    chain.certify(folder, 0, integers)
    message = (folder / "message.bin").read_bytes()
    decoded = boosts(chain.method, *Menu(entries=chain.method.menu).decode(message))
    student, of_teacher = digest(message), teacher_digest(teacher)
    seed = transfer_seed(chain.method.digest, chain.sample.digest, student, of_teacher, None)
    assert chain.method.transfer is not None
    m = chain.method.transfer.prompts
    if chain.pool is None:
        fresh = draw(seed, m)
    else:
        by_digest = {prompt.digest: prompt for prompt in map(Prompt, range(len(chain.pool.items)))}
        fresh = [by_digest[chain.pool.items[i].digest] for i in draw_unseen(seed, chain.method, chain.sample, m)]
    lock = register_comparison(
        log, chain.method, chain.sample, fresh, student=student, teacher=of_teacher, pool=chain.pool
    )
    write_lock(folder / "transfer.lock.json", lock)
    write_evidence(
        folder / "comparison.parquet",
        answers(lock, fresh, "coded", decoded) + answers(lock, fresh, "lora", teacher),
        sample_lock=lock.digest,
        policies={"coded": student, "lora": of_teacher},
    )
    return build_transfer(chain, folder, lock)


def build_transfer(chain: Chain, folder: Path, lock: TransferLock) -> TransferCertificate:
    """The transfer certificate of a folder's files, written beside them."""
    certificate = build_transfer_certificate(
        method=chain.method,
        sample=chain.sample,
        transfer=lock,
        message=(folder / "message.bin").read_bytes(),
        evidence=(folder / "evidence.parquet").read_bytes(),
        comparison=(folder / "comparison.parquet").read_bytes(),
        engine=ENGINE,
        pool=chain.pool,
    )
    write_certificate(folder / "transfer.json", certificate)
    return certificate


def true_disagreement(student: np.ndarray, teacher: np.ndarray) -> float:
    """P(the two tokens differ) under shared Gumbel noise, on a uniform prompt: exact.

    Two policies of the table differ in the right token's logit only. With G the best score of the other tokens (their
    number is 7, so ln 7 + Gumbel), both answer alike unless exactly one of them lifts the right token above it.
    """
    right = np.exp(np.stack([student, teacher]))
    accuracy = right / (right + VOCABULARY - 1)
    return float(np.abs(accuracy[0] - accuracy[1]).mean())
