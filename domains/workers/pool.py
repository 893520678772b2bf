"""Warm workers of one kind, as many as are used at once; a worker that fails is replaced, and its job is answered."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from domains.workers import frames, start_worker


@dataclass
class Worker:
    process: subprocess.Popen[bytes]
    sock: socket.socket
    greeting: dict[str, Any]
    jobs: int = 0

    def speaks(self) -> bool:
        """Whether it has died, or said what nobody asked."""
        waiting = select.poll()
        waiting.register(self.sock, select.POLLIN)
        return bool(waiting.poll(0))

    def end(self) -> None:
        """End the worker's whole session: nothing it started survives it."""
        self.sock.close()
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self.process.kill()
        self.process.wait()


class Pool:
    """Workers started on demand. A job never queues behind another while its own clock runs: clocks run in the
    worker."""

    def __init__(self, module: str, *arguments: str, patience: float, most_jobs: int = 20_000) -> None:
        self._start = (module, *arguments)
        self._patience = patience  # seconds without any answer after which the worker itself is taken for dead
        self._most_jobs = most_jobs
        self._idle: list[Worker] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def ask(self, job: dict[str, Any], lost: Callable[[int | None], dict[str, Any]]) -> dict[str, Any]:
        """The worker's reply, or `lost(status)` when it died over this job (`lost(None)`: it did not answer at all)."""
        worker = self._take()
        try:
            frames.send(worker.sock, job)
            reply: dict[str, Any] = frames.receive(worker.sock)
        except (OSError, EOFError, ValueError) as error:
            worker.sock.close()
            try:
                code = worker.process.wait(timeout=0 if isinstance(error, TimeoutError) else 5)
            except subprocess.TimeoutExpired:
                code = None
            worker.end()
            return lost(code)
        worker.jobs += 1
        self._give_back(worker)
        return reply

    def greeting(self) -> dict[str, Any]:
        """What a worker said of itself when it started."""
        worker = self._take()
        self._give_back(worker)
        return worker.greeting

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            if self._pid == os.getpid():
                worker.end()

    def _take(self) -> Worker:
        while True:
            with self._lock:
                if self._pid != os.getpid():  # forked: the workers belong to the parent, sharing them would mix replies
                    self._pid, self._idle = os.getpid(), []
                worker = self._idle.pop() if self._idle else None
            if worker is None:
                break
            if not worker.speaks():
                return worker
            worker.end()  # its next reply would be taken for another's
        process, sock = start_worker(*self._start)
        sock.settimeout(self._patience)
        try:
            return Worker(process, sock, frames.receive(sock))
        except (OSError, EOFError) as error:
            process.kill()
            process.wait()
            sock.close()
            raise RuntimeError(f"the worker {self._start[0]} did not start: {error}") from error

    def _give_back(self, worker: Worker) -> None:
        if worker.jobs >= self._most_jobs:
            return worker.end()
        with self._lock:
            if self._pid == os.getpid():
                self._idle.append(worker)
        return None
