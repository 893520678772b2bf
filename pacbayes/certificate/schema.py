"""The certificate as JSON: its schema, reading and writing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import pydantic
from pydantic import Field, JsonValue

from pacbayes.canonical import CanonicalError, parse_json, write_atomic
from pacbayes.ledger import BitLedger, DeltaLedger
from pacbayes.schema import FileName, Frozen, HexDigest, Name, Text, one_line

POLICIES: Final = ("coded", "base", "lora", "distilled", "tinylora")
"""Names of policies in the evidence that a certificate shows; ``coded`` is the one that it is about."""
_MAXIMUM_FILE: Final = 1 << 30


class CertificateError(ValueError):
    """A certificate cannot be assembled or read; the message is one sentence."""


class ModelName(Frozen):
    """The base model: the name people know it by and the digest of its weights."""

    name: Name
    digest: HexDigest


class Accuracy(Frozen):
    """Right completions among n prompts: a measurement, not a bound."""

    accuracy: Annotated[float, Field(ge=0, le=1)]
    correct: Annotated[int, Field(ge=0)]
    n: Annotated[int, Field(ge=1)]


class PolicyResult(Accuracy):
    """A policy on the sample, and on the held-out prompts where there are any."""

    heldout: Accuracy | None


class Bound(Frozen):
    """The bound, what went into it, and the certified accuracy: a fraction, rounded down to six decimals.

    ``losses`` counts completions and ``n`` prompts; they are as many unless there are several draws per prompt.
    """

    name: Name
    losses: Annotated[int, Field(ge=0)]
    n: Annotated[int, Field(ge=1)]
    certified_accuracy: Annotated[float, Field(ge=0, le=1)]


class Holdout(Frozen):
    """What the held-out prompts say by themselves: Clopper-Pearson at the certificate's confidence, not jointly.

    ``equivalent_n`` is the number of held-out prompts, at the accuracy measured on them, that would have certified what
    the certificate does; absent if there is none.
    """

    certified_accuracy: Annotated[float, Field(ge=0, le=1)]
    n: Annotated[int, Field(ge=1)]
    equivalent_n: Annotated[int, Field(ge=1)] | None


class Gain(Frozen):
    """Certified improvement over the base model under the same noise, in fractions, rounded down; may be negative.

    ``certified`` is the larger of ``marginal`` (two bounds on accuracies) and ``paired`` (a bet on the differences);
    the shares of δ of both are spent. ``won`` prompts only the coded policy answered right, ``lost`` only the base,
    ``both`` both; what may have failed for reasons of the machine counts as right for the base.
    """

    certified: Annotated[float, Field(ge=-1, le=1)]
    marginal: Annotated[float, Field(ge=-1, le=1)]
    paired: Annotated[float, Field(ge=-1, le=1)]
    won: Annotated[int, Field(ge=0)]
    lost: Annotated[int, Field(ge=0)]
    both: Annotated[int, Field(ge=0)]
    n: Annotated[int, Field(ge=1)]


class PoolShown(Frozen):
    """The finite pool that the prompts were drawn from: its size and the digest of pool.json."""

    size: Annotated[int, Field(ge=1)]
    digest: HexDigest


class Message(Frozen):
    """The shipped bytes and what they decode to.

    ``bits`` is their length, at least the two policy lines of the ledger.
    """

    hex: Annotated[str, Field(pattern=r"^([0-9a-f]{2})*$")]
    bits: Annotated[int, Field(ge=0)]
    entry: Name
    integers: Annotated[tuple[int, ...], Field(strict=False)]


class Attempt(Frozen):
    """Which sample for this claim it was (0: a development run, not counted) and the digest of the one before."""

    number: Annotated[int, Field(ge=0)]
    previous: HexDigest | None


class Noise(Frozen):
    """How the noise was drawn: specification, public random number (if any), and the roots that follow."""

    specification: Text
    beacon: Name | None
    root: HexDigest
    heldout_root: HexDigest


class Novelty(Frozen):
    """How many of the held-out prompts stand in the sample, and how many prompts of the sample repeat another."""

    heldout_in_sample: Annotated[int, Field(ge=0)]
    heldout: Annotated[int, Field(ge=0)]
    repeats_in_sample: Annotated[int, Field(ge=0)]


class Digests(Frozen):
    """SHA-256 of the files, of the prior artifact (A, B, P of the menu entry) and of the decoded policy's weights."""

    method_lock: HexDigest
    sample_lock: HexDigest
    message: HexDigest
    evidence: HexDigest
    prior_artifact: HexDigest
    policy: HexDigest


class Engine(Frozen):
    """What generated the completions; name, dtype and batch size are locked, device and versions are reported."""

    name: Name
    dtype: Name
    batch_size: Annotated[int, Field(ge=1)]
    device: Name
    versions: dict[str, str]


class Certificate(Frozen):
    """An accuracy certificate.

    Every field but ``stages``, ``engine`` and ``digests.policy`` follows from the four files.
    """

    schema_: Annotated[Literal["prlvr/certificate/1"], Field(alias="schema")]
    kind: Literal["accuracy"]
    purpose: Literal["certificate", "development"]
    model: ModelName
    domain: FileName
    population: Name
    design: Literal["iid", "finite_pool"]
    pool: PoolShown | None = None
    n: Annotated[int, Field(ge=1)]
    draws: Annotated[int, Field(ge=1)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    statement: Text
    bits: BitLedger
    deltas: DeltaLedger
    bound: Bound
    coded: PolicyResult
    base: PolicyResult | None = None
    lora: PolicyResult | None = None
    distilled: PolicyResult | None = None
    tinylora: PolicyResult | None = None
    gain: Gain | None = None
    holdout: Holdout | None = None
    message: Message
    stages: Annotated[tuple[dict[str, JsonValue], ...], Field(strict=False)]
    attempt: Attempt
    noise: Noise
    novelty: Novelty
    digests: Digests
    engine: Engine
    assumptions: Annotated[tuple[Text, ...], Field(strict=False)]

    def to_json(self) -> dict[str, Any]:
        """The JSON object; what is not there (a policy not evaluated, a pool, gain or hold-out) is left out."""
        return {key: value for key, value in super().to_json().items() if value is not None}


AnyCertificate = TypeVar("AnyCertificate", bound=Frozen)


def write_certificate(path: str | os.PathLike[str], certificate: Frozen) -> None:
    """Write a certificate of any kind as indented JSON. Raises OSError as writing does."""
    text = json.dumps(certificate.to_json(), indent=2, ensure_ascii=False, allow_nan=False)
    write_atomic(path, text.encode() + b"\n")


def read_certificate(path: str | os.PathLike[str]) -> Certificate:
    """Read an accuracy certificate of any origin; nothing in it is checked against anything but the schema.

    Raises:
        CertificateError: missing, unreadable or not of the schema; one line.
    """
    return read_as(path, Certificate)


def read_as(path: str | os.PathLike[str], kind: type[AnyCertificate]) -> AnyCertificate:
    """Read a certificate of one kind. Raises CertificateError as `read_certificate`."""
    path = Path(path)
    data = read_bytes(path)
    try:
        parse_json(data)
        return kind.model_validate_json(data)
    except CanonicalError as error:
        raise CertificateError(f"{path.name}: {error}") from error
    except pydantic.ValidationError as error:
        raise CertificateError(f"{path.name} is no valid certificate: {one_line(error)}") from error


def read_bytes(path: Path) -> bytes:
    """A file of any origin that is not too large to be what it should be. Raises CertificateError in one line."""
    try:
        if path.exists() and not path.is_file():  # a pipe or a device might never end
            raise CertificateError(f"{path.name} is not a file")
        if path.stat().st_size > _MAXIMUM_FILE:
            raise CertificateError(f"{path.name} is larger than {_MAXIMUM_FILE} bytes")
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(f"{path.name} cannot be read: {error.strerror or error}") from error
