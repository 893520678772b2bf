"""Copies of a database with other contents, so that a query which is right only by luck is found out.

Each copy keeps the schema and what queries may rely on: keys, uniqueness, foreign keys, NOT NULL, and the kind of value in each
column. Rows are dropped, the values of other columns are shuffled among the rows, numbers are moved a little, and the
literals of the gold query are planted, so that its conditions hold for some rows and fail for others.
"""

from __future__ import annotations

import random
import re
import sqlite3
from typing import Any, NamedTuple

MAX_ROWS = 200
_LITERAL = re.compile(r"'((?:[^']|'')*)'|\"([^\"]*)\"|(?<![\w.])(-?\d+(?:\.\d+)?)(?![\w.])")


class Table(NamedTuple):
    name: str
    columns: tuple[str, ...]
    kinds: tuple[str, ...]  # "text" or "number" by declared type
    free: tuple[bool, ...]  # neither key, nor unique, nor foreign key
    rows: list[tuple[Any, ...]]


class Contents(NamedTuple):
    schema: list[str]
    tables: list[Table]


def read_contents(database: sqlite3.Connection) -> Contents:
    """The schema and the first rows of every table."""
    found = database.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' "
        "AND type IN ('table', 'view', 'index') ORDER BY CASE type WHEN 'table' THEN 0 WHEN 'index' THEN 1 ELSE 2 END"
    ).fetchall()
    tables = [_read_table(database, name) for kind, name, _ in found if kind == "table"]
    return Contents([sql for _, _, sql in found], tables)


def literals(query: str) -> list[str | int | float]:
    """The constants a query compares with."""
    values: list[str | int | float] = []
    for single, double, number in _LITERAL.findall(query):
        if number:
            values.append(float(number) if "." in number else int(number))
        else:
            values.append((single or double).replace("''", "'").strip("%"))
    return values


def make_copy(contents: Contents, planted: list[str | int | float], seed: str) -> sqlite3.Connection:
    rng = random.Random(seed)
    database = sqlite3.connect(":memory:", isolation_level=None)
    for statement in contents.schema:
        database.execute(statement)
    database.execute("BEGIN")
    for table in contents.tables:
        rows = _change(table, planted, rng)
        marks = ", ".join("?" * len(table.columns))
        database.executemany(f"INSERT OR IGNORE INTO {_quoted(table.name)} VALUES ({marks})", rows)
    database.execute("COMMIT")
    return database


def _read_table(database: sqlite3.Connection, name: str) -> Table:
    columns = database.execute(f"PRAGMA table_info({_quoted(name)})").fetchall()
    bound = {column[1].lower() for column in columns if column[5]}
    for foreign in database.execute(f"PRAGMA foreign_key_list({_quoted(name)})").fetchall():
        bound.add(foreign[3].lower())
    for index in database.execute(f"PRAGMA index_list({_quoted(name)})").fetchall():
        if index[2]:
            bound |= {str(part[2]).lower() for part in database.execute(f"PRAGMA index_info({_quoted(index[1])})")}
    rows = database.execute(f"SELECT * FROM {_quoted(name)} LIMIT {MAX_ROWS}").fetchall()
    texts = [bool(re.search("CHAR|TEXT|CLOB", column[2] or "", re.IGNORECASE)) for column in columns]
    return Table(
        name,
        tuple(column[1] for column in columns),
        tuple("text" if text else "number" for text in texts),
        tuple(column[1].lower() not in bound and not re.search(r"(?:^|_)id$", column[1], re.IGNORECASE) for column in columns),
        rows,
    )


def _change(table: Table, planted: list[str | int | float], rng: random.Random) -> list[tuple[Any, ...]]:
    rows = [row for row in table.rows if rng.random() < 0.75] or list(table.rows[:1])
    columns = [list(column) for column in zip(*rows, strict=True)]
    for place, column in enumerate(columns):
        if not table.free[place]:
            continue
        rng.shuffle(column)
        if len(set(map(repr, column))) == len(column) > 3 and table.kinds[place] == "text":
            continue  # looks like a name: values stay distinct
        for i, value in enumerate(column):
            column[i] = _moved(value, table.kinds[place], planted, rng)
    rng.shuffle(order := list(range(len(rows))))
    return [tuple(column[i] for column in columns) for i in order]


def _moved(value: Any, kind: str, planted: list[str | int | float], rng: random.Random) -> Any:
    if value is None:
        return None
    if planted and rng.random() < 0.2:
        literal = rng.choice(planted)
        if kind == "text" and isinstance(value, str) and isinstance(literal, str):
            return literal
        if isinstance(value, int | float) and isinstance(literal, int | float):
            return type(value)(literal + rng.choice((-1, 0, 0, 1)))
    if isinstance(value, int | float) and kind == "number" and rng.random() < 0.4:
        step = rng.choice((-2, -1, 1, 2))
        return max(0, value + step) if value >= 0 else value + step
    return value


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
