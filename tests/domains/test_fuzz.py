# ruff: noqa: E501  (tables of cases read better one a line)
"""Random and mutated completions: a verifier never raises, and never takes for an answer what is none.

1,000 completions for each verifier by default, 10,000 with `-m slow`.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from domains.base import Item, Verdict
from domains.knowledge import Knowledge
from domains.mathematics import Mathematics
from domains.programming import Programming
from domains.text_to_sql import TextToSQL

FEW, MANY = 1_000, 10_000
ITEMS = {
    "mathematics": [Item("What is 40000 + 2731?", "42731"), Item("Solve.", "\\frac{\\sqrt{7}}{3}"), Item("Domain?", "[2,5)")],
    "knowledge": [Item("Which? A) crab B) goat C) newt D) asp\nAnswer:", "C"), Item("Name the breed.", "husky")],
    "programming": [Item("# add\ndef f(n): return", "n*31+7", tests="assert f(5) == 162\nassert f(0) == 7\n")],
    "text_to_sql": [
        Item("q", "SELECT SUM(a) FROM t WHERE b > 3", database="CREATE TABLE t(a INTEGER, b INTEGER); INSERT INTO t VALUES (5, 3), (7, 4), (9, 5);")
    ],
}  # fmt: skip
PIECES = {
    "mathematics": ["\\boxed{", "}", "\\frac", "{", "\\sqrt", "####", "The answer is", "or", ",", "1e9", "-", "\\%", "$", "[2,", "5)", "^", "=", "7/"],
    "knowledge": ["(", ")", "answer is", "not", "option", "or", "\\boxed{", "}", ":", "**", "<answer>", "wait, no"],
    "programming": ["def f(n):", "\n", "    return", "lambda n:", "import os", "(", ")", "n", "*", "3", "[", "raise", "class f:", "while", "```python\n", "```"],
    "text_to_sql": ["SELECT", "FROM t", "WHERE", "a", "b", ">", "SUM(", ")", "COUNT(*)", ";", "--", "/*", "'", "UNION", "WITH x AS (", "LIMIT", "```sql\n", "```"],
}  # fmt: skip
# What a text must contain before it can be an answer at all.
NEEDED = {
    "mathematics": ("42731", "42,731", "7", "5)"),
    "knowledge": ("c", "newt", "husky"),
    "programming": ("n",),
    "text_to_sql": ("a",),
}


def completions(domain: str) -> st.SearchStrategy[str]:
    pieces = st.lists(st.sampled_from(PIECES[domain]) | st.text(max_size=6), max_size=12).map(" ".join)
    golds = [item.gold for item in ITEMS[domain]]
    cut = st.tuples(st.sampled_from(golds), st.integers(0, 40), st.integers(0, 40), st.text(max_size=3))
    mutated = cut.map(lambda c: c[0][: c[1]] + c[3] + c[0][c[2] :])
    return (
        st.text(max_size=80)
        | pieces
        | mutated
        | st.binary(max_size=40).map(lambda b: b.decode("utf-8", "surrogateescape"))
    )


def check(domain: Mathematics | Knowledge | Programming | TextToSQL, completion: str) -> None:
    for item in ITEMS[domain.name]:
        verdict = domain.verify(completion, item)
        assert isinstance(verdict, Verdict)
        assert verdict.correct == (verdict.reason == "right")
        if verdict.correct:
            assert any(part in completion.lower() for part in NEEDED[domain.name]), (completion, item, verdict)


QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]


def quick(examples: int = FEW) -> settings:
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=QUIET)


@quick()
@given(completions("mathematics"))
def test_mathematics(mathematics: Mathematics, completion: str) -> None:
    check(mathematics, completion)


@quick()
@given(completions("knowledge"))
def test_knowledge(knowledge: Knowledge, completion: str) -> None:
    check(knowledge, completion)


@quick()
@given(completions("programming"))
def test_programming(programming: Programming, completion: str) -> None:
    check(programming, completion)


@quick()
@given(completions("text_to_sql"))
def test_text_to_sql(text_to_sql: TextToSQL, completion: str) -> None:
    check(text_to_sql, completion)


@pytest.mark.slow
@quick(MANY)
@given(completions("mathematics"), completions("knowledge"), completions("programming"), completions("text_to_sql"))
def test_ten_thousand_each(
    mathematics: Mathematics,
    knowledge: Knowledge,
    programming: Programming,
    text_to_sql: TextToSQL,
    one: str,
    two: str,
    three: str,
    four: str,
) -> None:
    check(mathematics, one)
    check(knowledge, two)
    check(programming, three)
    check(text_to_sql, four)


UNIT = [
    " ",
    "\n",
    "\\boxed{",
    "/*",
    "--",
    "(",
    "1,",
    "1/",
    "A ",
    "the answer is ",
    "`",
    "```\n",
    "<answer>",
    "<think>",
    "#",
    "not ",
    "'",
]


@pytest.mark.parametrize("unit", UNIT)
def test_nothing_takes_long_to_read(
    mathematics: Mathematics, knowledge: Knowledge, text_to_sql: TextToSQL, programming: Programming, unit: str
) -> None:
    """Quadratic scanning would show: 20,000 characters are read in well under the seconds this allows on a busy machine."""
    import time

    text = (unit * 20_000)[:20_000]
    for domain in (mathematics, knowledge, text_to_sql, programming):
        start = time.process_time()
        domain.verify(text, ITEMS[domain.name][0])
        assert time.process_time() - start < 4
