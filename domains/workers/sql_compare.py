"""When two results of queries are the same answer.

    same([(1, "a"), (2, "b")], [(2.0, "b"), (1, "a")])               # True: rows in any order, 2 = 2.0
    same([(1,), (1,)], [(1,)])                                       # False: rows are counted
    same([("a",), ("b",)], [("b",), ("a",)], blocks=[0, 1])          # False: order was asked for
    same([("a",), ("b",)], [("b",), ("a",)], blocks=[0, 0])          # True: tied on the sort key

Whole numbers are equal exactly, others within a relative 1e-6 (sums in another order, averages by division), and never
equal to text; NULL equals NULL; columns stand where they were asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

TOLERANCE = 1e-6
_MOST_PAIRED = 400

Row = tuple[Any, ...]


def same(gold: Sequence[Row], answer: Sequence[Row], blocks: Sequence[int] | None = None) -> bool:
    """Whether the answer is the gold result. `blocks` numbers gold rows by sort key; None if no order was asked for."""
    if len(gold) != len(answer) or (gold and len(gold[0]) != len(answer[0])):
        return False
    if blocks is None:
        return _same_rows(gold, answer)
    for _, group in groupby(range(len(gold)), key=lambda i: blocks[i]):
        places = list(group)
        if not _same_rows(gold[places[0] : places[-1] + 1], answer[places[0] : places[-1] + 1]):
            return False
    return True


def block_numbers(keys: Sequence[Row]) -> list[int]:
    """Number rows by runs of equal sort keys."""
    numbers, number = [], 0
    for place, key in enumerate(keys):
        number += bool(place) and not _same_row(keys[place - 1], key)
        numbers.append(number)
    return numbers


def _same_rows(gold: Sequence[Row], answer: Sequence[Row]) -> bool:
    one, other = sorted(gold, key=_order), sorted(answer, key=_order)
    if all(map(_same_row, one, other)):
        return True
    # Nearly equal numbers may sort apart; then pair the rows that are not exactly shared.
    if len(one) > _MOST_PAIRED or not any(isinstance(cell, float) for row in (*one, *other) for cell in row):
        return False
    for row in one:
        match = next((candidate for candidate in other if _same_row(row, candidate)), None)
        if match is None:
            return False
        other.remove(match)
    return True


def _same_row(one: Row, other: Row) -> bool:
    return all(map(_same_cell, one, other))


def _same_cell(one: Any, other: Any) -> bool:
    if one == other:
        return type(one) is type(other) or isinstance(one, int | float)
    if (isinstance(one, float) and isinstance(other, int | float)) or (
        isinstance(other, float) and isinstance(one, int)
    ):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-12)
    return False


def _order(row: Row) -> list[tuple[int, Any]]:
    return [
        (0, 0) if c is None else (1, c) if isinstance(c, int | float) else (2, c) if isinstance(c, str) else (3, c)
        for c in row
    ]
