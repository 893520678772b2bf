"""What level V2 makes of regenerated completions: which outcomes could flatter, how many flipped, what remains
certified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from domains.base import Reason, Verdict
from pacbayes.bounds import PairedCounts, gain_with_flips
from pacbayes.certificate.assembly import attempt_bits_of, certified, round_down
from pacbayes.declarations import ACCURACY_SHARE, GAIN_SHARES
from pacbayes.evidence import INFRASTRUCTURE_REASONS, Outcome
from pacbayes.ledger import delta_as_float
from progressive_rlvr.engines import Completion
from progressive_rlvr.policies import Weights
from progressive_rlvr.verify.case import Case, Finding, Number, Options, Questions

LEVEL = 2
NAMED = 10  # flips that a sentence names; the machine-readable finding has all


@dataclass(frozen=True)
class Part:
    """Stored outcomes of a policy that would flatter the claim if they came out otherwise, and its weights."""

    policy: str
    stored: list[Outcome]
    weights: Weights
    right: bool  # as they are stored


def parts_of(case: Case, weights: Weights) -> list[Part]:
    right = [o for o in case.evidence.part("coded", "sample") if o.correct]
    parts = [Part("coded", right, weights, right=True)]
    if case.method.claims_gain:
        wrong = [
            o
            for o in case.evidence.part("base", "sample")
            if not o.correct and o.reason not in INFRASTRUCTURE_REASONS  # those count as right already
        ]
        parts.append(Part("base", wrong, {}, right=False))
    return parts


@dataclass(frozen=True)
class Flips:
    """What came of the regenerated completions: those that came out otherwise, with the reason, and how many texts
    differ.
    """

    regenerated: int
    outcomes: list[Outcome]
    reasons: list[str]
    other_text: int


def compare(questions: Questions, part: Part, chosen: list[Outcome], completions: list[Completion]) -> Flips:
    outcomes, reasons, other_text = [], [], 0
    for stored, now in zip(chosen, completions, strict=True):
        other_text += (now.text, now.tokens) != (stored.completion, stored.tokens)
        verdict = Verdict.loss(Reason.CRASHED if now.lost else Reason.TRUNCATED)
        if not (now.lost or now.truncated):
            verdict = questions.domain.verify(now.text, questions.items["sample"][stored.index])
        if verdict.correct != part.right or now.lost:  # what was not generated counts against the claim
            outcomes.append(stored)
            reasons.append(str(verdict.reason))
    return Flips(len(chosen), outcomes, reasons, other_text)


def with_flips(correct: Sequence[int], flips: int) -> list[int]:
    """Right completions of each prompt if `flips` of them are wrong, where they cost the most.

    For a bound of counts it does not matter which flip. Betting adds up a concave function of each prompt's mean, so a
    flip costs most, on average, where a prompt with few right ones loses all of them. Those are emptied first, the last
    one whole even if fewer flips are left: no choice of `flips` completions leaves less.
    """
    left = list(correct)
    for i in sorted(range(len(left)), key=lambda i: correct[i]):
        if flips <= 0:
            break
        flips -= left[i]
        left[i] = 0
    return left


def observed(case: Case, part: Part, flips: Flips, seed: str, options: Options) -> Finding:
    """The observed rate against the checker's limit: a rule of thumb for engines, no statement of confidence."""
    count = len(flips.outcomes)
    was, now = ("right", "wrong") if part.right else ("wrong", "right")
    detail = (
        f"{flips.regenerated} of the {len(part.stored)} {was} completions generated again, chosen by the seed {seed}: "
        f"{count} are {now} now, {flips.other_text} have another text; at most {options.max_flips:.2%} may be {now}"
    )
    if count:
        named = [f"{case.place(o)} (now {r})" for o, r in zip(flips.outcomes, flips.reasons, strict=True)]
        detail += f": {', '.join(named[:NAMED])}{f' and {count - NAMED} more' if count > NAMED else ''}"
    measured: dict[str, Number] = {
        "policy": part.policy,
        "seed": seed,
        f"stored_{was}": len(part.stored),
        "regenerated": flips.regenerated,
        f"{was}_to_{now}": count,
        "other_text": flips.other_text,
        "sample_flips": [o.index for o in flips.outcomes],
        "max_flips": options.max_flips,
    }
    ok = count <= options.max_flips * flips.regenerated
    return Finding(LEVEL, f"regenerated completions of {part.policy}", ok, detail, measured)


def accuracy_finding(case: Case, flips: int, spent: Decimal) -> Finding:
    """The limit on flips among all right completions, and what remains certified with so many more losses."""
    rewards = case.evidence.correct_per_prompt("coded", "sample", case.sample, draws=case.method.draws)
    right = sum(rewards)
    remaining = round_down(certified(case.method, with_flips(rewards, flips), case.certificate.bits.total))
    claimed = case.certificate.bound.certified_accuracy
    detail = (
        f"at most {flips} of the {right} right completions flip; counted as wrong, they leave a certified accuracy of "
        f"{remaining} {_confidence(case, spent, ACCURACY_SHARE)} (the certificate: {claimed})"
    )
    measured: dict[str, Number] = {
        "delta_audit": float(spent),
        "flips_upper": flips,
        "certified_accuracy_with_flips": remaining,
        "claimed_accuracy": claimed,
    }
    return Finding(LEVEL, "accuracy with flips", True, detail, measured)


def gain_finding(case: Case, flips: Mapping[str, int], spent: Decimal) -> Finding:
    shown, method = case.certificate.gain, case.method
    assert shown is not None  # V0 found the gain that the lock claims
    shares = [delta_as_float(method.share(name)) for name in (ACCURACY_SHARE, *GAIN_SHARES)]
    worst = gain_with_flips(
        PairedCounts(won=shown.won, lost=shown.lost, both=shown.both, n=shown.n),
        coded_flips=flips["coded"],
        base_flips=flips["base"],
        bits=case.certificate.bits.total,
        base_bits=attempt_bits_of(case.certificate.bits),
        delta_accuracy=shares[0],
        delta_base=shares[1],
        delta_paired=shares[2],
    )
    remaining = round_down(worst.gain)
    detail = (
        f"with at most {flips['coded']} flips of the coded policy and {flips['base']} of the base model a gain of "
        f"{remaining} remains certified {_confidence(case, spent, ACCURACY_SHARE, *GAIN_SHARES)} (the certificate: "
        f"{shown.certified})"
    )
    measured: dict[str, Number] = {
        "coded_flips_upper": flips["coded"],
        "base_flips_upper": flips["base"],
        "certified_gain_with_flips": remaining,
        "claimed_gain": shown.certified,
    }
    return Finding(LEVEL, "gain with flips", True, detail, measured)


def _confidence(case: Case, spent: Decimal, *shares: str) -> str:
    own = 100 * (1 - sum((case.method.share(name) for name in shares), Decimal(0)))
    if not spent:  # all were generated again: the flips are counted, not estimated
        return f"at the certificate's {own.normalize():f} % confidence"
    less = 100 * spent
    return f"at {(own - less).normalize():f} % confidence, {less.normalize():f} % less than the certificate's"
