"""What runs on the other side: processes that hold only the standard library, started by `domains.sandbox` and others.

A worker is `python -S -P -c BOOT <directory of domains> <module> ...`: the package `domains` is a stub there, so that a
worker never imports more than it names, and its environment is the one given here and nothing of the parent's.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

# No module may register what to do after a fork: it would seed `random` anew in each forked process, so that a verdict
# could change from one time to the next, and touching that many pages doubles what a fork costs.
_BOOT = (
    "import os, sys, types; os.register_at_fork = lambda **hooks: None; sys.argv.pop(0); "
    "package = types.ModuleType('domains'); package.__path__ = [sys.argv.pop(0)]; "
    "sys.modules['domains'] = package; import importlib; importlib.import_module(sys.argv.pop(0)).main()"
)
# A fixed hash seed: the order of a set must not decide a verdict. One thread: a forked process keeps only one anyway.
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "PYTHONIOENCODING": "utf-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "LC_ALL": "C.UTF-8",
    "HOME": "/",  # else some modules ask the system for it while they are imported, which takes a socket
}


def start_worker(module: str, *arguments: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start `module.main()` in a fresh interpreter and session; its argv ends with the number of its socket.

    `Popen` executes a new program at once, so this is safe in a process full of threads, unlike a bare fork.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        boot = [sys.executable, "-s", "-S", "-P", "-c", _BOOT, str(Path(__file__).resolve().parent.parent)]
        process = subprocess.Popen(
            [*boot, f"domains.workers.{module}", *arguments, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env=_ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )
    return process, ours
