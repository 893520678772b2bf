"""Specimens from the evidence: a few completions, right and wrong, picked by digest and not by taste."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bounds_reports.errors import ReportError

_COLUMNS = ["policy", "split", "index", "prompt_digest", "draw", "correct", "reason", "completion"]
_OPTIONAL = ["prompt", "gold"]


@dataclass(frozen=True)
class Specimen:
    """One prompt, what the coded policy answered, and what the base model answered under the same noise."""

    prompt: str | None
    gold: str | None
    prompt_digest: str
    correct: bool
    reason: str
    completion: str
    base_correct: bool | None
    base_completion: str | None


@dataclass(frozen=True)
class Specimens:
    """Completions of the coded policy on the sample, and how all of them ended."""

    right: tuple[Specimen, ...]
    wrong: tuple[Specimen, ...]
    reasons: tuple[tuple[str, int], ...]
    right_in_all: int
    digest: str


def read_specimens(path: Path, *, right: int = 3, wrong: int = 4) -> Specimens:
    """Read `right` right and `wrong` wrong completions; among the wrong, each reason comes once before any repeats."""
    rows = _rows(path)
    base = {(row["index"], row["draw"]): row for row in rows if row["policy"] == "base"}
    coded = sorted((row for row in rows if row["policy"] == "coded"), key=_order)
    prompts = _prompts(path.parent)
    failed = [row for row in coded if not row["correct"]]
    firsts = list({row["reason"]: row for row in reversed(failed)}.values())
    picked = sorted(firsts, key=_order)[:wrong]
    picked += [row for row in failed if not any(row is p for p in picked)][: wrong - len(picked)]
    reasons = Counter(str(row["reason"]) for row in coded)
    return Specimens(
        right=tuple(_specimen(row, base, prompts) for row in coded if row["correct"])[:right],
        wrong=tuple(_specimen(row, base, prompts) for row in sorted(picked, key=_order)),
        reasons=tuple(sorted(reasons.items(), key=lambda item: (item[0] != "right", -item[1], item[0]))),
        right_in_all=len(coded) - len(failed),
        digest=hashlib.sha256(path.read_bytes()).hexdigest(),
    )


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        columns = pq.read_schema(path).names
        if missing := [name for name in _COLUMNS if name not in columns]:
            raise ReportError(
                "evidence lacks columns", f"{path}: {', '.join(missing)}", "write it again with `prlvr run`"
            )
        wanted = _COLUMNS + [name for name in _OPTIONAL if name in columns]
        only = [("split", "=", "sample"), ("policy", "in", ["base", "coded"])]
        rows: list[dict[str, Any]] = pq.read_table(path, columns=wanted, filters=only).to_pylist()
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:120]
        raise ReportError("evidence cannot be read", f"{path} ({reason})", "restore it or run again") from None
    return rows


def _order(row: dict[str, Any]) -> tuple[str, int, int]:
    return str(row["prompt_digest"]), int(row["index"]), int(row["draw"])


def _prompts(folder: Path) -> dict[str, dict[str, Any]]:
    """Prompts by digest from `prompts.jsonl`, where a run keeps them beside its evidence."""
    path = folder / "prompts.jsonl"
    if not path.is_file():
        return {}
    try:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
        return {str(row["prompt_digest"]): row for row in rows}
    except (ValueError, KeyError, TypeError) as error:
        raise ReportError("prompts cannot be read", f"{path} ({error})", "restore or remove the file") from None


def _digest(prompt: str) -> str:
    return hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()


def _specimen(
    row: dict[str, Any], base: dict[tuple[int, int], dict[str, Any]], prompts: dict[str, dict[str, Any]]
) -> Specimen:
    kept = prompts.get(str(row["prompt_digest"]), {})
    other = base.get((row["index"], row["draw"]))
    prompt, gold = row.get("prompt") or kept.get("prompt"), row.get("gold") or kept.get("gold")
    if prompt is not None and _digest(str(prompt)) != row["prompt_digest"]:
        prompt = gold = None  # not the prompt that was locked: show its digest only
    return Specimen(
        prompt=None if prompt is None else str(prompt),
        gold=None if gold is None else str(gold),
        prompt_digest=str(row["prompt_digest"]),
        correct=bool(row["correct"]),
        reason=str(row["reason"]),
        completion=str(row["completion"] or ""),
        base_correct=None if other is None else bool(other["correct"]),
        base_completion=None if other is None else str(other["completion"] or ""),
    )
