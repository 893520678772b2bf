"""Finding and reading what a report is made of: certificates, evidence, training metrics."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from glob import escape
from pathlib import Path
from typing import Any, TypeGuard

from pydantic import ValidationError

from bounds_reports.errors import ReportError
from bounds_reports.schema import SCHEMA_PREFIX, Certificate, MergeAudit

_RERUN = "run `prlvr run` again to complete it, or restore the file"


@dataclass(frozen=True)
class Source:
    """One certificate and the files that belong to it."""

    label: str
    path: Path
    evidence: Path
    metrics: Path
    raw: dict[str, Any]
    certificate: Certificate


@dataclass(frozen=True)
class Metrics:
    """Training curves, (stage, quantity) -> steps and values; candidates, (bits, expected certified accuracy)."""

    curves: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    candidates: list[tuple[float, float]] = field(default_factory=list)
    unreadable: int = 0


def find_sources(folder: Path) -> list[Source]:
    """The certificates of a run (`<domain>/certificate.json`), or else of a folder of them (`<domain>.json`)."""
    if not folder.is_dir():
        raise ReportError("no such run folder", folder, "pass a folder that `prlvr run` wrote")
    inside = sorted(folder.glob("*/certificate.json"))
    sources = [_source(path, path.parent.name, [path.parent]) for path in inside]
    if not inside:
        for path in sorted(folder.glob("*.json")):
            if is_certificate(path):
                sources.append(read_source(path))
    if not sources:
        raise ReportError(
            "no certificate found",
            folder,
            "expected <domain>/certificate.json or <domain>.json in it; `prlvr run` writes them",
        )
    return sources


def is_certificate(path: Path) -> bool:
    """Whether a JSON file says that it is an accuracy certificate. Raises ReportError if it is no JSON."""
    raw = _read_json(path)
    return isinstance(raw, dict) and str(raw.get("schema", "")).startswith(SCHEMA_PREFIX)


def read_source(path: Path) -> Source:
    """A certificate file with its evidence beside it, in a folder of its name, or in `../<domain>/`.

    Raises:
        ReportError: it is no certificate, or its evidence is missing.
    """
    raw = _read_json(path)
    domain = raw.get("domain") if isinstance(raw, dict) else None
    places = [path.parent, path.with_suffix("")]
    if isinstance(domain, str) and Path(domain).name == domain:
        places.append(path.parent.parent / domain)
    return _source(path, path.stem, places)


def unfinished(folder: Path) -> list[str]:
    """Domains that a run has begun (there is a lock) and not certified."""
    return sorted(p.parent.name for p in folder.glob("*/method.lock.json") if not _certified(p.parent))


def _certified(domain: Path) -> bool:
    several = domain.parent.glob(f"{escape(domain.name)}-*.json")  # training seeds that share the locks in the folder
    return (domain / "certificate.json").exists() or domain.with_suffix(".json").exists() or any(several)


def _source(path: Path, label: str, folders: list[Path]) -> Source:
    raw = _read_json(path)
    try:
        certificate = Certificate.model_validate(json.loads(path.read_text("utf-8"), parse_float=Decimal))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole file"
        raise ReportError(
            "certificate does not follow its schema",
            f"{path} at {where}: {first['msg']}, got {first['input']!r:.80}",
            "write it again with `prlvr bound`",
        ) from None
    evidence = next((f / "evidence.parquet" for f in folders if (f / "evidence.parquet").is_file()), None)
    if evidence is None:
        raise ReportError("evidence is missing", folders[0] / "evidence.parquet", _RERUN)
    return Source(label, path, evidence, evidence.parent / "metrics.jsonl", raw, certificate)


def _read_json(path: Path) -> Any:
    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    try:
        return json.loads(path.read_text("utf-8"), parse_constant=refuse)
    except (OSError, ValueError, RecursionError) as error:
        raise ReportError("certificate cannot be read", f"{path} ({error})", _RERUN) from None


def read_merge_audit(path: Path, message: str | None) -> MergeAudit | None:
    """The merge audit of this message, if there is one; what is damaged or about another message is no audit."""
    try:
        audit = MergeAudit.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    return audit if message is None or audit.message == message else None


def read_config(folder: Path) -> str | None:
    """The text of `config.resolved.yaml`, or None."""
    path = folder / "config.resolved.yaml"
    return path.read_text("utf-8", errors="replace") if path.is_file() else None


def read_metrics(path: Path) -> Metrics:
    """The training curves in a metrics file. A run that was killed leaves a half line: it is counted, not fatal."""
    if not path.is_file():
        return Metrics()
    found: dict[tuple[str, str], dict[float, float]] = {}
    tried: dict[tuple[object, float], tuple[float, float]] = {}
    unreadable = 0
    for line in path.read_text("utf-8", errors="replace").splitlines():
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            points = list(_points(row))
            if _finite(bits := row.get("bits")) and _finite(expected := row.get("expected")):
                # A candidate that is tried on more prompts is written again.
                tried[row["entry"], float(bits)] = (float(bits), float(expected))
        except (ValueError, TypeError, KeyError, RecursionError):
            unreadable += 1
            continue
        for key, step, value in points:
            found.setdefault(key, {})[step] = value
    # A resumed stage repeats steps: the last value counts. Where a stage logs both, its reward says more.
    curves = {key: sorted(steps.items()) for key, steps in found.items() if len(steps) > 1}
    curves = {k: v for k, v in curves.items() if k[1] == "reward" or (k[0], "reward") not in curves}
    return Metrics(curves, list(tried.values()), unreadable)


def _points(row: dict[str, Any]) -> Iterator[tuple[tuple[str, str], float, float]]:
    stage, step = str(row["stage"]), row.get("step")
    for quantity in ("reward", "loss"):
        value = row.get(quantity)
        if _finite(step) and _finite(value):
            yield (stage, quantity), float(step), float(value)


def _finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
