"""A worker that compares two mathematical expressions with math-verify, and dies rather than think forever.

{"gold": "\\frac{1}{2}", "answer": "0.5"}  ->  {"equal": true, "gold": true}
"""

from __future__ import annotations

import ast
import logging
import re
import socket
import sys
from functools import lru_cache
from typing import Any

from domains.workers import frames, lockdown

_CPU, _MEMORY = 5.0, 1 << 30
_DIGITS = 12  # decimals that a number must share with an expression: 6.283185 is not 2 pi

_PLAIN = (
    *(ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Load),
    *(ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop),
)
_FORMULA = re.compile(r"[\w\s+\-*/^().,!]*")
_ATTRIBUTE = re.compile(r"__|[A-Za-z_)]\s*\.\s*[A-Za-z_]")
_NAME = re.compile(r"[A-Za-z_]\w*")
_FUNCTIONS = set("sin cos tan sec csc cot asin acos atan sinh cosh tanh exp log ln sqrt abs Abs pi oo".split())
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_WORDS = re.compile(r"[A-Za-z][A-Za-z -]*")


def main() -> None:
    """Serve until the socket closes. Arguments: "expressions" or "problems", package directories, the socket."""
    kind, *directories, number = sys.argv
    sys.path += directories
    sock = socket.socket(fileno=int(number))
    logging.disable(logging.CRITICAL)
    if kind == "problems":  # which import what only an unlocked process may
        import reasoning_gym  # noqa: F401

        _guard_parser()
    else:
        import math_verify

        math_verify.verify(_parse("$\\frac{1}{2}$"), _parse("$x^2 + \\sqrt{3}$"), timeout_seconds=None)
    lockdown.leave_namespaces()
    lockdown.drop_capabilities()
    lockdown.measure()
    lockdown.limit(cpu=1e6, memory=_MEMORY)
    if not lockdown.supported():
        lockdown.Lock(lockdown.DATABASE).close()
    frames.send(sock, {"ready": True})
    while True:
        job = frames.receive(sock)
        lockdown.arm(_CPU)  # the default action of SIGPROF ends the process: the other side sees that as a timeout
        reply = _score(**job) if "problem" in job else _compare(job["gold"], job["answer"])
        lockdown.arm(0)
        frames.send(sock, reply)


def _score(problem: dict[str, Any], prompt: str, answer: str) -> dict[str, Any]:
    """Full credit or none, by the scorer of the reasoning-gym generator that made the problem.

    Some scorers evaluate the answer as Python: an answer that says `entry["answer"]` would be right, and any other
    program would run in this process. So while a scorer runs, what it evaluates is arithmetic and nothing else.
    """
    try:
        scored, entry = _problem(problem["generator"], problem["seed"])
        if entry["question"].strip() not in prompt:  # some generators do not keep to their seed
            return {"equal": False, "gold": False}
        module = vars(sys.modules[type(scored).__module__])
        module["eval"] = _calculate
        try:
            return {"equal": scored.score_answer(answer, entry) == 1.0}  # sums of partial credit may exceed 1
        finally:
            del module["eval"]
    except Exception:
        return {"equal": False}


def _calculate(source: str, *_: Any) -> Any:
    """The value of a Python literal or of arithmetic on them; ValueError for a name, a call or anything else."""
    tree = ast.parse(source.strip(), mode="eval")
    for node in ast.walk(tree):
        if not isinstance(node, _PLAIN):
            raise ValueError(f"{type(node).__name__} is no arithmetic")
    return eval(compile(tree, "<answer>", "eval"), {"__builtins__": {}})


def _guard_parser() -> None:
    """SymPy's parser evaluates what it reads: let only formulas through, here and where scorers have imported it."""
    import sympy
    from sympy.parsing import sympy_parser

    parse = sympy_parser.parse_expr

    def guarded(text: str, *arguments: Any, **keywords: Any) -> Any:
        if not _FORMULA.fullmatch(text) or _ATTRIBUTE.search(text):
            raise ValueError("no formula")
        for name in _NAME.findall(text):
            if len(name.rstrip("0123456789")) > 1 and name not in _FUNCTIONS:
                raise ValueError(f"{name!r} is no function of a formula")
        return parse(text, *arguments, **keywords)

    for module in [sympy, sympy_parser, *sys.modules.values()]:
        if getattr(module, "parse_expr", None) is parse:
            vars(module)["parse_expr"] = guarded


@lru_cache(maxsize=16)  # a generator may hold a dictionary
def _problem(generator: str, seed: int) -> tuple[Any, Any]:
    from reasoning_gym import create_dataset

    made = create_dataset(generator, seed=seed, size=1)
    return made, made[0]


def _compare(gold: str, answer: str) -> dict[str, Any]:
    import math_verify

    try:
        expected = _parse(gold)
        # What does not parse comes back as its own text. That is an answer only if it is words.
        if not any(not isinstance(part, str) for part in expected) and not _WORDS.fullmatch(_TEXT.sub(r"\1", gold)):
            return {"equal": False, "gold": False}
        found = _parse(answer)
        same = bool(found) and math_verify.verify(
            list(expected), list(found), timeout_seconds=None, float_rounding=_DIGITS, numeric_precision=_DIGITS + 6
        )
        return {"equal": same, "gold": True}
    except (Exception, RecursionError):
        return {"equal": False, "gold": True}


@lru_cache(maxsize=4096)
def _parse(text: str) -> tuple[Any, ...]:
    import math_verify

    text = text.strip().strip("$")
    return tuple(math_verify.parse(f"${text}$", parsing_timeout=None))
