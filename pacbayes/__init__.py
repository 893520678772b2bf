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
        CertifiedGain,
        JointClaim,
        LabelPlan,
        LearningCurve,
        PairedCounts,
        certified_accuracy,
        certified_gain,
        certified_mean_accuracy,
        certified_pool_accuracy,
        certified_unseen_mean_accuracy,
        flips_upper,
        gain_with_flips,
        holdout_accuracy,
        joint_accuracies,
        plan_labels,
        required_accuracy,
        required_bits,
        required_n,
        transfer_accuracy,
        transfer_pool_accuracy,
    )
    from pacbayes.canonical import canonical_json, digest
    from pacbayes.certificate import (
        Certificate,
        Check,
        Engine,
        JointCertificate,
        TransferCertificate,
        build_certificate,
        build_joint_certificate,
        build_transfer_certificate,
        not_checked_in,
        read_certificate,
        read_joint_certificate,
        read_transfer_certificate,
        verify_certificate,
        write_certificate,
    )
    from pacbayes.codes import Code, Menu, MenuEntry, parse_code
    from pacbayes.declarations import DeltaShare, DomainShare, Joint, PriorData, Transfer
    from pacbayes.evidence import Evidence, Outcome, read_evidence, write_evidence
    from pacbayes.gumbel import prompt_key, sample_tokens
    from pacbayes.ledger import BitLedger, DeltaLedger
    from pacbayes.pool import Pool
    from pacbayes.sample import (
        AttemptLog,
        Claim,
        FinitePool,
        Generation,
        Iid,
        MethodLock,
        ModelDigests,
        PopulationLock,
        Reported,
        SampleLock,
        read_lock,
        write_lock,
    )
    from pacbayes.transfer import TransferLock, register_comparison, transfer_seed

__all__ = [
    "AttemptLog",
    "BitLedger",
    "Certificate",
    "CertifiedGain",
    "Check",
    "Claim",
    "Code",
    "DeltaLedger",
    "DeltaShare",
    "DomainShare",
    "Engine",
    "Evidence",
    "FinitePool",
    "Generation",
    "Iid",
    "Joint",
    "JointCertificate",
    "JointClaim",
    "LabelPlan",
    "LearningCurve",
    "Menu",
    "MenuEntry",
    "MethodLock",
    "ModelDigests",
    "Outcome",
    "PairedCounts",
    "Pool",
    "PopulationLock",
    "PriorData",
    "Reported",
    "SampleLock",
    "Transfer",
    "TransferCertificate",
    "TransferLock",
    "build_certificate",
    "build_joint_certificate",
    "build_transfer_certificate",
    "canonical_json",
    "certified_accuracy",
    "certified_gain",
    "certified_mean_accuracy",
    "certified_pool_accuracy",
    "certified_unseen_mean_accuracy",
    "digest",
    "flips_upper",
    "gain_with_flips",
    "holdout_accuracy",
    "joint_accuracies",
    "not_checked_in",
    "parse_code",
    "plan_labels",
    "prompt_key",
    "read_certificate",
    "read_evidence",
    "read_joint_certificate",
    "read_lock",
    "read_transfer_certificate",
    "register_comparison",
    "required_accuracy",
    "required_bits",
    "required_n",
    "sample_tokens",
    "transfer_accuracy",
    "transfer_pool_accuracy",
    "transfer_seed",
    "verify_certificate",
    "write_certificate",
    "write_evidence",
    "write_lock",
]

# Cheap ones first: a name is looked for in this order.
_MODULES = (
    *("bounds", "canonical", "codes", "ledger", "gumbel", "declarations"),
    *("sample", "pool", "evidence", "transfer", "certificate"),
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in (import_module(f"pacbayes.{module}") for module in _MODULES):
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module 'pacbayes' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
