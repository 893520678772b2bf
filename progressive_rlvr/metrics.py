"""`metrics.jsonl`: one JSON object per line and step, what `prlvr status`, the progress bars and the training curves
read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pacbayes.canonical import write_atomic


class Metrics:
    """Append-only, but for steps that are about to be done again. A line torn by a kill is dropped."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, stage: str, step: int, steps: int, **values: float | int | str) -> None:
        """Add one line; `step` of `steps` is done."""
        line = json.dumps({"stage": stage, "step": step, "steps": steps, **values})
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def read(self) -> list[dict[str, Any]]:
        """All complete lines; none if there is no file."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [row for row in map(_parse, lines) if row is not None]

    def last(self) -> dict[str, Any] | None:
        """The newest line, read from the end of the file."""
        try:
            with open(self.path, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
                lines = file.read().decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return None
        return next((row for row in map(_parse, reversed(lines)) if row is not None), None)

    def forget(self, stage: str, after: int = 0) -> None:
        """Drop a stage's lines beyond step `after`: these steps are done again."""
        self._keep(lambda row: row["stage"] != stage or row["step"] <= after)

    def _keep(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        rows = self.read()
        if rows:
            write_atomic(self.path, "".join(json.dumps(r) + "\n" for r in rows if wanted(r)).encode())


def _parse(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except json.JSONDecodeError:
        return None
    return row if isinstance(row, dict) and {"stage", "step", "steps"} <= row.keys() else None
