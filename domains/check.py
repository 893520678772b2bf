"""Score completions from a file: one JSON object a line in, one verdict a line out.

    {"domain": "math", "id": "m1", "question": "What is 40 + 2?", "gold": "42", "completion": "It is 42."}
    -> {"id": "m1", "correct": true, "reason": "right", "detail": "42"}

Further keys where a domain needs them: `tests` (Python source) for code; `setup_sql`, and `setup_sql_alt` for a second
database on which the query must be right too, for sql.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from domains.base import GoldError, Item
from domains.registry import get_domain
from domains.text_to_sql import ANOTHER

_NEEDED = ("domain", "id", "gold", "completion")


def check_file(path: Path) -> Iterator[dict[str, Any]]:
    """The verdict of every case. ValueError, with the line, for what is no case; a broken gold has reason "gold"."""
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    case = json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{path}, line {number}: not JSON") from error
                missing = [key for key in _NEEDED if key not in case] if isinstance(case, dict) else list(_NEEDED)
                if missing:
                    raise ValueError(f"{path}, line {number}: no {', '.join(missing)}")
                yield check_case(case)


def check_case(case: Mapping[str, Any]) -> dict[str, Any]:
    item = Item(
        prompt=str(case.get("question", "")),
        gold=str(case["gold"]),
        tests=str(case.get("tests") or ""),
        database=f"\n{ANOTHER}\n".join(str(case[key]) for key in ("setup_sql", "setup_sql_alt") if case.get(key)),
        id=str(case["id"]),
    )
    try:
        verdict = get_domain(str(case["domain"])).verify(str(case["completion"]), item)
    except GoldError as error:
        return {"id": case["id"], "correct": False, "reason": "gold", "detail": str(error)}
    return {"id": case["id"], "correct": verdict.correct, "reason": str(verdict.reason), "detail": verdict.detail}
