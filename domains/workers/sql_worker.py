"""A worker that answers whether a query gives what the gold query gives, on a database and on changed copies of it.

It is locked like the programs of `domains.sandbox`, except that it may read files. A query runs on a connection whose
authorizer allows reading and functions without side effects or chance, under a count of virtual machine steps, which
unlike seconds are the same on every machine.
"""

from __future__ import annotations

import re
import socket
import sqlite3
import sys
from collections import OrderedDict
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from domains.workers import frames, lockdown
from domains.workers.sql_compare import block_numbers, same
from domains.workers.sql_copies import Contents, literals, make_copy, read_contents

# Steps end a query first; seconds of CPU only one whose single steps are long. Then the whole worker ends.
_GOLD_CPU, _QUERY_CPU, _MEMORY, _HEAP = 60.0, 3.0, 1 << 30, 384 << 20
_GOLD_STEPS, _STEPS, _STRIDE = 400_000_000, 20_000_000, 20_000
_MAX_ROWS, _KEPT = 200_000, 256
# Only a choice among rows can: a group's bare column, a window, a LIMIT. One plain column or aggregate cannot.
_MAY_DEPEND_ON_ORDER = re.compile(
    r"\b(?:group|limit|order|having|distinct|over|with)\b|,|\bselect\b.*\bselect\b", re.I | re.S
)
_SMALL = (
    200  # rows of a database of which half as many copies more are made: they cost little, and few rows tell little
)
_NOT_A_FUNCTION_TO_CALL = {
    "load_extension",
    "random",
    "randomblob",
    "fts3_tokenizer",
    "readfile",
    "writefile",
    "edit",
    "sqlite_log",
}
_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}


class RefusedError(Exception):
    """A query that gave no result, and the reason as the verdict names it."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class AmbiguousError(Exception):
    """The gold query does not say which rows it means on this database."""


class Gold(NamedTuple):
    """A query with what its order means: see `domains.sql_plan`."""

    sql: str
    ordered: str  # the query without LIMIT and with its sort keys as further columns; "" where order means nothing
    keys: tuple[int, ...]  # where the sort keys stand in the rows of `ordered`
    width: int  # visible columns, or 0 for "all but the keys"
    limit: int
    offset: int


class Bench(NamedTuple):
    """One database with the gold's result on it."""

    database: Connection
    rows: list[tuple[Any, ...]]
    blocks: list[int] | None
    steps: int


class Connection:
    def __init__(self, database: sqlite3.Connection, reverse: bool = False) -> None:
        self._database = database
        self.reversed = reverse
        self.steps = 0
        self._budget = 0
        database.text_factory = lambda raw: raw.decode("utf-8", "replace")
        database.execute("PRAGMA temp_store = 2")
        database.execute("PRAGMA query_only = 1")
        if reverse:
            database.execute("PRAGMA reverse_unordered_selects = 1")
        for limit, value in (
            (sqlite3.SQLITE_LIMIT_LENGTH, 4_000_000),
            (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 100_000),
            (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200),
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        ):
            database.setlimit(limit, value)
        database.set_progress_handler(self._count, _STRIDE)
        database.set_authorizer(_authorize)

    def reverse(self, on: bool) -> None:
        """Let rows that nobody ordered come the other way round."""
        self._database.set_authorizer(None)
        self.reversed = on
        self._database.execute(f"PRAGMA reverse_unordered_selects = {int(on)}")
        self._database.set_authorizer(_authorize)

    def select(self, sql: str, steps: int, most: int) -> list[tuple[Any, ...]]:
        """At most `most` rows of one reading statement."""
        self.steps, self._budget = 0, steps
        try:
            cursor = self._database.execute(sql)
            if cursor.description is None:
                raise RefusedError("unparseable", "not a query")
            rows = cursor.fetchmany(most)
            cursor.close()
        except sqlite3.Error as error:
            raise _refused(error) from None
        except sqlite3.Warning as error:  # Python before 3.12: more than one statement
            raise RefusedError("forbidden", str(error)) from None
        except MemoryError:
            raise RefusedError("memory", "out of memory") from None
        except (ValueError, OverflowError) as error:  # a NUL or a lone surrogate in the text
            raise RefusedError("unparseable", str(error)[:200]) from None
        return rows

    def __del__(self) -> None:
        self._database.close()

    def _count(self) -> int:
        self.steps += _STRIDE
        return int(self.steps > self._budget)


def main() -> None:
    """Serve until the socket closes. Argument: the socket's number."""
    sock = socket.socket(fileno=int(sys.argv[-1]))
    namespaces = lockdown.leave_namespaces()
    lockdown.drop_capabilities()
    database = sqlite3.connect(":memory:")
    database.execute(f"PRAGMA hard_heap_limit = {_HEAP}")
    database.execute("SELECT 1").fetchall()
    lockdown.measure()
    lockdown.limit(cpu=1e7, memory=_MEMORY)
    if not lockdown.supported():
        lockdown.Lock(lockdown.DATABASE).close()
    frames.send(sock, {"namespaces": namespaces, "sqlite": sqlite3.sqlite_version})
    benches = _Benches()
    while True:
        job = frames.receive(sock)
        lockdown.arm(_GOLD_CPU)
        reply = _judge(job, benches)
        lockdown.arm(0)
        frames.send(sock, reply)


def _judge(job: dict[str, Any], benches: _Benches) -> dict[str, Any]:
    sql, ordered, keys, *window = job["gold"]
    gold = Gold(sql, ordered, tuple(keys), *window)
    try:
        prepared = benches.get(job["databases"], gold, job["copies"])
    except AmbiguousError as error:
        return {"reason": "gold", "detail": str(error)}
    except RefusedError as error:
        return {"reason": "gold", "detail": f"the gold query fails: {error}"}
    except sqlite3.Error as error:
        return {"reason": "gold", "detail": f"the database cannot be set up: {error}"}
    for place, bench in enumerate(prepared):
        lockdown.arm(_QUERY_CPU)
        try:
            rows = bench.database.select(job["query"], max(_STEPS, 20 * bench.steps), len(bench.rows) + 1)
        except RefusedError as error:
            return {"reason": error.reason, "detail": str(error)}
        if not same(bench.rows, rows, bench.blocks):
            where = "the database" if place < len(job["databases"]) else "a changed copy of the database"
            return {"reason": "wrong", "detail": f"another result on {where}"}
    empty = not any(bench.rows for bench in prepared)
    return {"reason": "right", "detail": "both results are empty everywhere" if empty else "", "copies": len(prepared)}


class _Benches:
    """Databases with gold results, the most recently used kept: the completions for one item come together."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Any, ...], list[Bench]] = OrderedDict()
        self._contents: OrderedDict[str, Contents] = OrderedDict()
        self._connections: WeakValueDictionary[str, Connection] = WeakValueDictionary()  # open while a bench needs it

    def get(self, databases: list[str], gold: Gold, copies: int) -> list[Bench]:
        key = (*databases, gold, copies)
        if key not in self._kept:
            self._kept[key] = self._make(databases, gold, copies)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def _make(self, databases: list[str], gold: Gold, copies: int) -> list[Bench]:
        benches = [_bench(self._connection(source), gold) for source in databases]
        contents = self._contents_of(databases[0])
        small = sum(len(table.rows) for table in contents.tables) <= _SMALL
        for number in range(copies + copies // 2 if small else copies):
            try:
                copy = make_copy(contents, literals(gold.sql), number, gold.sql + databases[0])
                # Rows that nobody ordered come the other way in every second copy.
                benches.append(_bench(Connection(copy, reverse=number % 2 == 1), gold))
            except (AmbiguousError, RefusedError, sqlite3.Error):
                continue  # this copy says nothing about what the gold means
        return benches

    def _connection(self, source: str) -> Connection:
        found = self._connections.get(source)
        if found is None:
            found = self._connections[source] = Connection(_open(source))
        return found

    def _contents_of(self, source: str) -> Contents:
        if source not in self._contents:
            database = _open(source)
            database.text_factory = lambda raw: raw.decode("utf-8", "replace")
            self._contents[source] = read_contents(database)
            database.close()
            if len(self._contents) > _KEPT:
                self._contents.popitem(last=False)
        return self._contents[source]


def _open(source: str) -> sqlite3.Connection:
    """A database file, opened so that it cannot change, or one built in memory from its SQL."""
    if source.startswith("file:"):
        return sqlite3.connect(source, uri=True, isolation_level=None)
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.executescript(source)
    return database


def _bench(database: Connection, gold: Gold) -> Bench:
    """The gold's result here. Ambiguous where the order in which rows happen to be read decides it."""
    rows, blocks = _gold_result(database, gold)
    steps = database.steps
    if not _MAY_DEPEND_ON_ORDER.search(gold.sql):
        return Bench(database, rows, blocks, steps)
    database.reverse(not database.reversed)
    again, blocks_again = _gold_result(database, gold)
    database.reverse(not database.reversed)
    if not same(rows, again, blocks) or blocks != blocks_again:
        raise AmbiguousError("the gold's result depends on the order in which rows are read")
    return Bench(database, rows, blocks, steps)


def _gold_result(database: Connection, gold: Gold) -> tuple[list[tuple[Any, ...]], list[int] | None]:
    if not gold.ordered:
        rows = database.select(gold.sql, _GOLD_STEPS, _MAX_ROWS)
        return rows, None
    wide = database.select(gold.ordered, _GOLD_STEPS, _MAX_ROWS)
    width = gold.width or (len(wide[0]) - sum(key < 0 for key in gold.keys) if wide else 0)
    rows = [row[:width] for row in wide]
    keys = [tuple(row[key] for key in gold.keys) for row in wide]
    blocks = block_numbers(keys)
    if gold.limit >= 0:
        first, last = gold.offset, min(gold.offset + gold.limit, len(rows))
        for edge in (first, last):  # a tie across an edge of the window must hold equal rows only
            if 0 < edge < len(rows) and blocks[edge - 1] == blocks[edge]:
                tied = [row for row, block in zip(rows, blocks, strict=True) if block == blocks[edge]]
                if not all(same([tied[0]], [row]) for row in tied):
                    raise AmbiguousError("the gold's LIMIT cuts a tie")
        rows, blocks = rows[first:last], blocks[first:last]
    # DISTINCT over further columns may keep more rows; then one row has several places in the order.
    if not same(rows, database.select(gold.sql, _GOLD_STEPS, _MAX_ROWS)):
        raise AmbiguousError("the gold orders its rows by what they do not determine")
    return rows, blocks if gold.keys else None


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action in _READING:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in _NOT_A_FUNCTION_TO_CALL:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _refused(error: sqlite3.Error) -> RefusedError:
    text = str(error)[:200]
    if "not authorized" in text or "prohibited" in text or "one statement" in text:
        return RefusedError("forbidden", text)
    if "interrupted" in text:
        return RefusedError("timeout", "more steps than a query may take")
    if "out of memory" in text or "too big" in text:
        return RefusedError("memory", text)
    if "syntax error" in text or "incomplete input" in text or "unrecognized token" in text:
        return RefusedError("unparseable", text)
    return RefusedError("crashed", text)
