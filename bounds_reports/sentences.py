"""What a certificate says, in words for people who have not read the theorem."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from bounds_reports import holdout
from bounds_reports.advice import Advice, advise
from bounds_reports.numbers import fixed, percent, points, probability
from bounds_reports.schema import POLICIES, Certificate, MergeAudit
from bounds_reports.section import compressibility, lora_bits

DEVELOPMENT = "Development, not a certificate"


def headline(c: Certificate) -> str:
    """The certified number in one sentence."""
    if c.development:
        return (
            f"Development run, not a certificate: choices may have been made by looking at these {c.n:,} prompts, so "
            f"nothing is promised about new ones. The arithmetic alone gives {percent(c.certified, 'down')}."
        )
    if c.design != "iid":
        return c.statement or f"Certified accuracy {percent(c.certified, 'down')} under the design {c.design}."
    return (
        f"With probability at least {probability(c.risk)}, this model answers at least "
        f"{percent(c.certified, 'down')} of new prompts of this kind correctly on the first try; it was trained on all "
        f"{c.n:,} of the labelled prompts and no test set was used."
    )


def merged(audit: MergeAudit) -> str:
    """What merging the message into the quantized weights would change."""
    verdicts, n = audit.verdicts, audit.prompts
    return (
        f"The certificate is about the {audit.quantization} base with the message’s update beside its weights. Merged "
        f"into them, and rounded again, it is another policy: on {n:,} prompts of the sample under the same noise "
        f"{audit.completions.changed:,} completions change; {verdicts.right_to_wrong:,} right answers turn wrong and "
        f"{verdicts.wrong_to_right:,} wrong ones right ({verdicts.right_before:,} right before, "
        f"{verdicts.right_after:,} after). The next-token distributions diverge by {audit.logits.mean_divergence:.3g} "
        f"nats on average over {audit.logits.positions:,} positions, and {100 * audit.logits.same_argmax:.1f} % have "
        "the same most likely token. Nothing is certified of the merged model."
    )


def verdict(c: Certificate) -> str | None:
    """An honest sentence about a certificate that promises too little; None for one that promises something."""
    if c.certified <= 0:
        return "This certificate is vacuous: it is valid, and it promises nothing."
    if c.base is not None and c.certified <= c.base.accuracy:
        return (
            f"This certificate promises less than the base model already does: {percent(c.certified, 'down')} is "
            f"certified, and the base model answers {percent(c.base.accuracy, 'up')} of the same prompts correctly. "
            "It does not show that the fine-tune helped."
        )
    return None


def remedies(c: Certificate) -> list[str]:
    """What to shrink in such a certificate, and by how much."""
    if verdict(c) is None:
        return []
    if c.base is None:
        return ["No base model was measured. More prompts, fewer bits or a lower risk raise the number."]
    if c.draws > 1:  # Chernoff's bound, which the figures are from, is no limit of what betting gives
        return ["More prompts, fewer bits or a lower risk raise the number."]
    target = float(c.base.accuracy)
    advice = advise(
        target=target, accuracy=float(c.coded.accuracy), n=c.n, bits=float(c.bits.total), delta=float(c.risk)
    )
    goal = (
        f"To certify the base model's {percent(c.base.accuracy, 'up')}, any one of these is enough, "
        "by a bound looser than the certificate's:"
    )
    return [] if advice is None else [goal, *_ways(c, advice)]


def _ways(c: Certificate, advice: Advice) -> list[str]:
    bits = bits_in_text(c.bits.total)
    ways = []
    if advice.prompts is None:
        ways.append(
            "Neither more prompts nor fewer bits: the coded policy is no better than the base model "
            "on its own training prompts."
        )
    else:
        ways.append(f"Prompts: {advice.prompts:,} instead of {c.n:,}, at {bits} bits and the same accuracy.")
        ways.append(
            f"Bits: no message is short enough at n = {c.n:,}; not even one of 0 bits."
            if advice.bits is None
            else f"Bits: {advice.bits:,} instead of {bits}, with the same prompts and accuracy."
        )
    ways.append(
        f"Risk: at {bits} bits and n = {c.n:,}, not even a policy that is always right gets there."
        if advice.accuracy is None
        else f"Risk: {percent(Fraction(advice.accuracy), 'up')} right on the {c.n:,} training prompts instead of "
        f"{percent(c.coded.accuracy, 'down')}, at {bits} bits."
    )
    return ways


def bits_in_text(value: Decimal) -> str:
    """Bits in running text: one decimal, rounded up."""
    return fixed(value, 1, "up")


def compressed(c: Certificate) -> str | None:
    """The message beside the LoRA adapter in bfloat16, both in bits."""
    factor, bits = compressibility(c), lora_bits(c.stages)
    if factor is None or bits is None:
        return None
    return (
        f"The LoRA adapter takes {bits:,} bits in bfloat16, as its stage wrote down; the message is charged "
        f"{bits_in_text(c.bits.total)} bits, {fixed(factor, 0, 'down')} times fewer."
    )


def held_out(c: Certificate) -> list[str]:
    """The hold-out beside the certificate."""
    score = c.coded.heldout
    if score is None:
        return ["No held-out prompts were scored. The certificate does not need any."]
    if c.draws > 1:
        return [
            f"In {score.n:,} answers to held-out prompts, {c.draws} to each, the coded policy was right in "
            f"{percent(score.accuracy, 'near')}. That is a measurement: answers to the same prompt are no independent "
            "test, and no bound is given for them."
        ]
    bound = holdout.lower(float(score.correct), score.n, float(c.risk))
    said = [
        f"On {score.n:,} held-out prompts the coded policy answered "
        f"{percent(score.accuracy, 'near')} correctly. As a classical test set, they give at least "
        f"{percent(Fraction(bound), 'down')} with probability at least {probability(c.risk)} (Clopper-Pearson). "
        "The two statements hold each, not jointly."
    ]
    if not c.development:
        labels = holdout.labels_for(float(c.certified), float(c.coded.accuracy), float(c.risk))
        if labels is not None:
            said.append(
                f"The certificate is worth a test set of about {_rough(labels)} labelled prompts kept out of training: "
                "that many would have given the same number at the accuracy measured here."
            )
    return said


def _rough(count: int) -> str:
    """A count to two significant digits, for sentences that say "about"."""
    unit = 10 ** max(0, len(str(count)) - 2)
    return f"{(count + unit // 2) // unit * unit:,}"


def novelty(c: Certificate) -> str | None:
    """How often a fresh prompt stands in the sample already."""
    counts = c.novelty or {}
    seen, of = counts.get("heldout_in_sample"), counts.get("heldout")
    if not isinstance(seen, int) or not isinstance(of, int) or not 0 <= seen <= of or of == 0:
        return None
    said = (
        f"Of {of:,} fresh prompts, {seen:,} ({percent(Fraction(seen, of), 'up', 2)}) stand in the training sample too"
    )
    repeats = counts.get("repeats_in_sample")
    return f"{said}; {repeats:,} of the sample's own repeat another." if isinstance(repeats, int) else f"{said}."


def jointly(certificates: Sequence[Certificate]) -> str:
    """Each, and all together by the union bound."""
    real = [c for c in certificates if not c.development]
    if not real:
        return "Nothing on this page is certified."
    risks = sorted({c.risk for c in real})
    each = " or ".join(probability(delta) for delta in risks)
    if len(real) == 1:
        return f"The certificate holds with probability at least {each} over the draw of the training prompts."
    total = sum((Fraction(c.risk) for c in real), Fraction(0))
    together = (
        f"all {len(real)} together with probability at least {probability(total)}"
        if total < 1
        else "together they promise nothing"
    )
    return (
        f"Each of the {len(real)} certificates holds by itself with probability at least {each} "
        f"over the draw of the training prompts; {together}."
    )


def paragraph(c: Certificate) -> str:
    """A domain in a few sentences, for the text report."""
    parts = [headline(c)]
    if (warning := verdict(c)) is not None:
        parts += [warning, *remedies(c)]
    said = [
        f"{POLICIES[name]} {percent(score.accuracy, 'up' if name == 'base' else 'near')}"
        for name, score in c.policies()
    ]
    parts.append(f"Measured on the {c.n:,} training prompts: {', '.join(said)}.")
    parts.append(f"The whole fine-tune is a message charged at {bits_in_text(c.bits.total)} bits.")
    if (compression := compressed(c)) is not None:
        parts.append(compression)
    parts.append(f"Coded minus certified: {points(c.coded.accuracy - c.certified, 'up')} points.")
    return " ".join(parts + held_out(c))
