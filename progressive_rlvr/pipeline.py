"""From a configuration to certificates: one process per domain, any of which may be killed and started again.

`python -m progressive_rlvr.pipeline RUN_FOLDER DOMAIN` is the process of one domain; `run_domains` starts and watches
several.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, get_args

from pacbayes.canonical import write_atomic
from pacbayes.schema import first_difference
from progressive_rlvr.config import RunConfig, StageName, dump_config, load_config
from progressive_rlvr.errors import EXPECTED, UserError
from progressive_rlvr.metrics import Metrics

CONFIG_FILE = "config.resolved.yaml"
ERROR_MARK = "prlvr: error: "
TRAINING_STAGES = ("rlvr", "distill", "tinylora")
# Settings of how a run is carried out, which a resumed run may change.
FREE_TO_CHANGE = ("processes", "data_dir")

# What is said is for the user: no bars of the libraries, no advice to those who call them.
QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "PYTHONWARNINGS": "ignore::FutureWarning",
}


@dataclass(frozen=True)
class Progress:
    """Where one domain is: `done` of `total` steps of `stage`; `state` is waiting, running, done or failed."""

    domain: str
    state: str
    stage: str = ""
    done: int = 0
    total: int = 0


def prepare_run(config: RunConfig, runs: Path) -> Path:
    """Make or find the run's folder.

    Raises:
        UserError: the folder cannot be written, or belongs to another configuration.
    """
    folder = runs / config.name
    path = folder / CONFIG_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            write_atomic(path, dump_config(config).encode())
    except OSError as error:
        raise UserError(f"cannot write to the run directory {folder}: {error.strerror}") from error
    found = load_config(path).model_dump(mode="json", exclude=set(FREE_TO_CHANGE))
    if difference := first_difference(found, config.model_dump(mode="json", exclude=set(FREE_TO_CHANGE))):
        raise UserError(f"{folder} was begun with another configuration ({difference}); give this one another name")
    write_atomic(path, dump_config(config).encode())
    return folder


def run_domain(run_folder: Path, domain: str, last: StageName | None = None, workers: int | None = None) -> None:
    """Everything of one domain: locks, stages, evaluation, certificate; or only the stages up to `last`.

    `workers`: how many Ray workers generate; none: this process does.
    """
    # Imported here: the parent process starts in a fraction of the time that the training stack takes to load.
    from progressive_rlvr.certify import certify
    from progressive_rlvr.chain import open_chain
    from progressive_rlvr.distributed import end, first_process_first, process_count
    from progressive_rlvr.stages import StageResult, run_stage, stage_folders

    config = load_config(run_folder / CONFIG_FILE)
    if process_count() > 1 and last not in TRAINING_STAGES:
        raise UserError(
            f"{process_count()} processes together run the training stages only: give --to tinylora (or the last one "
            "there is), and then `prlvr run`"
        )
    with first_process_first():
        chain = open_chain(config, run_folder, domain, workers)
    try:
        stages: list[StageResult] = []
        for kind in stage_folders(chain):
            stages.append(run_stage(chain, kind, stages[-1] if stages else None))
            if kind == last:
                return
        certificate = certify(chain, stages)
        copies = run_folder / "certificates"
        copies.mkdir(exist_ok=True)
        write_atomic(copies / f"{domain}.json", certificate.read_bytes())
        chain.metrics.append("done", 1, 1)
    finally:
        chain.close()
        end()


@contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Hold a domain's folder; a second process that wants it is refused.

    Raises:
        UserError: another process works there.
    """
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"another process works on {folder}; wait for it, or end it") from error
        yield


def run_domains(
    config: RunConfig,
    run_folder: Path,
    last: StageName | None,
    watch: Callable[[list[Progress]], None],
    interval: float = 0.5,
    only: Sequence[str] | None = None,
    workers: int | None = None,
) -> None:
    """Run every domain, or only some, `config.processes` at a time; `watch` is told about all of them at every
    `interval` (seconds).

    `workers`: how many Ray workers generate for each domain; none: its own process does.

    Raises:
        UserError: a domain failed; the others were finished first.
    """
    domains = list(config.domains if only is None else only)
    waiting = list(domains)
    running: dict[str, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}
    ended: dict[str, int] = {}
    try:
        while waiting or running:
            while waiting and len(running) < config.processes:
                running[waiting[0]] = _start(config, run_folder, waiting[0], last, workers)
                waiting.pop(0)
            time.sleep(interval)
            for domain, (process, log) in list(running.items()):
                if process.poll() is not None:
                    log.close()
                    ended[domain] = process.returncode
                    del running[domain]
            watch([progress(run_folder, d, _state(d, running, ended)) for d in domains])
    finally:
        for process, log in running.values():
            process.kill()
            process.wait()
            log.close()
    failures = [_failure(run_folder / d, d, code) for d, code in ended.items() if code]
    if failures:
        raise UserError("; ".join(failures))


def _start(
    config: RunConfig, run_folder: Path, domain: str, last: StageName | None, workers: int | None
) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    logs = run_folder / domain / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    log = open(logs / "worker.log", "ab")  # noqa: SIM115  closed when the process has ended
    # With more than one spinning thread pool on few cores everything is many times slower.
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(config.threads),
        "MKL_NUM_THREADS": str(config.threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "TOKENIZERS_PARALLELISM": "false",
        # glibc gives large buffers back to the system after every layer and faults them in again: a third of the time.
        "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
        "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
        "PYTHONUNBUFFERED": "1",
        **QUIET,
    }
    command = [sys.executable, "-m", "progressive_rlvr.pipeline", str(run_folder), domain]
    command += ["--to", last] if last else []
    command += ["--workers", str(workers)] if workers else []
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
    ), log


def _state(domain: str, running: dict[str, Any], ended: dict[str, int]) -> str:
    if domain in running:
        return "running"
    if domain in ended:
        return "failed" if ended[domain] else "done"
    return "waiting"


def progress(run_folder: Path, domain: str, state: str) -> Progress:
    """What a domain's metrics say last."""
    row = Metrics(run_folder / domain / "metrics.jsonl").last()
    return Progress(domain, state, row["stage"], row["step"], row["steps"]) if row else Progress(domain, state)


def _failure(folder: Path, domain: str, code: int) -> str:
    log = folder / "logs" / "worker.log"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    said = [line.removeprefix(ERROR_MARK) for line in lines[-50:] if line.startswith(ERROR_MARK)]
    if said:
        return f"{domain}: {said[-1]}"
    how = f"was ended by signal {-code}" if code < 0 else f"stopped unexpectedly with exit code {code}"
    return f"{domain} {how}: the same command goes on from there; see {log}"


def _die_with_parent() -> None:
    """Ask Linux to end this process when its parent ends, so that a killed run leaves nothing behind."""
    if sys.platform == "linux":
        import ctypes
        import signal

        parent_death_signal = 1
        ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)


def main() -> None:
    """The process of one domain."""
    parser = argparse.ArgumentParser(description="One domain of a run; started by `prlvr run`.")
    parser.add_argument("run_folder", type=Path)
    parser.add_argument("domain")
    parser.add_argument("--to", choices=get_args(StageName), default=None)
    parser.add_argument("--workers", type=int, default=None, help="Ray workers that generate; none: this process does")
    arguments = parser.parse_args()
    _die_with_parent()
    from progressive_rlvr.distributed import is_first

    folder = arguments.run_folder / arguments.domain
    try:
        with only_process(folder) if is_first() else nullcontext():
            run_domain(arguments.run_folder, arguments.domain, arguments.to, arguments.workers)
    except EXPECTED as error:
        print(ERROR_MARK + " ".join(str(error).split()), flush=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
