"""`prlvr plan labels`: where to spend labelled prompts, from the numbers of a pilot; in sentences and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from bounds_reports.label_chart import HoldOutCurve, PriorRange, label_chart
from bounds_reports.numbers import fixed, percent, points
from pacbayes.bounds import LabelPlan, LearningCurve, plan_labels
from pacbayes.bounds.labels import Design
from pacbayes.certificate import Certificate, read_certificate, verify_certificate
from pacbayes.declarations import ACCURACY_SHARE
from pacbayes.sample import attempt_bits
from progressive_rlvr.errors import UserError

POLICIES = {"coded": "policy with a message", "teacher": "policy without a message"}
_LEVEL = 0.0005  # differences below are not worth a preference

Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Pilot:
    """What earlier runs on other labels have shown: points (labels trained on, accuracy), and the bits of a message.

    `coded` was measured on the labels trained on, `fresh` and `teacher` on others; `notes` says where that is not so.
    """

    coded: Points
    fresh: Points
    teacher: Points
    bits: float
    delta: float
    attempt: int
    base: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """A plan in words: the answer, what about the prior, and what all of it takes for granted."""

    plan: LabelPlan
    answer: str
    prior: str
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """One JSON object; accuracies are fractions, not rounded."""
        ranking = [{"design": name, "expected": design.expected} for name, design in self.plan.ranking]
        words = {"answer": self.answer, "about_prior": self.prior, "notes": list(self.notes)}
        return {**words, "ranking": ranking, **asdict(self.plan)}


def curve_points(option: str, texts: Sequence[str]) -> Points:
    """Points from texts such as 2000:.8.

    Raises:
        UserError: not of this form.
    """
    found = []
    for text in texts:
        size, _, accuracy = text.partition(":")
        try:
            found.append((int(size), float(accuracy)))
        except ValueError:
            raise UserError(f"{option} takes LABELS:ACCURACY such as 2000:.8, got {text!r}") from None
    return tuple(found)


def typed_pilot(
    n: int, accuracy: float | None, bits: float | None, teacher: float | None, curve: Points, teacher_curve: Points
) -> Pilot:
    """A pilot from numbers that were typed in; an accuracy without a size is that of training on all n.

    Raises:
        UserError: the bits or every accuracy of the coded policy are missing.
    """
    if bits is None or (accuracy is None and not curve):
        raise UserError("a plan needs --pilot, or --bits with --accuracy or --curve")
    coded = curve if accuracy is None else (*curve, (n, accuracy))
    taught = teacher_curve if teacher is None else (*teacher_curve, (n, teacher))
    return Pilot(coded, coded, taught, bits, delta=0.05, attempt=1)


def read_pilot(path: Path, domain: str | None, curve: Points, teacher_curve: Points) -> Pilot:
    """A pilot from a certificate that holds by itself (V0), or from the one of a run.

    Raises:
        UserError: there is none, several and no domain was named, or it does not hold.
        CertificateError: it cannot be read.
    """
    file = _find_certificate(path, domain)
    shown = read_certificate(file)
    if failed := next((check for check in verify_certificate(file) if not check.ok), None):
        raise UserError(f"the pilot {file} does not hold (V0), {failed.name}: {failed.detail}")
    spent = [line for line in shown.bits.lines if line.name != "attempt"]
    share = next((line.value for line in shown.deltas.lines if line.name == ACCURACY_SHARE), shown.delta)
    fresh = shown.coded.heldout or shown.coded
    teacher = [(shown.n, (shown.lora.heldout or shown.lora).accuracy)] if shown.lora else []
    return Pilot(
        coded=(*curve, (shown.n, shown.coded.accuracy)),
        fresh=(*curve, (shown.n, fresh.accuracy)),
        teacher=(*teacher_curve, *teacher),
        bits=float(sum(Decimal(repr(line.value)) for line in spent)),
        delta=share,
        # A pilot that was an attempt at the same claim has used that attempt up; development runs are not counted.
        attempt=shown.attempt.number + 1,
        base=shown.base.accuracy if shown.base else None,
        notes=tuple(_remarks(shown)),
    )


def _find_certificate(path: Path, domain: str | None) -> Path:
    if not path.exists():
        raise UserError(f"there is no pilot {path}: give a certificate, or a run that has some")
    if path.is_file():
        if domain is not None:
            raise UserError("--domain chooses among the certificates of a run, and --pilot is a single file")
        return path
    found = {file.stem: file for file in sorted((path / "certificates").glob("*.json"))}
    if not found:
        raise UserError(f"the run {path} has no certificates/DOMAIN.json; `prlvr run` writes them")
    if domain is None and len(found) > 1:
        raise UserError(f"the run {path} has several domains, choose one with --domain: {', '.join(found)}")
    if domain is not None and domain not in found:
        raise UserError(f"the run {path} has no certificate for {domain!r}; it has {', '.join(found)}")
    return found[domain] if domain else next(iter(found.values()))


def _remarks(shown: Certificate) -> list[str]:
    """What in a certificate makes its numbers a less good pilot."""
    remarks = []
    measured = shown.coded.heldout
    if measured is None:
        remarks.append(
            "The pilot has no held-out prompts: the accuracy on the prompts trained on stands for that on others, "
            "which flatters the hold-out."
        )
    else:
        spread = Decimal(repr(2 * math.sqrt(measured.accuracy * (1 - measured.accuracy) / measured.n)))
        remarks.append(
            f"The pilot's accuracy on other prompts was measured on {measured.n:,}, which leaves about "
            f"±{points(spread, 'up')} points (two standard errors)."
        )
    if shown.lora and measured and shown.lora.heldout is None:
        remarks.append("The teacher's accuracy is that on its training prompts, which flatters its hold-out.")
    if shown.draws > 1 or shown.design == "finite_pool":
        remarks.append("The pilot has another design; this plan is for i.i.d. prompts and one draw for each.")
    if shown.attempt.number:
        remarks.append(
            f"The pilot was attempt {shown.attempt.number} at its claim, so that the next sample for the same claim "
            f"pays as attempt {shown.attempt.number + 1}, hold-out or not (--attempt 1 if it is for another claim)."
        )
    return remarks


def answer_labels(n: int, pilot: Pilot, *, share: float, prior_bits: float | None, holdout: int | None) -> Answer:
    """Compare the designs and say which one is best.

    Raises:
        UserError: a number is out of range.
    """
    try:
        price = attempt_bits(pilot.attempt)
        plan = plan_labels(
            n,
            coded=LearningCurve(pilot.coded),
            fresh=LearningCurve(pilot.fresh),
            teacher=LearningCurve(pilot.teacher) if pilot.teacher else None,
            bits=pilot.bits,
            delta=pilot.delta,
            share=share,
            prior_bits=prior_bits,
            holdout=holdout,
            attempt_bits=price,
            # One test set is Clopper-Pearson; one drawn after others for the same claim is a choice, and pays.
            holdout_bits=price if pilot.attempt > 1 else 0.0,
        )
    except ValueError as error:
        raise UserError(str(error)) from None
    return Answer(plan, _winner(plan), _about_prior(plan), tuple(_notes(plan, pilot)))


def _name(entry: tuple[str, Design], n: int) -> str:
    kind, design = entry
    if kind == "all":
        return f"certifying on all {n:,} labels"
    if kind == "prior":
        return f"a prior on the first {n - design.counted:,} labels"
    return f"a hold-out of {design.counted:,} of the {n:,} labels ({POLICIES[kind.removeprefix('hold-out ')]})"


def _winner(plan: LabelPlan) -> str:
    best, *others = plan.ranking
    kind = best[0].split()[0]
    other = next(entry for entry in others if entry[0].split()[0] != kind)
    margin = best[1].expected - other[1].expected
    if best[1].expected < _LEVEL:
        return "No design can be expected to certify anything: too few labels, or an accuracy too low."
    figures = f"{_down(best[1].expected)}, against {_down(other[1].expected)} by {_name(other, plan.n)}"
    if margin < _LEVEL:
        return f"It is level: {_name(best, plan.n)} can be expected to certify {figures}."
    head = {"all": "Certify on all.", "prior": "The data-dependent prior wins.", "hold-out": "A plain hold-out wins."}
    gap = points(Decimal(repr(margin)), "down")
    text = f"{head[kind]} {_name(best, plan.n).capitalize()} can be expected to certify {figures}: {gap} points more."
    if best[1].assumed and (sure := next((entry for entry in others if not entry[1].assumed), None)):
        text += f" Of what pilots have measured the best is {_name(sure, plan.n)}, {_down(sure[1].expected)}."
    for one in plan.holdouts:
        if f"hold-out {one.policy}" == best[0] and one.chosen.assumed and one.accuracy_needed is not None:
            slack = points(Decimal(repr(max(0.0, one.chosen.accuracy - one.accuracy_needed))), "down")
            text += (
                f" The hold-out takes for granted that training on {one.chosen.trained_on:,} labels costs no accuracy, "
                f"which flatters it; it beats certifying on all as long as it costs less than {slack} points."
            )
    return text


def _about_prior(plan: LabelPlan) -> str:
    prior = plan.prior

    def bits(most: float | None) -> str:
        return "at no length" if most is None else f"if it has at most {fixed(Decimal(repr(most)), 1, 'down')} bits"

    known = "" if prior.planned else "The bits of a data-dependent prior are known from a pilot only (--prior-bits). "
    counted = prior.ideal.counted
    return (
        f"{known}With a prior on {plan.n - counted:,} labels, counted on {counted:,}, a message certifies as much as "
        f"certifying on all {bits(prior.bits_to_match_all)}, and as much as the better of that and the hold-outs "
        f"{bits(prior.bits_to_match_best)}. If nothing is moved after the prior is fixed, it is the hold-out of these "
        f"{counted:,} labels."
    )


def _notes(plan: LabelPlan, pilot: Pilot) -> list[str]:
    notes = [
        "Choose the design before the sample is drawn, and from a pilot on other prompts: chosen after a look at the "
        "sample, none of these numbers holds.",
        "Certifying on all certifies the policy that every label trained. A hold-out certifies the policy trained on "
        "the others only: trained again on all of them, it is another policy, of which the hold-out says nothing.",
        "Expected means: averaged over samples, if the policy is as accurate as the pilot and its message as long.",
        *pilot.notes,
    ]
    if plan.certify_all.assumed:
        notes.append(f"No pilot was trained on as few as {plan.n:,} labels: every design is flattered.")
    elif any(one.chosen.assumed for one in plan.holdouts):
        notes.append(
            "No pilot was trained on as few labels as a hold-out leaves (* in the table): the accuracy of the smallest "
            "is assumed, which flatters the hold-out. --curve LABELS:ACCURACY tells, and then the best size is sought."
        )
    if pilot.base is not None and plan.ranking[0][1].expected <= pilot.base:
        notes.append(f"No design gets above the pilot's base model, {percent(Decimal(repr(pilot.base)), 'up')}.")
    return notes


def _down(accuracy: float) -> str:
    return percent(Decimal(repr(accuracy)), "down")


def chart_of(plan: LabelPlan) -> str:
    """The plan as an SVG file."""
    curves = [
        HoldOutCurve(
            key={"coded": "coded", "teacher": "lora"}[one.policy],
            name=POLICIES[one.policy].removeprefix("policy "),
            points=tuple((size.counted, size.expected, size.assumed) for size in one.sizes),
            chosen=(one.chosen.counted, one.chosen.expected),
        )
        for one in plan.holdouts
    ]
    prior = plan.prior
    planned = None if prior.planned is None else prior.planned.expected
    span = PriorRange(prior.ideal.counted, prior.unhelpful.expected, prior.ideal.expected, planned)
    title = f"{plan.n:,} labelled prompts: what they can be expected to certify"
    return str(label_chart(plan.n, plan.certify_all.expected, curves, span, title, _winner(plan)))


def with_options(pilot: Pilot, delta: float | None, attempt: int | None) -> Pilot:
    """The pilot with δ and attempt as asked for."""
    given = {"delta": delta, "attempt": attempt}
    return replace(pilot, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
