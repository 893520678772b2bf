"""Spider, geography, and questions of one's own over any SQLite file.

CREATE TABLE Faculty (FacID INTEGER PRIMARY KEY, Lname VARCHAR(15), ...);
Question: How many faculty do we have?
SQL:
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from urllib.parse import quote

from domains.base import Item, Population
from domains.data.pool import Entry, Loaded, Pool
from domains.data.rows import DataError, Row, Source, read_rows

AddFile = Callable[[Path], str]
CheckGold = Callable[[Item], None]
_STOP = "\n\n"  # a query has no empty lines; behind one, a base model goes on with another question
TEMPLATE = "{schema}\nQuestion: {question}\nSQL:"


def populations(data_dir: Path | None, add_file: AddFile, check_gold: CheckGold) -> dict[str, Population]:
    """Spider by split and geography, and in the data directory every sql/NAME.sqlite with questions in sql/NAME.jsonl.

    All need a data directory, because the hub has no databases.

    Golds that do not determine their result (a LIMIT cuts a tie, DISTINCT drops the sort key) are left out.
    """
    spider, geography = "sql/spider_{split}", Source("sql/geography")
    found: dict[str, Population] = {}
    for split in ("train", "dev"):
        source = Source(spider.format(split=split))
        found[f"spider_{split}"] = Pool(
            f"spider_{split}",
            f"Spider, {split} split, one question per SQL",
            partial(_load, source, data_dir, "sql/spider_db/{}.sqlite", add_file, check_gold),
            stop=_STOP,
        )
    for split in ("train", "dev", "test"):
        found[f"geography_{split}"] = Pool(
            f"geography_{split}",
            f"geography, {split} by question, one question per template",
            partial(_load, geography, data_dir, "sql/{}.sqlite", add_file, check_gold, split),
            stop=_STOP,
        )
    for database in sorted((data_dir / "sql").glob("*.sqlite")) if data_dir else ():
        questions = database.with_suffix(".jsonl")
        if questions.exists() and database.stem != "geography":
            found[database.stem] = own_questions(database, questions, add_file, check_gold)
    return found


def own_questions(database: Path, questions: Path, add_file: AddFile, check_gold: CheckGold | None = None) -> Pool:
    """A population from any SQLite file and a JSONL file with `question` and `sql` (and, where known, `id` and
    `group`)."""

    def load() -> Loaded:
        rows = read_rows(Source(questions.stem), questions.parent)
        entries = [_entry(row, database, add_file, f"{questions.stem}-{place}") for place, row in enumerate(rows)]
        return Loaded(entries, check_gold=check_gold)

    return Pool(questions.stem, f"{questions.name} over {database.name}", load, stop=_STOP)


def _load(
    source: Source,
    data_dir: Path | None,
    where: str,
    add_file: AddFile,
    check_gold: CheckGold,
    split: str | None = None,
) -> Loaded:
    if data_dir is None:
        raise DataError(f"{source.path} comes with its databases only in a data directory")
    rows = read_rows(source, data_dir)
    if split is not None:
        rows = [row for row in rows if row["question_split"] == split]
    usable = [row for row in rows if row.get("recommended", not row.get("empty_result", False))]
    entries = [_entry(row, data_dir / where.format(row["db_id"]), add_file, row["id"]) for row in usable]
    return Loaded(entries, unusable=len(rows) - len(usable), check_gold=check_gold)


def _entry(row: Row, database: Path, add_file: AddFile, name: str) -> Entry:
    schema, reference = _known(database, add_file)
    group = row.get("group", row.get("sql_group", row.get("template_id")))
    item = Item(
        TEMPLATE.format(schema=schema, question=row["question"].strip()),
        row["sql"],
        database=reference,
        group="" if group is None else f"{database.stem}/{group}",
        id=str(row.get("id", name)),
    )
    return Entry(item, f"{database.stem} {row['question']}")


@lru_cache(maxsize=1024)
def _known(database: Path, add_file: AddFile) -> tuple[str, str]:
    if not database.exists():
        raise DataError(f"the database {database} does not exist")
    return schema_text(database), add_file(database)


def schema_text(database: Path) -> str:
    """The CREATE statements of a database, one line each."""
    connection = sqlite3.connect(f"file:{quote(str(database))}?mode=ro&immutable=1", uri=True)
    try:
        found = connection.execute(
            "SELECT sql FROM sqlite_master "
            "WHERE type IN ('table', 'view') AND sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
    finally:
        connection.close()
    return "\n".join(re.sub(r"\s+", " ", sql).strip() + ";" for (sql,) in found)
