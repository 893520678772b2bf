"""Small real runs of the pocket model through the command line, for tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import yaml

from pacbayes.certificate import build_certificate, read_certificate, write_certificate
from pacbayes.evidence import Outcome, read_evidence, write_evidence
from pacbayes.sample import MethodLock, SampleLock, read_lock
from progressive_rlvr.metrics import Metrics

STAGES = {
    "rlvr": {"steps": 6, "prompts": 4, "samples": 4, "learning_rate": 0.002, "rank": 2},
    "distill": {"steps": 6, "prompts": 16},
    "tinylora": {"steps": 6, "prompts": 4, "samples": 4},
    "quantize": {"candidates_on": 60, "rounds": 2},
}
SMALL = {
    "name": "small",
    "base": {"model": "pocket"},
    "domains": {"knowledge": {}},
    "sample": {"n": 120, "heldout": 30},
    "generation": {"batch_size": 32},
    "student": {"directions": "answers", "answers": 64, "r": 4, "u": 6, "groups": 1},
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


def run_and_kill(config: Path, runs: Path, stages: Iterable[str]) -> None:
    """Begin the run again and again, and kill it, workers included, as soon as it comes to each of the stages."""
    metrics = Metrics(runs / "small" / "knowledge" / "metrics.jsonl")
    for stage in stages:
        process = subprocess.Popen(
            command("run", config, "--runs", runs), env=ENVIRONMENT, start_new_session=True, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 200
        while not ((row := metrics.last()) and row["stage"].startswith(stage)):
            assert process.poll() is None, f"the run ended before {stage}"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def copy_of(run: Path, folder: Path) -> Path:
    """A copy of a run, to be damaged."""
    shutil.copytree(run.parent, folder / "runs")
    return folder / "runs" / run.name


def certificate_of(run: Path) -> Path:
    """The certificate of a small run."""
    return run / "certificates" / "knowledge.json"


def locks_of(run: Path) -> tuple[MethodLock, SampleLock]:
    """Both locks of a small run."""
    folder = run / "knowledge"
    return read_lock(folder / "method.lock.json", MethodLock), read_lock(folder / "sample.lock.json", SampleLock)


def forge(run: Path, policy: str, change: Callable[[Outcome], Outcome]) -> list[int]:
    """Change outcomes of a policy on the sample and make all digests and counts fit; returns the indices changed."""
    folder, (method, sample) = run / "knowledge", locks_of(run)
    shown, evidence = read_certificate(certificate_of(run)), read_evidence(folder / "evidence.parquet")
    rows, changed = [], []
    for outcome in evidence.outcomes.values():
        new = change(outcome) if (outcome.policy, outcome.split) == (policy, "sample") else outcome
        rows.append(new)
        if new != outcome:
            changed.append(outcome.index)
    path = folder / "evidence.parquet"
    path.unlink()  # what stands in it binds
    write_evidence(path, rows, sample_lock=evidence.sample_lock, policies=dict(evidence.policies))
    certificate = build_certificate(
        method=method,
        sample=sample,
        message=(folder / "message.bin").read_bytes(),
        evidence=path.read_bytes(),
        policy=shown.digests.policy,
        engine=shown.engine,
        stages=shown.stages,
    )
    write_certificate(certificate_of(run), certificate)
    return changed
