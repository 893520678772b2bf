"""Small real runs of the pocket model through the command line, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
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


def command(*arguments: str | Path) -> list[str]:
    """`prlvr` with these arguments, by the interpreter of the tests."""
    return [sys.executable, "-m", "progressive_rlvr.cli", *map(str, arguments)]


def prlvr(*arguments: str | Path, code: int = 0, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run `prlvr` to its end and check its exit code; whatever happens, a user sees no traceback."""
    result = subprocess.run(command(*arguments), capture_output=True, text=True, env=ENVIRONMENT, timeout=timeout)
    assert result.returncode == code, result.stdout + result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    return result
