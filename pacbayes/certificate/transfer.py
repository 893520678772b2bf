"""The transfer certificate: the accuracy of a policy without a message, through its disagreement with the student."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Literal

import pydantic
from pydantic import Field

from pacbayes.bounds import certified_pool_accuracy, disagreement_upper
from pacbayes.canonical import digest
from pacbayes.certificate.assembly import (
    ACCURACY_PLACES,
    attempt_bits_of,
    bit_ledger,
    certified,
    check_parts,
    check_sample,
    decode_message,
    pool_shown,
    round_down,
)
from pacbayes.certificate.schema import (
    Accuracy,
    Attempt,
    Bound,
    CertificateError,
    Engine,
    Message,
    ModelName,
    PoolShown,
)
from pacbayes.certificate.wording import (
    common_assumptions,
    confidence_of,
    missing_outcomes,
    percent_down,
    percent_up,
)
from pacbayes.declarations import ACCURACY_SHARE, DISAGREEMENT_SHARE, STUDENT_SHARE, Transfer
from pacbayes.evidence import Evidence, parse_evidence
from pacbayes.ledger import BitLedger, DeltaLedger, bits_of, delta_as_float, round_up
from pacbayes.pool import Pool
from pacbayes.sample import FinitePool, MethodLock, SampleLock
from pacbayes.schema import FileName, Frozen, HexDigest, Name, Text, one_line
from pacbayes.transfer import TransferLock, disagreement


class Compared(Frozen):
    """Teacher and student on the fresh prompts.

    ``differing`` includes the ``incomparable``. ``in_sample`` fresh prompts stand in the sample too: by chance in a
    small population, and suspicious in a large one, where policies agree on what both were trained on. ``upper``
    limits the probability that they differ, rounded up to six decimals.
    """

    differing: Annotated[int, Field(ge=0)]
    incomparable: Annotated[int, Field(ge=0)]
    in_sample: Annotated[int, Field(ge=0)]
    prompts: Annotated[int, Field(ge=1)]
    upper: Annotated[float, Field(ge=0, le=1)]


class Comparison(Frozen):
    """Which comparison under this sample it was (0: a development run), of how many declared, and its randomness."""

    number: Annotated[int, Field(ge=0)]
    declared: Annotated[int, Field(ge=1)]
    previous: HexDigest | None
    beacon: Name | None
    noise_root: HexDigest


class TransferDigests(Frozen):
    """SHA-256 of the files, of the prior artifact and of both policies' weights as they were served."""

    method_lock: HexDigest
    sample_lock: HexDigest
    transfer_lock: HexDigest
    message: HexDigest
    evidence: HexDigest
    comparison: HexDigest
    prior_artifact: HexDigest
    teacher: HexDigest


class TransferCertificate(Frozen):
    """A certificate for a policy that was not coded; all but ``engine`` follows from its six files.

    ``certified_accuracy`` is the student's limit minus the disagreement's, both as printed, and at least 0.
    """

    schema_: Annotated[Literal["prlvr/transfer-certificate/1"], Field(alias="schema")]
    kind: Literal["transfer"]
    purpose: Literal["certificate", "development"]
    policy: Name
    model: ModelName
    domain: FileName
    population: Name
    design: Literal["iid", "finite_pool"]
    pool: PoolShown | None
    n: Annotated[int, Field(ge=1)]
    draws: Annotated[int, Field(ge=1)]
    statement: Text
    certified_accuracy: Annotated[float, Field(ge=0, le=1)]
    student: Bound
    disagreement: Compared
    measured: Accuracy | None
    bits: BitLedger
    comparison_bits: BitLedger
    deltas: DeltaLedger
    message: Message
    attempt: Attempt
    comparison: Comparison
    digests: TransferDigests
    engine: Engine
    assumptions: Annotated[tuple[Text, ...], Field(strict=False)]


def build_transfer_certificate(
    *,
    method: MethodLock,
    sample: SampleLock,
    transfer: TransferLock,
    message: bytes,
    evidence: bytes,
    comparison: bytes,
    engine: Engine,
    pool: Pool | None = None,
) -> TransferCertificate:
    """Assemble the certificate of the teacher that a method lock declares.

    Args:
        method, sample, transfer: the locks.
        message: the student's shipped bytes.
        evidence: the bytes of the evidence file: the student on the sample.
        comparison: the bytes of the evidence file of the fresh prompts: student and teacher.
        engine: what generated the completions of both.
        pool: the pool, if the design is a finite one.

    Raises:
        CertificateError: the parts do not belong together.
    """
    try:
        check_sample(method, sample, pool)
        transfer.check(method, sample, pool)
        rows = parse_evidence(evidence, name="the evidence")
        compared = parse_evidence(comparison, name="the comparison")
        return assemble_transfer(
            method, sample, transfer, message, rows, compared, digest(evidence), digest(comparison), engine
        )
    except CertificateError:
        raise
    except pydantic.ValidationError as error:
        raise CertificateError(one_line(error)) from error
    except ValueError as error:  # LockError, EvidenceError, LedgerError, and the codes' and bounds' own
        raise CertificateError(str(error)) from error


def assemble_transfer(
    method: MethodLock,
    sample: SampleLock,
    lock: TransferLock,
    message: bytes,
    evidence: Evidence,
    comparison: Evidence,
    evidence_digest: str,
    comparison_digest: str,
    engine: Engine,
) -> TransferCertificate:
    """The certificate from parsed files whose locks were checked."""
    check_parts(method, message, evidence, engine)
    declared = method.transfer
    if declared is None:
        raise CertificateError("the method lock declares no transfer")
    if lock.student != digest(message):
        raise CertificateError("the transfer lock is about the student of another message")
    if evidence.policies.get(declared.policy, lock.teacher) != lock.teacher:
        raise CertificateError(f"the policy {declared.policy!r} of the evidence is not the teacher of the comparison")
    index, integers = decode_message(method, message)
    entry = method.menu[index]
    bits = bit_ledger(method, sample, index, integers)
    comparison_bits = _comparison_bits(declared, bits)
    student_share = STUDENT_SHARE if isinstance(method.design, FinitePool) else ACCURACY_SHARE
    why = {
        student_share: "probability, over the draw of prompts and noise, that the student's limit fails",
        DISAGREEMENT_SHARE: "probability, over the draw of the fresh prompts and their noise, that this limit fails",
    }
    deltas = DeltaLedger.of((name, method.share(name), reason) for name, reason in why.items())

    counted = disagreement(comparison, lock, declared.policy)
    delta = delta_as_float(method.share(DISAGREEMENT_SHARE))
    limit = disagreement_upper(counted.differing, counted.compared, bits=comparison_bits.total, delta=delta)
    of_sample = {item.prompt_digest for item in sample.items}
    compared = Compared(
        differing=counted.differing,
        incomparable=counted.incomparable,
        in_sample=sum(item.prompt_digest in of_sample for item in lock.items),
        prompts=counted.compared,
        upper=min(1.0, round_up(limit, ACCURACY_PLACES)),
    )
    rewards = evidence.correct_per_prompt("coded", "sample", sample, draws=method.draws)
    student = Bound(
        name=method.bound,
        losses=method.prompts * method.draws - sum(rewards),
        n=method.prompts,
        certified_accuracy=round_down(_student(method, rewards, bits.total)),
    )
    # Decimals as they are printed, so that a reader with a pencil gets the same difference.
    difference = Decimal(repr(student.certified_accuracy)) - Decimal(repr(compared.upper))
    certified_accuracy = float(max(Decimal(0), difference))
    measured = None
    if evidence.part(declared.policy, "sample"):
        count = evidence.count(declared.policy, "sample", sample, draws=method.draws)
        measured = Accuracy(accuracy=count.accuracy, correct=count.correct, n=count.n * count.draws)
    missing = evidence.count("coded", "sample", sample, draws=method.draws).missing
    return TransferCertificate(
        schema_="prlvr/transfer-certificate/1",
        kind="transfer",
        purpose=method.purpose,
        policy=declared.policy,
        model=ModelName(name=method.claim.base, digest=method.claim.base_digest),
        domain=method.claim.domain,
        population=method.claim.population,
        design=method.design.kind,
        pool=pool_shown(method),
        n=method.prompts,
        draws=method.draws,
        statement=_statement(method, declared, student_share, certified_accuracy, student, compared),
        certified_accuracy=certified_accuracy,
        student=student,
        disagreement=compared,
        measured=measured,
        bits=bits,
        comparison_bits=comparison_bits,
        deltas=deltas,
        message=Message(hex=message.hex(), bits=8 * len(message), entry=entry.name, integers=tuple(integers)),
        attempt=Attempt(number=sample.attempt, previous=sample.previous),
        comparison=Comparison(
            number=lock.number,
            declared=declared.teachers,
            previous=lock.previous,
            beacon=lock.beacon,
            noise_root=lock.noise_root,
        ),
        digests=TransferDigests(
            method_lock=method.digest,
            sample_lock=sample.digest,
            transfer_lock=lock.digest,
            message=digest(message),
            evidence=evidence_digest,
            comparison=comparison_digest,
            prior_artifact=entry.prior_artifact,
            teacher=lock.teacher,
        ),
        engine=engine,
        assumptions=tuple(_assumptions(method, sample, lock, declared, compared, missing)),
    )


def _comparison_bits(declared: Transfer, bits: BitLedger) -> BitLedger:
    """What the disagreement's event pays: the choice among the declared pairs, and earlier samples."""
    return BitLedger.of(
        [
            ("teachers", _bits_of_count(declared.teachers), f"one of at most {declared.teachers} compared pairs"),
            ("attempt", attempt_bits_of(bits), "as in the student's ledger: earlier samples for the claim"),
        ]
    )


def _bits_of_count(count: int) -> float:
    """log2 of a number of equally likely choices, not below the true value."""
    return bits_of(Fraction(1, count))


def _student(method: MethodLock, rewards: list[int], bits: float) -> float:
    """The student's limit. On a pool it is about expected accuracy on the unseen part, whatever the lock's bound."""
    if not isinstance(method.design, FinitePool):
        return certified(method, rewards, bits)
    n, delta = method.prompts, delta_as_float(method.share(STUDENT_SHARE))
    return certified_pool_accuracy(
        n - sum(rewards), n, method.design.pool_size, bits=bits, delta=delta, part="unseen", outcome="expected"
    )


def _statement(
    method: MethodLock,
    declared: Transfer,
    student_share: str,
    certified_accuracy: float,
    student: Bound,
    compared: Compared,
) -> str:
    prompts = f"{method.claim.domain} prompts ({method.claim.population})"
    if isinstance(method.design, FinitePool):
        where = f"of the {method.design.pool_size - method.prompts:,} {prompts} of the pool that were not drawn"
    else:
        where = f"of new {prompts}"
    confidence = confidence_of(method, student_share, DISAGREEMENT_SHARE)
    text = (
        f"With {confidence} % confidence, the policy {declared.policy!r}, which was not compressed, answers at least "
        f"{percent_down(certified_accuracy)} % {where} correctly: its coded student answers at least "
        f"{percent_down(student.certified_accuracy)} % correctly, and the two differ on at most "
        f"{percent_up(compared.upper)} % (they did on {compared.differing:,} of {compared.prompts:,} fresh prompts)."
    )
    return f"Development run, not a certificate: {text}" if method.purpose == "development" else text


def _assumptions(
    method: MethodLock, sample: SampleLock, lock: TransferLock, declared: Transfer, compared: Compared, missing: int
) -> Iterator[str]:
    yield from common_assumptions(method, sample, "unseen", "expected")
    drawn = (
        f"are a uniform subset of the {method.design.pool_size - method.prompts} prompts of the pool that were not "
        "drawn"
        if isinstance(method.design, FinitePool)
        else f"are independent draws from the population {method.claim.population!r}"
    )
    yield (
        f"The {declared.prompts} fresh prompts {drawn}, drawn after teacher and student were fixed, and used for "
        f"nothing else; {compared.in_sample} of them stand in the sample too."
    )
    if lock.beacon is None:
        yield (
            "No public random number went into their draw: this assumes that the producer did not try one teacher or "
            "student after another until the draw was a lucky one."
        )
    else:
        yield f"The beacon {lock.beacon!r} of that draw was published after both policies were hashed."
    if method.purpose == "certificate":
        yield (
            f"This is comparison number {lock.number} of at most {declared.teachers} under this sample; comparisons "
            "that the producer left out of the log are not paid for."
        )
    yield (
        "Two answers are the same if the verifier reads the same text and the typed outcome is the same; what could "
        f"not be compared ({compared.incomparable} prompts) counts as differing."
    )
    yield from missing_outcomes({"coded": missing})


def transfer_not_checked(certificate: TransferCertificate) -> list[str]:
    """What level V0 cannot see from the files of a transfer certificate."""
    return [
        "that the method was locked before the prompts were drawn, and both before the training: the producer says so, "
        "unless the digest of the method lock was publicly time-stamped",
        "that teacher and student were fixed before the fresh prompts were drawn: both digests are in the seed, and "
        "the producer could have tried several",
        f"that attempt number {certificate.attempt.number} and comparison number {certificate.comparison.number} are "
        "the true counts: draws can be left out of the log",
        "that all prompts, and the right answers of the sample, are those that the seeds draw (needs the domain)",
        "that the verdicts are those of the verifier (needs the domain: V1)",
        "that the completions are those of the two policies under the committed noise (needs the models: V2, V3)",
        "that the prior artifact and the teacher's weights have the digests shown, and the device and versions",
        "whatever the assumptions in the certificate say",
    ]
