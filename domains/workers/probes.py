"""Break every rule in a locked process: a rule that only looks active is no rule.

try_lock(Lock(CANDIDATE), ATTACKS)        # {"fork": True, ...}: what was stopped, by name
"""

from __future__ import annotations

import os
import resource
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

from domains.workers import lockdown

Attacks = Mapping[str, Callable[[], Any]]

# What no locked process may do.
ATTACKS: dict[str, Callable[[], Any]] = {
    "fork": lambda: os.fork(),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "socket": lambda: socket.socket(),
    "signal": lambda: os.kill(os.getppid(), 0),
    "write a file": lambda: os.open("/tmp/.prlvr-probe", os.O_WRONLY | os.O_CREAT),
    "delete a file": lambda: os.unlink("/tmp/.prlvr-probe"),
    "raise a limit": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512)),
    "4 GiB of memory": lambda: bytearray(4 << 30),
}
READING: dict[str, Callable[[], Any]] = {"read a file": lambda: os.open(sys.executable, os.O_RDONLY)}


def try_lock(lock: lockdown.Lock, attacks: Attacks) -> dict[str, bool]:
    """Try each in a locked child of its own; whether it was stopped."""
    return {name: _stopped(attack, lock) for name, attack in attacks.items()}


def _stopped(attack: Callable[[], Any], lock: lockdown.Lock) -> bool:
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


def shown(greeting: Mapping[str, Any]) -> dict[str, bool]:
    """What a worker said of its protections when it started, in words."""
    stopped = {f"no {name}" if name[0].isdigit() else f"cannot {name}": ok for name, ok in greeting["attacks"].items()}
    return stopped | {f"{name} namespace": name in greeting["namespaces"] for name in ("network", "ipc", "uts")}
