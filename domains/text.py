"""Reading completions: what every verifier does before it looks for its own kind of answer.

visible("<think>B? no.</think>The answer is C.") == "The answer is C."
fenced("Here:\\n```sql\\nSELECT 1\\n```") == ["SELECT 1"]
boxed("so \\boxed{\\frac{1}{2}}") == [Span(3, 21, "\\frac{1}{2}")]
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

_FENCE = re.compile(
    r"^[ \t]*(?:```|~~~)[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*(?:```|~~~)|\Z)", re.MULTILINE | re.DOTALL
)
_ANSWER = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.DOTALL | re.IGNORECASE)
_NOT_SHOWN = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_INNER_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{([^{}]*)\}")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_MOST_BOXES = 40
_RETRACTION = re.compile(
    r"\b(?:wait|actually|no|instead|rather|correction|corrected|sorry|oops|scratch that|on second thoughts?|i mean|"
    r"mistake|recheck(?:ing)?|redo(?:ing)?|recalculat\w+|reconsider\w*|wrong|incorrect|not right|does not|"
    r"doesn't|hmm|check(?:ing)?)\b",
    re.IGNORECASE,
)


class Span(NamedTuple):
    start: int
    end: int
    text: str


def visible(completion: str) -> str:
    """The completion without its reasoning and comments. An answer that never left the reasoning was not given."""
    if "<!--" in completion:
        completion = _NOT_SHOWN.sub(" ", completion)
    if "</think>" in completion:
        return completion.rpartition("</think>")[2]
    return completion.partition("<think>")[0]


def tagged_answer(text: str) -> str | None:
    """The content of the last <answer> element, if there is one; of all of them, joined by "or", where an earlier one
    says something else and was not taken back."""
    found = list(_ANSWER.finditer(text))
    if not found:
        return None
    for earlier, later in pairwise(found):
        if earlier[1].strip() != later[1].strip() and not retracts(text[earlier.end() : later.start()]):
            return " or ".join(dict.fromkeys(match[1].strip() for match in found))
    return found[-1][1].strip()


def fenced(text: str) -> list[str]:
    """The contents of the fenced blocks, in order; a block that was never closed reaches to the end."""
    return [body.rstrip("\n") for _, body in _FENCE.findall(text)] if "```" in text or "~~~" in text else []


def boxed(text: str) -> list[Span]:
    """What stands in \\boxed{...} and \\fbox{...}, with braces matched; a box that never closes is none."""
    spans: list[Span] = []
    # The last ones only: thousands that never close would take quadratic time, and no answer is read from the first.
    for match in list(_BOX.finditer(text))[-_MOST_BOXES:]:
        if spans and match.start() < spans[-1].end:
            continue  # a box in a box
        depth, place = 1, match.end()
        while place < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            place += 1
        if not depth:
            spans.append(Span(match.start(), place, _INNER_BOX.sub(r"\1", text[match.end() : place - 1])))
    return spans


def retracts(between: str) -> bool:
    """Whether these words, between two answers, take the first one back."""
    return bool(_RETRACTION.search(between))
