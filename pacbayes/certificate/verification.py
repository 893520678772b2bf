"""Level V0: a certificate recomputed from its files, without a model and without torch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pacbayes.canonical import CanonicalError, digest
from pacbayes.certificate.assembly import assemble, check_sample, decode_message
from pacbayes.certificate.schema import POLICIES, CertificateError, read_bytes, read_certificate
from pacbayes.evidence import EvidenceError, parse_evidence
from pacbayes.ledger import LedgerError
from pacbayes.pool import Pool
from pacbayes.sample import FinitePool, LockError, MethodLock, SampleLock, parse_lock
from pacbayes.schema import first_difference


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: its name, whether it held, and a sentence that says what was found."""

    name: str
    ok: bool
    detail: str


def find_file(certificate_path: str | os.PathLike[str], domain: str, name: str) -> Path:
    """Where a file of a certificate lies: beside it, in a folder named as it is, or in ``../<domain>/``.

    Raises:
        CertificateError: it is in none of them.
    """
    path = Path(certificate_path)
    places = (path.parent, path.with_suffix(""), path.parent.parent / domain)
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
        shown = read_certificate(path)
    checks.compare("certificate", None, f"{path.name} has the schema {shown.schema_}")
    with checks.step("method lock"):
        data = read_bytes(find_file(path, shown.domain, "method.lock.json"))
        method = parse_lock(data, MethodLock, name="method.lock.json")
    _compare_digest(checks, "method lock", "method.lock.json", method.digest, shown.digests.method_lock)
    with checks.step("sample lock"):
        data = read_bytes(find_file(path, shown.domain, "sample.lock.json"))
        sample = parse_lock(data, SampleLock, name="sample.lock.json")
        pool = None
        if isinstance(method.design, FinitePool):
            pool = parse_lock(read_bytes(find_file(path, shown.domain, "pool.json")), Pool, name="pool.json")
        check_sample(method, sample, pool)
    _compare_digest(checks, "sample lock", "sample.lock.json", sample.digest, shown.digests.sample_lock)
    with checks.step("message"):
        message = read_bytes(find_file(path, shown.domain, "message.bin"))
        decode_message(method, message)
    _compare_digest(checks, "message", "message.bin", digest(message), shown.digests.message)
    with checks.step("evidence"):
        data = read_bytes(find_file(path, shown.domain, "evidence.parquet"))
        rows = parse_evidence(data, name="evidence.parquet")
    _compare_digest(checks, "evidence", "evidence.parquet", digest(data), shown.digests.evidence)
    with checks.step("recount"):
        found = assemble(method, sample, message, rows, digest(data), shown.digests.policy, shown.engine, shown.stages)
    if shown.bound.certified_accuracy > found.bound.certified_accuracy:
        excess: str | None = (
            f"the certificate claims an accuracy of {shown.bound.certified_accuracy}, "
            f"the files support at most {found.bound.certified_accuracy}"
        )
    else:
        excess = None
    checks.compare("claim", excess, f"the files support an accuracy of {found.bound.certified_accuracy}")
    certificate, recomputed = shown.to_json(), found.to_json()
    for name, (keys, detail) in _GROUPS.items():
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


def _compare_digest(checks: _Checks, name: str, file: str, found: str, shown: str) -> None:
    difference = f"{file} has the digest {found}, the certificate says {shown}" if found != shown else None
    checks.compare(name, difference, f"{file} has the digest {found[:16]}…")
