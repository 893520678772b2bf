"""Text-to-SQL: a query from a question, judged by what it returns.

    item = Item(prompt="Table t(a, b). How many t have a over 2?\\nSQL:", gold="SELECT COUNT(*) FROM t WHERE a > 2",
                database="CREATE TABLE t(a INTEGER, b INTEGER); INSERT INTO t VALUES (1, 1), (3, 1);")
    verify(" SELECT COUNT(*) FROM t WHERE 2 < a", item)       # RIGHT
    verify(" SELECT 1", item)                                 # WRONG: on a copy of the database the answer is another
    verify(" DELETE FROM t", item)                            # FORBIDDEN

`Item.database` is SQL that builds the database, or several such texts with the line `ANOTHER` between them (a query
must be right on each), or a reference "sqlite:<sha-256 of the file>" to a database file that a dataset brought.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from domains.base import GoldError, Item, Population, Reason, Verdict
from domains.registry import generated_populations
from domains.sql_executor import SqlExecutor
from domains.text import fenced, tagged_answer, visible

ANOTHER = "-- another database"
_MAX_TEXT = 20_000
_START = re.compile(
    r"^[ \t]*+(?:--[^\n]*+\n|/\*.*?\*/|\s)*+\(?\s*(?:select|with|values)\b", re.IGNORECASE | re.DOTALL | re.MULTILINE
)
_INLINE = re.compile(r"\b(?:select|with)\b", re.IGNORECASE)
_STATEMENT = re.compile(
    r"(?:--[^\n]*+\n|/\*.*?\*/|\s)*+(?:select|with|insert|update|delete|drop|create|alter|attach|detach|pragma|replace|vacuum|"
    r"begin|commit|explain|values|reindex|analyze)\b(?!\s+(?:is|are|the|this|returns)\b)",
    re.IGNORECASE | re.DOTALL,
)
_TOKEN = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/|;", re.DOTALL)


class TextToSQL:
    name = "text_to_sql"
    version = "text_to_sql/2"

    def __init__(self, data_dir: Path | None = None) -> None:
        self._data_dir = data_dir
        self._executor = SqlExecutor()
        self._files: dict[str, Path] = {}

    def populations(self) -> Mapping[str, Population]:
        from domains.data import text_to_sql

        return generated_populations(self.name) | text_to_sql.populations(
            self._data_dir, self.add_file, self.check_gold
        )

    def verify(self, completion: str, item: Item) -> Verdict:
        if len(completion) > _MAX_TEXT:
            return Verdict.loss(Reason.UNPARSEABLE, f"more than {_MAX_TEXT} characters")
        sql = query(item, completion)
        if not sql:
            return Verdict.loss(Reason.UNPARSEABLE, "no query")
        return self._executor.compare(sql, item.gold, self._databases(item))

    def check_gold(self, item: Item) -> None:
        """GoldError for a gold that fails, or does not determine its result: its LIMIT cuts a tie, for instance."""
        self._executor.check_gold(item.gold, self._databases(item))

    def add_file(self, path: Path) -> str:
        """Make a database file known; what `Item.database` says to refer to it."""
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        self._files[digest] = path.resolve()
        return f"sqlite:{digest}"

    def protections(self) -> dict[str, bool]:
        """What holds a query on this machine."""
        return self._executor.protections()

    def close(self) -> None:
        self._executor.close()

    def _databases(self, item: Item) -> list[str]:
        if not item.database.startswith("sqlite:"):
            return item.database.split(f"\n{ANOTHER}\n")
        path = self._files.get(item.database.removeprefix("sqlite:").strip())
        if path is None:
            raise GoldError(f"no dataset was loaded that holds {item.database}")
        return [f"file:{quote(str(path))}?mode=ro&immutable=1"]


def query(item: Item, completion: str) -> str:
    """The one statement a completion gives, or with its successors where several are given, to be refused as such."""
    text = visible(completion)
    tagged = tagged_answer(text)
    blocks = fenced(text if tagged is None else tagged)
    if blocks:
        starting = [block for block in blocks if _START.match(block)]
        return (starting or blocks)[-1].strip()
    text = (text if tagged is None else tagged).strip().strip("`")
    if re.search(r"\bselect\s*\Z", item.prompt, re.IGNORECASE) and not _START.match(text):
        text = f"SELECT {text}"
    if _STATEMENT.match(text) or text.startswith(("--", "/*")):
        return _one_statement(text)
    start = _START.match(text) or _START.search(text) or _INLINE.search(text)
    if start is None:
        return text
    return _one_statement(text[start.start() :].strip())


def _one_statement(text: str) -> str:
    """The text up to its first semicolon or blank line, unless another statement follows."""
    for token in _TOKEN.finditer(text):
        if token[0] == ";":
            rest = text[token.end() :]
            return text if _STATEMENT.match(rest) else text[: token.start()]
    head, _, rest = text.partition("\n\n")
    return (
        head
        if rest
        and not re.match(
            r"\s*(?:from|where|group|order|having|limit|union|and|or|join|left|inner|on|\))\b", rest, re.IGNORECASE
        )
        else text
    )
