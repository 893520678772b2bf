"""What all levels work with: a certificate with its files, and what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from domains.base import Domain, Item
from pacbayes.certificate import Certificate, find_file, read_certificate
from pacbayes.evidence import Evidence, Outcome, read_evidence
from pacbayes.sample import MethodLock, SampleLock, read_lock

Number = int | float | str | bool | list[int] | None
Progress = Callable[[str, int, int], None]
"""Told what is being worked on, how much of it is done, and how much there is."""


@dataclass(frozen=True)
class Finding:
    """One thing that a level looked at: whether it held, a sentence for people, and the numbers in it for programs."""

    level: int
    name: str
    ok: bool
    detail: str
    measured: Mapping[str, Number] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """What a checker may choose.

    Attributes:
        data_dir: folder of local datasets (V1).
        prompts: completions to generate again (V2).
        seed: which of them; None draws a seed from the operating system (V2).
        delta: probability with which the limit on flips may fail (V2).
        max_flips: fraction of those generated again that may come out wrong (V2).
        base: name or folder of the base model, where the lock's name is not known here (V2).
        run: folder of the run whose configuration is repeated; None looks beside the certificate (V3).
        workers: Ray workers that generate (V2); None: this process does.
    """

    data_dir: Path | None = None
    prompts: int = 200
    seed: str | None = None
    delta: float = 0.01
    max_flips: float = 0.01
    base: str | None = None
    run: Path | None = None
    workers: int | None = None


@dataclass(frozen=True)
class Case:
    """A certificate with its files, found consistent at V0."""

    path: Path
    certificate: Certificate
    method: MethodLock
    sample: SampleLock
    message: bytes
    evidence: Evidence

    def find(self, name: str) -> Path:
        """A file of the certificate. Raises CertificateError if it is not there."""
        return find_file(self.path, self.certificate.domain, name)

    def place(self, outcome: Outcome) -> str:
        """Which completion it is, for sentences; the draw is named where there are several."""
        draw = f", draw {outcome.draw}" if self.method.draws > 1 else ""
        return f"{outcome.split} prompt {outcome.index}{draw}"


@dataclass(frozen=True)
class Questions:
    """The domain at the locked version, and the prompts with golds that the locked seed draws, by split."""

    domain: Domain
    items: Mapping[str, list[Item]]


def read_case(path: Path) -> Case:
    """Read an accuracy certificate and its files. Raises CertificateError, LockError or EvidenceError."""
    certificate = read_certificate(path)

    def find(name: str) -> Path:
        return find_file(path, certificate.domain, name)

    return Case(
        path=path,
        certificate=certificate,
        method=read_lock(find("method.lock.json"), MethodLock),
        sample=read_lock(find("sample.lock.json"), SampleLock),
        message=find("message.bin").read_bytes(),
        evidence=read_evidence(find("evidence.parquet")),
    )
