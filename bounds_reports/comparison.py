"""Certificates side by side: a page, a JSON file and a Markdown file that say the same.

Like a report they print what the certificates say and recompute no bound, and the same files give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bounds_reports import seed_chart, svg
from bounds_reports.accounting import NOTE, Account, accounting_view, as_data
from bounds_reports.build import ReportPaths
from bounds_reports.files import write_atomic
from bounds_reports.groups import (
    COLUMNS,
    Column,
    Group,
    Row,
    all_jointly,
    groups_of,
    jointly,
    median_accounting,
    population,
    shown,
)
from bounds_reports.load import Source
from bounds_reports.numbers import probability
from bounds_reports.page import environment
from bounds_reports.section import lora_bits
from bounds_reports.sentences import DEVELOPMENT
from bounds_reports.text import clip, markdown, visible

JSON_SCHEMA = "prlvr/comparison/1"
ROUNDED = (
    "Every figure is rounded against us, medians too: base, LoRA, bits and gaps up, the others down. Differences and "
    "medians are taken before rounding."
)
_ASSUMED = (
    "Hold-out equivalent: about how many labels kept out of training would have given the certified number at the "
    "coded accuracy. Compressibility: the bits of the LoRA adapter in bfloat16, as its stage wrote them down, divided "
    "by those that the message is charged, every line of the ledger."
)
_CHECKED = {
    True: "Every certificate was checked against its files first (V0).",
    False: "The certificates were not checked here; prlvr verify does.",
}
_TRACKS = (("base", "base"), ("certified", "certified"), ("coded", "coded"), ("lora", "LoRA"))
_ON_PAGE = tuple(column for column in COLUMNS if column.key != "n")  # the same in a group: it stands in its caption


def build_comparison(
    sources: Sequence[Source], out: Path, account: Account | None = None, *, verified: bool = False
) -> ReportPaths:
    """Write `comparison.{html,json,md}` into the folder `out`.

    Args:
        sources: certificates, by `sources_of`.
        out: folder of the three files; made if it is not there.
        account: the evidence of a certificate's file under other accountings, to be shown beside it.
        verified: whether every certificate was checked against its files (V0); the pages say so.

    Raises:
        ReportError: two base models go by one name, or a file cannot be written.
    """
    groups = groups_of(sources, account)
    paths = ReportPaths(out / "comparison.html", out / "comparison.json", out / "comparison.md")
    page = environment().get_template("comparison.html.j2").render(_context(groups, verified))
    data = json.dumps(as_json(groups, verified), indent=2, sort_keys=True) + "\n"
    for path, content in ((paths.json, data), (paths.markdown, as_markdown(groups, verified)), (paths.html, page)):
        write_atomic(path, content.encode("utf-8"))
    return paths


def heading(group: Group) -> str:
    """Base and domain; the base's name is whatever the producer wrote."""
    return f"{clip(visible(group.base), 60)[0]} · {group.name}"


def about(group: Group) -> str:
    """What the certificates of a group have in common."""
    c = group.first
    said = [f"population {named}"] if (named := population(c)) else []
    said += [f"design {c.design}", f"n = {c.n:,}" + (f", {c.draws} draws each" if c.draws > 1 else "")]
    return f"{', '.join(said)}, confidence {probability(c.risk)}"


def _lora_bits(group: Group) -> str:
    """Both counts of bits behind the last column, in words."""
    found = sorted({bits for row in group.rows if (bits := lora_bits(row.certificate.stages)) is not None})
    if not found:
        return ""
    return f"LoRA adapter in bfloat16: {' or '.join(f'{bits:,}' for bits in found)} bits."


def as_json(groups: Sequence[Group], verified: bool) -> dict[str, Any]:
    """The comparison for programs; nothing is rounded."""
    return {
        "schema": JSON_SCHEMA,
        "verified": verified,
        "jointly": all_jointly(groups),
        "claims": [
            {
                "base": group.base,
                "domain": group.first.domain,
                "design": group.first.design,
                "draws": group.first.draws,
                "confidence": float(1 - group.first.risk),
                "purpose": group.first.purpose,
                "jointly": jointly(group),
                "pairs_of_locks": len(group.locks),
                "median": _floats(group.median),
                "accounting": as_data(median_accounting(group)),
                "certificates": [_json_row(row) for row in group.rows],
            }
            for group in groups
        ],
    }


def _json_row(row: Row) -> dict[str, Any]:
    c = row.certificate
    return {
        "label": row.label,
        "seed": row.seed,
        "file": row.source.path.name,
        "message": c.digests.get("message"),
        "lora_bits_bfloat16": lora_bits(c.stages),
        "values": _floats(row.values),
        "accounting": as_data(row.accounting),
    }


def _floats(values: dict[str, Any]) -> dict[str, float | None]:
    return {key: None if value is None else float(value) for key, value in values.items()}


def as_markdown(groups: Sequence[Group], verified: bool) -> str:
    """The comparison as Markdown: the medians, then the certificates of each claim."""
    lines = ["# Certificates compared", "", markdown(all_jointly(groups)), "", _CHECKED[verified], ""]
    lines += _table("medians", COLUMNS, [(heading(group), group.median) for group in groups])
    lines += ["", f"{ROUNDED} {_ASSUMED}"]
    if _accounted(groups):
        lines += ["", f"Other accountings: {NOTE}"]
    for group in groups:
        lines += ["", f"## {markdown(heading(group))}", ""]
        if group.first.development:
            lines += [f"**{DEVELOPMENT.upper()}**", ""]
        lines += [markdown(f"{about(group)}. {jointly(group)} {_lora_bits(group)}".strip()), ""]
        rows = [(row.label, row.values) for row in group.rows]
        if len(rows) > 1:
            rows.append(("median", group.median))
        lines += _table("", COLUMNS, rows)
        view = accounting_view(median_accounting(group))
        if view is not None and view.missing:
            lines += ["", markdown(f"Other accountings are not shown: {view.missing}")]
        elif view is not None:
            lines += ["", f"| other accountings, medians | bits | {' | '.join(view.bounds)} |"]
            lines += ["|---|" + "---:|" * (1 + len(view.bounds))]
            lines += [f"| {row.name} | {row.bits} | {' | '.join(row.certified)} |" for row in view.rows]
            lines += ["", markdown(view.scope)] if view.scope else []
    return "\n".join(lines) + "\n"


def _accounted(groups: Sequence[Group]) -> bool:
    return any(row.accounting is not None and not row.accounting.missing for group in groups for row in group.rows)


def _table(corner: str, columns: Sequence[Column], rows: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    lines = [f"| {corner} | {' | '.join(column.name for column in columns)} |", "|---|" + "---:|" * len(columns)]
    for label, values in rows:
        cells = [shown(column, values[column.key]) for column in columns]
        lines.append(f"| {markdown(label)} | {' | '.join(cells)} |")
    return lines


def _band(group: Group) -> seed_chart.Band:
    tracks = []
    columns = {column.key: column for column in COLUMNS}
    for key, name in _TRACKS:
        middle = group.median[key]
        if middle is None:
            continue
        values = [float(value) for row in group.rows if (value := row.values[key]) is not None]
        cls = ("draft" if group.first.development else "sure") if key == "certified" else key
        word = "not certified" if cls == "draft" else name
        tracks.append(seed_chart.Track(cls, word, tuple(values), float(middle), shown(columns[key], middle)))
    return seed_chart.Band(heading(group), tuple(tracks))


def _chart_label(bands: Sequence[seed_chart.Band]) -> str:
    said = (f"{band.name}: " + ", ".join(f"{track.name} {track.text}" for track in band.tracks) for band in bands)
    return f"Medians of accuracy. {'; '.join(said)}."


def _context(groups: Sequence[Group], verified: bool) -> dict[str, Any]:
    bands = [_band(group) for group in groups]
    return {
        "columns": _ON_PAGE,
        "jointly": all_jointly(groups),
        "certificates": sum(len(group.rows) for group in groups),
        "development": any(group.first.development for group in groups),
        "DEVELOPMENT": DEVELOPMENT,
        "ROUNDED": ROUNDED,
        "CHECKED": _CHECKED[verified],
        "NOTE": NOTE,
        "accounted": _accounted(groups),
        "ASSUMED": _ASSUMED,
        "chart": svg.both(seed_chart.seed_chart, bands, _chart_label(bands)),
        "groups": [
            {
                "id": group.id,
                "heading": heading(group),
                "about": about(group),
                "lora_bits": _lora_bits(group),
                "development": group.first.development,
                "jointly": jointly(group),
                "alone": len(group.locks) > 1 and not group.first.development,
                "count": len(group.rows),
                "median": [(column.key, shown(column, group.median[column.key])) for column in _ON_PAGE],
                "rows": [
                    {
                        "label": row.label,
                        "cells": [(column.key, shown(column, row.values[column.key])) for column in _ON_PAGE],
                    }
                    for row in group.rows
                ],
                "accounting": accounting_view(median_accounting(group)),
            }
            for group in groups
        ],
    }
