"""Calculator: certified accuracies and what it would take to reach one, as one JSON object per call.

    python -m pacbayes accuracy --n 1000 --correct 800 --bits 208 --delta 0.05 --bound binomial
    python -m pacbayes accuracy --n 7500 --correct 6000 --bits 200 --delta 0.05 --pool 20000
    python -m pacbayes required-n --target 0.75 --accuracy 0.8 --bits 50 --delta 0.05
    python -m pacbayes required-bits --target 0.75 --n 7500 --correct 6000 --delta 0.05
    python -m pacbayes required-accuracy --target 0.75 --n 7500 --bits 50 --delta 0.05
    python -m pacbayes gain --n 7500 --won 3000 --lost 300 --both 3000 --bits 60 \\
        --delta-accuracy 0.02 --delta-base 0.01 --delta-paired 0.02
    python -m pacbayes transfer --n 7500 --correct 6000 --bits 60 --differing 100 --compared 5000 \\
        --delta-student 0.03 --delta-differ 0.02
"""

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

from pacbayes.bounds import (
    ACCURACY_BOUNDS,
    PairedCounts,
    certified_accuracy,
    certified_gain,
    certified_pool_accuracy,
    required_accuracy,
    required_bits,
    required_n,
    transfer_accuracy,
)

_Answer = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Answer one question; a number that makes no sense is one line on stderr and exit status 2."""
    parser = _parser()
    options = vars(parser.parse_args(arguments))
    command, answer = options.pop("command"), options.pop("answer")
    try:
        result = answer(**options)
    except ValueError as error:
        parser.error(str(error))
    given = {name: value for name, value in options.items() if value is not None}
    print(json.dumps({"question": command, **given, **result}))


def _accuracy(
    n: int,
    correct: int,
    bits: float,
    delta: float,
    bound: str,
    pool: int | None,
    part: Literal["unseen", "pool"] | None,
    outcome: Literal["realised", "expected"] | None,
) -> _Answer:
    if pool is None:
        if part or outcome:
            raise ValueError("--part and --outcome speak of a finite pool; give its size with --pool")
        certified = certified_accuracy(n - correct, n, bits=bits, delta=delta, bound=bound)
        return {"accuracy": correct / n, "certified_accuracy": certified}
    if bound != "binomial":
        raise ValueError("a finite pool has its own exact bound; leave --bound out")
    part, outcome = part or "unseen", outcome or "realised"
    certified = certified_pool_accuracy(n - correct, n, pool, bits=bits, delta=delta, part=part, outcome=outcome)
    return {"part": part, "outcome": outcome, "accuracy": correct / n, "certified_accuracy": certified}


def _required_n(target: float, accuracy: float, bits: float, delta: float, bound: str) -> _Answer:
    n = required_n(target, accuracy=accuracy, bits=bits, delta=delta, bound=bound)
    return {"required_n": n, "required_holdout_labels": required_n(target, accuracy=accuracy, bits=0.0, delta=delta)}


def _required_bits(target: float, n: int, correct: int, delta: float, bound: str) -> _Answer:
    return {"required_bits": required_bits(target, losses=n - correct, n=n, delta=delta, bound=bound)}


def _required_accuracy(target: float, n: int, bits: float, delta: float, bound: str) -> _Answer:
    return {"required_accuracy": required_accuracy(target, n=n, bits=bits, delta=delta, bound=bound)}


def _gain(n: int, won: int, lost: int, both: int, **levels: float) -> _Answer:
    gain = certified_gain(PairedCounts(won=won, lost=lost, both=both, n=n), **levels)
    return {"marginal": gain.marginal, "paired": gain.paired, "certified_gain": gain.gain}


def _transfer(n: int, correct: int, differing: int, compared: int, teachers: int, **levels: float) -> _Answer:
    return {
        "certified_accuracy": transfer_accuracy(n - correct, n, differing, compared, teachers=teachers, **levels),
    }


# What every option means, once.
_OPTIONS: dict[str, dict[str, Any]] = {
    "n": {"type": int, "required": True, "help": "prompts in the sample"},
    "correct": {"type": int, "required": True, "help": "right answers of the decoded policy on them"},
    "bits": {"type": float, "required": True, "help": "length of the message; 0 for a policy fixed beforehand"},
    "delta": {"type": float, "required": True, "help": "probability with which the statement may fail"},
    "bound": {"choices": sorted(ACCURACY_BOUNDS), "default": "binomial", "help": "default: %(default)s"},
    "pool": {"type": int, "help": "items of the finite pool that the sample was drawn from"},
    "part": {"choices": ["unseen", "pool"], "help": "of the pool; default: unseen"},
    "outcome": {
        "choices": ["realised", "expected"],
        "help": "on the pool; default: realised",
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
    "delta_student": {"type": float, "required": True, "help": "share of the student's accuracy"},
    "delta_differ": {"type": float, "required": True, "help": "share of the disagreement"},
}

_COMMANDS: dict[str, tuple[Callable[..., _Answer], str, str]] = {
    "accuracy": (_accuracy, "certified accuracy", "n correct bits delta bound pool part outcome"),
    "required-n": (_required_n, "prompts that certify a target", "target accuracy bits delta bound"),
    "required-bits": (_required_bits, "longest message that certifies a target", "target n correct delta bound"),
    "required-accuracy": (
        _required_accuracy,
        "empirical accuracy that certifies a target",
        "target n bits delta bound",
    ),
    "gain": (
        _gain,
        "certified improvement over the base model",
        "n won lost both bits delta_accuracy delta_base delta_paired",
    ),
    "transfer": (
        _transfer,
        "certified accuracy of a teacher through a coded student",
        "n correct bits differing compared teachers delta_student delta_differ",
    ),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pacbayes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (answer, summary, options) in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        command.set_defaults(answer=answer)
        for option in options.split():
            command.add_argument(f"--{option.replace('_', '-')}", **_OPTIONS[option])
    return parser


if __name__ == "__main__":
    main()
