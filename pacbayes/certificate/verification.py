"""Level V0: a certificate recomputed from its files, without a model and without torch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pacbayes.canonical import CanonicalError, digest, parse_json
from pacbayes.certificate.assembly import assemble, check_sample, decode_message
from pacbayes.certificate.joint import JointCertificate, build_joint_certificate, joint_not_checked
from pacbayes.certificate.schema import (
    POLICIES,
    CertificateError,
    Digests,
    read_as,
    read_bytes,
    read_certificate,
)
from pacbayes.certificate.transfer import (
    TransferCertificate,
    TransferDigests,
    assemble_transfer,
    transfer_not_checked,
)
from pacbayes.certificate.wording import not_checked
from pacbayes.evidence import Evidence, EvidenceError, parse_evidence
from pacbayes.ledger import LedgerError
from pacbayes.pool import Pool
from pacbayes.sample import FinitePool, LockError, MethodLock, SampleLock, parse_lock
from pacbayes.schema import Frozen, first_difference
from pacbayes.transfer import TransferLock

JOINT_SCHEMA: Final = "prlvr/joint-certificate/1"
TRANSFER_SCHEMA: Final = "prlvr/transfer-certificate/1"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: its name, whether it held, and a sentence that says what was found."""

    name: str
    ok: bool
    detail: str


def find_file(certificate_path: str | os.PathLike[str], domain: str, name: str) -> Path:
    """Where a file of a certificate lies: beside it, in a folder named as it is, in ``<domain>/`` (what several
    certificates share, such as locks), or in ``../<domain>/``.

    Raises:
        CertificateError: it is in none of them.
    """
    path = Path(certificate_path)
    places = (path.parent, path.with_suffix(""), path.parent / domain, path.parent.parent / domain)
    for folder in places:
        if (folder / name).is_file():
            return folder / name
    raise CertificateError(f"{name} is missing: looked in {', '.join(str(folder) for folder in places)}")


def verify_certificate(path: str | os.PathLike[str]) -> list[Check]:
    """Recompute a certificate from its files, without a model (level V0).

    The certificate holds if every check does. This proves the arithmetic, not the origin of the files: see
    :func:`not_checked`. Never raises for what the files contain.
    """
    checks = _Checks()
    with suppress(_StopError):
        _verify(Path(path), checks)
    return checks.done


class _StopError(Exception):
    """What comes next cannot be checked."""


class _Checks:
    """The checks so far."""

    def __init__(self) -> None:
        self.done: list[Check] = []

    def compare(self, name: str, difference: str | None, detail: str) -> None:
        """One check that fails with the difference, if there is one."""
        self.done.append(Check(name, difference is None, difference or detail))

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Work without which nothing further can be checked: an exception is a failed check, and the last."""
        try:
            yield
        except (CertificateError, LockError, EvidenceError, LedgerError, CanonicalError) as error:
            self.done.append(Check(name, False, " ".join(str(error).split())))
        except Exception as error:  # files of any origin: what nobody foresaw is a failed check too, not a traceback
            text = " ".join(str(error).split())[:200]
            self.done.append(Check(name, False, f"cannot be checked: {type(error).__name__}: {text}"))
        else:
            return
        raise _StopError


def _verify(path: Path, checks: _Checks) -> None:
    with checks.step("certificate"):
        schema = schema_of(path)
    if schema == JOINT_SCHEMA:
        _verify_joint(path, checks)
    elif schema == TRANSFER_SCHEMA:
        _verify_transfer(path, checks)
    else:
        _verify_accuracy(path, checks)


def schema_of(path: Path) -> str | None:
    """What the file says it is; None if that is not a text, which the accuracy certificate's schema then refuses."""
    match parse_json(read_bytes(path)):
        case {"schema": str(schema)}:
            return schema
    return None


@dataclass(frozen=True, slots=True)
class _Files:
    """The files that certificates about one sample have in common, checked to belong together."""

    method: MethodLock
    sample: SampleLock
    pool: Pool | None
    message: bytes
    evidence: Evidence
    evidence_digest: str


def _read_files(path: Path, domain: str, digests: Digests | TransferDigests, checks: _Checks) -> _Files:
    with checks.step("method lock"):
        data = read_bytes(find_file(path, domain, "method.lock.json"))
        method = parse_lock(data, MethodLock, name="method.lock.json")
    _compare_digest(checks, "method lock", "method.lock.json", method.digest, digests.method_lock)
    with checks.step("sample lock"):
        data = read_bytes(find_file(path, domain, "sample.lock.json"))
        sample = parse_lock(data, SampleLock, name="sample.lock.json")
        pool = None
        if isinstance(method.design, FinitePool):
            pool = parse_lock(read_bytes(find_file(path, domain, "pool.json")), Pool, name="pool.json")
        check_sample(method, sample, pool)
    _compare_digest(checks, "sample lock", "sample.lock.json", sample.digest, digests.sample_lock)
    with checks.step("message"):
        message = read_bytes(find_file(path, domain, "message.bin"))
        decode_message(method, message)
    _compare_digest(checks, "message", "message.bin", digest(message), digests.message)
    with checks.step("evidence"):
        data = read_bytes(find_file(path, domain, "evidence.parquet"))
        rows = parse_evidence(data, name="evidence.parquet")
    _compare_digest(checks, "evidence", "evidence.parquet", digest(data), digests.evidence)
    return _Files(method, sample, pool, message, rows, digest(data))


def _verify_accuracy(path: Path, checks: _Checks) -> None:
    with checks.step("certificate"):
        shown = read_certificate(path)
    checks.compare("certificate", None, f"{path.name} has the schema {shown.schema_}")
    files = _read_files(path, shown.domain, shown.digests, checks)
    with checks.step("recount"):
        found = assemble(
            files.method,
            files.sample,
            files.message,
            files.evidence,
            files.evidence_digest,
            shown.digests.policy,
            shown.engine,
            shown.stages,
        )
    _compare_claims(checks, shown.bound.certified_accuracy, found.bound.certified_accuracy)
    _compare_groups(checks, shown, found, _GROUPS)


def _verify_transfer(path: Path, checks: _Checks) -> None:
    with checks.step("certificate"):
        shown = read_transfer_certificate(path)
    checks.compare("certificate", None, f"{path.name} has the schema {shown.schema_}")
    files = _read_files(path, shown.domain, shown.digests, checks)
    with checks.step("transfer lock"):
        data = read_bytes(find_file(path, shown.domain, "transfer.lock.json"))
        lock = parse_lock(data, TransferLock, name="transfer.lock.json")
        lock.check(files.method, files.sample, files.pool)
    _compare_digest(checks, "transfer lock", "transfer.lock.json", lock.digest, shown.digests.transfer_lock)
    with checks.step("comparison"):
        data = read_bytes(find_file(path, shown.domain, "comparison.parquet"))
        compared = parse_evidence(data, name="comparison.parquet")
    _compare_digest(checks, "comparison", "comparison.parquet", digest(data), shown.digests.comparison)
    with checks.step("recount"):
        found = assemble_transfer(
            files.method,
            files.sample,
            lock,
            files.message,
            files.evidence,
            compared,
            files.evidence_digest,
            digest(data),
            shown.engine,
        )
    _compare_claims(checks, shown.certified_accuracy, found.certified_accuracy)
    _compare_groups(checks, shown, found, _TRANSFER_GROUPS)


def _verify_joint(path: Path, checks: _Checks) -> None:
    with checks.step("certificate"):
        shown = read_joint_certificate(path)
    checks.compare("certificate", None, f"{path.name} has the schema {shown.schema_}")
    parts = []
    for part in shown.domains:
        with checks.step(f"certificate of {part.domain}"):
            file = find_part(path, part.domain)
        own = _Checks()
        with suppress(_StopError):
            _verify_accuracy(file, own)  # and nothing else: a joint certificate is no part of one, not even of itself
        failed = next((check for check in own.done if not check.ok), None)
        with checks.step(f"certificate of {part.domain}"):
            if failed is not None:
                raise CertificateError(f"{failed.name}: {failed.detail}")
            certificate = read_certificate(file)
            data = read_bytes(find_file(file, certificate.domain, "method.lock.json"))
            parts.append((certificate, parse_lock(data, MethodLock, name="method.lock.json")))
        checks.compare(f"certificate of {part.domain}", None, f"all {len(own.done)} checks of {file.name} hold")
    with checks.step("recount"):
        found = build_joint_certificate(parts)
    _compare_groups(checks, shown, found, _JOINT_GROUPS)


def find_part(joint_path: str | os.PathLike[str], domain: str) -> Path:
    """Where the certificate of one domain of a joint certificate lies: in the folder of that name beside it, or as a
    file of that name beside it or in ``certificates/``.

    Raises:
        CertificateError: it is in none of them.
    """
    folder = Path(joint_path).parent
    places = (
        folder / domain / "certificate.json",
        folder / f"{domain}.json",
        folder / "certificates" / f"{domain}.json",
    )
    for place in places:
        if place.is_file():
            return place
    raise CertificateError(
        f"the certificate of {domain} is missing: looked for {', '.join(str(place) for place in places)}"
    )


def not_checked_in(path: str | os.PathLike[str], level: int = 0) -> list[str]:
    """What a verification up to `level` cannot see of the certificate in this file, of whatever kind.

    For the kinds that are made of others the level is that of their parts.

    Raises:
        CertificateError, CanonicalError: the file is no certificate.
    """
    match schema_of(Path(path)):
        case str(schema) if schema == JOINT_SCHEMA:
            return joint_not_checked(read_joint_certificate(path))
        case str(schema) if schema == TRANSFER_SCHEMA:
            return transfer_not_checked(read_transfer_certificate(path))
    return not_checked(read_certificate(path), level)


def read_transfer_certificate(path: str | os.PathLike[str]) -> TransferCertificate:
    """Read a transfer certificate of any origin; only the schema is checked. Raises CertificateError in one line."""
    return read_as(path, TransferCertificate)


def read_joint_certificate(path: str | os.PathLike[str]) -> JointCertificate:
    """Read a joint certificate of any origin; only the schema is checked. Raises CertificateError in one line."""
    return read_as(path, JointCertificate)


def _compare_claims(checks: _Checks, claimed: float, supported: float) -> None:
    excess = None
    if claimed > supported:
        excess = f"the certificate claims an accuracy of {claimed}, the files support at most {supported}"
    checks.compare("claim", excess, f"the files support an accuracy of {supported}")


def _compare_groups(
    checks: _Checks, shown: Frozen, found: Frozen, groups: Mapping[str, tuple[tuple[str, ...], str]]
) -> None:
    certificate, recomputed = shown.to_json(), found.to_json()
    for name, (keys, detail) in groups.items():
        difference = first_difference(
            {key: certificate.get(key) for key in keys},
            {key: recomputed.get(key) for key in keys},
            was="is",
            now="in the certificate, the files give",
        )
        checks.compare(name, difference, detail)


_GROUPS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "bits": (("bits",), "every line follows from the message and the locks, and they add up"),
    "delta": (("delta", "deltas"), "every line is as locked, and they add up"),
    "bound": (("bound", "n", "draws"), "recomputed from the losses, the bits and delta"),
    "gain": (("gain",), "recomputed from the pairs of outcomes under the same noise, if the lock claims one"),
    "accuracies": ((*POLICIES, "holdout"), "recounted from the evidence, missing outcomes as wrong"),
    "decoded message": (("message",), "entry and integers are what the bytes decode to"),
    "attempt": (("attempt",), "number and predecessor are those of the sample lock"),
    "noise": (("noise", "novelty"), "specification and roots follow from both locks"),
    "digests": (("digests",), "those of the files at hand"),
    "words": (
        ("schema", "kind", "purpose", "model", "domain", "population", "design", "pool", "statement", "assumptions"),
        "what the certificate is about, the statement and the assumptions follow from the files",
    ),
    "producer": (("engine", "stages"), "shown as the producer wrote it; engine name, dtype and batch size are locked"),
}


_TRANSFER_GROUPS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "bits": (("bits", "comparison_bits"), "every line follows from the message and the locks, and they add up"),
    "delta": (("deltas",), "every line is as locked, and they add up"),
    "student": (("student", "n", "draws", "measured"), "recounted and recomputed from the evidence"),
    "disagreement": (("disagreement",), "recounted from the comparison; what cannot be compared differs"),
    "transfer": (("certified_accuracy",), "the student's limit less the disagreement's"),
    "decoded message": (("message",), "entry and integers are what the bytes decode to"),
    "attempt": (("attempt", "comparison"), "numbers and predecessors are those of the locks"),
    "digests": (("digests",), "those of the files at hand"),
    "words": (
        (
            *("schema", "kind", "purpose", "policy", "model", "domain", "population", "design", "pool"),
            *("statement", "assumptions"),
        ),
        "what the certificate is about, the statement and the assumptions follow from the files",
    ),
    "producer": (("engine",), "shown as the producer wrote it; engine name, dtype and batch size are locked"),
}

_JOINT_GROUPS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "delta": (("delta", "deltas"), "every domain's share is as locked, and they add up"),
    "domains": (("domains",), "what each domain's certificate says"),
    "words": (
        ("schema", "kind", "statement", "assumptions"),
        "the statement and the assumptions follow from the files",
    ),
}


def _compare_digest(checks: _Checks, name: str, file: str, found: str, shown: str) -> None:
    difference = f"{file} has the digest {found}, the certificate says {shown}" if found != shown else None
    checks.compare(name, difference, f"{file} has the digest {found[:16]}…")
