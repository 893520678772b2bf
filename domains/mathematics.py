"""Mathematics: one final answer, wherever and however the completion writes it.

    item = Item(prompt="What is 40 + 2?", gold="42")
    verify("40 + 2 = 42", item)                               # RIGHT: the last number
    verify("First \\boxed{41}. Checking again: \\boxed{42}", item)  # RIGHT: the last answer, after a correction
    verify("41 or 42", item)                                  # WRONG: several answers
    verify("#### 42.00 dollars", item)                        # RIGHT; so are $42, 4.2e1, "42 apples" and **42**
    verify("6 \\cdot 7", item)                                # WRONG: not worked out
    verify("more than 42; not 42; 42x; 41 and 42", item)      # WRONG, each of them: no statement that it is 42

A gold that is one number is compared exactly, here, with a number: sums, products, powers and fractions that are whole
numbers are not worked out for the model, since then the question itself would be a right answer. Other golds (LaTeX
expressions, lists, intervals) are taken apart at their top-level commas and compared with math-verify in a process of
its own.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from domains.base import GoldError, Item, Population, Reason, Verdict
from domains.quantity import VARIABLE, Quantity, equal, number_word, plain, quantities, readable, values
from domains.registry import generated_populations
from domains.text import boxed, retracts, tagged_answer, visible
from domains.workers.pool import Pool

_MAX_TEXT = 20_000  # characters, from the end: answers stand there
_TAIL = 1_000  # where a number that nothing announces is looked for
_CUE = re.compile(
    r"\b(?:final\s+|correct\s+)?(?:answer|ans|result|solution)\b(?:\s+(?:to\b[^.\n:=]{0,80}))?\s*(?:\bis\b|\bequals\b|\bare\b|[:=])"
    r"(?:\s*(?:therefore|thus|simply|just|now|then|equal to|given by|:))*[\s*_]*",
    re.IGNORECASE,
)
_MARKED = re.compile(r"####[#\s]*([^\n#]*)")
_SENTENCE = re.compile(r".*?(?=[.!?;](?:\s|$)|\n|$)", re.DOTALL)
_EITHER = re.compile(
    r"[\s.,;:$*\\()\]!?]*(?:(?:\b(?:or|and|maybe|perhaps|possibly|alternatively|also|else|it|could|be|is|either|even)\b|/|\|)[\s,$*\\(]*)*",
    re.IGNORECASE,
)
_ALTERNATIVE = re.compile(
    r"\b(?:or|maybe|perhaps|possib(?:ly|ility|ilities)|alternativ(?:e|ely)|either|(?:an)?other\s+(?:answer|option|solution))\b|\|",
    re.IGNORECASE,
)
# A power, a root or another command that is not a unit: no number can be read off it.
_EXPRESSION = re.compile(
    r"[\d)}\]]\s*\^|\\(?:sqrt|d?frac|pi|log|ln|sin|cos|tan|binom|sum|prod|cdot|times|div|pm)(?![a-zA-Z])|\d!"
)
_OPERATOR = re.compile(r"[\s)}]*(?:[-+*/×÷^]|\*\*|\\(?:times|cdot|div))[\s({]*")
_TEX_NOISE = re.compile(r"\\(?:left|right|displaystyle|quad|qquad|!|,|;|:)(?![a-zA-Z])|\s+|\$")
# A comment of TeX: a percent sign behind a number is none.
_TEX_COMMENT = re.compile(r"(?:^|(?<=[^\s\d\\]))[ \t]*%[^\n]*", re.MULTILINE)
_LISTED = re.compile(r"\s*(?:,|;|&|\band\b|\bto\b|[ \t])\s*")
# Before a number, on the left of its sign: it is said not to be this one, or is only its limit.
_DENIED = re.compile(
    r"(?:\bnot|n['’]t|\bnever|\bmore\s+than|\bless\s+than|\bgreater\s+than|\b(?:fewer|larger|smaller)\s+than|≠|!=|<>|[<>≤≥]|"
    r"\\(?:neq?|geq?|leq?|gt|lt|geqslant|leqslant)(?![a-zA-Z]))(?:\s+(?:exactly|equal\s+to))?[\s$({]*$",
    re.IGNORECASE,
)
_DENIED_AFTER = re.compile(
    r"[\s$)}]*(?:\?\s*no\b|(?:is|was|are|would\s+be|cannot\s+be|can['’]t\s+be)\s+(?:wrong|incorrect|false|impossible|not\b)|"
    r"(?:cannot|can['’]t|isn['’]t)\b|,?\s*or\s+not\b)",
    re.IGNORECASE,
)
# What makes of the number beside it a part of something else.
_PART_BEFORE = re.compile(r"(?:\\(?:sqrt|log|ln|sin|cos|tan|binom|exp|pm)(?![a-zA-Z])(?:\[[^\]]*\])?|√|±)[\s({]*$|\d:$")
_PART_AFTER = re.compile(rf"[}})]*(?:[\^_]|\s*\\(?:pi|sqrt|cdot|times|pm)(?![a-zA-Z])|\s*[π√±]|{VARIABLE})")


class Answer(NamedTuple):
    text: str
    several: bool = False


SEVERAL = Quantity(0, 0, "several", frozenset())


class Mathematics:
    name = "mathematics"
    version = "mathematics/2"

    def __init__(self, data_dir: Path | None = None) -> None:
        self._data_dir = data_dir
        self._pools: dict[str, Pool] = {}
        self._checked: set[str] = set()

    def populations(self) -> Mapping[str, Population]:
        from domains.data import mathematics

        return mathematics.WithGym(generated_populations(self.name) | mathematics.populations(self._data_dir))

    def verify(self, completion: str, item: Item) -> Verdict:
        text = readable(visible(completion)[-_MAX_TEXT:])
        if item.tests:
            return self._verify_by_scorer(text, item)
        gold = gold_values(item.gold)
        return _verify_number(text, gold) if gold else self._verify_expression(text, item)

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()

    def _verify_expression(self, text: str, item: Item) -> Verdict:
        self._check_gold(item.gold)
        found = final_answer(text)
        if found is None:
            return Verdict.loss(Reason.UNPARSEABLE, "no answer")
        if found.several:
            return Verdict.loss(Reason.WRONG, f"several answers: {found.text[:80]}")
        try:
            same = self.compare(item.gold, found.text)
        except TimeoutError:
            return Verdict.loss(Reason.TIMEOUT, "comparing the expressions took too long")
        return Verdict(same, Reason.RIGHT if same else Reason.WRONG, found.text[:80])

    def _verify_by_scorer(self, text: str, item: Item) -> Verdict:
        """A problem of reasoning-gym: full credit by its own scorer, which knows every right answer."""
        found = final_answer(text)
        if found is not None and found.several:
            return Verdict.loss(Reason.WRONG, "several answers")
        answer = (found.text if found else text.strip().rpartition("\n")[2]).strip(" *`$")
        if not answer:
            return Verdict.loss(Reason.UNPARSEABLE, "no answer")
        job = {"problem": json.loads(item.tests), "prompt": item.prompt, "answer": answer[:2000]}
        reply = self._ask("problems", job)
        if not reply.get("gold", True):
            raise GoldError("the generator does not make the same problem from the same seed")
        if "timeout" in reply:
            return Verdict.loss(Reason.TIMEOUT, "scoring took too long")
        return Verdict(reply["equal"], Reason.RIGHT if reply["equal"] else Reason.WRONG, answer[:80])

    def compare(self, gold: str, answer: str) -> bool:
        """Whether two expressions are equal part by part. GoldError for a gold that is no expression."""
        gold, answer = tidy(gold), tidy(answer)
        if not gold:
            raise GoldError("an empty gold")
        if gold == answer:
            return True
        if "=" in answer and "=" not in gold and not re.search(r"[<>]|\\[lg]e", answer):
            named, _, rest = answer.rpartition("=")
            if values(named):  # 0 = x + 1 is no way to write x + 1, as y = x + 1 is
                return False
            answer = rest
        gold, answer = _both_signs(gold), _both_signs(answer)
        brackets, parts = split_list(gold)
        other_brackets, others = split_list(answer)
        if len(parts) > 1 or len(others) > 1 or brackets or other_brackets:
            if len(parts) != len(others) or (brackets != other_brackets):
                return False
            if brackets in ("", "{}"):
                return _matched(parts, others, self._same)
            return all(map(self._same, parts, others))
        return self._same(gold, answer)

    def _same(self, gold: str, answer: str) -> bool:
        if gold == answer:
            return True
        one, other = values(gold), values(answer)
        if one and other:
            return equal(one, other)
        if len(answer) > 2000:
            return False
        reply = self._ask("expressions", {"gold": gold, "answer": answer})
        if "timeout" in reply:
            raise TimeoutError
        if not reply["gold"]:
            raise GoldError(f"the gold {gold!r} is no expression")
        return bool(reply["equal"])

    def _check_gold(self, gold: str) -> None:
        """GoldError for a gold that is no expression, before anything is said of an answer."""
        if gold not in self._checked:
            for part in split_list(tidy(gold))[1] or [""]:
                if not values(part) and not self._ask("expressions", {"gold": part, "answer": part})["gold"]:
                    raise GoldError(f"the gold {gold!r} is no expression")
            self._checked.add(gold)

    def _ask(self, kind: str, job: dict[str, Any]) -> dict[str, Any]:
        if kind not in self._pools:
            self._pools[kind] = Pool("math_worker", kind, *_package_directories(kind), patience=120)
        return self._pools[kind].ask(job, lambda _: {"timeout": True})


@lru_cache(maxsize=65536)
def gold_values(gold: str) -> frozenset[Any]:
    return values(gold)


def _verify_number(text: str, gold: frozenset[Any]) -> Verdict:
    found = final_number(text)
    if found is None:
        return Verdict.loss(Reason.UNPARSEABLE, "no number")
    if found.text == "several":
        return Verdict.loss(Reason.WRONG, "several answers")
    if not found.values:  # 6 \cdot 7, 84/2: to ask the question again, or to shift it, is no answer
        return Verdict.loss(Reason.WRONG, f"not worked out: {found.text[:60]}")
    right = equal(found.values, gold)
    return Verdict(right, Reason.RIGHT if right else Reason.WRONG, found.text[:80])


def final_number(text: str) -> Quantity | None:
    """The number a completion ends up with: without values for an expression, with the text "several" for a choice."""
    answer = final_answer(text)
    if answer is None:
        return _last(plain(text[-_TAIL:]))
    if answer.several:
        return SEVERAL
    return _of_statement(plain(answer.text))


def final_answer(text: str) -> Answer | None:
    """The text of the answer, by the strongest sign that announces one; None if nothing does."""
    tagged = tagged_answer(text)
    if tagged is not None:
        return _announced(tagged) or Answer(tagged)
    return _announced(text)


def _announced(text: str) -> Answer | None:
    boxes = boxed(text)
    if boxes and "%" in text:  # what a comment of TeX hides is no answer beside one that is seen
        shown = _TEX_COMMENT.sub("", text)
        if boxed(shown):
            text, boxes = shown, boxed(shown)
    if boxes:
        last = boxes[-1]
        for earlier, later in pairwise(boxes):
            if earlier.text.strip() != later.text.strip() and _joins(text[earlier.end : later.start]):
                return Answer(" or ".join(box.text for box in boxes), several=True)
        return Answer(last.text)
    marked = list(_MARKED.finditer(text))
    if marked:
        for one, other in pairwise(marked):
            if one[1].strip() != other[1].strip() and not retracts(text[one.end() : other.start()]):
                return Answer(f"{one[1]} or {other[1]}", several=True)
        return Answer(marked[-1][1])
    first_line, _, rest = text.strip().partition("\n")
    first_line = first_line.strip(" *_=")
    if len(first_line) < _TAIL and values(first_line) and not retracts(rest):  # the answer, and then something else
        return Answer(first_line)
    cues = list(_CUE.finditer(text))
    if cues:
        sentence = _SENTENCE.match(text, cues[-1].end())
        fragment, after = (sentence[0], text[sentence.end() :]) if sentence else ("", "")
        denied = _DENIED_AFTER.match(after) or (retracts(after) and quantities(plain(after[-_TAIL:])))
        if fragment.strip(" *:$") and not denied:
            return Answer(fragment[:_TAIL])
    return None


def _joins(between: str) -> bool:
    """Whether these words between two answers leave both standing."""
    hedged = len(between) < 80 and _ALTERNATIVE.search(between) and not retracts(between)
    return bool(_EITHER.fullmatch(between) or hedged)


def _of_statement(text: str) -> Quantity | None:
    """The number of a statement such as "54 bracelets in 2 weeks" (the first) or "6 + 5 = 11" (after the sign)."""
    side = text.rpartition("=")[2] if "=" in text and quantities(text.rpartition("=")[2]) else text
    found = quantities(side)
    if _EXPRESSION.search(side):
        return Quantity(0, len(side), side.strip(), frozenset())
    if not found:
        word = number_word(side)
        return Quantity(0, len(side), side.strip(), word) if word else None
    if side is not text and _hedged(text, quantities(text)):  # x = 41 or x = 42
        return SEVERAL
    if len(found) > 1:
        between = side[found[0].end : found[1].start]
        if _ALTERNATIVE.search(between) and len(between) < 30:
            return SEVERAL
        if _LISTED.fullmatch(between):
            return SEVERAL
        if _OPERATOR.fullmatch(between):
            return Quantity(0, len(side), side.strip(), frozenset())
    return _asserted(text, found[0], len(text) - len(side))


def _last(text: str) -> Quantity | None:
    """The number a text without any announcement ends with: behind the last "=" of its last line, else the last one."""
    line = text.strip().rpartition("\n")[2]
    if "=" in line and quantities(line.rpartition("=")[2]):
        return _of_statement(line)
    found = quantities(text)
    if not found:
        word = number_word(text)
        return Quantity(0, len(text), text.strip(), word) if word else None
    if len(found) > 1:
        between = text[found[-2].end : found[-1].start]
        if _hedged(text, found):
            return SEVERAL
        if _OPERATOR.fullmatch(between):  # "6 + 4" is not the answer 4
            return Quantity(0, 0, text.strip()[-80:], frozenset())
    return _asserted(text, found[-1])


def _hedged(text: str, found: list[Quantity]) -> bool:
    """Whether the last two numbers stand side by side, as a choice or a list."""
    if len(found) < 2 or found[-2].values == found[-1].values:
        return False
    between = text[found[-2].end : found[-1].start]
    choice = len(between) < 24 and _ALTERNATIVE.search(between) and not retracts(between)
    return bool(choice or (_LISTED.fullmatch(between) and "\n" not in between))


def _asserted(text: str, number: Quantity, offset: int = 0) -> Quantity:
    """The number, without values where the text denies it, only limits by it, or makes it a part of something else.

    `offset` is where the positions of the number count from.
    """
    before, after = text[: number.start + offset][-60:], text[number.end + offset :][:60]
    if _DENIED.search(before) or _DENIED_AFTER.match(after) or _PART_BEFORE.search(before) or _PART_AFTER.match(after):
        return number._replace(text=f"{before[-20:]}{number.text}{after[:20]}".strip(), values=frozenset())
    return number


def tidy(text: str) -> str:
    """An expression without what only sets it: spaces, dollar signs, sizes, a final stop."""
    text = re.sub(r"\\(?:text|mathrm|mbox)\s*\{\s*(?:and|or)\s*\}|(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z])", ";", text)
    text = re.sub(r",\s+", ";", text)  # "512, 343" is a list where "512,343" is a number
    text = re.sub(r"\\[dt]frac", r"\\frac", text)
    text = re.sub(r"\\\$", "", text)
    text = _TEX_NOISE.sub(lambda m: " " if m[0].isspace() else "", text).strip().rstrip(".,;")
    return re.sub(r"\s*([,;=+\-*/^()\[\]{}])\s*", r"\1", text).replace("\\{", "\\lbrace ").replace("\\}", "\\rbrace ")


def _both_signs(text: str) -> str:
    """The two numbers that an expression behind \\pm stands for."""
    match = re.fullmatch(r"\\pm\s*([^,;=]+)", text)
    return f"{match[1]};-{match[1]}" if match else text


def split_list(text: str) -> tuple[str, list[str]]:
    """A list as its brackets and its parts: "[2,5)" gives ("[)", ["2", "5"]), "3,4" gives ("", ["3", "4"])."""
    inner, brackets = text.strip(), ""
    if inner.startswith("\\lbrace") and inner.endswith("\\rbrace"):
        inner, brackets = inner[len("\\lbrace") : -len("\\rbrace")], "{}"
    elif inner[:1] in ("(", "[") and inner[-1:] in (")", "]") and _closes_last(inner):
        candidate = _at_commas(inner[1:-1])
        if len(candidate) > 1:
            return inner[0] + inner[-1], candidate
    parts = _at_commas(inner)
    if len(parts) > 1 and not brackets and re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", inner):
        return "", [inner]  # 1,000 is one number
    return brackets, parts


def _closes_last(text: str) -> bool:
    depth = 0
    for place, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if depth == 0:
            return place == len(text) - 1
    return False


def _at_commas(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for place, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char in ",;" and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def _matched(parts: list[str], others: list[str], same: Any) -> bool:
    """Whether the parts pair off one to one, in any order."""
    left = list(others)
    for part in parts:
        found = next((other for other in left if same(part, other)), None)
        if found is None:
            return False
        left.remove(found)
    return not left


def _package_directories(kind: str) -> list[str]:
    """Where the packages are installed that a worker of this kind needs."""
    names = ["reasoning_gym"] if kind == "problems" else ["math_verify", "latex2sympy2_extended"]
    names += ["sympy", "mpmath"]
    specs = [importlib.util.find_spec(name) for name in names]
    missing = [name for name, spec in zip(names, specs, strict=True) if spec is None]
    if missing:
        raise RuntimeError(f"comparing {kind} needs packages that are not installed: {', '.join(missing)}")
    return sorted({str(Path(spec.origin).parent.parent) for spec in specs if spec and spec.origin})
