"""The candidate's side: run the program, answer calls, know nothing of the tests.

This process is forked before its judge has read anything of the job. It holds one socket, on which it is asked for
names and for calls and answers with packed values. Whatever a hostile program writes there is a value it claims to
have returned.
"""

from __future__ import annotations

import itertools
import re
import resource
import socket
import sys
from collections.abc import Callable
from typing import Any

from domains.workers import frames, lockdown
from domains.workers.values import pack, unpack

# Importable by name although not in the standard library; present in workers that were started with it.
_EXTRA_MODULES = {"numpy"}
# Importing these opens a browser, a socket, a display or a second interpreter.
_NOT_IMPORTED = {"antigravity", "this", "idlelib", "turtledemo", "tkinter", "turtle", "lib2to3", "test", "ensurepip"}
_MAX_ITEMS = 1_000_000
_IMPORTING_CPU = 5  # seconds
_FROM = re.compile(r"^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]+\(?([\w ,*]*)", re.MULTILINE)
_IMPORT = re.compile(r"^[ \t]*import[ \t]+([\w., \t]+)", re.MULTILINE)
_NAME = re.compile(r"\w+")


def serve(sock: socket.socket, lock: lockdown.Lock, while_importing: lockdown.Lock) -> None:
    """Receive one program, run it locked, and answer until killed.

    What the program imports is loaded before, under a lock that lets files be read and nothing more.
    """
    job = frames.receive(sock)
    source: str = job["program"]
    try:
        code = compile(source, "<program>", "exec", dont_inherit=True)
        missing = [name for name in imports(source) if name not in sys.modules]
        # The kernel's limits on CPU are the second wall, behind the timer that is set when all is loaded.
        lockdown.limit(cpu=_cpu_used() + 2 * job["cpu"] + _IMPORTING_CPU * bool(missing), memory=job["memory"])
        if missing:
            while_importing.close()
        for name in missing:
            _import_quietly(name)
    except BaseException as error:
        frames.send(sock, _raised(error) | {"at": "parse"})
        return
    lockdown.arm(job["cpu"])  # reading and importing were ours
    lock.close()
    session = _Session(sock)
    try:
        namespace: dict[str, Any] = {"__name__": "program", "__builtins__": __builtins__}
        exec(code, namespace)
        found = {name: pack(namespace[name], session.keep) for name in job["names"] if name in namespace}
    except BaseException as error:
        frames.send(sock, _raised(error) | {"at": "load"})
        return
    frames.send(sock, {"names": found})
    session.answer_forever()


class _Session:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._kept: list[Any] = []

    def keep(self, value: Any) -> int:
        self._kept.append(value)
        return len(self._kept) - 1

    def answer_forever(self) -> None:
        while True:
            request = frames.receive(self._sock)
            try:
                reply = self._answer(request)
            except BaseException as error:
                reply = _raised(error)
            try:
                frames.send(self._sock, reply)
            except (ValueError, RecursionError, MemoryError) as error:  # cannot be written as JSON
                frames.send(self._sock, _raised(error))

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        target = self._kept[request["target"]]
        packed_arguments = request["arguments"]
        arguments = unpack(packed_arguments, self._refer)
        keywords = {name: unpack(v, self._refer) for name, v in request["keywords"].items()}
        result = _OPERATIONS[request["operation"]](target, *arguments, **keywords)
        reply = {"value": pack(result, self.keep)}
        if request["operation"] == "call" and _has_mutable(packed_arguments):
            after = pack(arguments, self.keep)
            if after != packed_arguments:  # the program changed an argument in place: the caller must see it
                reply["arguments"] = after
        return reply

    def _refer(self, number: int, name: str) -> Any:
        """A number of ours is the object itself; a negative one is a function of the tests, called back there."""
        if number >= 0:
            return self._kept[number]

        def call_back(*arguments: Any) -> Any:
            frames.send(self._sock, {"callback": number, "arguments": pack(arguments, self.keep)})
            answer = frames.receive(self._sock)
            if "raised" in answer:
                raise RuntimeError(answer["raised"])
            return unpack(answer["value"], self._refer)

        return call_back


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda target, *arguments, **keywords: target(*arguments, **keywords),
    "attribute": getattr,
    "set attribute": setattr,
    "iterate": lambda target: list(itertools.islice(target, _MAX_ITEMS)),
    "next": lambda target: next(target),
    "length": lambda target: len(target),
    "item": lambda target, key: target[key],
    "text": lambda target: str(target),
    "truth": lambda target: bool(target),
    "same": lambda target, other: bool(target == other),
    "less": lambda target, other: bool(target < other),
}


def _has_mutable(packed: Any) -> bool:
    return isinstance(packed, list) and (packed[0] in ("l", "d", "s", "q", "B", "a") or any(map(_has_mutable, packed)))


def _raised(error: BaseException) -> dict[str, Any]:
    try:
        text = str(error)[:300]
    except BaseException:
        text = ""
    kinds = [kind.__name__ for kind in type(error).__mro__[:20]]
    return {"raised": kinds, "text": text.encode("ascii", "replace").decode()}


def _cpu_used() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def imports(source: str) -> list[str]:
    """The modules a program may have and seems to import: they are loaded before the lock, which ends all loading."""
    if "import" not in source:
        return []
    names: set[str] = set()
    for module, imported in _FROM.findall(source):
        names |= {module} | {f"{module}.{name}" for name in _NAME.findall(imported)}
    for imported in _IMPORT.findall(source):
        names |= {part.split()[0] for part in imported.split(",") if part.strip()}
    if "datetime" in names or "time" in names:
        names.add("_strptime")  # which both import when they are first asked to read a date
    allowed = (set(sys.stdlib_module_names) | _EXTRA_MODULES) - _NOT_IMPORTED
    # A module called __main__ is a program: to import it is to run it.
    return sorted(name for name in names if name.split(".")[0] in allowed and "__main__" not in name.split("."))


def _import_quietly(name: str) -> None:
    try:
        __import__(name)
    except ImportError:
        return  # the program will see the same error, or imported a function and not a module
