"""Pocket Text-to-SQL: a question over one small table.

Table shops(size, age, staff). What is the largest size of shops with age over 37?
SQL: SELECT MAX(size) FROM shops WHERE age > 37
"""

from __future__ import annotations

import random

from domains.base import Item
from domains.pocket.family import Family

TABLES = tuple("shops farms ships towns clubs parks roads banks films teams".split())
COLUMNS = tuple("size age staff cost rank score width height weight sales votes wins".split())
AGGREGATES = {
    "COUNT": "How many {table} have",
    "MAX": "What is the largest {column} of {table} with",
    "MIN": "What is the smallest {column} of {table} with",
    "SUM": "What is the total {column} of {table} with",
    "AVG": "What is the average {column} of {table} with",
}
COMPARISONS = {">": "over", "<": "under", "=": "equal to"}
ROWS = 8


def query(aggregate: str, column: str, table: str, where: str, comparison: str, value: int) -> str:
    """The SQL of one question."""
    target = "COUNT(*)" if aggregate == "COUNT" else f"{aggregate}({column})"
    return f"SELECT {target} FROM {table} WHERE {where} {comparison} {value}"


class Tables(Family):
    domain = "text_to_sql"
    description = "one aggregate (of 5) under one comparison (of 3) over a table of three columns and eight rows"
    max_new_tokens = 18

    def item(self, rng: random.Random) -> Item:
        table, columns = rng.choice(TABLES), rng.sample(COLUMNS, 3)
        aggregate, comparison = rng.choice(list(AGGREGATES)), rng.choice(list(COMPARISONS))
        column, where = rng.choice(columns), rng.choice(columns)
        value = rng.randint(10, 89)
        asked = AGGREGATES[aggregate].format(table=table, column=column)
        # A row on the boundary tells > from >=; rows on both sides keep every comparison non-empty.
        conditions = [value, value, rng.randint(1, value - 1), rng.randint(1, value - 1), rng.randint(value + 1, 99)]
        conditions += [rng.randint(1, 99) for _ in range(ROWS - len(conditions))]
        rows = [tuple(c if name == where else rng.randint(1, 99) for name in columns) for c in conditions]
        return Item(
            prompt=f"Table {table}({', '.join(columns)}). {asked} {where} {COMPARISONS[comparison]} {value}?\nSQL:",
            gold=query(aggregate, column, table, where, comparison, value),
            database=f"CREATE TABLE {table} ({', '.join(f'{c} INTEGER' for c in columns)});\n"
            f"INSERT INTO {table} VALUES {', '.join(map(str, rows))};\n",
        )

    def write(self, item: Item) -> str:
        return f" {item.gold}"

    def mistake(self, rng: random.Random, item: Item) -> str:
        """One of the four parts of the query replaced: aggregate, condition's column, comparison or number."""
        head, condition = item.gold.split(" WHERE ")
        where, comparison, value = condition.split(" ")
        columns = item.prompt[item.prompt.index("(") + 1 : item.prompt.index(")")].split(", ")
        part = rng.randrange(4)
        if part == 0:
            table = head.split(" ")[-1]
            target = head[len("SELECT ") : head.index("(")]
            aggregate = rng.choice([a for a in AGGREGATES if a != target])
            column = rng.choice(columns) if target == "COUNT" else head[head.index("(") + 1 : head.index(")")]
            return " " + query(aggregate, column, table, where, comparison, int(value))
        if part == 1:
            where = rng.choice([c for c in columns if c != where])
        elif part == 2:
            comparison = rng.choice([c for c in COMPARISONS if c != comparison])
        else:
            value = str(rng.choice([v for v in range(10, 90) if v != int(value)]))
        return f" {head} WHERE {where} {comparison} {value}"


POPULATION = Tables()
