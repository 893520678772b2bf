"""Where candidates come from: a process that never sees a job and forks a candidate ahead of each.

nursery = Nursery(lock)          # forks the nursery: do it before anything of any job is read
child = nursery.take()           # a candidate that waits on child.sock
status, cpu = child.end()        # killed and reaped: its own wait status, if it had one, and its seconds of CPU
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable

from domains.workers import candidate, frames, lockdown

_MID_REPLY = 60.0  # seconds a candidate may stop in the middle of a reply
_DYING = 2.0  # seconds for a process whose socket has closed to be seen to have ended


class Child:
    """One candidate, as its judge knows it."""

    def __init__(self, sock: socket.socket, pid: int, control: socket.socket) -> None:
        self.sock, self.pid, self._control = sock, pid, control
        self._ended: tuple[int | None, float] | None = None

    def end(self, dying: bool = False) -> tuple[int | None, float]:
        """End it. One that is `dying` is first given a moment to do so by itself, which its status then tells."""
        if self._ended is None:
            self._control.sendall(b"?" if dying else b".")
            status, cpu = frames.receive(self._control)
            self._ended = status, cpu
            self.sock.close()
        return self._ended

    def asleep(self) -> bool:
        """Whether it waits for something; one that is merely kept from a busy processor does not."""
        try:
            with open(f"/proc/{self.pid}/stat", "rb") as stat:
                return stat.read().rpartition(b")")[2].split()[0] in (b"S", b"D", b"Z")
        except OSError:
            return True


class Nursery:
    def __init__(self, lock: lockdown.Lock) -> None:
        self._control, theirs = socket.socketpair()
        if os.fork() == 0:
            never_return(_serve, theirs, lock)
        theirs.close()

    def take(self) -> Child:
        number, descriptors, _, _ = socket.recv_fds(self._control, 16, 1)
        sock = socket.socket(fileno=descriptors[0])
        sock.settimeout(_MID_REPLY)
        return Child(sock, int(number), self._control)


def never_return(body: Callable[..., None], *arguments: object) -> None:
    """Run `body` in a forked process and leave: what called `fork` belongs to the parent."""
    try:
        body(*arguments)
    finally:
        os._exit(1)


def _serve(control: socket.socket, lock: lockdown.Lock) -> None:
    lockdown.die_with_parent()
    close_all_but(control.fileno())
    while True:
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            never_return(_become_candidate, theirs, lock)
        theirs.close()
        socket.send_fds(control, [b"%d" % pid], [ours.fileno()])
        ours.close()
        order = control.recv(1)
        gone, status, usage = 0, 0, None
        until = time.monotonic() + (_DYING if order == b"?" else 0)
        while not gone and time.monotonic() < until:
            gone, status, usage = os.wait4(pid, os.WNOHANG)
            if not gone:
                time.sleep(0.001)
        if not gone:
            os.kill(pid, signal.SIGKILL)
            _, _, usage = os.wait4(pid, 0)
        if not order:  # the judge is gone
            os._exit(0)
        frames.send(control, [status if gone else None, usage.ru_utime + usage.ru_stime if usage else 0.0])


def _become_candidate(sock: socket.socket, lock: lockdown.Lock) -> None:
    lockdown.die_with_parent()
    close_all_but(sock.fileno())
    candidate.serve(sock, lock)


def close_all_but(keep: int) -> None:
    """Only one socket stays open, beside standard streams that lead nowhere."""
    os.closerange(3, keep)
    os.closerange(keep + 1, 256)
