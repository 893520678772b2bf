"""Copies of a database with other contents, so that a query which is right only by luck is found out.

Each copy keeps the schema and what queries may rely on: keys, uniqueness, foreign keys, NOT NULL, and the kind of
value in each column. Rows are dropped, the values of other columns are shuffled among the rows, numbers are moved a
little, and the literals of the gold query are planted, so that its conditions hold for some rows and fail for others.
"""

from __future__ import annotations

import random
import re
import sqlite3
from typing import Any, NamedTuple

MAX_ROWS = 200
_GROWN = 16
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


class Change(NamedTuple):
    """How a copy differs: the share of rows kept, of cells put near a constant of the query, of numbers moved or
    drawn."""

    keep: float
    plant: float
    move: float
    draw: float
    one_sided: bool = False  # a column's planted numbers all lie on the same side of the constant


# A near copy, one crowded around the query's own constants, one beside them, one with other numbers throughout.
CHANGES = (
    Change(keep=0.8, plant=0.15, move=0.4, draw=0.0),
    Change(keep=0.9, plant=0.7, move=0.3, draw=0.1),
    Change(keep=0.6, plant=0.95, move=0.3, draw=0.3, one_sided=True),
    Change(keep=0.9, plant=0.1, move=0.0, draw=0.8),
)


def make_copy(contents: Contents, planted: list[str | int | float], number: int, seed: str) -> sqlite3.Connection:
    """Copy `number` of a database. Equal arguments make equal copies, in every process."""
    rng, change = random.Random(f"{number}/{seed}"), CHANGES[number % len(CHANGES)]
    database = sqlite3.connect(":memory:", isolation_level=None)
    for statement in contents.schema:
        database.execute(statement)
    database.execute("BEGIN")
    for table in contents.tables:
        rows = _change(table, planted, change, rng)
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
        tuple(
            column[1].lower() not in bound and not re.search(r"(?:^|_)id$", column[1], re.IGNORECASE)
            for column in columns
        ),
        rows,
    )


def _change(
    table: Table, planted: list[str | int | float], change: Change, rng: random.Random
) -> list[tuple[Any, ...]]:
    rows = [row for row in table.rows if rng.random() < change.keep] or list(table.rows[:1])
    if (
        rows and all(table.free) and "text" not in table.kinds
    ):  # nothing names a row, so there may as well be more of them
        rows += rng.choices(rows, k=max(0, _GROWN - len(rows)) if change.draw else 0)
    columns = [list(column) for column in zip(*rows, strict=True)]
    texts = [value for value in planted if isinstance(value, str)]
    numbers = [value for value in planted if not isinstance(value, str)]
    for place, (kind, free) in enumerate(zip(table.kinds, table.free, strict=True)):
        if free and columns:
            rng.shuffle(columns[place])
            if kind == "number":
                columns[place] = _other_numbers(columns[place], numbers, change, rng)
            elif texts and len(set(columns[place])) < max(
                4, len(rows)
            ):  # all different: they look like names, and stay
                columns[place] = [
                    rng.choice(texts) if isinstance(value, str) and rng.random() < change.plant else value
                    for value in columns[place]
                ]
    order = list(range(len(rows)))
    rng.shuffle(order)
    return [tuple(column[i] for column in columns) for i in order]


def _other_numbers(column: list[Any], planted: list[int | float], change: Change, rng: random.Random) -> list[Any]:
    """The numbers of a column put near a constant of the query, drawn anew, moved by a little, or left as they are."""
    found = [value for value in column if isinstance(value, int | float)]
    if not found:
        return column
    low, width, chance = min(found), max(found) - min(found), rng.random
    steps = rng.choice((range(8), range(0, -8, -1))) if change.one_sided else (-1, 0, 0, 1)
    plant = change.plant if planted else 0.0
    draw = plant + (1 - plant) * change.draw
    move = draw + (1 - plant) * change.move
    changed: list[Any] = []
    for value in column:
        fate = chance()
        if fate < move and isinstance(value, int | float):
            if fate < plant:
                new = planted[int(chance() * len(planted))] + steps[int(chance() * len(steps))]
            elif fate < draw:
                new = low + chance() * width
            else:
                new = value + (-2, -1, 1, 2)[int(chance() * 4)]
                new = max(0, new) if value >= 0 else new
            value = type(value)(new)
        changed.append(value)
    return changed


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
