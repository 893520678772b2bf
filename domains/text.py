"""Reading completions: what every verifier does before it looks for its own kind of answer.

visible("<think>B? no.</think>The answer is C.") == "The answer is C."
fenced("Here:\\n```sql\\nSELECT 1\\n```") == ["SELECT 1"]
boxed("so \\boxed{\\frac{1}{2}}") == [Span(3, 21, "\\frac{1}{2}")]
"""

from __future__ import annotations

import re
from typing import NamedTuple

_FENCE = re.compile(
    r"^[ \t]*(?:```|~~~)[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*(?:```|~~~)|\Z)", re.MULTILINE | re.DOTALL
)
_ANSWER = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.DOTALL | re.IGNORECASE)
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
    """The completion without its reasoning. An answer that never left the reasoning was not given."""
    if "</think>" in completion:
        return completion.rpartition("</think>")[2]
    return completion.partition("<think>")[0]


def tagged_answer(text: str) -> str | None:
    """The content of the last <answer> element, if there is one."""
    found = _ANSWER.findall(text)
    return found[-1].strip() if found else None


def fenced(text: str) -> list[str]:
    """The contents of the fenced blocks, in order; a block that was never closed reaches to the end."""
    return [body.rstrip("\n") for _, body in _FENCE.findall(text)] if "```" in text or "~~~" in text else []


def boxed(text: str) -> list[Span]:
    """What stands in \\boxed{...} and \\fbox{...}, with braces matched; a box that never closes is none."""
    spans = []
    # The last ones only: thousands that never close would take quadratic time, and no answer is read from the first.
    for match in list(_BOX.finditer(text))[-_MOST_BOXES:]:
        depth, place = 1, match.end()
        while place < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            place += 1
        if not depth:
            spans.append(Span(match.start(), place, text[match.end() : place - 1]))
    return spans


def retracts(between: str) -> bool:
    """Whether these words, between two answers, take the first one back."""
    return bool(_RETRACTION.search(between))
