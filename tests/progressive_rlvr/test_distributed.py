"""Two processes train together under `accelerate launch`; the first one writes, and one process finishes the run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import ENVIRONMENT, prlvr, write_config

from pacbayes.certificate import read_certificate
from progressive_rlvr.distributed import share
from progressive_rlvr.errors import UserError

ACCELERATE = Path(__file__).parents[2] / "configs" / "accelerate" / "cpu-2.yaml"
PROCESS = ("-m", "progressive_rlvr.pipeline")


def launch(*arguments: str | Path, code: int = 0) -> str:
    """A program, twice, by the shipped configuration; returns what both said."""
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", ACCELERATE]
    result = subprocess.run(
        [*map(str, command), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "OMP_NUM_THREADS": "1"},
        timeout=600,
    )
    assert (result.returncode == 0) == (code == 0), f"{result.stdout[-2000:]}\n{result.stderr[:6000]}"
    return result.stdout + result.stderr


@pytest.mark.parametrize(
    ("processes", "batch", "micro", "expected"),
    [(1, 64, None, (64, 1)), (1, 64, 16, (16, 4)), (4, 64, None, (16, 1)), (4, 64, 8, (8, 2)), (2, 16, 16, (8, 1))],
)
def test_a_step_has_the_same_size_however_many_share_it(
    monkeypatch: pytest.MonkeyPatch, processes: int, batch: int, micro: int | None, expected: tuple[int, int]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    assert share(batch, micro) == expected
    assert processes * expected[0] * expected[1] == batch


def test_a_step_that_cannot_be_shared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(UserError, match="64 completions cannot be shared evenly by 3"):
        share(64, None)


@pytest.mark.slow
def test_processes_that_trained_apart_are_noticed() -> None:
    """Each of two processes may take itself for the only one; then nothing is averaged, and nothing fails."""
    assert launch(Path(__file__).parent / "apart.py").count("noticed") == 2


@pytest.mark.slow
def test_two_processes_train_and_one_finishes(tmp_path: Path) -> None:
    config, runs = write_config(tmp_path), tmp_path / "runs"
    prlvr("lock", config, "--runs", runs)
    run = runs / "small"
    before = {f: f.read_bytes() for f in (run / "knowledge").glob("*.json")}
    launch(*PROCESS, run, "knowledge", "--to", "tinylora")
    assert {f: f.read_bytes() for f in (run / "knowledge").glob("*.json")} == before, "locks are written once"
    for number, stage in enumerate(("rlvr", "distill", "tinylora"), start=1):
        done = json.loads((run / "knowledge" / "stages" / f"{number}-{stage}" / "done.json").read_text())
        assert done["summary"]["processes"] == 2
        assert done["summary"]["completions"] == {"rlvr": 96, "distill": 96, "tinylora": 96}[stage]
    steps = [json.loads(line) for line in (run / "knowledge" / "metrics.jsonl").open()]
    assert [s["step"] for s in steps if s["stage"] == "rlvr"] == [*range(7)], "one process records"
    stages = {f: f.read_bytes() for f in (run / "knowledge" / "stages").rglob("*") if f.is_file()}
    prlvr("run", config, "--runs", runs)
    assert {f: f.read_bytes() for f in stages} == stages, "what was trained together is taken as it is"
    certificate = read_certificate(run / "certificates" / "knowledge.json")
    assert [s.get("processes") for s in certificate.stages] == [None, 2, 2, 2, None]
    assert len((runs / "attempts.jsonl").read_text().splitlines()) == 1


@pytest.mark.slow
def test_two_processes_do_not_certify(tmp_path: Path) -> None:
    config, runs = write_config(tmp_path), tmp_path / "runs"
    prlvr("lock", config, "--runs", runs)
    assert "the training stages only" in launch(*PROCESS, runs / "small", "knowledge", code=2)
