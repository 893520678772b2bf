"""Where candidates come from: a process that never sees a job and forks a candidate ahead of each.

nursery = Nursery(locks)         # forks the nursery: do it before anything of any job is read
child = nursery.take()           # a candidate that waits on child.sock
child.end()                      # killed and reaped
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable

from domains.workers import candidate, frames, lockdown

_MID_REPLY = 60.0  # seconds a candidate may stop in the middle of a reply
_DYING = 2.0  # seconds for a process whose socket has closed to be seen to have ended


Locks = tuple[lockdown.Lock, lockdown.Lock]  # of a candidate, and of one that still imports


class Child:
    """One candidate, as its judge knows it."""

    def __init__(self, sock: socket.socket, pid: int, orders: socket.socket) -> None:
        self.sock, self.pid, self._orders = sock, pid, orders
        self._ended = False

    def end(self) -> None:
        """End it, if it has not ended. The nursery does so while its judge goes on."""
        if not self._ended:
            self._ended = True
            self._orders.sendall(b".")
            self.sock.close()

    def post_mortem(self) -> tuple[int | None, float]:
        """How it ended by itself: its wait status, and its seconds of CPU; None for one that had to be ended."""
        self._ended = True
        self._orders.sendall(b"?")
        status, cpu = frames.receive(self._orders)
        self.sock.close()
        return status, cpu

    def asleep(self) -> bool:
        """Whether it waits for something; one that is merely kept from a busy processor does not."""
        try:
            with open(f"/proc/{self.pid}/stat", "rb") as stat:
                return stat.read().rpartition(b")")[2].split()[0] in (b"S", b"D", b"Z")
        except OSError:
            return True


class Nursery:
    def __init__(self, locks: Locks) -> None:
        self._births, births = socket.socketpair()
        self._orders, orders = socket.socketpair()
        if os.fork() == 0:
            never_return(_serve, births, orders, locks)
        births.close()
        orders.close()

    def take(self) -> Child:
        number, descriptors, _, _ = socket.recv_fds(self._births, 16, 1)
        sock = socket.socket(fileno=descriptors[0])
        sock.settimeout(_MID_REPLY)
        return Child(sock, int(number), self._orders)


def never_return(body: Callable[..., None], *arguments: object) -> None:
    """Run `body` in a forked process and leave: what called `fork` belongs to the parent."""
    try:
        body(*arguments)
    finally:
        os._exit(1)


def _serve(births: socket.socket, orders: socket.socket, locks: Locks) -> None:
    lockdown.die_with_parent()
    close_all_but(births.fileno(), orders.fileno())
    children: deque[int] = deque()  # the one that works, and the next
    _bear(births, locks, children)
    while True:
        _bear(births, locks, children)
        order = orders.recv(1)
        if not order:  # the judge is gone
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            os._exit(0)
        pid = children.popleft()
        gone, status, usage = 0, 0, None
        until = time.monotonic() + (_DYING if order == b"?" else 0)
        while not gone and time.monotonic() < until:
            gone, status, usage = os.wait4(pid, os.WNOHANG)
            if not gone:
                time.sleep(0.001)
        if not gone:
            os.kill(pid, signal.SIGKILL)
            _, _, usage = os.wait4(pid, 0)
        if order == b"?":
            frames.send(orders, [status if gone else None, usage.ru_utime + usage.ru_stime if usage else 0.0])


def _bear(births: socket.socket, locks: Locks, children: deque[int]) -> None:
    """Fork one more candidate, which waits, and send its socket to the judge."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pid = os.fork()
        if pid == 0:
            never_return(_become_candidate, theirs, locks)
        socket.send_fds(births, [b"%d" % pid], [ours.fileno()])
    children.append(pid)


def _become_candidate(sock: socket.socket, locks: Locks) -> None:
    lockdown.die_with_parent()
    close_all_but(sock.fileno())
    candidate.serve(sock, *locks)


def close_all_but(*kept: int) -> None:
    """Only these sockets stay open, beside standard streams that lead nowhere."""
    start = 3
    for number in sorted(kept):
        os.closerange(start, number)
        start = number + 1
    os.closerange(start, 256)
