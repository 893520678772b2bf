"""Text-to-SQL for a small real model: one column of one table under one condition, after one worked example.

Table shops(size, age, staff). List the size of shops with age over 37.
SQL: SELECT size FROM shops WHERE age > 37

Table films(cost, wins, score). List the score of films with wins equal to 64.
SQL: SELECT score FROM films WHERE wins = 64
"""

from __future__ import annotations

import random

from domains.base import Item
from domains.pocket.family import Family
from domains.pocket.tables import COLUMNS, COMPARISONS, ROWS, TABLES

LOW, HIGH = 10, 89


def question(table: str, columns: list[str], column: str, where: str, comparison: str, value: int) -> str:
    """The prompt of one question, without examples."""
    words = COMPARISONS[comparison]
    return f"Table {table}({', '.join(columns)}). List the {column} of {table} with {where} {words} {value}.\nSQL:"


def query(table: str, column: str, where: str, comparison: str, value: int) -> str:
    return f"SELECT {column} FROM {table} WHERE {where} {comparison} {value}"


def example(table: str, columns: list[str], column: str, where: str, comparison: str, value: int) -> str:
    """A question with its answer."""
    asked = question(table, columns, column, where, comparison, value)
    return f"{asked} {query(table, column, where, comparison, value)}\n\n"


SHOTS = example("shops", ["size", "age", "staff"], "size", "age", ">", 37)


class Listing(Family):
    name = "listing"
    domain = "text_to_sql"
    description = (
        "one column under one comparison (of 3), a table of three columns and eight rows, after a fixed example"
    )
    max_new_tokens = 16
    stop = "\n"

    def item(self, rng: random.Random) -> Item:
        table, columns = rng.choice(TABLES), rng.sample(COLUMNS, 3)
        column, where = rng.sample(columns, 2)
        comparison, value = rng.choice(list(COMPARISONS)), rng.randint(LOW, HIGH)
        # Two rows on the boundary tell > from >=; rows on both sides keep every comparison non-empty.
        conditions = [value, value, rng.randint(1, value - 1), rng.randint(1, value - 1), rng.randint(value + 1, 99)]
        conditions += [rng.randint(1, 99) for _ in range(ROWS - len(conditions))]
        drawn = {name: rng.sample(range(1, 100), ROWS) for name in columns} | {where: conditions}
        rows = list(zip(*(drawn[name] for name in columns), strict=True))
        return Item(
            prompt=SHOTS + question(table, columns, column, where, comparison, value),
            gold=query(table, column, where, comparison, value),
            database=f"CREATE TABLE {table} ({', '.join(f'{c} INTEGER' for c in columns)});\n"
            f"INSERT INTO {table} VALUES {', '.join(map(str, rows))};\n",
        )

    def write(self, item: Item) -> str:
        return f" {item.gold}"

    def mistake(self, rng: random.Random, item: Item) -> str:
        """One of the four parts of the query replaced: column, condition's column, comparison or number."""
        _, column, _, table, _, where, comparison, number = item.gold.split(" ")
        value, part = int(number), rng.randrange(4)
        columns = item.prompt.rsplit("(", 1)[1].split(")")[0].split(", ")
        if part == 0:
            column = rng.choice([c for c in columns if c != column])
        elif part == 1:
            where = rng.choice([c for c in columns if c != where])
        elif part == 2:
            comparison = rng.choice([c for c in COMPARISONS if c != comparison])
        else:
            value = rng.choice([v for v in range(LOW, HIGH + 1) if v != value])
        return " " + query(table, column, where, comparison, value)


POPULATION = Listing()
