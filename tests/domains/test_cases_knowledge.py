# ruff: noqa: E501  (tables of cases read better one a line)
"""Multiple choice answered in many ways, with the verdict that an expert would sign."""

from __future__ import annotations

import pytest

from domains.base import GoldError, Item
from domains.knowledge import Knowledge, read_options

PROMPT = "What pet does Ann have? A) crab B) goat C) newt D) guinea pig E) pig\nAnswer:"
CASES: dict[str, list[tuple[str, str, bool]]] = {
    "a letter": [
        ("C", " C", True),
        ("C", "c", True),
        ("C", "C.", True),
        ("C", "(C)", True),
        ("C", "[C]", True),
        ("C", "C)", True),
        ("C", "**C**", True),
        ("C", "$C$", True),
        ("C", "`C`", True),
        ("C", "\\boxed{C}", True),
        ("C", "\\boxed{\\text{C}}", True),
        ("C", "B", False),
        ("C", "F", False),
        ("C", "3", False),
        ("A", "A", True),
    ],
    "a letter and its option": [
        ("C", "C) newt", True),
        ("C", "(C) newt", True),
        ("C", "C: newt", True),
        ("C", "C) goat", False),
        ("C", "The answer is C) newt.", True),
    ],
    "a sentence": [
        ("C", "The answer is C.", True),
        ("C", "the correct answer is (C)", True),
        ("C", "Answer: C", True),
        ("C", "**Answer: C**", True),
        ("C", "I would choose C because newts are small.", True),
        ("C", "Option C is correct.", True),
        ("C", "C is the right answer", True),
        ("C", "It must be C", True),
        ("C", "I'd go with C, although A is tempting.", True),
        ("C", "The answer is C because a goat is too big.", True),
        ("C", "The answer is B because a newt is too small.", False),
    ],
    "the text of an option": [
        ("C", "newt", True),
        ("C", "A newt.", True),
        ("C", "Ann has a newt.", True),
        ("D", "guinea pig", True),
        ("E", "guinea pig", False),
        ("E", "pig", True),
        ("D", "The answer is guinea pig", True),
        ("C", "newton", False),
    ],
    "taken back": [
        ("C", "The answer is B. No, wait: C.", True),
        ("B", "The answer is B. No, wait: C.", False),
        ("C", "B? Actually, C.", True),
        ("C", "\\boxed{B} Checking again, \\boxed{C}", True),
    ],
    "rejected": [
        ("C", "It is not C.", False),
        ("C", "C is wrong.", False),
        ("C", "Not newt.", False),
        ("C", "A can be excluded, so the answer is C", True),
        ("A", "A can be excluded, so the answer is C", False),
        ("C", "Option B cannot be right. The answer is C.", True),
    ],
    "several": [
        ("C", "B or C", False),
        ("C", "C or B", False),
        ("C", "A B C D E", False),
        ("C", "(A) (B) (C)", False),
        ("C", "ABCDE", False),
        ("C", "goat, newt", False),
        ("C", "Answer: B\nAnswer: C", False),
        ("C", "\\boxed{B} or \\boxed{C}", False),
        ("C", "The answer is A, B, C or D", False),
        ("C", "C\nC", True),
    ],
    "something else": [
        ("C", "Vitamin C", False),
        ("C", "Plan C", False),
        ("C", "C++", False),
        ("C", "C# is a language", False),
        ("C", "Celsius", False),
        ("C", "\u0421", False),
        ("C", "newts", False),
        ("C", "the third option", False),
        ("C", "None of these", False),
        ("C", "all of the above", False),
    ],
    "contradicted": [
        ("C", "goat (C)", False),
        ("C", "newt (C)", True),
        ("C", "newt (B)", False),
        ("C", "C, goat", False),
        ("C", "Anything but C", False),
        ("C", "not A, B, D or E", False),
        ("C", "It might be B, it might be C", False),
        ("C", "both B and C", False),
        ("C", "The answer is C. The answer is B.", False),
        ("C", "<answer>B</answer><answer>C</answer>", False),
        ("C", "<answer>B</answer> Wait, no: <answer>C</answer>", True),
        ("C", "B <!-- C -->", False),
        ("C", "<!-- C -->", False),
        ("C", "not a goat but a newt", True),
    ],
    "none": [
        ("A", "A clear answer cannot be given.", False),
        ("A", "I do not know", False),
        ("C", "", False),
        ("C", "<answer></answer>", False),
        ("C", "<think>C</think>", False),
        ("C", "<think>B</think>C", True),
        ("E", "Easy.", False),
        ("A", "An answer", False),
        ("A", "A", True),
    ],
}
FLAT = [(kind, *case) for kind, cases in CASES.items() for case in cases]


@pytest.mark.parametrize(("kind", "gold", "completion", "right"), FLAT)
def test_verdict(knowledge: Knowledge, kind: str, gold: str, completion: str, right: bool) -> None:
    verdict = knowledge.verify(completion, Item(PROMPT, gold))
    assert verdict.correct is right, f"{kind}: {verdict}"


REPEATS = "A stopwatch is helpful\nA) when asking what time it is\nB) when tracking split times\nC) when setting an alarm\nAnswer with one letter.\nAnswer:"
LISTED = "A) when asking what time it is B) when tracking split times C) when setting an alarm"


@pytest.mark.parametrize(
    ("gold", "completion", "right"),
    [
        *((gold, REPEATS, False) for gold in "ABC"),
        *((gold, LISTED, False) for gold in "ABC"),
        *((gold, f"A stopwatch is helpful {LISTED}", False) for gold in "ABC"),
        ("B", f"{REPEATS} B", True),
        ("A", f"{REPEATS} B", False),
        ("B", f"B\n{LISTED}", True),
        ("B", f"Options: {LISTED}. The answer is B.", True),
        ("C", f"The options are {LISTED}; I pick B", False),
    ],
)
def test_to_repeat_the_question_is_no_answer(knowledge: Knowledge, gold: str, completion: str, right: bool) -> None:
    assert knowledge.verify(completion, Item(REPEATS, gold)).correct is right


NUMBERED = "Animals may: (1) decompose (2) compete (3) make food (4) mate"


@pytest.mark.parametrize(
    ("gold", "completion", "right"),
    [
        ("B", "2", True),
        ("B", "(2)", True),
        ("2", "B", True),
        ("B", "The answer is 2.", True),
        ("B", "1", False),
        ("B", "compete", True),
    ],
)
def test_numbered_options_may_be_meant_by_letter(knowledge: Knowledge, gold: str, completion: str, right: bool) -> None:
    assert knowledge.verify(completion, Item(NUMBERED, gold)).correct is right


@pytest.mark.parametrize(
    ("gold", "completion", "right"),
    [
        ("husky", "husky", True),
        ("husky", "A Husky.", True),
        ("husky", "", False),
        ("husky", "dog", False),
        ("husky", "The answer is husky.", True),
    ],
)
def test_a_gold_that_is_text_is_compared_as_text(knowledge: Knowledge, gold: str, completion: str, right: bool) -> None:
    assert knowledge.verify(completion, Item("Name the breed.", gold)).correct is right


def test_the_options_of_worked_examples_are_not_those_of_the_question() -> None:
    options = read_options("Q A) one B) two\nAnswer: B\n\nQ A) three B) four C) five\nAnswer:")
    assert options.texts == ("three", "four", "five")


def test_an_empty_gold_is_an_error(knowledge: Knowledge) -> None:
    with pytest.raises(GoldError):
        knowledge.verify("C", Item(PROMPT, " "))
