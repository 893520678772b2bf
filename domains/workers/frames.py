"""Length-prefixed JSON over a socket: `send(sock, {"a": 1})` here, `receive(sock) == {"a": 1}` there.

JSON and not pickle, because one end may belong to a hostile program: reading a frame can fail, it cannot run anything.
"""

from __future__ import annotations

import json
import socket
from typing import Any

MAX_FRAME = 16 << 20


class FrameTooLargeError(ValueError):
    pass


def send(sock: socket.socket, message: Any) -> None:
    body = json.dumps(message, separators=(",", ":")).encode()
    sock.sendall(len(body).to_bytes(4, "big") + body)


def receive(sock: socket.socket, limit: int = 1 << 30) -> Any:
    """The next message. EOFError when the other end is gone; FrameTooLargeError, ValueError for what is no message."""
    size = int.from_bytes(_exactly(sock, 4), "big")
    if size > limit:
        raise FrameTooLargeError(f"{size} bytes, at most {limit} are read")
    return json.loads(_exactly(sock, size))


def _exactly(sock: socket.socket, size: int) -> bytes:
    chunks = []
    while size:
        chunk = sock.recv(min(size, 1 << 20))
        if not chunk:
            raise EOFError("the other end closed the connection")
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)
