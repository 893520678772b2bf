"""The certificate: one small JSON file, assembled from the locks, the message and the evidence and from nothing else.

:func:`build_certificate` counts everything from the files. :func:`verify_certificate` (level V0) does it again from the
files at hand and compares every number, without a model and without torch. What it cannot see from files, such as when
the
method was locked, :func:`not_checked` lists.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import pydantic
from pydantic import Field, JsonValue

from pacbayes.bounds import ACCURACY_BOUNDS, certified_accuracy
from pacbayes.canonical import CanonicalError, digest, parse_json, write_atomic
from pacbayes.codes import Menu
from pacbayes.evidence import Evidence, EvidenceError, Split, parse_evidence
from pacbayes.ledger import BitLedger, DeltaLedger, LedgerError, bits_of, delta_as_float
from pacbayes.sample import (
    FinitePool,
    LockError,
    MethodLock,
    SampleLock,
    attempt_weight,
    heldout_noise_root,
    noise_root,
    parse_lock,
)
from pacbayes.schema import FileName, Frozen, HexDigest, Name, Text, first_difference, one_line

POLICIES: Final = ("coded", "base", "lora", "distilled", "tinylora")
"""Names of policies in the evidence that a certificate shows; ``coded`` is the one that it is about."""
SHARE: Final = "accuracy"
"""Name of the share of δ that an accuracy certificate spends."""
ACCURACY_PLACES: Final = 6
_MAXIMUM_FILE: Final = 1 << 30


class CertificateError(ValueError):
    """A certificate cannot be assembled or read; the message is one sentence."""


# --- schema -------------------------------------------------------------------------------------------------


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
    """The bound, what went into it, and the certified accuracy: a fraction, rounded down to six decimals."""

    name: Name
    losses: Annotated[int, Field(ge=0)]
    n: Annotated[int, Field(ge=1)]
    certified_accuracy: Annotated[float, Field(ge=0, le=1)]


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
    """How the noise was drawn, from which public random number (if any), and the two roots that follow from the
    locks.
    """

    specification: Text
    beacon: Name | None
    root: HexDigest
    heldout_root: HexDigest


class Novelty(Frozen):
    """How new fresh prompts are: how many held-out prompts stand in the sample, how many sample prompts repeat
    another.
    """

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
    message: Message
    stages: Annotated[tuple[dict[str, JsonValue], ...], Field(strict=False)]
    attempt: Attempt
    noise: Noise
    novelty: Novelty
    digests: Digests
    engine: Engine
    assumptions: Annotated[tuple[Text, ...], Field(strict=False)]

    def to_json(self) -> dict[str, Any]:
        """The JSON object; policies that were not evaluated are left out."""
        result = super().to_json()
        return {key: value for key, value in result.items() if value is not None or key not in POLICIES}


# --- assembly -----------------------------------------------------------------------------------------------


def build_certificate(
    *,
    method: MethodLock,
    sample: SampleLock,
    message: bytes,
    evidence: bytes,
    policy: str,
    engine: Engine,
    stages: Sequence[Mapping[str, JsonValue]] = (),
) -> Certificate:
    """Assemble the certificate of the policy that a message decodes to.

    Args:
        method, sample: the locks.
        message: the shipped bytes.
        evidence: the bytes of the evidence file.
        policy: digest of the weights that the message decodes to, as they were served.
        engine: what generated the completions.
        stages: a summary of each stage of the training, in order; shown, not used.

    Raises:
        CertificateError: the parts do not belong together, or the message is not the one that its content encodes to.
    """
    try:
        sample.check_method(method)
        rows = parse_evidence(evidence, name="the evidence")
        return _assemble(method, sample, message, rows, digest(evidence), policy, engine, stages)
    except CertificateError:
        raise
    except pydantic.ValidationError as error:
        raise CertificateError(one_line(error)) from error
    except ValueError as error:  # LockError, EvidenceError, LedgerError, and the codes' and bounds' own
        raise CertificateError(str(error)) from error


def _assemble(
    method: MethodLock,
    sample: SampleLock,
    message: bytes,
    evidence: Evidence,
    evidence_digest: str,
    policy: str,
    engine: Engine,
    stages: Sequence[Mapping[str, JsonValue]],
) -> Certificate:
    _check_parts(method, message, evidence, engine)
    index, integers = decode_message(method, message)
    entry = method.menu[index]
    bits = bit_ledger(method, sample, index, integers)
    deltas = delta_ledger(method)
    results = {name: _result(name, method, sample, evidence) for name in POLICIES if name in evidence.policies}
    coded = results["coded"]
    bound = Bound(
        name=method.bound,
        losses=coded.n - coded.correct,
        n=coded.n,
        certified_accuracy=round_down(_certified(method, coded.n - coded.correct, coded.n, bits.total)),
    )
    missing = {name: evidence.count(name, "sample", sample, draws=method.draws).missing for name in results}
    return Certificate(
        schema_="prlvr/certificate/1",
        kind="accuracy",
        purpose=method.purpose,
        model=ModelName(name=method.claim.base, digest=method.claim.base_digest),
        domain=method.claim.domain,
        population=method.claim.population,
        design=method.design.kind,
        n=method.prompts,
        draws=method.draws,
        delta=float(method.delta),
        statement=statement(method, bound, results),
        bits=bits,
        deltas=deltas,
        bound=bound,
        coded=coded,
        base=results.get("base"),
        lora=results.get("lora"),
        distilled=results.get("distilled"),
        tinylora=results.get("tinylora"),
        message=Message(hex=message.hex(), bits=8 * len(message), entry=entry.name, integers=tuple(integers)),
        stages=tuple(dict(stage) for stage in stages),
        attempt=Attempt(number=sample.attempt, previous=sample.previous),
        noise=Noise(
            specification=method.noise,
            beacon=sample.beacon,
            root=noise_root(method.digest, sample.digest, sample.beacon),
            heldout_root=heldout_noise_root(method.digest, sample.digest, sample.beacon),
        ),
        novelty=_novelty(sample),
        digests=Digests(
            method_lock=method.digest,
            sample_lock=sample.digest,
            message=digest(message),
            evidence=evidence_digest,
            prior_artifact=entry.prior_artifact,
            policy=policy,
        ),
        engine=engine,
        assumptions=tuple(assumptions(method, sample, missing)),
    )


def _check_parts(method: MethodLock, message: bytes, evidence: Evidence, engine: Engine) -> None:
    if "coded" not in evidence.policies:
        raise CertificateError("the evidence has no policy 'coded', the one that the message decodes to")
    if evidence.policies["coded"] != digest(message):
        raise CertificateError(
            f"the evidence is about the message {evidence.policies['coded'][:12]}…, "
            f"the message at hand has the digest {digest(message)[:12]}…"
        )
    if evidence.policies.get("base", method.model.weights) != method.model.weights:
        raise CertificateError("the policy 'base' of the evidence is not the base model of the method lock")
    locked = method.generation
    for what, found, expected in (
        ("name", engine.name, locked.engine),
        ("dtype", engine.dtype, locked.dtype),
        ("batch size", engine.batch_size, locked.batch_size),
    ):
        if found != expected:
            raise CertificateError(f"the engine's {what} is {found!r}, the method lock says {expected!r}")


def decode_message(method: MethodLock, message: bytes) -> tuple[int, tuple[int, ...]]:
    """The menu index and the integers that a message stands for.

    Raises:
        CertificateError: the bytes are not exactly what their content encodes to.
    """
    menu = Menu(entries=method.menu)
    index, integers = menu.decode(message)
    if menu.encode(index, integers) != message:
        raise CertificateError("the message is not the encoding of what it decodes to")
    return index, tuple(int(value) for value in integers)


def bit_ledger(method: MethodLock, sample: SampleLock, index: int, integers: Sequence[int]) -> BitLedger:
    """The bits of a policy, line by line, as the method lock declares them.

    Entry and vector together pay -log2 of the policy's whole prior probability: entries that decode to it add up.
    """
    menu, entry = Menu(entries=method.menu), method.menu[index]
    of_entry = menu.entry_bits(index)
    of_vector = max(0.0, menu.mixture_bits(index, integers) - of_entry)
    if sample.attempt == 0:
        of_attempt, why = 0.0, "development run: samples for this claim are not counted"
    else:
        weight = attempt_weight(sample.attempt)
        of_attempt = bits_of(weight)
        why = f"sample number {sample.attempt} for this claim, prior weight {weight}"
    choice = f"entry {entry.name!r} of {len(method.menu)}, prior weight {entry.probability}"
    return BitLedger.of(
        [
            ("menu entry", of_entry, choice),
            ("vector", of_vector, f"{len(integers)} integers under the entry's code"),
            ("attempt", of_attempt, why),
        ]
    ).declare(method.bit_lines)


def delta_ledger(method: MethodLock) -> DeltaLedger:
    """δ by statement, as locked."""
    why = "probability, over the draw of prompts and noise, that this statement fails"
    return DeltaLedger.of((share.name, Decimal(share.value), why) for share in method.delta_shares).declare(
        share.name for share in method.delta_shares
    )


def _share(method: MethodLock) -> Decimal:
    for share in method.delta_shares:
        if share.name == SHARE:
            return Decimal(share.value)
    raise CertificateError(f"the method lock declares no share of delta for {SHARE!r}")


def _certified(method: MethodLock, losses: int, n: int, bits: float) -> float:
    if method.draws != 1:
        raise CertificateError(f"an accuracy certificate takes one draw per prompt, the method lock has {method.draws}")
    if method.bound not in ACCURACY_BOUNDS:
        known = ", ".join(ACCURACY_BOUNDS)
        raise CertificateError(f"the method lock names the bound {method.bound!r}, known are {known}")
    if isinstance(method.design, FinitePool) and losses >= n - 1:
        return 0.0  # drawn without replacement, the binomial bound on expected losses holds for up to n - 2 losses only
    return certified_accuracy(losses, n, bits=bits, delta=delta_as_float(_share(method)), bound=method.bound)


def _result(name: str, method: MethodLock, sample: SampleLock, evidence: Evidence) -> PolicyResult:
    def accuracy(split: Split) -> Accuracy:
        count = evidence.count(name, split, sample, draws=method.draws)
        return Accuracy(accuracy=count.accuracy, correct=count.correct, n=count.n * count.draws)

    heldout = accuracy("heldout") if evidence.part(name, "heldout") else None
    on_sample = accuracy("sample")
    return PolicyResult(accuracy=on_sample.accuracy, correct=on_sample.correct, n=on_sample.n, heldout=heldout)


def _novelty(sample: SampleLock) -> Novelty:
    prompts = {item.prompt_digest for item in sample.items}
    return Novelty(
        heldout_in_sample=sum(item.prompt_digest in prompts for item in sample.heldout),
        heldout=len(sample.heldout),
        repeats_in_sample=len(sample.items) - len(prompts),
    )


def round_down(value: float) -> float:
    """An accuracy rounded down to six decimals, as the double that prints so."""
    return float(Decimal(value).quantize(Decimal(1).scaleb(-ACCURACY_PLACES), rounding=ROUND_FLOOR))


# --- words --------------------------------------------------------------------------------------------------


def statement(method: MethodLock, bound: Bound, results: Mapping[str, PolicyResult]) -> str:
    """The certificate in words for somebody who knows nothing of bounds."""
    confidence = _plain(100 * (1 - _share(method)))
    certified = _plain((100 * Decimal(repr(bound.certified_accuracy))).quantize(Decimal("0.1"), rounding=ROUND_FLOOR))
    where = f"of the pool's {method.design.pool_size:,}" if isinstance(method.design, FinitePool) else "of new"
    base = f", its base model {100 * results['base'].accuracy:.1f} %" if "base" in results else ""
    text = (
        f"With {confidence} % confidence, the tuned model answers at least {certified} % {where} "
        f"{method.claim.domain} prompts ({method.claim.population}) correctly; "
        f"on the {bound.n:,} prompts of its training sample it answered {100 * results['coded'].accuracy:.1f} %{base}."
    )
    if "base" in results and bound.certified_accuracy <= results["base"].accuracy:
        text += " That is not more than was measured of the base model: as a claim of improvement it says nothing."
    if method.purpose == "development":
        text = f"Development run, not a certificate: {text}"
    return text


def assumptions(method: MethodLock, sample: SampleLock, missing: Mapping[str, int]) -> Iterator[str]:
    """What the statement takes for granted, one sentence each.

    Args:
        missing: number of missing evidence rows on the sample, by policy.
    """
    claim, generation = method.claim, method.generation
    if method.purpose == "development":
        yield "Development run: samples for this claim are not counted, so this is no certificate."
    if isinstance(method.design, FinitePool):
        yield (
            f"The {method.prompts} prompts are a uniform subset of a pool of {method.design.pool_size}, fixed, "
            "right answers included, before the draw; the statement is about expected accuracy on that pool only."
        )
    else:
        yield (
            f"The {method.prompts} prompts are independent draws from the population {claim.population!r}, and the "
            "base model, the menu and everything else in the method lock do not depend on them."
        )
    yield (
        "The method was locked before the prompts were drawn, and the prompts before the training: this is what the "
        "producer says, the locks carry no public time stamp."
    )
    if sample.beacon is None:
        yield (
            "No public random number went into the draw of prompts and noise: this assumes that the producer did not "
            "grind, that is, did not try one method after another until the draw was a lucky one."
        )
    else:
        yield f"The beacon {sample.beacon!r} was public, and unpredictable when the method was locked."
    if method.purpose == "certificate":
        yield (
            f"This is sample number {sample.attempt} for this base, domain and population; samples that the producer "
            "drew without entering them in the log of attempts are not paid for."
        )
    yield "SHA-256 and Philox behave as ideal random functions: the confidence is over the key of the noise."
    yield (
        f"A right answer is one that the verifier {claim.domain} {method.verifier} accepts; whether it is true or "
        "useful is another question."
    )
    yield (
        f"The claim is about one completion per prompt, sampled at temperature "
        f"{_plain(Decimal(repr(generation.temperature)))} with at most {generation.max_new_tokens} new tokens by the "
        f"engine {generation.engine} in {generation.dtype} at batch size {generation.batch_size}; elsewhere near-ties "
        "may fall the other way."
    )
    domains = ", ".join(method.reported.domains)
    if method.reported.jointly:
        yield f"Read jointly, the certificates of {domains} fail with at most the sum of their deltas."
    elif len(method.reported.domains) > 1:
        yield f"The certificates of {domains} hold each with its own confidence, not all of them jointly."
    if sample.heldout:
        yield f"The accuracies on the {len(sample.heldout)} held-out prompts are measurements, not bounds."
    for name, count in missing.items():
        if count:
            yield f"{count} of the outcomes of {name!r} on the sample are missing and were counted as wrong."


def _plain(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# --- files and verification (V0) ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: its name, whether it held, and a sentence that says what was found."""

    name: str
    ok: bool
    detail: str


def write_certificate(path: str | os.PathLike[str], certificate: Certificate) -> None:
    """Write a certificate as indented JSON. Raises OSError as writing does."""
    text = json.dumps(certificate.to_json(), indent=2, ensure_ascii=False, allow_nan=False)
    write_atomic(path, text.encode() + b"\n")


def read_certificate(path: str | os.PathLike[str]) -> Certificate:
    """Read a certificate of any origin; nothing in it is checked against anything but the schema.

    Raises:
        CertificateError: missing, unreadable or not of the schema; one line.
    """
    path = Path(path)
    data = _read(path)
    try:
        parse_json(data)
        return Certificate.model_validate_json(data)
    except CanonicalError as error:
        raise CertificateError(f"{path.name}: {error}") from error
    except pydantic.ValidationError as error:
        raise CertificateError(f"{path.name} is no valid certificate: {one_line(error)}") from error


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
        data = _read(find_file(path, shown.domain, "method.lock.json"))
        method = parse_lock(data, MethodLock, name="method.lock.json")
    _compare_digest(checks, "method lock", "method.lock.json", method.digest, shown.digests.method_lock)
    with checks.step("sample lock"):
        data = _read(find_file(path, shown.domain, "sample.lock.json"))
        sample = parse_lock(data, SampleLock, name="sample.lock.json")
        sample.check_method(method)
    _compare_digest(checks, "sample lock", "sample.lock.json", sample.digest, shown.digests.sample_lock)
    with checks.step("message"):
        message = _read(find_file(path, shown.domain, "message.bin"))
        decode_message(method, message)
    _compare_digest(checks, "message", "message.bin", digest(message), shown.digests.message)
    with checks.step("evidence"):
        data = _read(find_file(path, shown.domain, "evidence.parquet"))
        rows = parse_evidence(data, name="evidence.parquet")
    _compare_digest(checks, "evidence", "evidence.parquet", digest(data), shown.digests.evidence)
    with checks.step("recount"):
        found = _assemble(method, sample, message, rows, digest(data), shown.digests.policy, shown.engine, shown.stages)
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
    "accuracies": (POLICIES, "recounted from the evidence, missing outcomes as wrong"),
    "decoded message": (("message",), "entry and integers are what the bytes decode to"),
    "attempt": (("attempt",), "number and predecessor are those of the sample lock"),
    "noise": (("noise", "novelty"), "specification and roots follow from both locks"),
    "digests": (("digests",), "those of the files at hand"),
    "words": (
        ("schema", "kind", "purpose", "model", "domain", "population", "design", "statement", "assumptions"),
        "what the certificate is about, the statement and the assumptions follow from the files",
    ),
    "producer": (("engine", "stages"), "shown as the producer wrote it; engine name, dtype and batch size are locked"),
}


def _compare_digest(checks: _Checks, name: str, file: str, found: str, shown: str) -> None:
    difference = f"{file} has the digest {found}, the certificate says {shown}" if found != shown else None
    checks.compare(name, difference, f"{file} has the digest {found[:16]}…")


def not_checked(certificate: Certificate) -> list[str]:
    """What level V0 cannot see from the files; verifiers print it beside the checks."""
    beacon = certificate.noise.beacon
    return [
        "that the method was locked before the prompts were drawn, and both before the training: the producer says so, "
        "unless the digest of the method lock was publicly time-stamped",
        "that no public random number was needed to keep the producer from grinding"
        if beacon is None
        else f"that the beacon {beacon!r} is public and was published after the method was locked",
        f"that attempt number {certificate.attempt.number} is the true count: drawn samples can be left out of the log",
        "that the prompts and right answers are those that the seed draws from the population (needs the domain)",
        "that the verdicts are those of the verifier (needs the domain: V1)",
        "that the completions are those of the decoded message under the committed noise (needs the model: V2, V3)",
        "that the prior artifact and the policy's weights have the digests shown, and the device, versions and stages",
        "whatever the assumptions in the certificate say",
    ]


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MAXIMUM_FILE:
            raise CertificateError(f"{path.name} is larger than {_MAXIMUM_FILE} bytes")
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(f"{path.name} cannot be read: {error.strerror or error}") from error
