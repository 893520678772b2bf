"""The joint certificate: several domains' certificates that hold all at once, as their locks declared it.

Certificates read together fail together: twenty of them at 95 % each are all true with a probability of perhaps 36 %.
A joint statement therefore has its own δ, split among the domains *in their locks*: by the union bound it fails with
at most the sum of the shares, whatever the domains have to do with each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from pacbayes.canonical import digest
from pacbayes.certificate.schema import Certificate, CertificateError, ModelName
from pacbayes.certificate.wording import percent_down, plain, where_of
from pacbayes.ledger import DeltaLedger
from pacbayes.sample import LockError, MethodLock
from pacbayes.schema import FileName, Frozen, HexDigest, Name, Text, one_line


class JointPart(Frozen):
    """One domain: its certificate (SHA-256 of the canonical JSON), its locks, and what they certify."""

    domain: FileName
    population: Name
    model: ModelName
    certificate: HexDigest
    method_lock: HexDigest
    sample_lock: HexDigest
    attempt: Annotated[int, Field(ge=1)]
    certified_accuracy: Annotated[float, Field(ge=0, le=1)]
    certified_gain: Annotated[float, Field(ge=-1, le=1)] | None


class JointCertificate(Frozen):
    """A statement over several domains at once; all of it follows from their certificates and method locks."""

    schema_: Annotated[Literal["prlvr/joint-certificate/1"], Field(alias="schema")]
    kind: Literal["joint"]
    delta: Annotated[float, Field(gt=0, lt=1)]
    deltas: DeltaLedger
    statement: Text
    domains: Annotated[tuple[JointPart, ...], Field(strict=False, min_length=2)]
    assumptions: Annotated[tuple[Text, ...], Field(strict=False)]


def build_joint_certificate(parts: Sequence[tuple[Certificate, MethodLock]]) -> JointCertificate:
    """Join certificates whose method locks declare it.

    Args:
        parts: the certificate and the method lock of every domain, in any order. Whether each certificate follows from
            its files is the business of `verify_certificate`, which looks at all of them for a joint one.

    Raises:
        CertificateError: a lock declares no joint statement, the declarations differ, a domain is missing or there
            twice, or a part is a development run: then the certificates hold each, not jointly.
    """
    if not parts:
        raise CertificateError("a joint certificate joins the certificates of at least two domains, got none")
    for shown, method in parts:
        if method.joint is None:
            raise CertificateError(
                f"the lock of {method.claim.domain} declares no joint statement: "
                "these certificates hold each with its own confidence, not jointly"
            )
        if shown.digests.method_lock != method.digest:
            raise CertificateError(f"the certificate of {shown.domain} belongs to another method lock")
        if method.purpose != "certificate" or shown.attempt.number < 1:
            raise CertificateError(f"{method.claim.domain} is a development run, which is no part of a certificate")
    joint = parts[0][1].joint
    assert joint is not None
    for _, method in parts:
        if method.joint != joint:
            raise CertificateError(
                f"the locks of {parts[0][1].claim.domain} and {method.claim.domain} declare different joint statements"
            )
    found = [method.claim.domain for _, method in parts]
    if sorted(found) != sorted(joint.domains):
        raise CertificateError(
            f"the joint statement is about {', '.join(joint.domains)}, once each; the certificates are of "
            f"{', '.join(found)}"
        )
    by_domain = {method.claim.domain: (shown, method) for shown, method in parts}
    ordered = [by_domain[domain] for domain in joint.domains]
    why = "probability that a statement of this domain's certificate fails, as locked"
    try:
        return JointCertificate(
            schema_="prlvr/joint-certificate/1",
            kind="joint",
            delta=float(joint.delta),
            deltas=DeltaLedger.of((share.domain, Decimal(share.delta), why) for share in joint.shares),
            statement=_statement(Decimal(joint.delta), ordered),
            domains=tuple(_part(shown, method) for shown, method in ordered),
            assumptions=_assumptions(ordered),
        )
    except ValidationError as error:
        raise CertificateError(one_line(error)) from error
    except LockError as error:
        raise CertificateError(str(error)) from error


def _part(shown: Certificate, method: MethodLock) -> JointPart:
    return JointPart(
        domain=method.claim.domain,
        population=method.claim.population,
        model=shown.model,
        certificate=digest(shown.to_json()),
        method_lock=method.digest,
        sample_lock=shown.digests.sample_lock,
        attempt=shown.attempt.number,
        certified_accuracy=shown.bound.certified_accuracy,
        certified_gain=shown.gain.certified if shown.gain else None,
    )


def _statement(delta: Decimal, parts: Sequence[tuple[Certificate, MethodLock]]) -> str:
    claims = [
        f"the model tuned for {method.claim.domain} answers at least {percent_down(shown.bound.certified_accuracy)} % "
        f"{where_of(method)} correctly"
        for shown, method in parts
    ]
    return f"With {plain(100 * (1 - delta))} % confidence, all of these hold at once: {'; '.join(claims)}."


def _assumptions(parts: Sequence[tuple[Certificate, MethodLock]]) -> tuple[str, ...]:
    domains = ", ".join(method.claim.domain for _, method in parts)
    return (
        f"All that the certificates of {domains} take for granted, each for its own domain.",
        "The shares of delta add up whatever the domains have in common; no independence is assumed.",
        "All domains that the locks declare are here, the weak ones too: none was left out after its result was known.",
    )


def joint_not_checked(certificate: JointCertificate) -> list[str]:
    """What level V0 cannot see from the files of a joint certificate."""
    return [
        f"for each of {', '.join(part.domain for part in certificate.domains)}: what the checks of its own certificate "
        "leave open",
        "that all method locks were written before the first of the samples was drawn: the producer says so",
    ]
