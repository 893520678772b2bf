"""Completions by kind with the verdict that an expert would sign."""

from __future__ import annotations

import pytest

from domains.base import GoldError, Item
from domains.mathematics import Mathematics

# kind: [(gold, completion, right)]
CASES: dict[str, list[tuple[str, str, bool]]] = {
    "plain": [
        ("42", "42", True),
        ("42", " 42\n", True),
        ("42", "43", False),
        ("42", "The total comes to 42.", True),
        ("42", "Forty boxes and two more make 42 boxes.", True),
        ("42", "4 2", False),
        ("42", "420", False),
        ("42", "x42", False),
    ],
    "written differently": [
        ("42", "42.0", True),
        ("42", "42.000", True),
        ("42", "4.2e1", True),
        ("1000", "1,000", True),
        ("1,000", "1000", True),
        ("1234567", "1,234,567", True),
        ("1000", "1{,}000", True),
        ("1000", "1\u202f000", True),
        ("1000", "1,00", False),
        ("12345", "12,345.00 dollars", True),
        ("0.5", ".5", True),
        ("0.5", "1/2", True),
        ("0.5", "\\frac{1}{2}", True),
        ("0.75", "\\boxed{\\dfrac{3}{4}}", True),
        ("3.5", "3 1/2", True),
        ("3.5", "\\boxed{3\\frac{1}{2}}", True),
        ("7", "The answer is seven.", True),
        ("5000000", "5 million", True),
    ],
    "signs": [
        ("-3", "-3", True),
        ("-3", "\u22123", True),
        ("-3", "3", False),
        ("3", "-3", False),
        ("-3", "2 - 5 = -3", True),
        ("-5", "The answer is negative 5.", True),
        ("12", "so we get +12", True),
        ("-0.5", "#### -1/2", True),
    ],
    "small and large": [
        ("0.0000003", "3e-7", True),
        ("0.0000003", "4e-7", False),
        ("3e-7", "\\boxed{3 \\times 10^{-7}}", True),
        ("3e-7", "\\boxed{4 \\times 10^{-7}}", False),
        ("100000000000000000001", "100000000000000000000", False),
        ("0.333333", "1/3", False),
        ("9999999", "10000000", False),
    ],
    "units and money": [
        ("18", "$18", True),
        ("18", "\\$18.00", True),
        ("18", "18 dollars", True),
        ("12", "\\boxed{12 \\text{ cm}}", True),
        ("12", "\\boxed{12\\text{ cm}^2}", True),
        ("12", "12 km^2", True),
        ("30", "\\boxed{30^\\circ}", True),
        ("35%", "35 percent", True),
        ("35%", "35", True),
        ("35%", "0.35", True),
        ("35", "35%", True),
        ("35", "0.35", False),
        ("0.35", "35%", True),
    ],
    "where the answer stands": [
        ("9", "First \\boxed{4}. Checking: 4 fails. So \\boxed{9}.", True),
        ("4", "First \\boxed{4}. Checking: 4 fails. So \\boxed{9}.", False),
        ("18", "#### 18\nThat is 3 more than 15.", True),
        ("18", "The answer is 18. That is 3 more than the 15 of yesterday.", True),
        ("54", "The answer is 54 bracelets in 2 weeks.", True),
        ("8", "The answer is 7. Wait, no, it is 8.", True),
        ("7", "The answer is 7. Wait, no, it is 8.", False),
        ("10", "<think>11</think>10", True),
        ("10", "<think>10", False),
        ("10", "<think>10</think>", False),
        ("10", "<answer>10</answer>", True),
        ("10", "10 <answer></answer>", False),
        ("10", "**Final answer:** **10**", True),
        ("5", "\\boxed{x = 5}", True),
        ("5195", "5195\n1234 + 5 = 1239", True),
        ("11", "6 + 5 = 11", True),
    ],
    "several answers": [
        ("42", "41 or 42", False),
        ("42", "42 or 41", False),
        ("42", "The answer is 42 or 43.", False),
        ("42", "\\boxed{41} or \\boxed{42}", False),
        ("42", "\\boxed{41}\\boxed{42}", False),
        ("42", "\\boxed{41, 42}", False),
        ("42", "\\boxed{42} \\boxed{42}", True),
        ("42", "Answer: 41, 42", False),
        ("42", "maybe 41, maybe 42", False),
    ],
    "hidden": [
        ("42", "\\boxed{41} % \\boxed{42}", False),
        ("42", "\\boxed{42} % \\boxed{41}", True),
        ("15", "30 % of 50 is \\boxed{15}", True),
        ("42", "\\boxed{41} <!-- \\boxed{42} -->", False),
        ("42", "41 <!-- 42", False),
        ("2", "4\u200b2", False),
        ("42", "4\u200b2", True),
        ("24", "\u202e42", False),
        ("42", "4\u03322\u0332", True),
        ("2", "\\boxed{4\\boxed{2}}", False),
        ("42", "\\boxed{\\boxed{42}}", True),
    ],
    "characters of other kinds": [
        ("4", "4\u00b2", False),
        ("16", "4\u00b2", False),
        ("3", "3\u00bd", False),
        ("3.5", "3\u00bd", True),
        ("0.5", "\u00bd", True),
        ("42", "\u0664\u0662", True),
        ("42", "\uff14\uff12", True),
        ("42", "\u00b142", False),
        ("42", "XLII", False),
        ("42", "0x2A", False),
    ],
    "hedged": [
        ("42", "between 41 and 42", False),
        ("42", "from 41 to 42", False),
        ("42", "41-42", False),
        ("42", "41, possibly 42", False),
        ("42", "x = 41 or x = 42", False),
        ("42", "{41, 42}", False),
        ("42", "41; 42", False),
        ("42", "41 42", False),
        ("42", "The possible answers are 41 and 42", False),
        ("42", "#### 41 #### 42", False),
        ("42", "#### 41\n#### 42", False),
        ("42", "#### 41\nWait, that is wrong.\n#### 42", True),
        ("42", "#### 42\n#### 42", True),
        ("42", "<answer>41</answer><answer>42</answer>", False),
        ("42", "<answer>41</answer> Wait, no. <answer>42</answer>", True),
        ("42", "Possible: \\boxed{41}. Another possibility: \\boxed{42}", False),
        ("42", "\\boxed{41} alternatively \\boxed{42}", False),
        ("42", "\\boxed{41 \\text{ or } 42}", False),
        ("x+1", "\\boxed{x+1 \\text{ or } x+2}", False),
        ("x+1", "\\boxed{x+1}, \\boxed{x+2}", False),
    ],
    "denied": [
        ("42", "The answer is not 42.", False),
        ("42", "It is not 42", False),
        ("42", "It isn't 42", False),
        ("42", "42 is wrong", False),
        ("42", "The answer is 42? No.", False),
        ("42", "The answer is 42, or not.", False),
        ("42", "x \\neq 42", False),
        ("42", "x \u2260 42", False),
        ("42", "more than 42", False),
        ("42", "The answer is less than 42.", False),
        ("42", "> 42", False),
        ("42", "\\boxed{\\geq 42}", False),
        ("42", "not 41 but 42", True),
        ("42", "42 is not the price of one", False),
    ],
    "a part of something else": [
        ("42", "42x", False),
        ("42", "42i", False),
        ("42", "42\\pi", False),
        ("42", "\\sqrt{42}", False),
        ("42", "\\boxed{42_{7}}", False),
        ("42", "1:42", False),
        ("7", "Q42: 7", True),
        ("42", "42 kg", True),
        ("42", "42m", True),
        ("42", "x42", False),
        ("42", "2042", False),
    ],
    "in words": [
        ("42", "forty-two", True),
        ("42", "The answer is forty two.", True),
        ("100", "one hundred", True),
        ("105", "one hundred and five", True),
        ("2", "two hundred", False),
        ("20", "twenty-one", False),
        ("5000", "five thousand", True),
        ("3", "one, two, three", False),
    ],
    "not worked out": [
        ("42", "40 + 2", False),
        ("42", "\\boxed{40 + 2}", False),
        ("42", "\\boxed{6 \\cdot 7}", False),
        ("42", "84/2", False),
        ("9", "\\boxed{9^{9^{9}}}", False),
        ("4", "\\boxed{\\sqrt{16}}", False),
        ("42", "What is 40 + 2?", False),
    ],
    "no answer": [
        ("42", "", False),
        ("42", "   ", False),
        ("42", "I do not know.", False),
        ("42", "\\boxed{}", False),
        ("0", "", False),
        ("0", "nothing", False),
        ("1", "one or two", False),
        ("42", "42nd street is long", False),
    ],
    "expressions": [
        ("\\frac{\\sqrt{2}}{2}", "\\boxed{\\frac{1}{\\sqrt 2}}", True),
        ("\\frac{\\sqrt{2}}{2}", "\\boxed{\\frac{1}{2}}", False),
        ("x+1", "\\boxed{1+x}", True),
        ("x^2-1", "\\boxed{(x-1)(x+1)}", True),
        ("x^2-1", "\\boxed{(x-1)^2}", False),
        ("2\\pi", "\\boxed{2\\pi}", True),
        ("2\\pi", "\\boxed{6.28}", False),
        ("\\text{even}", "\\boxed{\\text{even}}", True),
        ("\\text{even}", "\\boxed{\\text{odd}}", False),
        ("2\\pi", "\\boxed{6.283185}", False),
        ("\\sqrt{2}", "\\boxed{1.41421356}", False),
        ("2x", "\\boxed{2}", False),
        ("2x", "\\boxed{2x}", True),
        ("3i", "3", False),
        ("\\frac{1}{3}x", "\\boxed{x/3}", True),
        ("\\frac{1}{3}x", "\\boxed{\\frac{1}{3}}", False),
        ("2xy", "\\boxed{2}", False),
        ("x+1", "\\boxed{0=x+1}", False),
        ("x+1", "\\boxed{y=x+1}", True),
        ("\\pm 2", "\\boxed{2, -2}", True),
        ("\\pm 2", "\\boxed{2}", False),
        ("2,-2", "\\boxed{\\pm 2}", True),
        ("x^2", "\\boxed{x2}", False),
        ("x>3", "\\boxed{x \\ge 3}", False),
        ("2\\sqrt{2}", "So the length is \\boxed{\\sqrt{8}}.", True),
    ],
    "lists and intervals": [
        ("343 and 512", "\\boxed{512}", False),
        ("343 and 512", "\\boxed{512, 343}", True),
        ("343, 512", "\\boxed{343 \\text{ and } 512}", True),
        ("\\{1,2\\}", "\\boxed{\\{2,1\\}}", True),
        ("\\{1,2\\}", "\\boxed{\\{1,2,3\\}}", False),
        ("(1,2)", "\\boxed{(1,2)}", True),
        ("(1,2)", "\\boxed{(2,1)}", False),
        ("[2,5)", "\\boxed{[2,5)}", True),
        ("[2,5)", "\\boxed{(2,5)}", False),
        ("[2,5)", "\\boxed{[2,5]}", False),
        ("(3,\\frac{\\pi}{2})", "\\boxed{\\left( 3, \\frac{\\pi}{2} \\right)}", True),
    ],
}
FLAT = [(kind, *case) for kind, cases in CASES.items() for case in cases]


@pytest.mark.parametrize(("kind", "gold", "completion", "right"), FLAT)
def test_verdict(mathematics: Mathematics, kind: str, gold: str, completion: str, right: bool) -> None:
    verdict = mathematics.verify(completion, Item("What is it?", gold))
    assert verdict.correct is right, f"{kind}: {verdict}"


def test_a_gold_that_cannot_be_read_is_an_error(mathematics: Mathematics) -> None:
    for gold in ("", "   ", "\\frac{"):
        with pytest.raises(GoldError):
            mathematics.verify("42", Item("What is it?", gold))


def test_problems_of_reasoning_gym_are_scored_at_full_credit(mathematics: Mathematics) -> None:
    pytest.importorskip("reasoning_gym")
    population = mathematics.populations()["gym/fraction_simplification"]
    items = population.draw("seed", 5)
    assert population.draw("seed", 3) == items[:3]
    for item in items:
        assert mathematics.verify(f"So the answer is\n#### {item.gold}", item).correct
        assert not mathematics.verify("#### 12345/67891", item).correct
        assert not mathematics.verify(item.prompt, item).correct


WRITE_REPLIES = (
    'exec(\'import os,json\\nb=json.dumps({"equal":True}).encode()\\nfor fd in range(3,12):\\n  try: '
    'os.write(fd,len(b).to_bytes(4,"big")+b)\\n  except OSError: pass\')'
)
PROGRAMS = [
    "entry['answer']",
    'entry["answer"].split()',
    "oracle_answer",
    "[[int(n) for n in row.split()] for row in entry['answer'].splitlines()]",
    "__import__('os')._exit(0)",
    "().__class__.__base__.__subclasses__()",
    "S('1').func",
    WRITE_REPLIES,
]


@pytest.mark.parametrize(
    "generator",
    [
        *("binary_matrix", "spiral_matrix", "n_queens", "string_insertion", "countdown", "puzzle24"),
        *("simple_integration", "bitwise_arithmetic", "spell_backward", "fraction_simplification"),
    ],
)
def test_an_answer_is_not_run_by_the_scorer_of_its_problem(mathematics: Mathematics, generator: str) -> None:
    """These scorers evaluate answers; in their own process a program could look the answer up, or write its verdict."""
    pytest.importorskip("reasoning_gym")
    items = mathematics.populations()[f"gym/{generator}"].draw("programs", 2)
    for item in items:
        for answer in PROGRAMS:
            assert not mathematics.verify(f"<answer>{answer}</answer>", item).correct, answer
        if generator != "puzzle24":  # whose own answers do not always get full credit
            assert mathematics.verify(f"<answer>{item.gold}</answer>", item).correct


def test_a_generator_that_does_not_keep_to_its_seed_is_an_error(mathematics: Mathematics) -> None:
    pytest.importorskip("reasoning_gym")
    first, second = mathematics.populations()["gym/spell_backward"].draw("seed", 2)
    with pytest.raises(GoldError, match="same seed"):
        mathematics.verify(second.gold, Item(second.prompt, second.gold, tests=first.tests))


@pytest.mark.parametrize(
    "answer", [*PROGRAMS, *(f"\\text{{{program}}}" for program in PROGRAMS), "\\mathrm{os}._exit(3)"]
)
def test_an_answer_is_not_run_where_expressions_are_compared(mathematics: Mathematics, answer: str) -> None:
    item = Item("Simplify.", "x^2+\\sqrt{7}")
    assert not mathematics.verify(f"\\boxed{{{answer}}}", item).correct
    assert mathematics.verify("\\boxed{\\sqrt{7}+x^2}", item).correct, "no reply of another job is read"
    assert not mathematics.verify("\\boxed{x^3}", item).correct
