"""Calculator: certified accuracies and what it would take to reach one, as one JSON object per call.

    python -m pacbayes accuracy --n 1000 --correct 800 --bits 208 --delta 0.05 --bound binomial
    python -m pacbayes accuracy --n 7500 --correct 6000 --bits 200 --delta 0.05 --pool 20000
    python -m pacbayes bounds --n 7500 --correct 6000 --bits 120 --delta 0.05
    python -m pacbayes draws --right 4:5000 3:1000 2:1000 1:600 0:400 --bits 50 --delta 0.05
    python -m pacbayes holdout --n 1000 --correct 800 --delta 0.05
    python -m pacbayes gain --n 7500 --won 3000 --lost 300 --both 3000 --bits 60 \\
        --delta-accuracy 0.02 --delta-base 0.01 --delta-paired 0.02
    python -m pacbayes transfer --n 7500 --correct 6000 --bits 60 --differing 100 --compared 5000 \\
        --delta-student 0.03 --delta-differ 0.02
    python -m pacbayes joint --claim mathematics:7500:6000:60:0.025 programming:2000:1300:40:0.025
    python -m pacbayes required-n --target 0.75 --accuracy 0.8 --bits 50 --delta 0.05
    python -m pacbayes required-bits --target 0.75 --n 7500 --correct 6000 --delta 0.05
    python -m pacbayes required-accuracy --target 0.75 --n 7500 --bits 50 --delta 0.05

Every QUESTION explains itself with --help. Accuracies are fractions, and certified ones are rounded down.
"""

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from pacbayes.bounds import (
    ACCURACY_BOUNDS,
    JointClaim,
    PairedCounts,
    certified_accuracy,
    certified_gain,
    certified_mean_accuracy,
    certified_pool_accuracy,
    holdout_accuracy,
    joint_accuracies,
    required_accuracy,
    required_bits,
    required_n,
    transfer_accuracy,
    transfer_pool_accuracy,
)

_Answer = dict[str, Any]
_Part = Literal["unseen", "pool"]
_Outcome = Literal["realised", "expected"]


def main(arguments: Sequence[str] | None = None, *, program: str = "python -m pacbayes") -> None:
    """Answer one question; a number that makes no sense is one line on stderr and exit status 2.

    Args:
        arguments: the question and its options; those of the process if absent.
        program: how the calculator was called, for its messages.
    """
    parser = _parser(program)
    options = vars(parser.parse_args(arguments))
    if options["question"] == "schema":
        from pacbayes.json_schema import json_schema  # locks and certificates, which no other question needs

        print(json.dumps(json_schema(), indent=1))
        return
    question, answer = options.pop("question"), options.pop("answer")
    try:
        result = answer(**options)
    except (ValueError, OverflowError) as error:
        parser.error(str(error))
    # Numbers are repeated as they were understood; lists of counts and claims come back in the answer.
    given = {name: value for name, value in options.items() if isinstance(value, int | float | str)}
    print(json.dumps({"question": question, **given, **result}, allow_nan=False))


def _accuracy(
    n: int,
    correct: int,
    bits: float,
    delta: float,
    bound: str | None,
    pool: int | None,
    part: _Part | None,
    outcome: _Outcome | None,
) -> _Answer:
    if pool is None:
        if part or outcome:
            raise ValueError("--part and --outcome speak of a finite pool; give its size with --pool")
        bound = bound or "binomial"
        certified = certified_accuracy(n - correct, n, bits=bits, delta=delta, bound=bound)
        return {"bound": bound, "accuracy": correct / n, "certified_accuracy": certified}
    if bound:
        raise ValueError("a finite pool has its own exact bound; leave --bound out")
    part, outcome = part or "unseen", outcome or "realised"
    certified = certified_pool_accuracy(n - correct, n, pool, bits=bits, delta=delta, part=part, outcome=outcome)
    return {"part": part, "outcome": outcome, "accuracy": correct / n, "certified_accuracy": certified}


def _bounds(n: int, correct: int, bits: float, delta: float) -> _Answer:
    by_bound = {b: certified_accuracy(n - correct, n, bits=bits, delta=delta, bound=b) for b in ACCURACY_BOUNDS}
    return {"accuracy": correct / n, "certified_accuracy": by_bound}


def _draws(right: Sequence[tuple[int, int]], bits: float, delta: float) -> _Answer:
    most, n = max(count for count, _ in right), sum(prompts for _, prompts in right)
    if most < 1 or n < 1 or n > _MOST_PROMPTS:
        raise ValueError(f"expected at least one draw and 1 to {_MOST_PROMPTS} prompts, got {most} and {n}")
    rewards = np.repeat([count / most for count, _ in right], [prompts for _, prompts in right])
    certified = certified_mean_accuracy(rewards, bits=bits, delta=delta)
    return {"n": n, "draws": most, "accuracy": float(rewards.mean()), "certified_accuracy": certified}


def _holdout(n: int, correct: int, delta: float) -> _Answer:
    return {"accuracy": correct / n, "certified_accuracy": holdout_accuracy(n - correct, n, delta=delta)}


def _gain(n: int, won: int, lost: int, both: int, **levels: float) -> _Answer:
    gain = certified_gain(PairedCounts(won=won, lost=lost, both=both, n=n), **levels)
    return {"marginal": gain.marginal, "paired": gain.paired, "certified_gain": gain.gain}


def _transfer(
    n: int,
    correct: int,
    bits: float,
    differing: int,
    compared: int,
    teachers: int,
    delta_student: float,
    delta_differ: float,
    pool: int | None,
    outcome: _Outcome | None,
) -> _Answer:
    counts = n - correct, n, differing, compared
    if pool is None:
        if outcome:
            raise ValueError("--outcome speaks of a finite pool; give its size with --pool")
        certified = transfer_accuracy(
            *counts, bits=bits, delta_student=delta_student, delta_differ=delta_differ, teachers=teachers
        )
        return {"certified_accuracy": certified}
    outcome = outcome or "expected"
    certified = transfer_pool_accuracy(
        *counts,
        pool,
        bits=bits,
        delta_student=delta_student,
        delta_differ=delta_differ,
        outcome=outcome,
        teachers=teachers,
    )
    return {"outcome": outcome, "certified_accuracy": certified}


def _joint(claim: Sequence[tuple[str, JointClaim]]) -> _Answer:
    claims = dict(claim)
    if len(claims) < len(claim):
        raise ValueError("a domain appears twice among the claims")
    return {"delta": math.fsum(c.delta for c in claims.values()), "certified_accuracy": joint_accuracies(claims)}


def _required_n(target: float, accuracy: float, bits: float, delta: float, bound: str) -> _Answer:
    n = required_n(target, accuracy=accuracy, bits=bits, delta=delta, bound=bound)
    return {"required_n": n, "required_holdout_labels": required_n(target, accuracy=accuracy, bits=0.0, delta=delta)}


def _required_bits(target: float, n: int, correct: int, delta: float, bound: str) -> _Answer:
    return {"required_bits": required_bits(target, losses=n - correct, n=n, delta=delta, bound=bound)}


def _required_accuracy(target: float, n: int, bits: float, delta: float, bound: str) -> _Answer:
    return {"required_accuracy": required_accuracy(target, n=n, bits=bits, delta=delta, bound=bound)}


_MOST_PROMPTS = 10_000_000


def _right(text: str) -> tuple[int, int]:
    """ "3:1000", 1,000 prompts with three right draws."""
    count, _, prompts = text.partition(":")
    if not (count.isdecimal() and prompts.isdecimal()):
        raise argparse.ArgumentTypeError(f"expected RIGHT:PROMPTS such as 3:1000, got {text!r}")
    return int(count), int(prompts)


def _claim(text: str) -> tuple[str, JointClaim]:
    """ "mathematics:7500:6000:60:0.025", a domain's n, right answers, bits and share of delta."""
    try:
        name, n, correct, bits, delta = text.split(":")
        return name, JointClaim(losses=int(n) - int(correct), n=int(n), bits=float(bits), delta=float(delta))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected NAME:N:CORRECT:BITS:DELTA, got {text!r}") from None


# What every option means, once.
_OPTIONS: dict[str, dict[str, Any]] = {
    "n": {"type": int, "required": True, "help": "prompts in the sample"},
    "correct": {"type": int, "required": True, "help": "right answers of the decoded policy on them"},
    "bits": {"type": float, "required": True, "help": "length of the message; 0 for a policy fixed beforehand"},
    "delta": {"type": float, "required": True, "help": "probability with which the statement may fail"},
    "bound": {"choices": sorted(ACCURACY_BOUNDS), "default": "binomial", "help": "default: binomial"},
    "pool": {"type": int, "help": "items of the finite pool that the sample was drawn from"},
    "part": {"choices": ["unseen", "pool"], "help": "of the pool; default: unseen"},
    "outcome": {
        "choices": ["realised", "expected"],
        "help": "on a pool: under the committed noise, or on average over fresh noise",
    },
    "right": {
        "type": _right,
        "nargs": "+",
        "required": True,
        "metavar": "RIGHT:PROMPTS",
        "help": "how many prompts had so many right draws; the largest is the number of draws",
    },
    "claim": {
        "type": _claim,
        "nargs": "+",
        "required": True,
        "metavar": "NAME:N:CORRECT:BITS:DELTA",
        "help": "one domain each, with its locked share of delta",
    },
    "target": {"type": float, "required": True, "help": "the accuracy to be certified"},
    "accuracy": {"type": float, "required": True, "help": "empirical accuracy"},
    "won": {"type": int, "required": True, "help": "prompts that the policy has right and the base wrong"},
    "lost": {"type": int, "required": True, "help": "prompts that the policy has wrong and the base right"},
    "both": {"type": int, "required": True, "help": "prompts that both have right"},
    "differing": {"type": int, "required": True, "help": "fresh prompts on which teacher and student differ"},
    "compared": {"type": int, "required": True, "help": "fresh prompts on which they were compared"},
    "teachers": {"type": int, "default": 1, "help": "teachers tried; default: %(default)s"},
    "delta_accuracy": {"type": float, "required": True, "help": "share of the policy's accuracy"},
    "delta_base": {"type": float, "required": True, "help": "share of the base model's accuracy"},
    "delta_paired": {"type": float, "required": True, "help": "share of the paired bet"},
    "base_bits": {"type": float, "default": 0.0, "help": "bits of earlier samples for the claim; default: %(default)s"},
    "delta_student": {"type": float, "required": True, "help": "share of the student's accuracy"},
    "delta_differ": {"type": float, "required": True, "help": "share of the disagreement"},
}
# Without a pool, accuracy has a default bound; with one, naming a bound is a mistake that must be seen.
_ACCURACY_BOUND = {**_OPTIONS["bound"], "default": None}


@dataclass(frozen=True)
class Question:
    """One question of the calculator: how it is answered, its summary, its explanation and its options."""

    answer: Callable[..., _Answer]
    summary: str
    explanation: str
    options: str


QUESTIONS: Mapping[str, Question] = MappingProxyType(
    {
        "accuracy": Question(
            _accuracy,
            "certified accuracy",
            "You tuned on n prompts, the decoded policy has so many of them right, and a message of so many bits "
            "turns the base model into it. With probability 1 - delta it answers at least certified_accuracy of new "
            "prompts right. --bound selects another bound, fixed before the outcomes were seen. --pool N is for a "
            "finite list of prompts of which n were drawn: --part says whether the claim is about all of it or the "
            "rest, --outcome whether about the answers under the committed noise or on average.",
            "n correct bits delta bound pool part outcome",
        ),
        "bounds": Question(
            _bounds,
            "certified accuracy by each bound, side by side",
            "The same evidence by every bound that the library has. It shows what looser accounting would have said. "
            "The best of them, picked after looking, is no bound: certificates name theirs in the lock.",
            "n correct bits delta",
        ),
        "draws": Question(
            _draws,
            "certified accuracy from several draws per prompt, by betting",
            "Each prompt was answered M times. The prompts stay the units: each counts with the share of its draws "
            "that are right. Give how many prompts had so many right draws; the largest number named is M, so name "
            "M:0 if no prompt had all draws right.",
            "right bits delta",
        ),
        "holdout": Question(
            _holdout,
            "what held-out labels say: Clopper-Pearson",
            "n prompts that no choice has touched, neither training nor model selection. No message is needed; use it "
            "beside a certificate, or instead of one if labels can be spared.",
            "n correct delta",
        ),
        "gain": Question(
            _gain,
            "certified improvement over the base model",
            "Both models answered the same prompts under the same noise. marginal is the certified accuracy less an "
            "upper limit of the base model's; paired bets on the difference and wins when the two seldom differ. Both "
            "hold, so the larger does, and it fails with at most the sum of the three shares.",
            "n won lost both bits delta_accuracy delta_base delta_paired base_bits",
        ),
        "transfer": Question(
            _transfer,
            "certified accuracy of a policy without a message, through a coded student",
            "A LoRA teacher is too large for a message, but its coded student vouches for it: the teacher errs at most "
            "where the student errs or the two differ. How often they differ is measured on fresh unlabelled prompts, "
            "drawn after both were fixed. --pool N is for the part of a finite pool that was not drawn.",
            "n correct bits differing compared teachers delta_student delta_differ pool outcome",
        ),
        "joint": Question(
            _joint,
            "several domains that hold all at once",
            "Certificates read together fail together. A joint statement splits delta among the domains, before the "
            "outcomes are seen, and then all hold with probability 1 - the sum of the shares.",
            "claim",
        ),
        "required-n": Question(
            _required_n,
            "prompts that certify a target",
            "How many prompts it takes at this accuracy and message length, and how many held-out labels would do "
            "the same. null: not with any number.",
            "target accuracy bits delta bound",
        ),
        "required-bits": Question(
            _required_bits,
            "longest message that certifies a target",
            "How long the message may be with this evidence. null: not even 0 bits are few enough.",
            "target n correct delta bound",
        ),
        "required-accuracy": Question(
            _required_accuracy,
            "accuracy on the sample that certifies a target",
            "How well the policy must do on its own n prompts with a message of this length. null: not even without "
            "an error.",
            "target n bits delta bound",
        ),
    }
)


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description=(__doc__ or "").replace("python -m pacbayes", program),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="question", required=True, metavar="QUESTION")
    for name, question in QUESTIONS.items():
        command = commands.add_parser(name, help=question.summary, description=question.explanation)
        command.set_defaults(answer=question.answer)
        for option in question.options.split():
            settings = _ACCURACY_BOUND if (name, option) == ("accuracy", "bound") else _OPTIONS[option]
            command.add_argument(f"--{option.replace('_', '-')}", **settings)
    commands.add_parser("schema", help="the JSON Schema of locks, evidence and certificates")
    return parser


if __name__ == "__main__":
    main()
