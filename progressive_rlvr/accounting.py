"""The evidence of a certificate under the accounting of published compression bounds, beside its own.

The bounds are those of `pacbayes`; the pages print them. Nothing of it is in the certificate or certifies anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from bounds_reports.accounting import Accounting, Charge
from bounds_reports.section import lora_bits
from pacbayes.canonical import digest
from pacbayes.certificate import Certificate, CertificateError, find_file, read_certificate
from pacbayes.certificate.assembly import certified, decode_message
from pacbayes.codes import CodeError
from pacbayes.declarations import ACCURACY_SHARE
from pacbayes.evidence import EvidenceError, read_evidence
from pacbayes.ledger import delta_as_float
from pacbayes.peers import CodebookMessage, codebook_message, looser_accuracies
from pacbayes.sample import FinitePool, LockError, MethodLock, SampleLock, read_lock

POOL = "Hoeffding, Catoni and kl are about the whole pool, the lock's own bound is about what the certificate states."


def account(path: Path) -> Accounting:
    """The certificate's message under its own code and under a learned codebook, and LoRA in bfloat16.

    Of a certificate whose lock, message or evidence cannot be read it says why there is no accounting.
    """
    try:
        certificate = read_certificate(path)
        method = read_lock(find_file(path, certificate.domain, "method.lock.json"), MethodLock)
        message = bytes.fromhex(certificate.message.hex)
        if method.digest != certificate.digests.method_lock or digest(message) != certificate.digests.message:
            raise CertificateError("the method lock or the message is not the one that the certificate names")
        _, integers = decode_message(method, message)
        return Accounting(
            bound=method.bound,
            charges=tuple(_charges(path, certificate, method, integers)),
            scope=POOL if isinstance(method.design, FinitePool) else "",
        )
    except (CertificateError, LockError, CodeError, EvidenceError) as error:
        return Accounting("", (), missing=" ".join(str(error).split()))


def _charges(path: Path, certificate: Certificate, method: MethodLock, integers: Sequence[int]) -> list[Charge]:
    coded = _right(path, certificate, method, "coded")
    learned = codebook_message(integers)
    own = _charge("declared", method, coded, certificate.bits.total, "every line of the ledger")
    # The number on the certificate itself, so that nobody finds two.
    shown = Decimal(repr(certificate.bound.certified_accuracy))
    own = Charge(own.kind, own.bits, {**own.certified, method.bound: shown}, own.why)
    charges = [own, _charge("codebook", method, coded, learned.bits, _parts(learned))]
    bits = lora_bits(certificate.stages)
    if bits is not None and certificate.lora is not None:
        lora = _right(path, certificate, method, "lora")
        charges.append(_charge("bfloat16", method, lora, float(bits), "16 bits a parameter, its own losses"))
    return charges


def _charge(kind: str, method: MethodLock, right: Sequence[int], bits: float, why: str) -> Charge:
    n, delta = len(right), delta_as_float(method.share(ACCURACY_SHARE))
    found = looser_accuracies(n - sum(right) / method.draws, n, bits=bits, delta=delta)
    found[method.bound] = certified(method, right, bits)
    return Charge(kind, Decimal(repr(bits)), {name: Decimal(repr(value)) for name, value in found.items()}, why)


def _right(path: Path, certificate: Certificate, method: MethodLock, policy: str) -> list[int]:
    """Right draws of every prompt. Which prompts they were matters to betting alone; else the counts are enough."""
    if method.bound != "betting" and method.draws == 1:
        result = certificate.lora if policy == "lora" else certificate.coded
        assert result is not None
        return [1] * result.correct + [0] * (result.n - result.correct)
    sample = read_lock(find_file(path, certificate.domain, "sample.lock.json"), SampleLock)
    evidence = read_evidence(find_file(path, certificate.domain, "evidence.parquet"))
    return list(evidence.correct_per_prompt(policy, "sample", sample, draws=method.draws))


def _parts(message: CodebookMessage) -> str:
    if not message.levels:
        return "all integers are 0: an empty message, sent for nothing"
    return (
        f"{message.levels} levels: {message.codebook} bits of codebook, {message.histogram} of histogram, "
        f"{message.symbols} of symbols, {message.prefix:.1f} of prefix"
    )
