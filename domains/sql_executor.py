"""Generated SQL runs here only: in a locked process, read-only, against the gold query on several databases.

    SqlExecutor().compare("SELECT COUNT(*) FROM t", gold="SELECT COUNT(*) FROM t", databases=["CREATE TABLE t(a);"])

One reading statement is allowed: an authorizer refuses ATTACH, PRAGMA, writes, extensions and chance, and the process
can open no file for writing, start nothing and reach no network. Steps of SQLite's virtual machine, rows, heap and
value sizes are limited. Results are compared as `domains.workers.sql_compare` says, on each given database and on
changed copies of the first, so that a constant which happens to be right does not pass.

Not covered: bugs of SQLite (they would end in a locked process); an answer that differs from the gold only on data
which no copy holds; a right query that relies on what the schema does not declare (a column that happens to determine
another).
"""

from __future__ import annotations

from typing import Any

from domains.base import GoldError, Reason, Verdict
from domains.sql_plan import plan
from domains.workers import probes
from domains.workers.pool import Pool

COPIES = 9  # one of each kind in `domains.workers.sql_copies.CHANGES`


class SqlExecutor:
    def __init__(self) -> None:
        self._pool = Pool("sql_worker", patience=300)

    def compare(self, query: str, gold: str, databases: list[str], copies: int = COPIES) -> Verdict:
        """Judge a query. A database is SQL that builds it, or "file:...?mode=ro&immutable=1"."""
        try:
            query.encode()
        except UnicodeEncodeError:
            return Verdict.loss(Reason.UNPARSEABLE, "the query is not text")
        job = {"query": query, "gold": list(plan(gold)), "databases": databases, "copies": copies}
        reply: dict[str, Any] = self._pool.ask(job, _lost)
        if reply["reason"] == "gold":
            raise GoldError(reply["detail"])
        reason = Reason(reply["reason"])
        return Verdict(reason is Reason.RIGHT, reason, reply["detail"])

    def check_gold(self, gold: str, databases: list[str]) -> None:
        """GoldError for a gold query that fails on a database, does not determine its result there, or gives nothing on
        all copies."""
        job = {"query": None, "gold": list(plan(gold)), "databases": databases, "copies": COPIES}
        reply = self._pool.ask(job, _lost)
        if reply["reason"] != "right":
            raise GoldError(reply["detail"])

    def protections(self) -> dict[str, bool]:
        """The protections by name, and whether each was seen to hold on this machine."""
        return probes.shown(self._pool.greeting())

    def close(self) -> None:
        self._pool.close()


def _lost(status: int | None) -> dict[str, Any]:
    if status is None or abs(status) in (27, 24, 9):  # SIGPROF, SIGXCPU, SIGKILL
        return {"reason": "timeout", "detail": "one step of the query took too long"}
    if abs(status) == 31:  # SIGSYS
        return {"reason": "forbidden", "detail": "a system call that is not allowed"}
    return {"reason": "crashed", "detail": f"the worker ended with status {status}"}
