"""From certificates to pages: a report that says what is certified, what was measured and what is assumed."""

from bounds_reports.build import ReportPaths, build_report
from bounds_reports.errors import ReportError

__all__ = ["ReportError", "ReportPaths", "build_report"]
