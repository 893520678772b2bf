"""The certificate: one small JSON file, assembled from the locks, the message and the evidence and from nothing else.

:func:`build_certificate` counts everything from the files. :func:`verify_certificate` (level V0) does it again from the
files at hand and compares every number, without a model and without torch. What it cannot see from files, such as when
the method was locked, :func:`not_checked_in` lists.

An accuracy certificate may also certify a gain over the base model and a hold-out. Two other kinds have files of their
own: :func:`build_transfer_certificate` for a policy without a message, :func:`build_joint_certificate` for several
domains at once.
"""

from pacbayes.certificate.assembly import build_certificate, decode_message
from pacbayes.certificate.joint import JointCertificate, JointPart, build_joint_certificate
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
from pacbayes.certificate.transfer import (
    Compared,
    Comparison,
    TransferCertificate,
    TransferDigests,
    build_transfer_certificate,
)
from pacbayes.certificate.verification import (
    Check,
    find_file,
    find_part,
    not_checked_in,
    read_joint_certificate,
    read_transfer_certificate,
    verify_certificate,
)
from pacbayes.certificate.wording import not_checked

__all__ = [
    "POLICIES",
    "Accuracy",
    "Attempt",
    "Bound",
    "Certificate",
    "CertificateError",
    "Check",
    "Compared",
    "Comparison",
    "Digests",
    "Engine",
    "Gain",
    "Holdout",
    "JointCertificate",
    "JointPart",
    "Message",
    "ModelName",
    "Noise",
    "Novelty",
    "PolicyResult",
    "PoolShown",
    "TransferCertificate",
    "TransferDigests",
    "build_certificate",
    "build_joint_certificate",
    "build_transfer_certificate",
    "decode_message",
    "find_file",
    "find_part",
    "not_checked",
    "not_checked_in",
    "read_certificate",
    "read_joint_certificate",
    "read_transfer_certificate",
    "verify_certificate",
    "write_certificate",
]
