"""A warm worker for programs: it judges, and each job finds a candidate already forked and waiting.

    worker (judge) ──> nursery ──> candidate

The nursery is forked before the worker reads its first job, so no candidate descends from a process that has seen a
test. Tests that are nothing but assertions run in the worker itself; others, which may define, import and patch, run
in a fork of it that ends with them, so that no test meets what an earlier one left behind.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import resource
import signal
import socket
import sys
import time
from typing import Any

from domains.workers import candidate, frames, lockdown, probes, values
from domains.workers.nursery import Nursery, never_return

# The rest of the standard library is imported when a program names it: every page more slows every fork.
_PRELOADED = (
    *("collections", "functools", "itertools", "math", "random", "re", "string", "heapq"),
    *("encodings.ascii", "encodings.latin_1", "encodings.utf_16", "encodings.utf_32"),
)
_JUDGE_MEMORY, _JUDGE_CPU = 2 << 30, 600
_ASSERTING_CPU = 60.0


def main() -> None:
    """Serve jobs until the socket closes. Arguments: a directory to import numpy from (or "-"), the socket's number."""
    libraries, number = sys.argv[-2:]
    sock = socket.socket(fileno=int(number))
    left = lockdown.leave_namespaces()
    lockdown.drop_capabilities()
    for name in _PRELOADED:
        importlib.import_module(name)
    if libraries != "-":
        sys.path.append(libraries)
        importlib.import_module("numpy").random.seed(0)
    random.seed(0)  # for every program alike: what chance says must not change from one verification to the next
    lockdown.measure()
    lock = lockdown.Lock(lockdown.CANDIDATE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    attacks = probes.try_lock(lock, probes.ATTACKS | probes.READING)
    _warm_up()
    gc.collect()
    gc.freeze()
    nursery = Nursery((lock, lockdown.Lock(lockdown.IMPORTING)))
    lockdown.hide()
    frames.send(sock, {"ready": True, "namespaces": left, "attacks": attacks})
    _serve(sock, nursery)


def _serve(sock: socket.socket, nursery: Nursery) -> None:
    from domains.workers import runner  # the judge's own modules are nothing a candidate needs

    judge_lock = lockdown.Lock(lockdown.JUDGE)
    lockdown.limit(cpu=1e7, memory=_JUDGE_MEMORY)
    while True:
        job = frames.receive(sock)
        try:
            tests = runner.read_tests(job["tests"], tuple(job["shadowing"]))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            frames.send(sock, {"reason": "untested", "detail": f"{type(error).__name__}: {error}"[:300]})
            continue
        session = runner.Session(nursery.take(), cpu=job["cpu"], idle=job["idle"])
        if tests.only_asserts:
            lockdown.arm(_ASSERTING_CPU)
            frames.send(sock, runner.judge(session, tests, job))
            lockdown.arm(0)
            continue
        pid = os.fork()
        if pid == 0:
            never_return(_judge_apart, sock, session, tests, job, judge_lock)
        _, status = os.waitpid(pid, 0)
        if status != 0:  # ended over its limits, or killed: the exit status of the worker is the only reply
            os._exit(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0)


def _judge_apart(sock: socket.socket, session: Any, tests: Any, job: dict[str, Any], lock: lockdown.Lock) -> None:
    from domains.workers import runner

    lockdown.die_with_parent()
    lockdown.limit(cpu=_JUDGE_CPU, memory=_JUDGE_MEMORY)
    lock.close()
    frames.send(sock, runner.judge(session, tests, job))
    os._exit(0)  # at once: objects that end here would make system calls that the lock does not know


def _warm_up() -> None:
    """Do once what every candidate will do first, so that it inherits it done: the parser alone touches 200 pages."""
    code = compile("def f(x, *y, z=1):\n    return [v for v in (x, 1.5, 'a') if v]\nassert f(1)", "", "exec")
    exec(code, {})
    values.unpack(json.loads(json.dumps(values.pack([1, (2.5, "x"), {"a": {3}}], id))), lambda number, kind: None)
    candidate.imports("from re import sub\nimport math")
    lockdown.arm(0)
    one, other = socket.socketpair()
    with one, other:
        frames.send(one, {"names": {}})
        frames.receive(other)
    resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
