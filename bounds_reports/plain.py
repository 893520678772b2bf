"""The same report for programs (JSON) and for places where only text goes (Markdown)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from bounds_reports import sentences
from bounds_reports.accounting import NOTE, accounting_view, as_data
from bounds_reports.schema import Certificate
from bounds_reports.section import (
    BITS,
    DELTA,
    Section,
    compressibility,
    gaps_of,
    ledger_view,
    lora_bits,
    mismatch,
    summary_row,
)
from bounds_reports.text import markdown, title

JSON_SCHEMA = "prlvr/report/1"


def as_json(folder: Path, name: str, sections: list[Section], begun: list[str]) -> dict[str, Any]:
    """The report as JSON: the certificates themselves, and what the page derives from them."""
    return {
        "schema": JSON_SCHEMA,
        "run": name,
        "jointly": sentences.jointly([s.certificate for s in sections]),
        "unfinished": begun,
        "domains": [_json_section(folder, section) for section in sections],
    }


def _json_section(folder: Path, section: Section) -> dict[str, Any]:
    c = section.certificate
    return {
        "domain": c.domain,
        "label": section.source.label,
        "purpose": c.purpose,
        "certified_accuracy": float(c.certified),
        "n": c.n,
        "bits": float(c.bits.total),
        "delta": float(c.delta),
        "accuracy": {key: float(score.accuracy) for key, score in c.policies()},
        "heldout_accuracy": {k: float(s.heldout.accuracy) for k, s in c.policies() if s.heldout is not None},
        "gaps": {key: float(value) for key, value in gaps_of(c).items()},
        "sentence": sentences.headline(c),
        "verdict": sentences.verdict(c),
        "remedies": sentences.remedies(c),
        "holdout": sentences.held_out(c),
        "merge_audit": section.merge_audit.model_dump(mode="json") if section.merge_audit else None,
        "compressibility": _compressibility(c),
        "accounting": as_data(section.accounting),
        "reasons": dict(section.specimens.reasons),
        "warning": mismatch(section),
        "verify": f"prlvr verify {section.source.path.relative_to(folder).as_posix()}",
        "certificate": section.source.raw,
    }


def _compressibility(c: Certificate) -> dict[str, int] | None:
    factor, bits = compressibility(c), lora_bits(c.stages)
    if factor is None or bits is None:
        return None
    return {"lora_bits_bfloat16": bits, "factor": math.floor(factor)}


def as_markdown(folder: Path, name: str, sections: list[Section], begun: list[str]) -> str:
    """The report as Markdown: the table, then a paragraph and the ledgers of each domain."""
    columns = ["domain", "base", "LoRA", "coded", "bits", "n", "certified", "gap"]
    rows = []
    for section in sections:
        row = summary_row(section)
        label = markdown(section.name) + (f" (**{sentences.DEVELOPMENT}**)" if section.certificate.development else "")
        rows.append([label, *(row[key] for key in ("base", "lora", "coded", "bits", "n", "certified", "gap"))])
    lines = [
        f"# Certificates for {markdown(name)}",
        "",
        markdown(sentences.jointly([s.certificate for s in sections])),
        "",
    ]
    lines += [f"| {' | '.join(columns)} |", "|---|" + "---:|" * (len(columns) - 1)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    lines += ["", "Gap: coded minus certified, in points. Certified accuracy is rounded down, the base model's up."]
    if begun:
        lines += ["", f"Begun and not certified: {', '.join(markdown(title(domain)) for domain in begun)}."]
    for section in sections:
        c = section.certificate
        lines += ["", f"## {markdown(section.name)}", ""]
        if c.development:
            lines += [f"**{sentences.DEVELOPMENT.upper()}**", ""]
        if (warning := mismatch(section)) is not None:
            lines += [f"**{markdown(warning)}**", ""]
        lines += [markdown(sentences.paragraph(c))]
        for heading, ledger, decimals in (("Bits", c.bits, BITS), ("δ", c.deltas, DELTA)):
            view = ledger_view(ledger, decimals)
            lines += ["", f"| {heading} | | |", "|---|---:|---|"]
            lines += [f"| {markdown(r['name'])} | {r['value']} | {markdown(r['why'])} |" for r in view["rows"]]
            lines += [f"| **Total** | **{view['total']}** | |"]
        lines += _accounting(section)
        if section.merge_audit is not None:
            lines += ["", markdown(sentences.merged(section.merge_audit))]
        lines += ["", "Assumed:", ""] + [f"- {markdown(text)}" for text in c.assumptions]
        lines += ["", f"Check it: `prlvr verify {section.source.path.relative_to(folder).as_posix().replace('`', '')}`"]
    return "\n".join(lines) + "\n"


def _accounting(section: Section) -> list[str]:
    view = accounting_view(section.accounting)
    if view is None:
        return []
    if view.missing:
        return ["", markdown(f"Other accountings are not shown: {view.missing}")]
    lines = ["", f"| The same evidence under other accountings | bits | {' | '.join(view.bounds)} |"]
    lines += ["|---|" + "---:|" * (1 + len(view.bounds))]
    lines += [f"| {row.name} | {row.bits} | {' | '.join(row.certified)} |" for row in view.rows]
    return [*lines, "", markdown(f"{NOTE} {view.scope}".strip())]
