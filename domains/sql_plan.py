"""What the order of a gold query means: its sort keys become columns, its LIMIT a window.

    plan("SELECT name FROM emp ORDER BY salary DESC LIMIT 2").ordered
        == "SELECT name, salary FROM emp ORDER BY salary DESC"       # keys (-1,), limit 2

Queries without ORDER BY and LIMIT at the top need no plan and are not parsed.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from domains.base import GoldError

_ORDER_OR_LIMIT = re.compile(r"\b(?:order\s+by|limit)\b", re.IGNORECASE)


class Plan(NamedTuple):
    """The fields of `domains.workers.sql_worker.Gold`, which says what they mean."""

    sql: str
    ordered: str = ""
    keys: tuple[int, ...] = ()
    width: int = 0
    limit: int = -1
    offset: int = 0


@lru_cache(maxsize=16384)
def plan(sql: str) -> Plan:
    """The plan of a gold query; GoldError for one that cannot be read."""
    sql = sql.strip().rstrip(";").rstrip()
    if not _ORDER_OR_LIMIT.search(sql):
        return Plan(sql)
    import sqlglot
    from sqlglot import exp

    try:
        tree = sqlglot.parse_one(sql, read="sqlite")
    except sqlglot.errors.SqlglotError as error:
        raise GoldError(f"the gold query cannot be read: {error}") from error
    order, limit, offset = tree.args.get("order"), tree.args.get("limit"), tree.args.get("offset")
    if order is None and limit is None:
        return Plan(sql)
    for part in ("limit", "offset"):
        tree.set(part, None)
    window = (_number(limit, -1), _number(offset, 0))
    if order is None:
        return Plan(sql, tree.sql(dialect="sqlite"), (), 0, *window)
    outputs = tree.selects if isinstance(tree, exp.Query) else []
    star = any(output.is_star for output in outputs)
    names = [output.alias_or_name.lower() for output in outputs]
    texts = [output.unalias().sql(dialect="sqlite").lower() for output in outputs]
    keys: list[int] = []
    hidden: list[Any] = []
    for term in order.expressions:
        place = _place(term.this, names, texts, star)
        if place is None:
            hidden.append(term.this.copy())
            keys.append(-len(hidden))
        else:
            keys.append(place)
    if hidden and not isinstance(tree, exp.Select):
        raise GoldError("the gold orders a UNION by what it does not select")
    # Negative places count from the end, where the hidden columns will stand in the order of their numbers.
    keys = [key if key >= 0 else -(len(hidden) + 1 + key) for key in keys]
    if isinstance(tree, exp.Select):
        tree.select(*hidden, append=True, copy=False)
    width = 0 if star else len(outputs)
    return Plan(sql, tree.sql(dialect="sqlite"), tuple(keys), width, *window)


def _place(expression: Any, names: list[str], texts: list[str], star: bool) -> int | None:
    """Which output column a sort term means, if it means one."""
    from sqlglot import exp

    if isinstance(expression, exp.Literal) and not expression.is_string:
        return int(expression.this) - 1
    if star:
        return None
    text = expression.sql(dialect="sqlite").lower()
    if isinstance(expression, exp.Column) and expression.table and names.count(expression.name.lower()) == 1:
        place = names.index(expression.name.lower())
        if texts[place] == expression.name.lower():  # "year" selected, "t1.year" sorted by
            return place
    if isinstance(expression, exp.Column) and not expression.table and names.count(text.strip('"')) == 1:
        return names.index(text.strip('"'))
    return texts.index(text) if text in texts else None


def _number(node: Any, default: int) -> int:
    if node is None:
        return default
    try:
        return int(node.expression.this)
    except (AttributeError, TypeError, ValueError) as error:
        raise GoldError("the gold's LIMIT or OFFSET is not a number") from error
