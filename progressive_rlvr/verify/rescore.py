"""Level V1: every stored completion judged again by the verifier at the locked version.

The prompts and their golds are drawn again from the population with the locked seed. A stored right that is wrong now
fails the check. The other direction is only reported: a re-evaluation may turn right into wrong, never wrong into
right. Of the base model it is the other direction that would flatter, if a gain is claimed, and that fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from domains.base import Item, Reason, Verdict
from pacbayes.certificate.assembly import assemble
from pacbayes.evidence import INFRASTRUCTURE_REASONS, Outcome, collect
from pacbayes.schema import first_difference
from progressive_rlvr.errors import UserError
from progressive_rlvr.populations import draw_items, find_population, open_domain
from progressive_rlvr.verify.case import Case, Finding, Number, Options, Progress, Questions

LEVEL = 1
NAMED = 10  # flips that a sentence names; the machine-readable finding has all


def draw_again(case: Case, options: Options) -> Questions:
    """The prompts that the locked seed draws from the population as it is here.

    Raises:
        UserError: the domain or its population is not here, or the population is another.
    """
    method = case.method
    domain = open_domain(method.claim.domain, options.data_dir)
    population = find_population(domain, method.claim.population)
    if population.design != method.design.kind:
        raise UserError(
            f"the lock is about the design {method.design.kind}, here {population.name} is {population.design}"
        )
    return Questions(domain, draw_items(population, method, case.sample.beacon))


def rescore(case: Case, questions: Questions, progress: Progress) -> Iterator[Finding]:
    """Compare the prompts with those of the lock, and judge all completions again.

    Raises:
        UserError: the verifier here is another version than the locked one; the prompts were compared by then.
    """
    prompts = _prompts(case, questions)
    yield prompts
    if not prompts.ok:
        return
    if questions.domain.version != case.method.verifier:
        raise UserError(
            f"the certificate was scored by the verifier {case.method.verifier}, this program has "
            f"{questions.domain.version}, which may judge otherwise: V1 and above need a version of prlvr with "
            f"{case.method.verifier}"
        )
    yield _form(case)
    rescored: list[Outcome] = []
    known: dict[tuple[str, str], Verdict] = {}
    for policy in case.evidence.policies:
        finding, outcomes = _policy(case, questions, policy, known, progress)
        yield finding
        rescored += outcomes
    yield _recounted(case, rescored)


def _prompts(case: Case, questions: Questions) -> Finding:
    for split in ("sample", "heldout"):
        locked = case.sample.split(split)
        for index, (item, lock) in enumerate(zip(questions.items[split], locked, strict=True)):
            if (item.digest, item.prompt_digest) != (lock.digest, lock.prompt_digest):
                what = "prompt" if item.prompt_digest != lock.prompt_digest else "gold or tests"
                detail = (
                    f"{split} prompt {index} of the lock is not the one that the seed draws from "
                    f"{case.method.claim.population} here: another {what}, or the population has changed since"
                )
                return Finding(LEVEL, "prompts", False, detail, {"split": split, "index": index})
    n, heldout = len(questions.items["sample"]), len(questions.items["heldout"])
    detail = f"the locked seed draws the {n} sample and {heldout} held-out prompts with the golds that the lock names"
    return Finding(LEVEL, "prompts", True, detail, {"sample": n, "heldout": heldout})


def _form(case: Case) -> Finding:
    """No right completion may be one that the locked stop rule could not have left."""
    locked = case.method.generation
    for outcome in case.evidence.outcomes.values():
        if not outcome.correct:
            continue
        if outcome.tokens > locked.max_new_tokens:
            detail = f"{outcome.place}: {outcome.tokens} tokens, the lock allows {locked.max_new_tokens}"
        elif locked.stop and locked.stop in outcome.completion:
            detail = f"{outcome.place}: goes on after {locked.stop!r}, where the lock lets it end"
        else:
            continue
        return Finding(LEVEL, "stop rule", False, detail, {"index": outcome.index})
    return Finding(LEVEL, "stop rule", True, "every right completion is one that the locked stop rule can leave")


def _policy(
    case: Case, questions: Questions, policy: str, known: dict[tuple[str, str], Verdict], progress: Progress
) -> tuple[Finding, list[Outcome]]:
    """The finding for one policy, and its outcomes with flips to wrong (of a compared base: to right) put in."""
    stored = [o for o in case.evidence.outcomes.values() if o.policy == policy and o.split in questions.items]
    compared = policy == "base" and case.method.claims_gain
    verdicts = _verdicts(questions, stored, known, progress, f"V1 {policy}")
    lost = [(o, v) for o, v in verdicts if o.correct and not v.correct]
    won = [(o, v) for o, v in verdicts if v.correct and not o.correct]
    flattering = lost + ([(o, v) for o, v in won if o.reason not in INFRASTRUCTURE_REASONS] if compared else [])
    machine = sum(str(v.reason) in INFRASTRUCTURE_REASONS for _, v in lost)
    truncated = sum(o.reason == Reason.TRUNCATED for o in stored)
    detail = f"{len(stored)} completions judged again, right to wrong {len(lost)}, wrong to right {len(won)}"
    if truncated:
        detail += f", {truncated} of them cut off and wrong whatever they say"
    if won and not compared:
        detail += " (which changes nothing: a re-evaluation may only turn right into wrong)"
    if flattering:
        detail += f": {_named(case, flattering)}"
    if machine:
        detail += (
            f"; {machine} by a time limit, the memory or a crash, which depend on the machine: run it again when it is "
            "idle"
        )
    measured: dict[str, Number] = {
        "policy": policy,
        "judged": len(stored),
        "right_to_wrong": len(lost),
        "wrong_to_right": len(won),
        "truncated": truncated,
        "machine_dependent": machine,
        "sample_flips": [o.index for o, _ in flattering if o.split == "sample"],
        "heldout_flips": [o.index for o, _ in flattering if o.split == "heldout"],
    }
    flips = {o.key: v for o, v in flattering}
    outcomes = [
        replace(o, correct=flips[o.key].correct, reason=str(flips[o.key].reason)) if o.key in flips else o
        for o in stored
    ]
    return Finding(LEVEL, f"verdicts of {policy}", not flattering, detail, measured), outcomes


def _verdicts(
    questions: Questions,
    stored: list[Outcome],
    known: dict[tuple[str, str], Verdict],
    progress: Progress,
    what: str,
) -> list[tuple[Outcome, Verdict]]:
    """Every outcome with its verdict now. `known` keeps those that cannot depend on the machine: policies of a chain
    answer mostly alike, and equal completions to equal items are judged once.
    """
    judged = []
    for done, outcome in enumerate(stored):
        if done % 100 == 0:
            progress(what, done, len(stored))
        item: Item = questions.items[outcome.split][outcome.index]
        key = (item.digest, outcome.completion)
        if outcome.reason == Reason.TRUNCATED:
            verdict = Verdict.loss(Reason.TRUNCATED)
        elif key in known:
            verdict = known[key]
        else:
            verdict = questions.domain.verify(outcome.completion, item)
            if verdict.reason in (Reason.RIGHT, Reason.WRONG):
                known[key] = verdict
        judged.append((outcome, verdict))
    progress(what, len(stored), len(stored))
    return judged


def _named(case: Case, flips: list[tuple[Outcome, Verdict]]) -> str:
    shown = [f"{case.place(o)} (was {o.reason}, is {v.reason})" for o, v in flips[:NAMED]]
    more = f" and {len(flips) - NAMED} more" if len(flips) > NAMED else ""
    return ", ".join(shown) + more


def _recounted(case: Case, rescored: list[Outcome]) -> Finding:
    """The certificate that the outcomes support once what flipped is put in."""
    shown = case.certificate
    evidence = collect(case.sample.digest, case.evidence.policies, rescored)
    found = assemble(
        case.method,
        case.sample,
        case.message,
        evidence,
        shown.digests.evidence,
        shown.digests.policy,
        shown.engine,
        shown.stages,
    )
    supported, claimed = found.bound.certified_accuracy, shown.bound.certified_accuracy
    measured = {"certified_accuracy": supported, "claimed_accuracy": claimed}
    difference = first_difference(
        shown.to_json(), found.to_json(), was="is", now="in the certificate, the verdicts give"
    )
    if difference is None:
        return Finding(LEVEL, "recount", True, f"the verdicts support the certified accuracy of {claimed}", measured)
    detail = f"with the verdicts of now {supported} is certified, the certificate says {claimed} ({difference})"
    return Finding(LEVEL, "recount", False, detail, measured)
