"""Small real runs of the pocket model through the command line, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

STAGES = {
    "rlvr": {"steps": 6, "prompts": 4, "samples": 4, "learning_rate": 0.002, "rank": 2},
    "distill": {"steps": 6, "prompts": 16},
    "tinylora": {"steps": 6, "prompts": 4, "samples": 4},
    "quantize": {"candidates_on": 60},
}
SMALL = {
    "name": "small",
    "base": {"model": "pocket"},
    "domains": {"knowledge": {}},
    "sample": {"n": 120, "heldout": 30},
    "generation": {"batch_size": 32},
    "menu": {"steps": ["0.1", "0.2"]},
    "stages": STAGES,
    "processes": 1,
}
ENVIRONMENT = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1", "COLUMNS": "200"}


def write_config(folder: Path, **changes: object) -> Path:
    """A configuration file of a small run, with changes."""
    file = folder / f"{changes.get('name', 'small')}.yaml"
    file.write_text(yaml.safe_dump({**SMALL, **changes}))
    return file


def install(plugins: Path, module: str, source: str, entry_points: str) -> None:
    """Put a third-party package with one module into a folder, with the metadata that pip writes."""
    (plugins / f"{module}.py").write_text(source, encoding="utf-8")
    metadata = plugins / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entry_points)


def command(*arguments: str | Path) -> list[str]:
    """`prlvr` with these arguments, by the interpreter of the tests."""
    return [sys.executable, "-m", "progressive_rlvr.cli", *map(str, arguments)]


def prlvr(
    *arguments: str | Path,
    code: int = 0,
    timeout: float = 300,
    plugins: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `prlvr` to its end and check its exit code; whatever happens, a user sees no traceback.

    `plugins` is a folder of third-party packages, as `pip install --target` leaves them.
    """
    environment = {**ENVIRONMENT, **(environment or {})}
    if plugins is not None:
        environment["PYTHONPATH"] = os.pathsep.join([str(plugins), environment.get("PYTHONPATH", "")])
    result = subprocess.run(command(*arguments), capture_output=True, text=True, env=environment, timeout=timeout)
    assert result.returncode == code, result.stdout + result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    return result
