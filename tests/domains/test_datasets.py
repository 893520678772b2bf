# ruff: noqa: E501  (tables of cases read better one a line)
"""Datasets from a folder and in the hub's own columns: splits, duplicates, groups, prompts, golds."""

from __future__ import annotations

import gzip
import json
import sqlite3
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from domains.base import Item, Population
from domains.check import check_file
from domains.data import text_to_sql as sql_data
from domains.data.pool import Entry, Loaded, Pool
from domains.data.rows import DataError
from domains.knowledge import Knowledge
from domains.mathematics import Mathematics
from domains.programming import Programming
from domains.text_to_sql import TextToSQL
from domains.validate import NON_ANSWERS, attacks, validate


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")


def pool(population: Population) -> Pool:
    assert isinstance(population, Pool)
    return population


def test_duplicates_go_by_a_rule_that_sees_no_answer(tmp_path: Path) -> None:
    rows = [("a", "How many?", "1"), ("b", "how  many ?", "2"), ("c", "How much?", "3"), ("d", "Which one?", "4")]
    write(tmp_path / "math/gsm8k_train.jsonl", [{"id": i, "question": q, "answer": a} for i, q, a in rows])
    write(tmp_path / "math/gsm8k_test.jsonl", [{"id": "t", "question": "HOW MUCH", "answer": "9"}])
    train = pool(Mathematics(tmp_path).populations()["gsm8k_train"])
    assert [item.id for item in train.items] == ["a", "d"]
    assert {reason: count for reason, count in train.removed.items() if count} == {
        "repeated": 1,
        "in the test split": 1,
    }


def test_a_draw_is_a_subset_that_depends_on_the_seed_alone() -> None:
    items = [Item(f"Q{i}", str(i), id=str(i)) for i in range(50)]
    population = Pool("p", "numbers", lambda: Loaded([Entry(item, item.prompt) for item in items]))
    drawn = population.draw("seed", 20)
    assert len({item.id for item in drawn}) == 20
    assert population.draw("seed", 7) == drawn[:7]
    assert population.draw("other", 20) != drawn
    assert population.design == "finite_pool"
    with pytest.raises(ValueError, match="50 independent items, 51"):
        population.draw("seed", 51)


def test_of_a_group_one_item_is_drawn() -> None:
    items = [Item(f"Q{i}", str(i), group=f"g{i // 5}") for i in range(50)]
    population = Pool("p", "groups", lambda: Loaded([Entry(item, item.prompt) for item in items]))
    assert len({item.group for item in population.draw("seed", 10)}) == 10
    with pytest.raises(ValueError, match="10 independent"):
        population.draw("seed", 11)


def test_mbpp_takes_its_hidden_tests_from_mbpp_plus(tmp_path: Path) -> None:
    row = {
        "id": "mbpp-7",
        "split": "train",
        "prompt": "Add.",
        "reference": "def sum(a, b): return a + b",
        "tests": ["assert sum(1, 2) == 3"],
    }
    plus = {"id": "mbppplus-7", "prompt": "Add two.", "reference": row["reference"], "tests_base": ["assert sum(1, 2) == 3"], "test_plus": "assert sum(-4, 4) == 0\n"}  # fmt: skip
    write(tmp_path / "code/mbpp.jsonl", [row])
    write(tmp_path / "code/mbpp_plus.jsonl.gz", [plus])
    domain = Programming(tmp_path)
    try:
        (item,) = pool(domain.populations()["mbpp_train"]).items
        assert "sum(1, 2)" in item.prompt
        assert "-4" not in item.prompt
        assert item.tests.startswith("# candidate: sum\n# cpu: 12\n")
        assert domain.verify(item.gold, item).correct
        assert not domain.verify("def sum(a, b): return 3", item).correct
    finally:
        domain.close()


def test_humaneval_judges_with_the_helpers_of_the_prompt_and_not_with_those_of_the_program(tmp_path: Path) -> None:
    prompt = 'def poly(x):\n    return x - 3\n\n\ndef zero():\n    """ The zero of poly. """\n'
    write(tmp_path / "code/humaneval.jsonl", [{"id": "H/0", "prompt": prompt, "entry_point": "zero", "reference": "    return 3\n", "test": "def check(candidate):\n    assert poly(candidate()) == 0\n"}])  # fmt: skip
    domain = Programming(tmp_path)
    try:
        (item,) = pool(domain.populations()["humaneval"]).items
        assert domain.verify(item.gold, item).correct
        assert not domain.verify("def poly(x): return 0\ndef zero(): return 1\n", item).correct
    finally:
        domain.close()


def company(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript(
        "CREATE TABLE emp(id INTEGER PRIMARY KEY, name TEXT); INSERT INTO emp VALUES (1, 'Ann'), (2, 'Bob');"
    )
    connection.close()


def test_spider_leaves_out_what_it_flags_and_groups_by_query(tmp_path: Path) -> None:
    company(tmp_path / "sql/spider_db/company.sqlite")
    questions = [
        ("How many?", 0, True),
        ("What is the number?", 0, True),
        ("Who is last?", 1, False),
        ("Names?", 2, True),
    ]
    write(tmp_path / "sql/spider_dev.jsonl", [
        {"id": f"s{i}", "db_id": "company", "question": q, "sql": "SELECT COUNT(*) FROM emp", "sql_group": g, "recommended": r}
        for i, (q, g, r) in enumerate(questions)
    ])  # fmt: skip
    domain = TextToSQL(tmp_path)
    try:
        dev = pool(domain.populations()["spider_dev"])
        assert dev.removed["unusable"] == 1
        assert {item.group for item in dev.draw("seed", 2)} == {"company/0", "company/2"}
        assert "CREATE TABLE emp" in dev.items[0].prompt
        report = validate(domain, dev)
        assert report.passed, str(report)
    finally:
        domain.close()


def test_questions_of_ones_own_over_any_sqlite_file(tmp_path: Path) -> None:
    company(tmp_path / "mine.sqlite")
    write(tmp_path / "asked.jsonl", [{"question": "Who has id 1?", "sql": "SELECT name FROM emp WHERE id = 1"}])
    domain = TextToSQL()
    try:
        mine = sql_data.own_questions(tmp_path / "mine.sqlite", tmp_path / "asked.jsonl", domain.add_file)
        (item,) = mine.items
        assert domain.verify("SELECT name FROM emp WHERE id < 2", item).correct
        assert not domain.verify("SELECT 'Ann'", item).correct
    finally:
        domain.close()


def test_a_database_and_questions_in_the_folder_are_a_population_and_golds_are_checked(tmp_path: Path) -> None:
    company(tmp_path / "sql" / "mine.sqlite")
    golds = {
        "Who has id 1?": "SELECT name FROM emp WHERE id = 1",
        "Anybody?": "SELECT name FROM emp LIMIT 1",
        "Who is tallest?": "SELECT name FROM emp ORDER BY height",
        "Who is nobody?": "SELECT name FROM emp WHERE id IS NULL",
    }
    write(tmp_path / "sql" / "mine.jsonl", [{"question": q, "sql": sql} for q, sql in golds.items()])
    domain = TextToSQL(tmp_path)
    try:
        mine = pool(domain.populations()["mine"])
        assert [item.gold for item in mine.items] == ["SELECT name FROM emp WHERE id = 1"]
        assert mine.removed["with a gold that cannot be checked"] == 3
        why = mine.rejected
        assert "cuts a tie" in why["mine-1"]
        assert "fails" in why["mine-2"]
        assert "empty on every database" in why["mine-3"]
        assert "mine-1: the gold's LIMIT cuts a tie" in str(validate(domain, mine))
    finally:
        domain.close()


HUB: dict[str, list[dict[str, Any]]] = {
    "openai/gsm8k": [{"question": "How many?", "answer": "1 + 1 = 2\n#### 1,002"}],
    "ChilleD/SVAMP": [{"ID": "s1", "Body": "Ann has 3 pens.", "Question": "How many?", "Answer": "3.0"}],
    "HuggingFaceH4/MATH-500": [{"problem": "Simplify.", "answer": "\\frac{1}{2}", "unique_id": "m1"}],
    "allenai/ai2_arc": [{"id": "a1", "question": "Which?", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "2"}],
    "allenai/openbookqa": [{"id": "o1", "question_stem": "Where?", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "A"}],
    "tau/commonsense_qa": [{"id": "c1", "question": "Why?", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "B"}],
    "cais/mmlu": [{"question": "Who?", "subject": "law", "choices": ["x", "y", "z", "w"], "answer": 3}],
    "google-research-datasets/mbpp": [{"task_id": 9, "text": "One.", "code": "def one(): return 1", "test_list": ["assert one() == 1"], "test_setup_code": "", "challenge_test_list": []}],
    "evalplus/mbppplus": [{"task_id": 8, "prompt": "Two.", "code": "def two(): return 2", "test_list": ["assert two() == 2"], "test": "assert two() == 2\n"}],
    "openai/openai_humaneval": [{"task_id": "HumanEval/1", "prompt": "def one():\n    \"\"\" One. \"\"\"\n", "entry_point": "one", "canonical_solution": "    return 1\n", "test": "def check(c):\n    assert c() == 1\n"}],
}  # fmt: skip


def test_the_hub_s_own_columns_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns as the hub gives them; what is downloaded is stood in for, as tests have no network."""
    asked: list[tuple[str, str | None, str]] = []

    def load_dataset(name: str, config: str | None, split: str) -> list[dict[str, Any]]:
        asked.append((name, config, split))
        return HUB[name] if split != "test" or "gsm8k" not in name else []

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    programming = Programming()
    found = dict(Mathematics().populations()) | dict(Knowledge().populations()) | dict(programming.populations())
    golds = {
        name: pool(found[name]).items[0].gold
        for name in ("gsm8k_train", "svamp", "math500", "mmlu_test", "commonsenseqa_val")
    }
    assert golds == {
        "gsm8k_train": "1002",
        "svamp": "3",
        "math500": "\\frac{1}{2}",
        "mmlu_test": "D",
        "commonsenseqa_val": "B",
    }
    assert [pool(found[name]).items[0].gold for name in ("arc_easy_test", "openbookqa_test")] == ["B", "A"]
    try:
        for name in ("mbpp_test", "humaneval"):
            item = pool(found[name]).items[0]
            assert programming.verify(item.gold, item).correct
    finally:
        programming.close()
    assert ("openai/gsm8k", "main", "train") in asked


def test_missing_data_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds neither math/svamp.jsonl"):
        Mathematics(tmp_path).populations()["svamp"].draw("seed", 1)
    with pytest.raises(DataError, match="only in a data directory"):
        TextToSQL().populations()["spider_dev"].draw("seed", 1)
    write(tmp_path / "math/svamp.jsonl", [])
    with pytest.raises(ValueError, match="empty"):
        Mathematics(tmp_path).populations()["svamp"].draw("seed", 1)
    (tmp_path / "math/svamp.jsonl").write_text("{broken\n")
    with pytest.raises(DataError, match="line 1"):
        Mathematics(tmp_path).populations()["svamp"].draw("seed", 1)


def test_shuffled_options_keep_their_answer(tmp_path: Path, knowledge: Knowledge) -> None:
    rows = [
        {"id": f"k{i}", "question": f"Which {i}?", "choices": ["ant", "bee", "cow", "dog"], "label": i % 4}
        for i in range(40)
    ]
    write(tmp_path / "knowledge/commonsenseqa_val.jsonl", rows)
    populations = Knowledge(tmp_path).populations()
    plain, shuffled = (
        pool(populations["commonsenseqa_val"]).items,
        pool(populations["commonsenseqa_val+shuffled"]).items,
    )
    assert [item.gold for item in plain] != [item.gold for item in shuffled]
    for row, item in zip(rows, shuffled, strict=True):
        assert knowledge.verify(str(row["choices"][row["label"]]), item).correct  # type: ignore[index]


@pytest.mark.parametrize("name", ["mathematics", "programming", "knowledge", "text_to_sql"])
def test_validate_passes_on_the_pocket_families(name: str, request: pytest.FixtureRequest) -> None:
    domain = request.getfixturevalue(name)
    report = validate(domain, domain.populations()["pocket"], n=40, attacked=6)
    assert report.passed, str(report)
    assert report.items == 40
    assert "passed" in str(report)


def test_validate_names_a_verifier_that_can_be_fooled(knowledge: Knowledge) -> None:
    class Lenient(Knowledge):
        def verify(self, completion: str, item: Item):  # type: ignore[no-untyped-def]
            return knowledge.verify(item.gold if not completion.strip() else completion, item)

    report = validate(Lenient(), knowledge.populations()["pocket"], n=10, attacked=3)
    assert not report.passed
    assert {kind for _, kind in report.false_rights} == {"empty", "blank"}
    assert len(dict(attacks("knowledge", Item("Q A) x B) y", "A")))) > len(NON_ANSWERS)


def test_check_scores_a_file_of_cases(tmp_path: Path) -> None:
    cases = [
        {"domain": "math", "id": "m", "question": "40 + 2?", "gold": "42", "completion": "42"},
        {"domain": "code", "id": "c", "question": "f", "gold": "", "completion": "def f(): return 2", "tests": "assert f() == 1"},
        {"domain": "knowledge", "id": "k", "question": "A) x B) y", "gold": "B", "completion": "B"},
        {"domain": "sql", "id": "s", "question": "q", "gold": "SELECT COUNT(*) FROM t", "completion": "SELECT 1", "setup_sql": "CREATE TABLE t(a); INSERT INTO t VALUES (1);", "setup_sql_alt": "CREATE TABLE t(a);"},
        {"domain": "math", "id": "g", "question": "?", "gold": "", "completion": "42"},
    ]  # fmt: skip
    write(tmp_path / "cases.jsonl", cases)
    found = {row["id"]: (row["correct"], row["reason"]) for row in check_file(tmp_path / "cases.jsonl")}
    assert found == {
        "m": (True, "right"),
        "c": (False, "wrong"),
        "k": (True, "right"),
        "s": (False, "wrong"),
        "g": (False, "gold"),
    }
    (tmp_path / "bad.jsonl").write_text('{"domain": "math"}\n')
    with pytest.raises(ValueError, match="line 1: no id, gold, completion"):
        list(check_file(tmp_path / "bad.jsonl"))
