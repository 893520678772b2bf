"""`prlvr compare`: certificates are verified (V0), then shown side by side with other accountings of their evidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bounds_reports import build_comparison, sources_of
from pacbayes.certificate import verify_certificate
from progressive_rlvr.accounting import account
from progressive_rlvr.errors import UserError


def compare(paths: Sequence[Path], out: Path | None) -> tuple[Path, Path, Path]:
    """Write the comparison; returns where its page, JSON and Markdown are.

    Raises:
        UserError: a certificate does not hold.
        ReportError: nothing to compare, a file that cannot be read, or two base models by one name.
    """
    sources = sources_of(paths)
    for source in sources:
        failed = next((check for check in verify_certificate(source.path) if not check.ok), None)
        if failed is not None:
            raise UserError(f"{source.path} does not hold (V0), so nothing is compared: {failed.name}: {failed.detail}")
    first = paths[0] if paths[0].is_dir() else paths[0].parent
    written = build_comparison(sources, out or first / "reports", account, verified=True)
    return written.html, written.json, written.markdown
