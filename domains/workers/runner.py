"""The judge's side: the tests run here, where no line of the program ever runs, against names that stand for its own.

    assert add(2, 3) == 5

`add` is a `Remote`: calling it sends (2, 3) to the candidate's process, which sends 5 back as data. The comparison, the
expected value and the verdict never leave this process. An object that claims to equal everything cannot cross: it
stays a `Remote`, which equals no plain value.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import os
import select
import signal
import sys
import time
import types
from functools import lru_cache
from typing import Any, NamedTuple

from domains.workers import frames
from domains.workers.nursery import Child
from domains.workers.values import pack, unpack

MAX_REPLY = 8 << 20
_TICK = 0.25


class CandidateLost(BaseException):
    """The candidate is gone or over a limit. Not an Exception: tests that catch everything must not swallow it."""


class Remote:
    """An object in the candidate's process. Never equal to a plain value: its own `__eq__` is not asked."""

    def __init__(self, session: Session, number: int, kind: str) -> None:
        object.__setattr__(self, "_remote", (session, number, kind))

    def _ask(self, operation: str, *arguments: Any, **keywords: Any) -> Any:
        session, number, _ = object.__getattribute__(self, "_remote")
        return session.ask(number, operation, arguments, keywords)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._ask("call", *arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._ask("attribute", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("set attribute", name, value)

    def __iter__(self) -> Any:
        return iter(self._ask("iterate"))

    def __next__(self) -> Any:
        return self._ask("next")

    def __len__(self) -> int:
        return int(self._ask("length"))

    def __getitem__(self, key: Any) -> Any:
        return self._ask("item", key)

    def __str__(self) -> str:
        return str(self._ask("text"))

    def __bool__(self) -> bool:
        return self._ask("truth") is True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and self._ask("same", other) is True

    def __lt__(self, other: object) -> bool:
        return self._ask("less", other) is True if isinstance(other, Remote) else NotImplemented

    def __hash__(self) -> int:
        return hash(object.__getattribute__(self, "_remote")[1])


class Session:
    """One candidate: its socket, its process, and what it is known to have done."""

    def __init__(self, child: Child, *, cpu: float, idle: float) -> None:
        self.child, self.sock, self.cpu, self.idle = child, child.sock, cpu, idle
        self.lost = ""  # a reason, once there is one
        self.detail = ""
        self.last_error: BaseException | None = None
        self.calls = 0
        self._lent: list[Any] = []

    def load(self, program: str, names: list[str], memory: int) -> dict[str, Any]:
        """Run the program there; what stands for the names it defined, here."""
        frames.send(self.sock, {"program": program, "names": names, "cpu": self.cpu, "memory": memory})
        reply = self._receive()
        if "names" in reply:
            try:
                return {name: self._unpack(value) for name, value in reply["names"].items() if name in names}
            except Exception:
                raise self._lose("crashed", "the program's names could not be read") from None
        kinds, text = reply.get("raised"), reply.get("text", "")
        if not isinstance(kinds, list) or not kinds:
            raise self._lose("crashed", "the reply is no reply")
        self._lose(_reason(kinds) if reply.get("at") == "load" else "unparseable", f"{kinds[0]}: {text}")
        raise CandidateLost

    def ask(self, number: int, operation: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if self.lost:
            raise CandidateLost
        self.calls += 1
        request = {
            "target": number,
            "operation": operation,
            "arguments": pack(arguments, self._lend),
            "keywords": {name: pack(value, self._lend) for name, value in keywords.items()},
        }
        try:
            frames.send(self.sock, request)
        except OSError:
            raise self._died() from None
        reply = self._receive()
        while "callback" in reply:
            frames.send(self.sock, self._call_back(reply))
            reply = self._receive()
        if "raised" in reply:
            self.last_error = _error(reply)
            raise self.last_error
        try:
            result = self._unpack(reply["value"])
            after = self._unpack(reply["arguments"]) if "arguments" in reply else ()
        except Exception:
            raise self._lose("crashed", "the reply is no value") from None
        for before, now in zip(arguments, after, strict=False):
            _update(before, now)
        return result

    def _lend(self, value: Any) -> int:
        """A number for what the candidate cannot have: its own object back, or a function of the tests to call."""
        if isinstance(value, Remote):
            return int(object.__getattribute__(value, "_remote")[1])
        if not callable(value):
            raise TypeError(f"a test cannot pass a {type(value).__name__} to the program")
        self._lent.append(value)
        return -len(self._lent)

    def _unpack(self, message: Any) -> Any:
        return unpack(message, lambda number, kind: Remote(self, number, kind))

    def _call_back(self, reply: dict[str, Any]) -> dict[str, Any]:
        try:
            function = self._lent[-int(reply["callback"]) - 1]
            return {"value": pack(function(*self._unpack(reply["arguments"])), self._lend)}
        except Exception as error:
            return {"raised": f"{type(error).__name__}: {error}"[:200]}

    def _receive(self) -> dict[str, Any]:
        """The next reply. Waiting ends when the candidate dies or has slept too long, not when the machine is busy."""
        slept, before = 0.0, time.monotonic()
        while not select.select([self.sock], [], [], _TICK)[0]:
            now = time.monotonic()
            if self.child.asleep():
                slept += now - before
                if slept > self.idle:
                    raise self._lose("timeout", f"waited {self.idle:g} s without computing")
            before = now
        try:
            reply = frames.receive(self.sock, MAX_REPLY)
        except EOFError:
            raise self._died() from None
        except frames.FrameTooLargeError:
            raise self._lose("memory", f"a reply of more than {MAX_REPLY >> 20} MiB") from None
        except TimeoutError:
            raise self._lose("timeout", "stopped in the middle of a reply") from None
        except (ValueError, RecursionError, OSError, MemoryError):
            raise self._lose("crashed", "the reply could not be read") from None
        if not isinstance(reply, dict):
            raise self._lose("crashed", "the reply could not be read")
        return reply

    def _lose(self, reason: str, detail: str) -> CandidateLost:
        if not self.lost:
            self.lost, self.detail = reason, detail
        return CandidateLost(detail)

    def _died(self) -> CandidateLost:
        status, used = self.child.post_mortem()
        if status is None:
            return self._lose("crashed", "the program closed its connection")
        if not os.WIFSIGNALED(status):
            return self._lose("crashed", f"the program ended its process with status {os.WEXITSTATUS(status)}")
        ended = os.WTERMSIG(status)
        if ended == signal.SIGSYS:
            return self._lose("forbidden", "a system call that is not allowed")
        if ended in (signal.SIGPROF, signal.SIGXCPU) or used > self.cpu:
            return self._lose("timeout", f"more than {self.cpu:g} s of CPU time")
        if ended == signal.SIGKILL:
            return self._lose("memory", "killed from outside, as the kernel does when memory is short")
        return self._lose("crashed", f"signal {ended}")


class Tests(NamedTuple):
    code: types.CodeType
    names: list[str]  # wanted from the program
    modules: list[str]  # of the standard library, which tests of some datasets use without importing them
    only_asserts: bool


@lru_cache(maxsize=256)
def read_tests(source: str, shadowing: tuple[str, ...]) -> Tests:
    """The tests compiled, with the names they need. Raises SyntaxError and its like for what is no Python."""
    tree = ast.parse(source, "<tests>")
    code = compile(tree, "<tests>", "exec", dont_inherit=True)
    names = wanted_names(code, shadowing)
    # `math.isclose` means the module and not something of that name that the program brings.
    dotted = {
        node.value.id for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    modules = sorted((dotted - called) & set(names) & set(sys.stdlib_module_names))
    only_asserts = all(isinstance(line, ast.Assert) for line in tree.body)
    return Tests(code, sorted(set(names) - set(modules)), modules, only_asserts)


def wanted_names(tests: types.CodeType, shadowing: tuple[str, ...]) -> list[str]:
    """The names that may have to come from the program: all that the tests mention (what they define hides it again).

    A built-in name comes from the program only if `shadowing` lists it: a program that redefines `sorted` or `abs`
    must not thereby change what its judge computes.
    """
    names = set(tests.co_names)
    for constant in tests.co_consts:
        if isinstance(constant, types.CodeType):
            names |= set(wanted_names(constant, shadowing))
    return sorted(names - (set(dir(builtins)) - set(shadowing)) - {"__name__", "__builtins__"})


def judge(session: Session, tests: Tests, job: dict[str, Any]) -> dict[str, Any]:
    """Run the tests against the session's candidate, then end it: the verdict's reason and a line of detail."""
    try:
        return _judge(session, tests, job)
    finally:
        session.child.end()


def _judge(session: Session, tests: Tests, job: dict[str, Any]) -> dict[str, Any]:
    reason, detail = "right", ""
    found: dict[str, Any] = {}
    try:
        found = session.load(job["program"], tests.names, job["memory"])
        module = types.ModuleType("__main__")  # where `unittest.main` looks for its tests
        vars(module).update({name: importlib.import_module(name) for name in tests.modules}, **found)
        if not tests.only_asserts:
            sys.modules["__main__"] = module
        exec(tests.code, vars(module))
    except CandidateLost:
        pass
    except SystemExit as ended:
        if ended.code not in (None, 0, False):
            reason, detail = "wrong", f"the tests ended with {ended.code}"
    except MemoryError:
        reason, detail = "memory", "out of memory"
    except BaseException as error:
        reason, detail = "wrong", f"{type(error).__name__}: {error}"[:300]
        if error is session.last_error:
            reason = _reason([kind.__name__ for kind in type(error).__mro__])
    if session.lost:
        return {"reason": session.lost, "detail": session.detail}
    if reason == "right" and not session.calls and all(isinstance(value, Remote) for value in found.values()):
        return {"reason": "untested", "detail": "the tests never use what the program defines"}
    return {"reason": reason, "detail": detail}


def _reason(kinds: list[str]) -> str:
    if "MemoryError" in kinds:
        return "memory"
    return "forbidden" if "PermissionError" in kinds else "crashed"


def _error(reply: dict[str, Any]) -> BaseException:
    """A built-in exception of the nearest kind, so that tests may expect a ValueError."""
    for name in reply["raised"] if isinstance(reply["raised"], list) else ():
        kind = getattr(builtins, str(name), None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            try:
                return kind(str(reply.get("text", "")))
            except Exception:  # UnicodeDecodeError and its like want more arguments
                continue
    return RuntimeError("the program raised something that is no Exception")


def _update(before: Any, now: Any) -> None:
    if type(before) is not type(now):
        return
    if isinstance(before, list | bytearray):
        before[:] = now
    elif isinstance(before, dict | set):
        before.clear()
        before.update(now)
