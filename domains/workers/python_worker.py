"""A warm worker for programs: each job finds a judge and a candidate already forked and waiting.

    worker ──fork──> judge ──fork──> candidate

The worker never reads a job. The judge is forked first, forks its candidate, and only then reads the job from the socket
it inherited: no candidate descends from a process that has seen any test, of this job or of an earlier one.
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

from domains.workers import candidate, frames, lockdown, runner, values

# The rest of the standard library is imported when a program names it: every page more slows every fork.
_PRELOADED = "collections functools itertools math random re string encodings.ascii encodings.latin_1".split()
_JUDGE_MEMORY, _JUDGE_CPU = 2 << 30, 600
_MID_REPLY = 60.0  # seconds a candidate may stop in the middle of a reply


def main() -> None:
    """Serve jobs until the socket closes. Arguments: directories to import numpy from (or "-"), the socket's number."""
    libraries, number = sys.argv[-2:]
    sock = socket.socket(fileno=int(number))
    left = lockdown.leave_namespaces()
    lockdown.drop_capabilities()
    for name in _PRELOADED:
        importlib.import_module(name)
    if libraries != "-":
        sys.path.append(libraries)
        importlib.import_module("numpy")
    random.seed(0)
    lockdown.measure()
    locks = lockdown.Lock(lockdown.RUNNER), lockdown.Lock(lockdown.CANDIDATE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    frames.send(sock, {"ready": True, "namespaces": left, "attacks": _try_the_lock(locks[1])})
    _warm_up()
    gc.collect()
    gc.freeze()
    while True:
        _one_job(sock, *locks)


def _warm_up() -> None:
    """Do once what every child will do first, so that they inherit it done: the parser alone touches 200 pages."""
    with socket.socketpair()[0] as one:
        one.settimeout(1)
    code = compile("def f(x, *y, z=1):\n    return [v for v in (x, 1.5, 'a') if v is not None]\nassert f(1)", "", "exec")
    exec(code, {})
    runner.wanted_names(code, [])
    values.unpack(json.loads(json.dumps(values.pack([1, (2.5, "x"), {"a": {3}}], id))), id)
    os.getpid(), time.monotonic(), lockdown.arm(0), resource.getrusage(resource.RUSAGE_SELF)


def _one_job(sock: socket.socket, judge_lock: lockdown.Lock, candidate_lock: lockdown.Lock) -> None:
    """Serve one job. A judge that fails ends the worker, whose exit status then says how: it is the only reply."""
    pid = os.fork()
    if pid == 0:
        _guarded(_be_judge, sock, judge_lock, candidate_lock)
    _, status = os.waitpid(pid, 0)
    if status != 0:
        os._exit(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0)


def _guarded(body: Any, *arguments: Any) -> None:
    """Run `body` and never return into code that belongs to the parent."""
    try:
        body(*arguments)
    finally:
        os._exit(1)


def _be_judge(sock: socket.socket, lock: lockdown.Lock, candidate_lock: lockdown.Lock) -> None:
    lockdown.die_with_parent()
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _guarded(_be_candidate, theirs, candidate_lock)
    theirs.close()
    ours.settimeout(_MID_REPLY)
    lockdown.hide()
    lockdown.limit(cpu=_JUDGE_CPU, memory=_JUDGE_MEMORY)
    lock.close()
    job = frames.receive(sock)
    session = runner.Session(ours, pid, cpu=job["cpu"], idle=job["idle"])
    try:
        reply = runner.judge(session, job)
    except Exception as error:  # the tests do not even compile: a fault of the item
        reply = {"reason": "untested", "detail": f"{type(error).__name__}: {error}"[:300]}
    session.end()
    frames.send(sock, reply)
    os._exit(0)  # at once: objects that end here would make system calls that the lock does not know


def _be_candidate(sock: socket.socket, lock: lockdown.Lock) -> None:
    lockdown.die_with_parent()
    candidate.close_all_but(sock.fileno())
    candidate.serve(sock, lock)


def _try_the_lock(lock: lockdown.Lock) -> dict[str, bool]:
    """Break every rule in a locked child: what was stopped, by name. A rule that only looks active is worse than none."""
    return {name: _stopped(attack, lock) for name, attack in _ATTACKS.items()}


_ATTACKS = {
    "fork": lambda: os.fork(),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "socket": lambda: socket.socket(),
    "signal": lambda: os.kill(os.getppid(), 0),
    "read a file": lambda: open(sys.executable, "rb"),
    "write a file": lambda: open("/tmp/.prlvr-probe", "w"),
    "delete a file": lambda: os.unlink("/tmp/.prlvr-probe"),
    "raise a limit": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    "4 GiB of memory": lambda: bytearray(4 << 30),
}


def _stopped(attack: Any, lock: lockdown.Lock) -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            lockdown.limit(cpu=5, memory=256 << 20)
            lock.close()
            attack()
        except (OSError, MemoryError):
            os._exit(2)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return not (os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0)
