"""The certificate assembled from the locks, the message and the evidence, and from nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import ROUND_FLOOR, Decimal
from typing import Final

import numpy as np
import pydantic
from pydantic import JsonValue

from pacbayes.bounds import (
    PairedCounts,
    certified_accuracy,
    certified_gain,
    certified_mean_accuracy,
    certified_pool_accuracy,
    certified_unseen_mean_accuracy,
    required_n,
)
from pacbayes.canonical import digest
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
)
from pacbayes.certificate.wording import assumptions, statement
from pacbayes.codes import Menu
from pacbayes.declarations import ACCURACY_SHARE, GAIN_SHARES, HOLDOUT_SHARE
from pacbayes.evidence import Evidence, Split, parse_evidence
from pacbayes.ledger import BitLedger, DeltaLedger, bits_of, delta_as_float
from pacbayes.pool import Pool
from pacbayes.sample import (
    FinitePool,
    MethodLock,
    SampleLock,
    attempt_weight,
    heldout_noise_root,
    noise_root,
)
from pacbayes.schema import one_line

ACCURACY_PLACES: Final = 6
MAXIMUM_MESSAGE: Final = 1 << 20  # far above what the largest dimension takes; decoding is quadratic


def build_certificate(
    *,
    method: MethodLock,
    sample: SampleLock,
    message: bytes,
    evidence: bytes,
    policy: str,
    engine: Engine,
    stages: Sequence[Mapping[str, JsonValue]] = (),
    pool: Pool | None = None,
) -> Certificate:
    """Assemble the certificate of the policy that a message decodes to.

    Args:
        method, sample: the locks.
        message: the shipped bytes.
        evidence: the bytes of the evidence file.
        policy: digest of the weights that the message decodes to, as they were served.
        engine: what generated the completions.
        stages: a summary of each stage of the training, in order; shown, not used.
        pool: the pool, if the design is a finite one.

    Raises:
        CertificateError: the parts do not belong together, or the message is not the one that its content encodes to.
    """
    try:
        check_sample(method, sample, pool)
        rows = parse_evidence(evidence, name="the evidence")
        certificate = assemble(method, sample, message, rows, digest(evidence), policy, engine, stages)
        certificate.to_bytes()  # what has no canonical form, such as a NaN in a summary, is refused here
        return certificate
    except CertificateError:
        raise
    except pydantic.ValidationError as error:
        raise CertificateError(one_line(error)) from error
    except ValueError as error:  # LockError, EvidenceError, LedgerError, and the codes' and bounds' own
        raise CertificateError(str(error)) from error


def assemble(
    method: MethodLock,
    sample: SampleLock,
    message: bytes,
    evidence: Evidence,
    evidence_digest: str,
    policy: str,
    engine: Engine,
    stages: Sequence[Mapping[str, JsonValue]],
) -> Certificate:
    check_parts(method, message, evidence, engine)
    index, integers = decode_message(method, message)
    entry = method.menu[index]
    bits = bit_ledger(method, sample, index, integers)
    deltas = delta_ledger(method)
    results = {name: _result(name, method, sample, evidence) for name in POLICIES if name in evidence.policies}
    coded = results["coded"]
    rewards = evidence.correct_per_prompt("coded", "sample", sample, draws=method.draws)
    bound = Bound(
        name=method.bound,
        losses=coded.n - coded.correct,
        n=method.prompts,
        certified_accuracy=round_down(certified(method, rewards, bits.total)),
    )
    gain = _gain(method, sample, evidence, bits) if method.claims_gain else None
    holdout = _holdout(method, bound, coded, bits)
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
        pool=pool_shown(method),
        draws=method.draws,
        delta=float(method.delta),
        statement=statement(method, bound, results, gain, holdout),
        bits=bits,
        deltas=deltas,
        bound=bound,
        coded=coded,
        base=results.get("base"),
        lora=results.get("lora"),
        distilled=results.get("distilled"),
        tinylora=results.get("tinylora"),
        gain=gain,
        holdout=holdout,
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


def check_sample(method: MethodLock, sample: SampleLock, pool: Pool | None) -> None:
    """Raise LockError or CertificateError unless the sample is this method's, drawn from the pool if there is one."""
    sample.check_method(method)
    if isinstance(method.design, FinitePool):
        if pool is None:
            raise CertificateError("the design is a finite pool, and the pool is missing")
        pool.check_draw(method, sample)


def check_parts(method: MethodLock, message: bytes, evidence: Evidence, engine: Engine) -> None:
    """Raise CertificateError unless message, evidence and engine are those that the method lock is about."""
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
    if len(message) > MAXIMUM_MESSAGE:
        raise CertificateError(f"a message has at most {MAXIMUM_MESSAGE:,} bytes, got {len(message):,}")
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


def attempt_bits_of(bits: BitLedger) -> float:
    """The line of the attempt: what every event pays that a producer could have tried on several samples."""
    return next(line.value for line in bits.lines if line.name == "attempt")


def delta_ledger(method: MethodLock) -> DeltaLedger:
    """δ by statement, as locked."""
    why = "probability, over the draw of prompts and noise, that this statement fails"
    return DeltaLedger.of((share.name, Decimal(share.value), why) for share in method.delta_shares).declare(
        share.name for share in method.delta_shares
    )


def certified(method: MethodLock, correct: Sequence[int], bits: float) -> float:
    """The bound of the method lock on the right completions of each prompt, in the order of drawing."""
    delta, n = delta_as_float(method.share(ACCURACY_SHARE)), len(correct)
    losses = n - sum(correct)
    if not isinstance(method.design, FinitePool):
        if method.draws > 1:
            return certified_mean_accuracy(np.array(correct) / method.draws, bits=bits, delta=delta)
        return certified_accuracy(losses, n, bits=bits, delta=delta, bound=method.bound)
    size, (part, outcome) = method.design.pool_size, method.design.statement(method.bound)
    if method.bound != "betting":
        # The locked pairs of part and outcome are the function's own literals.
        return certified_pool_accuracy(losses, n, size, bits=bits, delta=delta, part=part, outcome=outcome)  # type: ignore[arg-type]
    rewards = np.array(correct) / method.draws
    if outcome == "expected":
        return certified_mean_accuracy(rewards, bits=bits, delta=delta)
    if part == "pool":
        return certified_mean_accuracy(rewards, bits=bits, delta=delta, population=size)
    return certified_unseen_mean_accuracy(rewards, bits=bits, delta=delta, population=size)


def _gain(method: MethodLock, sample: SampleLock, evidence: Evidence, bits: BitLedger) -> Gain:
    if "base" not in evidence.policies:
        raise CertificateError("the method lock claims a gain over the base model, which was not evaluated")
    coded = evidence.correct_per_prompt("coded", "sample", sample)
    base = evidence.correct_per_prompt("base", "sample", sample, doubt="for")
    pairs = Counter(zip(coded, base, strict=True))
    counts = PairedCounts(won=pairs[1, 0], lost=pairs[0, 1], both=pairs[1, 1], n=len(coded))
    gain = certified_gain(
        counts,
        bits=bits.total,
        base_bits=attempt_bits_of(bits),
        delta_accuracy=delta_as_float(method.share(ACCURACY_SHARE)),
        delta_base=delta_as_float(method.share(GAIN_SHARES[0])),
        delta_paired=delta_as_float(method.share(GAIN_SHARES[1])),
    )
    return Gain(
        certified=round_down(gain.gain),
        marginal=round_down(gain.marginal),
        paired=round_down(gain.paired),
        won=counts.won,
        lost=counts.lost,
        both=counts.both,
        n=counts.n,
    )


def _holdout(method: MethodLock, bound: Bound, coded: PolicyResult, bits: BitLedger) -> Holdout | None:
    if coded.heldout is None or method.draws > 1 or isinstance(method.design, FinitePool):
        return None
    measured, target = coded.heldout, bound.certified_accuracy
    own = delta_as_float(method.share(ACCURACY_SHARE))
    # A hold-out with a share of its own holds jointly with the certificate, so that it pays for earlier samples, too.
    joint = method.share(HOLDOUT_SHARE)
    delta, spent = (delta_as_float(joint), attempt_bits_of(bits)) if joint else (own, 0.0)
    losses = measured.n - measured.correct
    return Holdout(
        certified_accuracy=round_down(certified_accuracy(losses, measured.n, bits=spent, delta=delta)),
        n=measured.n,
        equivalent_n=required_n(target, accuracy=measured.accuracy, bits=0.0, delta=own) if target > 0 else None,
    )


def pool_shown(method: MethodLock) -> PoolShown | None:
    """The pool as a certificate shows it; None under the iid design."""
    if not isinstance(method.design, FinitePool):
        return None
    return PoolShown(size=method.design.pool_size, digest=method.design.pool_digest)


def _result(name: str, method: MethodLock, sample: SampleLock, evidence: Evidence) -> PolicyResult:
    def accuracy(split: Split) -> Accuracy:
        count = evidence.count(name, split, sample, draws=method.draws)
        # The base model is what the others are compared with: there a missing outcome must not count as a loss.
        correct = count.correct + (count.missing if name == "base" else 0)
        n = count.n * count.draws
        return Accuracy(accuracy=correct / n, correct=correct, n=n)

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
