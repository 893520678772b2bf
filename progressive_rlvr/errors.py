"""The errors that users are meant to read: one line each, without a traceback."""

from __future__ import annotations

from bounds_reports.errors import ReportError
from domains.base import GoldError
from domains.data.rows import DataError
from domains.sandbox import SandboxUnavailableError
from pacbayes.canonical import CanonicalError
from pacbayes.certificate import CertificateError
from pacbayes.codes import CodeError
from pacbayes.evidence import EvidenceError
from pacbayes.sample import LockError


class UserError(Exception):
    """Something outside the program is wrong: says what happened, the value seen, and what to do."""


EXPECTED = (
    UserError,
    LockError,
    EvidenceError,
    CodeError,
    CanonicalError,
    CertificateError,
    ReportError,
    GoldError,
    DataError,
    SandboxUnavailableError,
    OSError,
)
