"""A run on disk, written once for the tests that only read it."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_run import write_run

from bounds_reports import ReportPaths, build_report


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "demo"
    folder.mkdir()
    write_run(folder)
    return folder


@pytest.fixture(scope="session")
def report(run_dir: Path) -> ReportPaths:
    return build_report(run_dir)
