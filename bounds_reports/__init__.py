"""From certificates to pages: a report that says what is certified, what was measured and what is assumed."""

from bounds_reports.build import ReportPaths, build_report
from bounds_reports.comparison import build_comparison
from bounds_reports.errors import ReportError
from bounds_reports.groups import sources_of

__all__ = ["ReportError", "ReportPaths", "build_comparison", "build_report", "sources_of"]
