"""Transfer: fresh unlabelled prompts on which a policy without a message is compared with the coded student.

risk(teacher) <= risk(student) + P(they differ), under the same prompts and noise. The second term needs no labels, but
prompts that neither policy can know: they are drawn from a seed that the digests of both policies go into, and their
noise has a root of its own. A :class:`TransferLock` holds them; what both policies answered is an evidence file of its
own, with rows of the split "fresh".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from pacbayes.canonical import digest
from pacbayes.evidence import INFRASTRUCTURE_REASONS, Evidence, EvidenceError, Outcome
from pacbayes.pool import Pool, draw_from_pool
from pacbayes.sample import (
    AttemptLog,
    FinitePool,
    HasDigests,
    Lock,
    LockedItem,
    LockError,
    MethodLock,
    SampleLock,
    check_occurrences,
    derive,
    lock_items,
    sample_seed,
)
from pacbayes.schema import HexDigest, Name


class TransferLock(Lock):
    """The fresh prompts of one comparison, in order, drawn after student and teacher were hashed.

    Attributes:
        method, sample: digests of the locks.
        student: SHA-256 of the message.
        teacher: digest of the teacher's weights as they are served.
        number: which comparison under this sample it is, from 1; 0 in a development run, which is not counted.
        previous: digest of the transfer lock before it.
        items: the m prompts; their digests cover what an item has beside the prompt, which nobody needs to read.
    """

    kind_of_lock: ClassVar[str] = "transfer lock"

    schema_: Annotated[Literal["prlvr/transfer-lock/1"], Field(alias="schema")] = "prlvr/transfer-lock/1"
    method: HexDigest
    sample: HexDigest
    student: HexDigest
    teacher: HexDigest
    beacon: Name | None
    seed: HexDigest
    number: Annotated[int, Field(ge=0, le=1_000_000)]
    previous: HexDigest | None
    items: Annotated[tuple[LockedItem, ...], Field(strict=False, min_length=1)]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.seed != transfer_seed(self.method, self.sample, self.student, self.teacher, self.beacon):
            raise ValueError("the seed does not follow from the locks, both policies and the beacon")
        if (self.previous is None) != (self.number <= 1):
            raise ValueError(f"comparison {self.number} {'needs' if self.number > 1 else 'has no'} previous one")
        check_occurrences("items", self.items)
        return self

    @property
    def noise_root(self) -> str:
        """Root of the noise on the fresh prompts."""
        return derive("transfer noise", self.digest)

    def check(self, method: MethodLock, sample: SampleLock, pool: Pool | None) -> None:
        """Raise LockError unless the method declares this comparison and its prompts are drawn as it says."""
        if (self.method, self.sample) != (method.digest, sample.digest):
            raise LockError("the transfer lock belongs to another method or sample")
        if method.transfer is None:
            raise LockError("the method lock declares no transfer")
        if len(self.items) != method.transfer.prompts:
            raise LockError(
                f"the method lock declares {method.transfer.prompts} fresh prompts, "
                f"the transfer lock holds {len(self.items)}"
            )
        if self.number > method.transfer.teachers:
            raise LockError(
                f"the method lock declares {method.transfer.teachers} comparisons, this is number {self.number}"
            )
        if (self.number == 0) != (method.purpose == "development"):
            raise LockError(f"comparison number {self.number} does not fit the purpose {method.purpose!r}")
        if isinstance(method.design, FinitePool):
            if pool is None:
                raise LockError("the design is a finite pool, and the pool is missing")
            drawn = draw_unseen(self.seed, method, sample, len(self.items))
            for place, (index, item) in enumerate(zip(drawn, self.items, strict=True)):
                expected = pool.items[index]
                if (expected.digest, expected.prompt_digest) != (item.digest, item.prompt_digest):
                    raise LockError(f"fresh prompt {place} is not item {index} of the pool, which the seed draws there")


def transfer_seed(method: str, sample: str, student: str, teacher: str, beacon: str | None) -> str:
    """Seed of the fresh prompts: known only once both policies are hashed and the beacon, if any, is published."""
    return derive("transfer sample", method, sample, student, teacher, beacon)


def draw_unseen(seed: str, method: MethodLock, sample: SampleLock, count: int) -> list[int]:
    """Indices of a uniform subset of the pool's items that are not in the sample, in the order of drawing.

    Raises:
        LockError: the design is not a finite pool.
        ValueError: there are fewer than ``count`` of them.
    """
    if not isinstance(method.design, FinitePool):
        raise LockError(f"the design is {method.design.kind}, not a finite pool")
    size = method.design.pool_size
    seen = set(draw_from_pool(sample_seed(method.digest, sample.beacon), size, method.prompts))
    unseen = [index for index in range(size) if index not in seen]
    return [unseen[place] for place in draw_from_pool(seed, len(unseen), count)]


def register_comparison(
    log: AttemptLog,
    method: MethodLock,
    sample: SampleLock,
    items: Iterable[HasDigests],
    *,
    student: str,
    teacher: str,
    beacon: str | None = None,
    pool: Pool | None = None,
) -> TransferLock:
    """Number a comparison and return the lock of its fresh prompts.

    Args:
        log: the log in which the sample was registered.
        method, sample: the locks.
        items: the m prompts drawn with `transfer_seed` (iid design) or `draw_unseen` (finite pool), in order.
        student: SHA-256 of the message.
        teacher: digest of the teacher's weights.
        beacon: a public random number dated after both were hashed, if there is one.
        pool: the pool, if the design is a finite one.

    Raises:
        LockError: the method declares no transfer or fewer comparisons, the prompts are not as many or others than
            the seed draws from the pool, or the log is damaged.
        OSError: the log cannot be written.
    """
    locked = lock_items(items)

    def lock(number: int, previous: str | None) -> TransferLock:
        made = TransferLock(
            method=method.digest,
            sample=sample.digest,
            student=student,
            teacher=teacher,
            beacon=beacon,
            seed=transfer_seed(method.digest, sample.digest, student, teacher, beacon),
            number=number,
            previous=previous,
            items=locked,
        )
        made.check(method, sample, pool)
        return made

    if method.purpose == "development":
        return lock(0, None)
    claim = digest(["prlvr/1", "comparisons", method.digest, sample.digest])
    return log.number(claim, derive("comparison", student, teacher), beacon, lock)


@dataclass(frozen=True, slots=True)
class Disagreement:
    """On how many of the fresh prompts two policies differ; what cannot be compared differs.

    Attributes:
        differing: prompts with another verifier input or another typed outcome, and those of the next line.
        incomparable: of these, the prompts on which an outcome is missing or may be the machine's fault.
        compared: m, all fresh prompts.
    """

    differing: int
    incomparable: int
    compared: int


def disagreement(evidence: Evidence, lock: TransferLock, policy: str) -> Disagreement:
    """Compare the teacher with the student on the fresh prompts.

    Args:
        evidence: rows of the split "fresh" of the policies "coded" and ``policy``, belonging to the transfer lock.
        lock: the transfer lock.
        policy: name of the teacher.

    Raises:
        EvidenceError: the rows belong to another lock or other policies, or are not the lock's prompts.
    """
    if evidence.sample_lock != lock.digest:
        raise EvidenceError(
            f"the comparison belongs to transfer lock {evidence.sample_lock[:12]}…, "
            f"the transfer lock at hand is {lock.digest[:12]}…"
        )
    for name, expected in (("coded", lock.student), (policy, lock.teacher)):
        if evidence.policies.get(name) != expected:
            raise EvidenceError(f"the comparison has no policy {name!r} with the digest in the transfer lock")
    students, teachers = (_by_prompt(evidence.part(name, "fresh"), lock.items) for name in ("coded", policy))
    differing = incomparable = 0
    for student, teacher in zip(students, teachers, strict=True):
        if student is None or teacher is None or {student.reason, teacher.reason} & INFRASTRUCTURE_REASONS:
            incomparable += 1
        elif (student.completion, student.reason, student.correct) != (
            teacher.completion,
            teacher.reason,
            teacher.correct,
        ):
            differing += 1
    return Disagreement(differing=differing + incomparable, incomparable=incomparable, compared=len(lock.items))


def _by_prompt(rows: Sequence[Outcome], items: Sequence[LockedItem]) -> list[Outcome | None]:
    found: list[Outcome | None] = [None] * len(items)
    for row in rows:
        if row.index >= len(items) or row.draw > 0:
            raise EvidenceError(f"{row.place}: the lock has {len(items)} prompts and one draw")
        item = items[row.index]
        if (row.prompt_digest, row.occurrence) != (item.prompt_digest, item.occurrence):
            raise EvidenceError(f"{row.place}: not the prompt or occurrence of the transfer lock")
        found[row.index] = row
    return found
