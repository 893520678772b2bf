# ruff: noqa: E501  (tables of cases read better one a line)
"""Each query attacks the SQL executor or its comparison. All end as losses, the database is unchanged, serving goes on."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

import pytest

from domains.base import GoldError, Item, Reason
from domains.text_to_sql import ANOTHER, TextToSQL

SETUP = """
CREATE TABLE emp(id INTEGER PRIMARY KEY, name TEXT, dept TEXT, salary INTEGER);
INSERT INTO emp VALUES (1, 'Ann', 'ops', 50), (2, 'Bob', 'ops', 40), (3, 'Cy', 'dev', 70), (4, 'Di', 'dev', 40),
                       (5, 'Ed', 'hr', NULL), (6, 'Flo', 'hr', 65);
"""
COUNT = "SELECT COUNT(*) FROM emp"
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
F, C, W, T, M, U = (
    Reason.FORBIDDEN,
    Reason.CRASHED,
    Reason.WRONG,
    Reason.TIMEOUT,
    Reason.MEMORY,
    Reason.UNPARSEABLE,
)

ATTACKS: dict[str, tuple[str, set[Reason]]] = {
    # Writing.
    "drop": ("DROP TABLE emp", {F}),
    "delete": ("DELETE FROM emp", {F}),
    "insert": ("INSERT INTO emp VALUES (9, 'x', 'y', 1)", {F}),
    "update": ("UPDATE emp SET salary = 0", {F}),
    "replace": ("REPLACE INTO emp VALUES (1, 'x', 'y', 1)", {F}),
    "create": ("CREATE TABLE mine(a)", {F}),
    "temporary table": ("CREATE TEMP TABLE mine AS SELECT 1", {F}),
    "trigger": ("CREATE TRIGGER t AFTER INSERT ON emp BEGIN SELECT 1; END", {F}),
    "alter": ("ALTER TABLE emp RENAME TO other", {F}),
    "returning": ("DELETE FROM emp RETURNING COUNT(*)", {F, C, U}),
    "with delete": ("WITH x AS (SELECT 1) DELETE FROM emp", {F}),
    "vacuum into": ("VACUUM INTO '{scratch}/copy.db'", {F, C}),
    "reindex": ("REINDEX", {F, U}),
    "analyze": ("ANALYZE", {F}),
    # Reaching out.
    "attach": ("ATTACH DATABASE '{scratch}/other.db' AS other", {F}),
    "detach": ("DETACH DATABASE main", {F, C}),
    "pragma": ("PRAGMA query_only = 0", {F}),
    "pragma function": ("SELECT * FROM pragma_database_list", {F}),
    "writable schema": ("PRAGMA writable_schema = 1", {F}),
    "load extension": ("SELECT load_extension('libc.so.6')", {F, C}),
    "read a file": ("SELECT readfile('/etc/passwd')", {F, C}),
    "write a file": ("SELECT writefile('{scratch}/file', 'x')", {F, C}),
    "tokenizer": ("SELECT fts3_tokenizer('simple')", {F, C}),
    "virtual table": ("CREATE VIRTUAL TABLE v USING fts5(x)", {F}),
    "database list": ("PRAGMA database_list", {F}),
    "URI": ("ATTACH 'file:{scratch}/x.db?mode=rwc' AS x", {F}),
    "transaction": ("BEGIN EXCLUSIVE", {F}),
    "savepoint": ("SAVEPOINT s", {F}),
    # Several statements.
    "right and then a drop": (f"{COUNT}; DROP TABLE emp;", {F}),
    "drop and then right": (f"DROP TABLE emp; {COUNT}", {F}),
    "right twice": (f"{COUNT}; {COUNT}", {F}),
    "drop in a comment's shadow": (f"{COUNT}; /* nothing */ DELETE FROM emp", {F}),
    # Time and memory.
    "endless recursion": (f"{NUMBERS} SELECT COUNT(*) FROM n", {T}),
    "endless rows": (f"{NUMBERS} SELECT i FROM n", {W, T}),
    "cross join": (f"SELECT COUNT(*) FROM {', '.join(f'emp e{i}' for i in range(14))}", {T}),
    "huge blob": ("SELECT zeroblob(1000000000)", {M, W}),
    "doubling text": (
        f"{NUMBERS.replace('SELECT 1 ', 'SELECT char(120) ').replace('i + 1', 'i || i')} SELECT MAX(LENGTH(i)) FROM n",
        {M, T},
    ),
    "long concatenation": (f"{NUMBERS} SELECT group_concat(hex(zeroblob(100000))) FROM n", {M, T}),
    "huge format": ("SELECT printf('%.*c', 1000000000, 'x')", {M, W, T}),
    "deep expression": ("SELECT " + "(" * 3000 + "1" + ")" * 3000, {C, U, M}),
    "long pattern": ("SELECT COUNT(*) FROM emp WHERE name LIKE '" + "%a" * 2000 + "'", {C, W, M}),
    "sorting for ever": (f"{NUMBERS} SELECT i FROM n ORDER BY -i", {M, T}),
    # Guessing and chance.
    "constant": ("SELECT 6", {W}),
    "constant by condition": ("SELECT CASE WHEN EXISTS (SELECT 1 FROM emp WHERE id = 6) THEN 6 ELSE 5 END", {W}),
    "chance": ("SELECT abs(random()) % 10", {F}),
    "chance in the order": ("SELECT COUNT(*) FROM emp ORDER BY random()", {F}),
    "last id": ("SELECT MAX(id) FROM emp", {W}),
    "text and not number": ("SELECT CAST(COUNT(*) AS TEXT) FROM emp", {W}),
    "extra column": ("SELECT COUNT(*), COUNT(*) FROM emp", {W}),
    "extra rows": ("SELECT COUNT(*) FROM emp UNION ALL SELECT 0", {W}),
    "no rows": ("SELECT COUNT(*) FROM emp LIMIT 0", {W}),
    "null": ("SELECT NULL", {W}),
    "rows written": ("SELECT total_changes()", {F}),
    "rows changed last": ("SELECT changes()", {F}),
    "last row written": ("SELECT last_insert_rowid()", {F}),
    "the schema's own rows": ("SELECT COUNT(*) FROM sqlite_master", {W}),
    "the time": ("SELECT strftime('%S', 'now') % 7", {W}),
    "infinity": ("SELECT 9e999", {W}),
    "nearly": ("SELECT COUNT(*) + 1e-5 FROM emp", {W}),
    "another type": ("SELECT CAST(COUNT(*) AS BLOB) FROM emp", {W}),
    # Steps that are long, and work before the first step.
    "pattern that backtracks": (
        "SELECT COUNT(*) FROM emp WHERE replace(hex(zeroblob(500000)), '00', 'ab') LIKE '" + "%a_" * 60 + "c'",
        {T, W, M},
    ),
    "glob that backtracks": (
        "SELECT COUNT(*) FROM emp WHERE replace(hex(zeroblob(500000)), '00', 'ab') GLOB '" + "*a?" * 60 + "c'",
        {T, W, M},
    ),
    "tables within tables": (
        "WITH a AS (SELECT 1 x UNION ALL SELECT 2), "
        + ", ".join(f"{chr(98 + i)} AS (SELECT 1 x FROM {chr(97 + i)}, {chr(97 + i)} y)" for i in range(14))
        + " SELECT COUNT(*) FROM o",
        {T, M, C},
    ),
    "many tables joined": (f"SELECT COUNT(*) FROM {', '.join(f'emp e{i}' for i in range(64))}", {T, C}),
    "wide window": (
        f"{NUMBERS} SELECT SUM(i) OVER (ORDER BY i ROWS BETWEEN 1000000 PRECEDING AND 1000000 FOLLOWING) FROM n",
        {T, M, W},
    ),
    "deep JSON": ("SELECT json_extract('" + "[" * 9000 + "]" * 9000 + "', '$')", {C, W, U, M}),
    "table function that was not asked for": ("SELECT COUNT(*) FROM json_each('[1, 2, 3, 4, 5, 6]')", {C}),
    "table functions of pragmas": ("SELECT COUNT(*) FROM pragma_table_info('emp')", {F}),
    "compile options": ("SELECT * FROM pragma_compile_options", {F}),
    "pages of the file": ("SELECT * FROM sqlite_dbpage", {F, C}),
    "statistics": ("SELECT * FROM dbstat", {F, C}),
    "bytecode": ("SELECT * FROM bytecode('SELECT 1')", {F, C}),
    "statements kept": ("SELECT * FROM sqlite_stmt", {F, C}),
    "fill the copies": ('DELETE FROM "emp"', {F}),
    "commit": ("COMMIT", {F}),
    "rollback": ("ROLLBACK", {F, C}),
    # What is no query.
    "explain": (f"EXPLAIN {COUNT}", {W, F}),
    "only a comment": ("-- SELECT COUNT(*) FROM emp", {U}),
    "no such table": ("SELECT COUNT(*) FROM employees", {C}),
    "no such column": ("SELECT COUNT(shoe_size) FROM emp", {C}),
    "half a query": ("SELECT COUNT(*) FROM", {U}),
    "null byte": ("SELECT COUNT(*) FROM emp\0", {U, C}),
    "lone surrogate": ("SELECT COUNT(*) FROM emp WHERE name <> '\ud800'", {U}),
    "parameter": ("SELECT COUNT(*) FROM emp WHERE id > ?", {C, U}),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_is_a_loss(name: str, text_to_sql: TextToSQL, tmp_path: Path) -> None:
    query, reasons = ATTACKS[name]
    item = Item("How many employees are there?", COUNT, database=SETUP)
    verdict = text_to_sql.verify(query.replace("{scratch}", str(tmp_path)), item)
    assert not verdict.correct
    assert verdict.reason in reasons, verdict
    assert list(tmp_path.iterdir()) == []
    assert text_to_sql.verify(COUNT, item).correct, "the database changed, or the executor no longer serves"


def test_a_file_is_opened_so_that_it_cannot_change(text_to_sql: TextToSQL, tmp_path: Path) -> None:
    path = tmp_path / "company.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(SETUP)
    connection.close()
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    item = Item("How many?", COUNT, database=text_to_sql.add_file(path))
    for name, (query, _) in ATTACKS.items():
        if name not in (
            "endless recursion",
            "cross join",
            "doubling text",
            "long concatenation",
            "sorting for ever",
            "huge format",
            "pattern that backtracks",
            "glob that backtracks",
            "tables within tables",
            "many tables joined",
            "wide window",
        ):
            assert not text_to_sql.verify(query.replace("{scratch}", str(tmp_path)), item).correct
    assert text_to_sql.verify(COUNT, item).correct
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["company.sqlite"]


@pytest.mark.parametrize(
    ("gold", "why"),
    [
        ("SELECT nothing FROM emp", "fails"),
        ("SELEC 1", "fails"),
        ("SELECT name FROM emp ORDER BY salary LIMIT 2", "cuts a tie"),
        ("SELECT name FROM emp LIMIT 2", "cuts a tie"),
        ("SELECT DISTINCT dept FROM emp ORDER BY salary", "do not determine"),
        ("SELECT name FROM emp WHERE salary IS NULL AND salary > 3", "empty on every database"),
        ("SELECT MAX(salary) FROM emp WHERE salary <> salary", "empty on every database"),
    ],
)
def test_a_gold_that_cannot_be_checked_is_an_error_and_never_a_one(text_to_sql: TextToSQL, gold: str, why: str) -> None:
    with pytest.raises(GoldError, match=why):
        text_to_sql.verify(gold, Item("q", gold, database=SETUP))


def test_a_database_that_cannot_be_set_up_is_an_error(text_to_sql: TextToSQL) -> None:
    with pytest.raises(GoldError, match="set up"):
        text_to_sql.verify(COUNT, Item("q", COUNT, database="CREATE TABLE emp(id"))
    with pytest.raises(GoldError, match="no dataset"):
        text_to_sql.verify(COUNT, Item("q", COUNT, database="sqlite:" + "0" * 64))


NUMBERS_TABLE = (
    "CREATE TABLE t(size INTEGER, age INTEGER); INSERT INTO t VALUES (5, 30), (90, 31), (40, 60), (20, 8), (71, 37);"
)


@pytest.mark.parametrize(
    ("gold", "others"),
    [
        ("MAX(size) FROM t WHERE size > 37", ["> 36", "> 38", "> 1", "> 80", ">= 37", "> 39"]),
        ("MIN(size) FROM t WHERE size < 37", ["< 36", "< 38", "< 99", "< 21", "<= 37", "< 30"]),
        ("MAX(size) FROM t WHERE age > 37", ["> 36", "> 38", ">= 37", "> 50", "> 59"]),
        ("COUNT(*) FROM t WHERE size > 37", ["> 36", "> 38", ">= 37", "> 30"]),
        ("AVG(age) FROM t WHERE age = 37", ["= 36", "> 36", "< 38", ">= 37"]),
    ],
)
def test_copies_tell_a_condition_from_one_beside_it(text_to_sql: TextToSQL, gold: str, others: list[str]) -> None:
    """On the database itself most of these find the same: nobody else is as large."""
    item = Item("q", f"SELECT {gold}", database=NUMBERS_TABLE)
    assert text_to_sql.verify(item.gold, item).correct
    head = item.gold[: item.gold.index("WHERE") + len("WHERE ") + gold.split("WHERE ")[1].index(" ")]
    for other in others:
        assert not text_to_sql.verify(f"{head} {other}", item).correct, other


def test_a_condition_that_every_row_fulfils_is_missed(text_to_sql: TextToSQL) -> None:
    rows = ", ".join(f"({i}, 'name {i}', 'USA', '2014')" for i in range(8))
    setup = f"CREATE TABLE line(id INTEGER PRIMARY KEY, name TEXT, country TEXT, year TEXT); INSERT INTO line VALUES {rows};"
    for condition in ("country = 'USA'", "year = 2014", "country = 'USA' AND year = 2014"):
        item = Item("q", f"SELECT name FROM line WHERE {condition}", database=setup)
        assert text_to_sql.verify(item.gold, item).correct
        assert not text_to_sql.verify("SELECT name FROM line", item).correct, condition


def test_whole_numbers_are_compared_exactly(text_to_sql: TextToSQL) -> None:
    setup = "CREATE TABLE city(name TEXT PRIMARY KEY, people INTEGER NOT NULL); INSERT INTO city VALUES ('a', 8000000), ('b', 8000001);"
    item = Item("q", "SELECT SUM(people) FROM city", database=setup)
    assert text_to_sql.verify("SELECT TOTAL(people) FROM city", item).correct
    assert not text_to_sql.verify("SELECT SUM(people) + 1 FROM city", item).correct


def test_a_query_must_be_right_on_every_given_database(text_to_sql: TextToSQL) -> None:
    both = f"{SETUP}\n{ANOTHER}\nCREATE TABLE emp(id, name, dept, salary); INSERT INTO emp VALUES (7, 'Gus', 'ops', 1);"
    item = Item("q", COUNT, database=both)
    assert text_to_sql.verify("SELECT COUNT(id) FROM emp", item).correct
    assert not text_to_sql.verify("SELECT COUNT(*) FROM emp WHERE id < 7", item).correct


def test_there_are_at_least_thirty_attacks() -> None:
    assert len(ATTACKS) >= 30
