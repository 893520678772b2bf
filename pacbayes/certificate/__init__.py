"""The certificate: one small JSON file, assembled from the locks, the message and the evidence and from nothing else.

:func:`build_certificate` counts everything from the files. :func:`verify_certificate` (level V0) does it again from the
files at hand and compares every number, without a model and without torch. What it cannot see from files, such as when
the method was locked, :func:`not_checked` lists.
"""

from pacbayes.certificate.assembly import build_certificate, decode_message
from pacbayes.certificate.schema import (
    POLICIES,
    Accuracy,
    Attempt,
    Bound,
    Certificate,
    CertificateError,
    Digests,
    Engine,
    Gain,
    Holdout,
    Message,
    ModelName,
    Noise,
    Novelty,
    PolicyResult,
    PoolShown,
    read_certificate,
    write_certificate,
)
from pacbayes.certificate.verification import Check, find_file, verify_certificate
from pacbayes.certificate.wording import not_checked

__all__ = [
    "POLICIES",
    "Accuracy",
    "Attempt",
    "Bound",
    "Certificate",
    "CertificateError",
    "Check",
    "Digests",
    "Engine",
    "Gain",
    "Holdout",
    "Message",
    "ModelName",
    "Noise",
    "Novelty",
    "PolicyResult",
    "PoolShown",
    "build_certificate",
    "decode_message",
    "find_file",
    "not_checked",
    "read_certificate",
    "verify_certificate",
    "write_certificate",
]
