# ruff: noqa: E501  (tables of cases read better one a line)
"""Queries against golds, by kind: what counts as the same answer, and what is taken for the query."""

from __future__ import annotations

import pytest

from domains.base import Item
from domains.text_to_sql import TextToSQL, query
from domains.workers.sql_compare import Row, same

SETUP = """
CREATE TABLE emp(id INTEGER PRIMARY KEY, name TEXT, dept TEXT, salary INTEGER, rate REAL);
INSERT INTO emp VALUES (1,'Ann','ops',50,0.1),(2,'Bob','ops',40,0.2),(3,'Cy','dev',70,0.3),(4,'Di','dev',40,0.7),
                       (5,'Ed','hr',NULL,0.4),(6,'Flo','hr',65,0.6);
CREATE TABLE dep(dept TEXT PRIMARY KEY, city TEXT);
INSERT INTO dep VALUES ('ops','Rome'),('dev','Oslo'),('hr','Rome'),('law','Bonn');
"""
# kind: [(gold, completion, right)]
CASES: dict[str, list[tuple[str, str, bool]]] = {
    "the same in other words": [
        ("SELECT COUNT(*) FROM emp", "select count(id) from EMP", True),
        ("SELECT name FROM emp WHERE dept = 'ops'", "SELECT name FROM emp WHERE dept IN ('ops')", True),
        ("SELECT name FROM emp WHERE salary > 45", "SELECT e.name AS who FROM emp e WHERE NOT e.salary <= 45", True),
        ("SELECT MAX(salary) FROM emp", "SELECT salary FROM emp ORDER BY salary DESC LIMIT 1", True),
        ("SELECT AVG(salary) FROM emp", "SELECT SUM(salary) * 1.0 / COUNT(salary) FROM emp", True),
        ("SELECT SUM(rate) FROM emp", "SELECT TOTAL(rate) FROM (SELECT rate FROM emp ORDER BY rate DESC)", True),
        ("SELECT 2 * COUNT(*) FROM emp", "SELECT 2.0 * COUNT(*) FROM emp", True),
        ("SELECT city FROM dep JOIN emp USING (dept) WHERE name = 'Cy'",
         "SELECT city FROM dep WHERE dept = (SELECT dept FROM emp WHERE name = 'Cy')", True),
        ("SELECT dept, COUNT(*) FROM emp GROUP BY dept", "SELECT dept, SUM(1) FROM emp GROUP BY 1", True),
        ("SELECT name FROM emp WHERE salary IS NULL", "SELECT name FROM emp WHERE COALESCE(salary, -1) = -1", True),
    ],
    "nearly": [
        ("SELECT name FROM emp WHERE salary > 40", "SELECT name FROM emp WHERE salary >= 40", False),
        ("SELECT COUNT(*) FROM emp", "SELECT COUNT(salary) FROM emp", False),
        ("SELECT COUNT(DISTINCT dept) FROM emp", "SELECT COUNT(dept) FROM emp", False),
        ("SELECT DISTINCT dept FROM emp", "SELECT dept FROM emp", False),
        ("SELECT dept FROM emp", "SELECT DISTINCT dept FROM emp", False),
        ("SELECT MAX(salary) FROM emp", "SELECT MAX(id) FROM emp", False),
        ("SELECT AVG(salary) FROM emp", "SELECT SUM(salary) * 1.0 / COUNT(*) FROM emp", False),
        ("SELECT MIN(salary) FROM emp WHERE dept = 'ops'", "SELECT MIN(salary) FROM emp", False),
        ("SELECT name FROM emp WHERE dept = 'dev'", "SELECT name FROM emp WHERE id IN (3, 4)", False),
        ("SELECT city FROM dep", "SELECT city FROM dep UNION SELECT city FROM dep", False),
    ],
    "columns": [
        ("SELECT name, dept FROM emp", "SELECT dept, name FROM emp", False),
        ("SELECT name FROM emp", "SELECT name, dept FROM emp", False),
        ("SELECT name, dept FROM emp", "SELECT name FROM emp", False),
        ("SELECT * FROM dep", "SELECT dept, city FROM dep", True),
    ],
    "order": [
        ("SELECT name FROM emp ORDER BY name DESC", "SELECT name FROM emp", False),
        ("SELECT name FROM emp", "SELECT name FROM emp ORDER BY name DESC", True),
        ("SELECT name FROM emp ORDER BY id", "SELECT name FROM emp", False),
        ("SELECT name FROM emp WHERE salary > 0 ORDER BY salary", "SELECT name FROM emp WHERE salary > 0 ORDER BY salary, name DESC", True),
        ("SELECT name FROM emp WHERE salary > 0 ORDER BY salary DESC", "SELECT name FROM emp WHERE salary > 0 ORDER BY salary", False),
        ("SELECT name, salary FROM emp ORDER BY 2 DESC, 1", "SELECT name, salary FROM emp ORDER BY salary DESC, name", True),
        ("SELECT dept, COUNT(*) AS n FROM emp GROUP BY dept ORDER BY n, dept", "SELECT dept, COUNT(*) FROM emp GROUP BY dept ORDER BY COUNT(*), dept", True),
        ("SELECT name FROM emp ORDER BY salary DESC LIMIT 1", "SELECT name FROM emp WHERE salary = (SELECT MAX(salary) FROM emp)", True),
        ("SELECT name FROM emp ORDER BY rate LIMIT 2 OFFSET 1", "SELECT name FROM emp ORDER BY rate LIMIT 1, 2", True),
        ("SELECT name FROM emp ORDER BY rate LIMIT 2", "SELECT name FROM emp ORDER BY rate LIMIT 3", False),
        ("SELECT name FROM emp UNION SELECT city FROM dep ORDER BY 1", "SELECT city FROM dep UNION SELECT name FROM emp ORDER BY 1 DESC", False),
        ("SELECT name FROM (SELECT name FROM emp ORDER BY rate)", "SELECT name FROM emp", True),
    ],
    "luck": [
        ("SELECT COUNT(*) FROM emp", "SELECT 6", False),
        ("SELECT COUNT(*) FROM emp WHERE dept = 'ops'", "SELECT COUNT(*) FROM emp WHERE dept = 'hr'", False),
        ("SELECT name FROM emp WHERE salary = 70", "SELECT 'Cy'", False),
        ("SELECT name FROM emp WHERE dept = 'law'", "SELECT name FROM emp WHERE salary > 1000", False),
        ("SELECT MAX(salary) FROM emp", "SELECT MAX(salary) FROM emp WHERE dept = 'dev'", False),
    ],
    "dressing": [
        ("SELECT COUNT(*) FROM dep", "```sql\nSELECT COUNT(*) FROM dep;\n```", True),
        ("SELECT COUNT(*) FROM dep", "The query:\n```sql\nSELECT COUNT(*)\nFROM dep\n```\nIt counts.", True),
        ("SELECT COUNT(*) FROM dep", "SQL: SELECT COUNT(*) FROM dep;", True),
        ("SELECT COUNT(*) FROM dep", "SELECT COUNT(*) FROM dep;\nThis counts the departments.", True),
        ("SELECT COUNT(*) FROM dep", "-- departments\nSELECT COUNT(*) FROM dep", True),
        ("SELECT COUNT(*) FROM dep", "/* all */ SELECT COUNT(*) FROM dep ;;", True),
        ("SELECT COUNT(*) FROM dep", "<think>SELECT 1</think>SELECT COUNT(*) FROM dep", True),
        ("SELECT COUNT(*) FROM dep", "WITH d AS (SELECT * FROM dep) SELECT COUNT(*) FROM d", True),
        ("SELECT COUNT(*) FROM dep WHERE city <> 'a;b'", "SELECT COUNT(*) FROM dep WHERE city <> 'a;b';", True),
        ("SELECT COUNT(*) FROM dep", "I would count them.", False),
        ("SELECT COUNT(*) FROM dep", "", False),
        ("SELECT COUNT(*) FROM dep", "```sql\n```", False),
    ],
}  # fmt: skip
FLAT = [(kind, *case) for kind, cases in CASES.items() for case in cases]


@pytest.mark.parametrize(("kind", "gold", "completion", "right"), FLAT)
def test_verdict(text_to_sql: TextToSQL, kind: str, gold: str, completion: str, right: bool) -> None:
    verdict = text_to_sql.verify(completion, Item("q", gold, database=SETUP))
    assert verdict.correct is right, f"{kind}: {verdict}"


def test_a_prompt_that_ends_in_select_is_continued(text_to_sql: TextToSQL) -> None:
    item = Item("How many departments?\nSELECT", "SELECT COUNT(*) FROM dep", database=SETUP)
    assert query(item, " COUNT(*) FROM dep") == "SELECT COUNT(*) FROM dep"
    assert text_to_sql.verify(" COUNT(*) FROM dep", item).correct


@pytest.mark.parametrize(
    ("gold", "answer", "blocks", "right"),
    [
        ([(1,), (2,)], [(2,), (1,)], None, True),
        ([(1,), (2,)], [(2,), (1,)], [0, 1], False),
        ([(1,), (2,)], [(2,), (1,)], [0, 0], True),
        ([(2,)], [(2.0,)], None, True),
        ([(2,)], [("2",)], None, False),
        ([(None,)], [(None,)], None, True),
        ([(None,)], [(0,)], None, False),
        ([(0.1 + 0.2,)], [(0.3,)], None, True),
        ([(1.0,)], [(1.001,)], None, False),
        ([(1e-9, "a"), (2e-9, "b")], [(2e-9, "a"), (1e-9, "b")], None, False),
        ([(1.0, "a"), (1.0000000001, "b")], [(1.0000000001, "a"), (1.0, "b")], None, True),
        ([], [], None, True),
        ([(b"x",)], [("x",)], None, False),
        ([(1, 2)], [(1,)], None, False),
    ],
)
def test_when_results_are_the_same(gold: list[Row], answer: list[Row], blocks: list[int] | None, right: bool) -> None:
    assert same(gold, answer, blocks) is right
