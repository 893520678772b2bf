"""Generated programs run here only.

    outcome = Sandbox().run("def add(a, b): return a + b", "assert add(2, 3) == 5")
    outcome.reason                            # Reason.RIGHT

The program runs in a process of its own, forked from a warm worker before anything of the job was read. It gets its own
source and, call by call, arguments; it gives back plain data. The tests run in another process, which holds the
expected values and the verdict and runs no line of the program. So there is no channel to forge: exit codes, printed
reports, `__eq__`, patched `assert` or `unittest`, `os._exit` and replies written by hand can claim return values and
nothing else.

What holds a program, checked by breaking every rule when a worker starts (`protections`):
- seccomp: a list of allowed system calls. No file opens (reading included: imports are resolved before, under a lock
  that lets files be read and nothing else), no process or thread starts, no socket, signal, pipe or shared memory is
  made, no descriptor is told whom to signal; a try ends the process as FORBIDDEN. So one process is the whole tree, and
  killing it is killing the group. There is no scratch directory: nothing can be written.
- CPU seconds (SIGPROF, with RLIMIT_CPU behind it), seconds asleep, address space, size of a reply, no core files.
- no capabilities, no new privileges, and a network, IPC and host name namespace of its own where the kernel grants one.
Time on a busy machine does not count against a program: only CPU used and time spent waiting do. `random` and NumPy
start every program from the same state, so that a verdict repeats.

Not covered: bugs of the kernel in the calls that remain; timing channels between processes of one machine; files that
the standard library can be made to read while it is imported (before any line of the program runs); a program that
answers right because it recognises inputs (hidden tests must be good); tests that pass without calling the program for
what they check, or that hand an expected value to the program as an argument. A program may return an object that
stays on its side, and then it decides what that object's attributes and items are, but never that it equals a plain
value. Threads and subclasses of what the tests define are not offered to programs.
"""

from __future__ import annotations

import importlib.util
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domains.base import GoldError, Reason, Verdict
from domains.workers import lockdown, probes
from domains.workers.pool import Pool

MAX_SOURCE = 200_000
_NUMPY = re.compile(r"\bnumpy\b")


class SandboxUnavailableError(RuntimeError):
    """This platform cannot hold a hostile program, so none is run."""


@dataclass(frozen=True)
class Limits:
    cpu: float = 2.0  # seconds of CPU for the program with all its calls
    idle: float = 5.0  # seconds it may wait without computing
    memory: int = 512 << 20  # bytes beyond the interpreter's own


class Sandbox:
    def __init__(self) -> None:
        self._pools: dict[bool, Pool] = {}

    def run(self, program: str, tests: str, limits: Limits = Limits(), shadowing: tuple[str, ...] = ()) -> Verdict:
        """Judge a program by its tests. `shadowing` lists built-in names that are the program's to define."""
        if len(program) > MAX_SOURCE:
            return Verdict.loss(Reason.MEMORY, f"a program of more than {MAX_SOURCE} characters")
        if "\0" in program or not _encodes(program):
            return Verdict.loss(Reason.UNPARSEABLE, "the source is not text")
        job = {
            "program": program,
            "tests": tests,
            "shadowing": list(shadowing),
            "cpu": limits.cpu,
            "idle": limits.idle,
            "memory": limits.memory,
        }
        numpy = bool(_NUMPY.search(tests) or _NUMPY.search(program))
        reply = self._pool(numpy).ask(job, _lost)
        if reply["reason"] == "untested":
            raise GoldError(reply["detail"])
        reason = Reason(reply["reason"])
        return Verdict(reason is Reason.RIGHT, reason, reply["detail"])

    def protections(self) -> dict[str, bool]:
        """The protections by name, and whether each was seen to hold on this machine."""
        return probes.shown(self._pool(False).greeting())

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()

    def _pool(self, numpy: bool) -> Pool:
        if numpy not in self._pools:
            if why := lockdown.supported():
                raise SandboxUnavailableError(why)
            pool = Pool("python_worker", _numpy_directory() if numpy else "-", patience=900)
            failed = [name for name, holds in pool.greeting()["attacks"].items() if not holds]
            if failed:
                raise SandboxUnavailableError(f"the kernel did not stop a locked process from: {', '.join(failed)}")
            self._pools[numpy] = pool
        return self._pools[numpy]


def _numpy_directory() -> str:
    found = importlib.util.find_spec("numpy")
    return str(Path(found.origin).parent.parent) if found and found.origin else "-"


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _lost(status: int | None) -> dict[str, Any]:
    """Why a worker died over a job: its judge, which trusts nobody, has limits of its own."""
    if status is None or abs(status) in (signal.SIGXCPU, signal.SIGKILL):
        return {"reason": "timeout", "detail": "judging what the program returned took too long"}
    return {"reason": "crashed", "detail": f"the worker ended with status {status}"}
