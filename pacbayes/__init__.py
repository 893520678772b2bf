"""PAC-Bayes certificates: bounds, codes, locks and evidence.

    >>> import pacbayes
    >>> round(pacbayes.certified_accuracy(losses=200, n=1000, bits=208, delta=0.05), 4)
    0.5436

A name's module is imported when the name is first used, so that `import pacbayes` costs nothing; none imports torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pacbayes.bounds import (
        certified_accuracy,
        certified_gain,
        certified_mean_accuracy,
        certified_pool_accuracy,
        holdout_accuracy,
        joint_accuracies,
        required_accuracy,
        required_bits,
        required_n,
        transfer_accuracy,
        transfer_pool_accuracy,
    )
    from pacbayes.canonical import canonical_json, digest
    from pacbayes.certificate import Certificate, build_certificate, read_certificate, verify_certificate
    from pacbayes.codes import Code, Menu, MenuEntry, parse_code
    from pacbayes.evidence import Evidence, Outcome, read_evidence, write_evidence
    from pacbayes.gumbel import sample_tokens
    from pacbayes.ledger import BitLedger, DeltaLedger
    from pacbayes.sample import AttemptLog, MethodLock, SampleLock

__all__ = [
    "AttemptLog",
    "BitLedger",
    "Certificate",
    "Code",
    "DeltaLedger",
    "Evidence",
    "Menu",
    "MenuEntry",
    "MethodLock",
    "Outcome",
    "SampleLock",
    "build_certificate",
    "canonical_json",
    "certified_accuracy",
    "certified_gain",
    "certified_mean_accuracy",
    "certified_pool_accuracy",
    "digest",
    "holdout_accuracy",
    "joint_accuracies",
    "parse_code",
    "read_certificate",
    "read_evidence",
    "required_accuracy",
    "required_bits",
    "required_n",
    "sample_tokens",
    "transfer_accuracy",
    "transfer_pool_accuracy",
    "verify_certificate",
    "write_evidence",
]

_MODULES = ("bounds", "codes", "ledger", "gumbel", "sample", "evidence", "certificate", "canonical")


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in (import_module(f"pacbayes.{module}") for module in _MODULES):
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module 'pacbayes' has no attribute {name!r}")
