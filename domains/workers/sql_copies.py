"""Copies of a database with other contents, so that a query which is right only by luck is found out.

Each copy keeps the schema and what queries may rely on: keys, uniqueness, foreign keys, NOT NULL, NULLs, and the kind
of value in each column. Rows are dropped, the values of other columns are shuffled among the rows, and numbers are put
where they tell queries apart: on both sides of the constants that the gold compares with, on one side only, so that
the largest number is the constant itself or the one beside it (``MAX(a) WHERE a > 5`` against ``MAX(a) WHERE a > 4``),
spread out, and crowded on few values.

    contents = read_contents(database)                  # t(a): 3, 5, 9, ...
    gold = "SELECT MAX(a) FROM t WHERE a > 5"
    changed_rows(contents, constants(gold), 4, gold, "")   # a: 6, 5, 4, 3, 0, -3, ...
"""

from __future__ import annotations

import os
import random
import re
import sqlite3
from typing import Any, Literal, NamedTuple

MAX_ROWS = 200
_GROWN = 12
_LITERAL = re.compile(r"'((?:[^']|'')*)'|\"([^\"]*)\"|(?<![\w.])(-?\d+(?:\.\d+)?)(?![\w.])")
_COMPARED = re.compile(
    r"([A-Za-z_]\w*)[\"`\]]?\s*(?:[<>=!]+|(?:NOT\s+)?(?:LIKE|IN\s*\(|BETWEEN))\s*"
    r"(?:'((?:[^']|'')*)'|\"([^\"]*)\"|(-?\d+(?:\.\d+)?)(?![\w.]))(?:\s+AND\s+(-?\d+(?:\.\d+)?)(?![\w.]))?",
    re.IGNORECASE,
)

Value = str | int | float
Rows = list[tuple[Any, ...]]
Style = Literal["near", "crowded", "one side", "drawn", "few"]


class Table(NamedTuple):
    name: str
    columns: tuple[str, ...]
    kinds: tuple[str, ...]  # "text" or "number" by declared type
    free: tuple[bool, ...]  # neither key, nor unique, nor foreign key
    distinct: tuple[bool, ...]  # all values different, so that they may name the rows
    rows: Rows


class Contents(NamedTuple):
    schema: list[str]
    tables: list[Table]


class Constants(NamedTuple):
    """What a query compares with: all of its constants, and those that it compares a column of that name with."""

    all: list[Value]
    of_column: dict[str, list[Value]]


class Change(NamedTuple):
    keep: float  # share of the rows
    style: Style  # of numbers
    side: int = 0  # for "one side": which of `_SIDES` the compared columns get
    texts: float = 0.5  # share of repeated texts that become constants of the query


# How far from the constant numbers lie that are all on one side of it. The first values are dealt first.
_SIDES: tuple[tuple[int, ...], ...] = (
    (0, -1, -1, -2, -3, -5, -8, 0),
    (0, 1, 1, 2, 3, 5, 8, 0),
    (1, 0, -1, -2, -3, -5, -8, 1),
    (-1, 0, 1, 2, 3, 5, 8, -1),
)
CHANGES = (
    Change(keep=0.8, style="near", texts=0.15),
    Change(keep=0.9, style="crowded"),
    Change(keep=0.9, style="one side", side=0, texts=0.9),
    Change(keep=0.7, style="one side", side=1),
    Change(keep=0.9, style="one side", side=2),
    Change(keep=0.9, style="one side", side=3, texts=0.1),
    Change(keep=0.9, style="drawn", texts=0.1),
    Change(keep=0.6, style="few"),
    Change(keep=0.05, style="near"),  # a row or two
)


def read_contents(database: sqlite3.Connection) -> Contents:
    """The schema and the first rows of every table."""
    found = database.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' "
        "AND type IN ('table', 'view', 'index') ORDER BY CASE type WHEN 'table' THEN 0 WHEN 'index' THEN 1 ELSE 2 END"
    ).fetchall()
    tables = [_read_table(database, name) for kind, name, _ in found if kind == "table"]
    return Contents([sql for _, _, sql in found], tables)


def constants(query: str) -> Constants:
    """The constants of a query."""
    values: list[Value] = []
    for single, double, number in _LITERAL.findall(query):
        values.append(_value(single, double, number))
    of_column: dict[str, list[Value]] = {}
    for column, single, double, number, upper in _COMPARED.findall(query):
        of_column.setdefault(column.lower(), []).append(_value(single, double, number))
        if upper:
            of_column[column.lower()].append(_value("", "", upper))
    return Constants(values, of_column)


def _value(single: str, double: str, number: str) -> Value:
    if number:
        return float(number) if "." in number else int(number)
    return (single or double).replace("''", "'").strip("%")


def changed_rows(contents: Contents, planted: Constants, number: int, query: str, source: str) -> list[Rows | None]:
    """The rows of copy `number`, by table; None for a table that the query does not name, which stays as it is.

    Equal arguments give equal rows, in every process.
    """
    rng, text = random.Random(f"{number}/{query}{source}"), query.lower()
    views = any("VIEW" in statement[:20].upper() for statement in contents.schema)  # which may read any table
    return [
        _change(table, planted, CHANGES[number % len(CHANGES)], rng) if views or table.name.lower() in text else None
        for table in contents.tables
    ]


class Scratch:
    """A database in memory with the schema of another, whose contents are replaced from copy to copy."""

    # No query can be one of the statements below, which are prepared once for all copies.
    _MARK = f"/* {os.urandom(16).hex()} */"

    def __init__(self, contents: Contents) -> None:
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        for statement in contents.schema:
            self.database.execute(statement)
        self._statements: list[tuple[str, str]] = [
            (
                f"{self._MARK} DELETE FROM {_quoted(table.name)}",
                f"{self._MARK} INSERT OR IGNORE INTO {_quoted(table.name)} VALUES ({_marks(table)})",
            )
            for table in contents.tables
        ]
        self._original = [table.rows for table in contents.tables]
        self._changed = set(range(len(contents.tables)))
        sequences = any("AUTOINCREMENT" in statement.upper() for statement in contents.schema)
        self._clear_sequences = f"{self._MARK} DELETE FROM sqlite_sequence" if sequences else ""

    def fill(self, tables: list[Rows | None]) -> None:
        """Replace the contents of all tables; None stands for the original rows."""
        self.database.execute(f"{self._MARK} BEGIN")
        for place, rows in enumerate(tables):
            if rows is not None or place in self._changed:
                delete, insert = self._statements[place]
                self.database.execute(delete)
                self.database.executemany(insert, self._original[place] if rows is None else rows)
        if self._clear_sequences:
            self.database.execute(self._clear_sequences)
        self.database.execute(f"{self._MARK} COMMIT")
        self._changed = {place for place, rows in enumerate(tables) if rows is not None}


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
        tuple(
            column[1].lower() not in bound and not re.search(r"(?:^|_)id$", column[1], re.IGNORECASE)
            for column in columns
        ),
        tuple(len(set(values)) >= max(4, len(rows)) for values in zip(*rows, strict=True)) or (False,) * len(columns),
        rows,
    )


def _change(table: Table, planted: Constants, change: Change, rng: random.Random) -> Rows:
    chance = rng.random
    rows = [row for row in table.rows if chance() < change.keep] or table.rows[:1]
    if not rows:
        return []
    # Where nothing names a row, there may as well be more of them.
    if len(rows) < _GROWN and change.style != "near" and all(table.free) and "text" not in table.kinds:
        rows = rows + [rows[int(chance() * len(rows))] for _ in range(_GROWN - len(rows))]
    columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)]
    for place, (name, kind, free, distinct) in enumerate(
        zip(table.columns, table.kinds, table.free, table.distinct, strict=True)
    ):
        if not free:
            continue
        own = planted.of_column.get(name.lower())
        if kind == "number":
            columns[place] = _numbers(columns[place], planted, own, change, distinct, rng)
        elif distinct:  # they look like names, and stay
            columns[place] = _shuffled(columns[place], rng)
        else:
            columns[place] = _texts(columns[place], planted, own, change, rng)
    return _shuffled(list(zip(*columns, strict=True)), rng)


def _texts(
    column: list[Any], planted: Constants, own: list[Value] | None, change: Change, rng: random.Random
) -> list[Any]:
    """Texts that repeat, some of them replaced by constants of the query.

    In a column that the query compares, some become a text that is none of its constants: else a condition that every
    row fulfils would not be missed.
    """
    column = _shuffled(column, rng)
    texts = [value for value in planted.all if isinstance(value, str)] if own is None else [str(value) for value in own]
    chance = rng.random
    other = (
        [texts[0][::-1] if texts[0][::-1] not in texts else f"{texts[0]}z"] if own and change.style != "near" else []
    )
    if change.style == "few":
        pool = sorted({value for value in column if isinstance(value, str)})
        pool = _shuffled(pool, rng)[: 1 + int(chance() * 2)] + texts[:1] + other
        return [pool[int(chance() * len(pool))] if isinstance(value, str) and pool else value for value in column]
    if not texts:
        return column
    changed = [
        texts[int(chance() * len(texts))] if isinstance(value, str) and chance() < change.texts else value
        for value in column
    ]
    return [other[0] if other and isinstance(value, str) and chance() < 0.2 else value for value in changed]


def _numbers(
    column: list[Any],
    planted: Constants,
    own: list[Value] | None,
    change: Change,
    distinct: bool,
    rng: random.Random,
) -> list[Any]:
    """The numbers of a column in the style of the copy."""
    found = [value for value in column if isinstance(value, int | float)]
    if not found:
        return column
    chance, low, high = rng.random, min(found), max(found)
    pivots = [value for value in own or () if not isinstance(value, str)]
    if not pivots:  # constants of another column tell something here only if they lie among the values
        pivots = [value for value in planted.all if not isinstance(value, str) and low - 8 <= value <= high + 8]
    pivot = pivots[int(chance() * len(pivots))] if pivots else None
    style = change.style
    if pivot is None and style in ("crowded", "one side"):
        style = "drawn"
    new: list[Any]
    if style == "few":
        if distinct and not pivots:  # ties among them would ask what nobody asked
            return _shuffled(column, rng)
        few = _shuffled(sorted(set(found)), rng)[: 1 + int(chance() * 3)] + pivots[:1]
        new = [few[int(chance() * len(few))] for _ in column]
    elif style == "one side" and pivot is not None:
        steps = _SIDES[change.side if own else int(chance() * len(_SIDES))]
        new = _shuffled([pivot + steps[i % len(steps)] for i in range(len(column))], rng)
    elif style == "crowded" and pivot is not None:
        new = [pivot + (-1, 0, 0, 1)[int(chance() * 4)] if chance() < 0.7 else _moved(v, rng) for v in column]
    elif style == "drawn":
        new = [low + chance() * (high - low) if chance() < 0.8 else _moved(value, rng) for value in column]
    else:
        column = _shuffled(column, rng)
        new = [_moved(value, rng) if chance() < 0.5 else value for value in column]
        if pivot is not None:
            new = [pivot + (-1, 0, 1)[int(chance() * 3)] if chance() < 0.15 else value for value in new]
    return [type(old)(value) if isinstance(old, int | float) else old for old, value in zip(column, new, strict=True)]


def _moved(value: Any, rng: random.Random) -> Any:
    if not isinstance(value, int | float):
        return value
    new = value + (-2, -1, 1, 2)[int(rng.random() * 4)]
    return max(0, new) if value >= 0 else new


def _shuffled(values: list[Any], rng: random.Random) -> list[Any]:
    """In random order; several times as fast as `random.shuffle`."""
    chance = rng.random
    keyed = sorted((chance(), i) for i in range(len(values)))
    return [values[i] for _, i in keyed]


def _marks(table: Table) -> str:
    return ", ".join("?" * len(table.columns))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
