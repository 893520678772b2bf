"""From a run, or a folder of published certificates, to a page, a JSON file and a Markdown file.

The three say the same. They print what the certificates say and recompute no bound; a report of the same files is the
same bytes, so nothing in it depends on the clock, the machine or the caller's directory.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from bounds_reports.accounting import Account
from bounds_reports.errors import ReportError
from bounds_reports.files import write_atomic
from bounds_reports.load import find_sources, unfinished
from bounds_reports.page import html
from bounds_reports.plain import as_json, as_markdown
from bounds_reports.section import sections_of


@dataclass(frozen=True)
class ReportPaths:
    """Where the three files of a report are."""

    html: Path
    json: Path
    markdown: Path


def build_report(run_dir: Path, account: Account | None = None) -> ReportPaths:
    """Write `reports/report.{html,json,md}` into a run's folder or a folder of published certificates.

    Args:
        run_dir: `runs/<name>`, with `<domain>/certificate.json` and `<domain>/evidence.parquet`; or a folder with
            `<domain>.json` and `<domain>/evidence.parquet`.
        account: the evidence of a certificate's file under other accountings, to be shown beside it.

    Raises:
        ReportError: a file is missing, cannot be read or does not follow its schema. Nothing is written then.
    """
    folder = Path(run_dir)
    sections = sections_of(find_sources(folder), account)
    name = folder.resolve().name
    out = folder / "reports"
    paths = ReportPaths(out / "report.html", out / "report.json", out / "report.md")
    begun = unfinished(folder)
    page = html(folder, name, sections, begun)
    data = json.dumps(as_json(folder, name, sections, begun), indent=2, sort_keys=True) + "\n"
    text = as_markdown(folder, name, sections, begun)
    for path, content in ((paths.json, data), (paths.markdown, text), (paths.html, page)):
        write_atomic(path, content.encode("utf-8"))
    return paths


__all__ = ["ReportError", "ReportPaths", "build_report"]
