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
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from domains.workers import frames, lockdown, probes
from domains.workers.sql_compare import block_numbers, same
from domains.workers.sql_copies import (
    CHANGES,
    Constants,
    Contents,
    Rows,
    Scratch,
    changed_rows,
    constants,
    read_contents,
)

# Steps end a query first; seconds of CPU only one whose single steps are long. Then the whole worker ends.
_GOLD_CPU, _QUERY_CPU, _MEMORY, _HEAP = 60.0, 3.0, 1 << 30, 384 << 20
_GOLD_STEPS, _STEPS, _STRIDE = 400_000_000, 20_000_000, 20_000
_MAX_ROWS, _KEPT, _OPEN = 200_000, 256, 32
# First the copies read in the usual order, then those read in reverse: each change of order costs time.
_ORDER = (*range(0, len(CHANGES), 2), *range(1, len(CHANGES), 2))
# Only a choice among rows can: a group's bare column, a window, a LIMIT. One plain column or aggregate cannot.
_MAY_DEPEND_ON_ORDER = re.compile(
    r"\b(?:group|limit|order|having|distinct|over|with)\b|,|\bselect\b.*\bselect\b", re.I | re.S
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
    # How many rows were written tells how many there are, without a look at them.
    "changes",
    "total_changes",
    "last_insert_rowid",
}
_REFUSED = {
    "write a table": "CREATE TABLE probe(a)",
    "attach a database": "ATTACH ':memory:' AS other",
    "set a pragma": "PRAGMA query_only = 0",
    "load an extension": "SELECT load_extension('none')",
    "run two statements": "SELECT 1; SELECT 2",
    "run for ever": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n",
}
_SAYS_NOTHING = {"reason": "gold", "detail": "the gold's result is empty on every database"}
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


class Result(NamedTuple):
    """What the gold gives on one database."""

    rows: Rows
    blocks: list[int] | None
    steps: int


class Connection:
    """A database that queries can read and nothing else. Its owner may still write through a `Scratch`."""

    def __init__(self, database: sqlite3.Connection, scratch: Scratch | None = None) -> None:
        self._database = database
        self._scratch = scratch
        self.reversed = False
        self.steps = 0
        self.loaded: object = None  # which copy it holds
        self._budget = 0
        self._filling = False
        database.text_factory = lambda raw: raw.decode("utf-8", "replace")
        database.execute("PRAGMA temp_store = 2")
        if scratch is None:
            database.execute("PRAGMA query_only = 1")
        for limit, value in (
            (sqlite3.SQLITE_LIMIT_LENGTH, 4_000_000),
            (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 100_000),
            (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200),
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        ):
            database.setlimit(limit, value)
        database.set_progress_handler(self._count, _STRIDE)
        database.set_authorizer(self._authorize)

    def reverse(self, on: bool) -> None:
        """Let rows that nobody ordered come the other way round."""
        if on != self.reversed:
            self._filling = True
            self._database.execute(f"PRAGMA reverse_unordered_selects = {int(on)}")
            self._filling = False
            self.reversed = on

    def contents(self) -> Contents:
        """Schema and first rows."""
        self._filling = True
        try:
            return read_contents(self._database)
        finally:
            self._filling = False

    def fill(self, tables: list[Rows | None]) -> None:
        """Replace the contents of a scratch database."""
        assert self._scratch is not None
        self._filling, self._budget, self.steps = True, _GOLD_STEPS, 0
        try:
            self._scratch.fill(tables)
        finally:
            self._filling = False

    def select(self, sql: str, steps: int, most: int) -> list[tuple[Any, ...]]:
        """At most `most` rows of one reading statement."""
        self.steps, self._budget = 0, steps
        cursor = self._database.cursor()
        try:
            cursor.execute(sql)
            if cursor.description is None:
                raise RefusedError("unparseable", "not a query")
            rows = cursor.fetchmany(most)
        except sqlite3.Error as error:
            raise _refused(error) from None
        except sqlite3.Warning as error:  # Python before 3.12: more than one statement
            raise RefusedError("forbidden", str(error)) from None
        except MemoryError:
            raise RefusedError("memory", "out of memory") from None
        except (ValueError, OverflowError) as error:  # a NUL or a lone surrogate in the text
            raise RefusedError("unparseable", str(error)[:200]) from None
        finally:
            cursor.close()
        return rows

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action in _READING or self._filling:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in _NOT_A_FUNCTION_TO_CALL:
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_DENY

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
    attacks = _try_the_authorizer()
    if not lockdown.supported():
        lock = lockdown.Lock(lockdown.DATABASE)
        attacks |= probes.try_lock(lock, probes.ATTACKS)
        lockdown.limit(cpu=1e7, memory=_MEMORY)
        lock.close()
    frames.send(sock, {"namespaces": namespaces, "attacks": attacks})
    benches = _Benches()
    while True:
        job = frames.receive(sock)
        lockdown.arm(_GOLD_CPU)
        reply = _judge(job, benches)
        lockdown.arm(0)
        frames.send(sock, reply)


def _try_the_authorizer() -> dict[str, bool]:
    """Whether a connection refuses what no query may do."""
    connection = Connection(sqlite3.connect(":memory:", isolation_level=None))
    stopped = {}
    for name, query in _REFUSED.items():
        try:
            connection.select(query, _STEPS, 1)
            stopped[name] = False
        except RefusedError:
            stopped[name] = True
    return stopped


def _judge(job: dict[str, Any], benches: _Benches) -> dict[str, Any]:
    sql, ordered, keys, *window = job["gold"]
    gold = Gold(sql, ordered, tuple(keys), *window)
    try:
        bench = benches.get(tuple(job["databases"]), gold)
    except AmbiguousError as error:
        return {"reason": "gold", "detail": str(error)}
    except RefusedError as error:
        return {"reason": "gold", "detail": f"the gold query fails: {error}"}
    except sqlite3.Error as error:
        return {"reason": "gold", "detail": f"the database cannot be set up: {error}"}
    query = job["query"]
    if query is None:  # only the gold is asked about
        return {"reason": "right", "detail": ""} if bench.tells(job["copies"]) else _SAYS_NOTHING
    # The given databases first: what is wrong there needs no copy, and what writes never comes near one.
    for database, result in bench.given:
        if refusal := _try(query, database, result, "the database"):
            return refusal
    for number in _ORDER[: job["copies"]]:
        lockdown.arm(_GOLD_CPU)
        found = bench.copy(number)
        if found is not None and (refusal := _try(query, *found, "a changed copy of the database")):
            return refusal
    return {"reason": "right", "detail": ""} if bench.tells(job["copies"]) else _SAYS_NOTHING


def _try(query: str, database: Connection, gold: Result, where: str) -> dict[str, Any] | None:
    """None if the query gives what the gold gives, otherwise the verdict."""
    lockdown.arm(_QUERY_CPU)
    try:
        rows = database.select(query, max(_STEPS, 20 * gold.steps), len(gold.rows) + 1)
    except RefusedError as error:
        return {"reason": error.reason, "detail": str(error)}
    return None if same(gold.rows, rows, gold.blocks) else {"reason": "wrong", "detail": f"another result on {where}"}


def _says(result: Result) -> bool:
    return any(cell is not None for row in result.rows for cell in row)


class _Bench:
    """The gold's results for one item: on the given databases, and on each copy from when it is first needed."""

    def __init__(self, benches: _Benches, databases: tuple[str, ...], gold: Gold) -> None:
        self.given = [(connection, _result(connection, gold)) for connection in map(benches.connection, databases)]
        self._benches, self._source, self._gold = benches, databases[0], gold
        self._constants: Constants = constants(gold.sql)
        self._copies: dict[int, tuple[list[Rows | None], Result] | None] = {}

    def copy(self, number: int) -> tuple[Connection, Result] | None:
        """Copy `number` with the gold's result; None for one that says nothing about what the gold means."""
        if number in self._copies:
            known = self._copies[number]
            if known is None:
                return None
            database = self._load(number, known[0])
            return database, known[1]
        self._copies[number] = None
        try:
            contents = self._benches.contents(self._source)
            rows = changed_rows(contents, self._constants, number, self._gold.sql, self._source)
            database = self._load(number, rows)
            result = _result(database, self._gold)
        except (AmbiguousError, RefusedError, sqlite3.Error):
            return None
        self._copies[number] = rows, result
        return database, result

    def tells(self, copies: int) -> bool:
        """Whether the gold gives any row with anything in it, on some database; else whatever finds nothing is
        right."""
        if any(_says(result) for _, result in self.given):
            return True
        for number in _ORDER[:copies]:
            known = self._copies[number] if number in self._copies else self.copy(number)
            if known is not None and _says(known[1]):
                return True
        return False

    def _load(self, number: int, rows: list[Rows | None]) -> Connection:
        database = self._benches.scratch(self._source)
        if database.loaded != (self, number):
            database.loaded = None
            database.fill(rows)
            database.loaded = self, number
        database.reverse(number % 2 == 1)  # rows that nobody ordered come the other way in every second copy
        return database


class _Benches:
    """Gold results, the most recently used kept: the completions for one item come together."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Any, ...], _Bench] = OrderedDict()
        self._contents: OrderedDict[str, Contents] = OrderedDict()
        self._scratch: OrderedDict[str, Connection] = OrderedDict()
        self._connections: WeakValueDictionary[str, Connection] = WeakValueDictionary()  # open while a bench needs it

    def get(self, databases: tuple[str, ...], gold: Gold) -> _Bench:
        key = (databases, gold)
        return _remember(self._kept, key, lambda: _Bench(self, databases, gold), _KEPT)

    def connection(self, source: str) -> Connection:
        """A database as it was given."""
        found = self._connections.get(source)
        if found is None:
            found = self._connections[source] = Connection(_open(source))
        return found

    def scratch(self, source: str) -> Connection:
        """A database with the schema of a given one, to be filled."""

        def make() -> Connection:
            scratch = Scratch(self.contents(source))
            return Connection(scratch.database, scratch)

        return _remember(self._scratch, source, make, _OPEN)

    def contents(self, source: str) -> Contents:
        return _remember(self._contents, source, lambda: self.connection(source).contents(), _KEPT)


Key = TypeVar("Key")
Kept = TypeVar("Kept")


def _remember(kept: OrderedDict[Key, Kept], key: Key, make: Callable[[], Kept], most: int) -> Kept:
    """The value of that key, made if it is not there; the least recently used ones go."""
    if key not in kept:
        kept[key] = make()
        if len(kept) > most:
            kept.popitem(last=False)
    kept.move_to_end(key)
    return kept[key]


def _open(source: str) -> sqlite3.Connection:
    """A database file, opened so that it cannot change, or one built in memory from its SQL."""
    if source.startswith("file:"):
        return sqlite3.connect(source, uri=True, isolation_level=None)
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.executescript(source)
    return database


def _result(database: Connection, gold: Gold) -> Result:
    """The gold's result here. Ambiguous where the order in which rows happen to be read decides it."""
    rows, blocks = _gold_result(database, gold)
    steps = database.steps
    if _MAY_DEPEND_ON_ORDER.search(gold.sql):
        database.reverse(not database.reversed)
        again, blocks_again = _gold_result(database, gold)
        database.reverse(not database.reversed)
        if not same(rows, again, blocks) or blocks != blocks_again:
            raise AmbiguousError("the gold's result depends on the order in which rows are read")
    return Result(rows, blocks, steps)


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
    order = blocks if gold.keys else None
    if not same(rows, database.select(gold.sql, _GOLD_STEPS, _MAX_ROWS), order):
        raise AmbiguousError("the gold orders its rows by what they do not determine")
    return rows, order


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
