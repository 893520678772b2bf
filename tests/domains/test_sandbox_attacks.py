# ruff: noqa: E501  (tables of cases read better one a line)
"""Each program attacks one property of the sandbox. All of them end as losses, and leave nothing behind.

The tests that they are judged by are the same three assertions. An attack that would be scored 1 by a judge in the same
process, by an exit code or by a printed report is thereby shown to fail for the reason given.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from domains.base import Item, Reason
from domains.programming import Programming
from domains.sandbox import Limits, Sandbox, SandboxUnavailableError

TESTS = "assert add(2, 3) == 5\nassert add(-1, 1) == 0\nassert add(10, -4) == 6\n"
LIMITS = Limits(cpu=0.3, idle=0.6)
RIGHT = "def add(a, b):\n    return a + b\n"
F, C, W, T, M, U = (
    Reason.FORBIDDEN,
    Reason.CRASHED,
    Reason.WRONG,
    Reason.TIMEOUT,
    Reason.MEMORY,
    Reason.UNPARSEABLE,
)

# name: (program, the reasons that are right for it). "{scratch}", "{port}" and "{judge}" are filled in.
ATTACKS: dict[str, tuple[str, set[Reason]]] = {
    # The verdict: exit codes, printed reports, forged equality, patched judges.
    "sys.exit(0)": ("def add(a, b): return 0\nimport sys\nsys.exit(0)", {C}),
    "os._exit(0)": ("import os\nprint('3 passed')\nos._exit(0)", {C}),
    "os._exit when called": ("import os\ndef add(a, b): os._exit(0)", {C}),
    "SystemExit when called": ("def add(a, b): raise SystemExit(0)", {C}),
    "raise KeyboardInterrupt": ("def add(a, b): raise KeyboardInterrupt", {C}),
    "atexit handler": ("import atexit, os\natexit.register(lambda: os._exit(0))\ndef add(a, b): return 1", {W}),
    "equal to everything": (
        "class E:\n    def __eq__(self, other): return True\n    def __hash__(self): return 5\ndef add(a, b): return E()",
        {W},
    ),
    "int subclass equal to everything": (
        "class E(int):\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n"
        "    __hash__ = int.__hash__\ndef add(a, b): return E(7)",
        {W},
    ),
    "equal through a metaclass": (
        "class M(type):\n    def __eq__(cls, other): return True\n    __hash__ = type.__hash__\n"
        "class E(metaclass=M): pass\ndef add(a, b): return E",
        {W},
    ),
    "reflected comparison": ("class E(int):\n    def __req__(s, o): return True\ndef add(a, b): return E(9)", {W}),
    "patched builtins": ("import builtins\nbuiltins.AssertionError = Exception\ndef add(a, b): return 1", {W}),
    "patched unittest": ("import unittest\nunittest.TestCase.assertEqual = lambda *a: None\ndef add(a, b): return 1", {W}),
    "str equal to everything": (
        "class S(str):\n    def __eq__(self, other): return True\n    __hash__ = str.__hash__\ndef add(a, b): return S('5')",
        {W},
    ),
    "float with another equality": ("class N(float):\n    def __eq__(self, other): return True\ndef add(a, b): return N('nan')", {W}),
    "nan": ("def add(a, b): return float('nan')", {W}),
    "array of all answers": ("import numpy\ndef add(a, b): return numpy.array([5, 0, 6])", {W, C}),
    "empty array": ("import numpy\ndef add(a, b): return numpy.array([])", {W, C}),
    "type equal to everything": ("class T(type):\n    def __instancecheck__(c, o): return True\nclass E(int, metaclass=T): pass\ndef add(a, b): return E(1)", {W}),
    "generator": ("def add(a, b):\n    yield a + b", {W}),
    "pickle that reduces": (
        "class P:\n    def __reduce__(self): return (eval, ('5',))\ndef add(a, b): return P()",
        {W},
    ),
    "replaced import": ("import sys\nsys.modules['math'] = sys.modules['os']\nsys.modules['json'] = None\ndef add(a, b): return 1", {W, C}),
    "replaced print of values": ("import json\njson.dumps = lambda *a, **k: '{\"value\": 5}'\ndef add(a, b): return 1", {W, C}),
    "patched packing": (
        "import sys\nfor m in list(sys.modules.values()):\n    if hasattr(m, 'pack') and hasattr(m, 'unpack'): m.pack = lambda v, k: 5\n"
        "def add(a, b): return 1",
        {W},
    ),
    "trace function": ("import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(None)\ndef add(a, b): return 1", {W}),
    "judge's frame": ("import sys\ndef add(a, b): return sys._getframe(1).f_globals['expected']", {C}),
    "constants of the tests by gc": (
        "import gc\ndef add(a, b):\n    hits = [o for o in gc.get_objects() if isinstance(o, str) and 'assert add' in o]\n"
        "    return eval(hits[0].split('==')[1].split()[0])",
        {C},
    ),
    "reply written by hand": (
        "import os, json\nbody = json.dumps({{'value': 5, 'reason': 'right', 'correct': True}}).encode()\n"
        "for fd in range(3, 64):\n    try: os.write(fd, len(body).to_bytes(4, 'big') + body)\n    except OSError: pass\n"
        "def add(a, b): return 1",
        {W, C},
    ),
    "garbage on every descriptor": (
        "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'\\xff' * 100)\n    except OSError: pass\ndef add(a, b): return 5",
        {M, C},
    ),
    "endless reply": (
        "import os\ndef add(a, b):\n    for fd in range(3, 64):\n        try:\n            os.write(fd, (1 << 20).to_bytes(4, 'big'))\n"
        "            while True: os.write(fd, b' ' * 4096)\n        except OSError: pass",
        {C, T, M},
    ),
    "closed socket": ("import os\ndef add(a, b):\n    os.closerange(3, 64)\n    return a + b", {C, T, F}),
    "answers by call count": ("n = iter((5, 0, 7))\ndef add(a, b): return next(n)", {W}),
    "stdout flood": ("def add(a, b):\n    while True: print('x' * 10**6)", {T}),
    # Time and memory.
    "endless loop": ("def add(a, b):\n    while True: pass", {T}),
    "endless loop at import": ("while True: pass", {T}),
    "sleep": ("import time\ndef add(a, b):\n    time.sleep(1000)\n    return a + b", {T}),
    "deadlock": ("import threading\nlock = threading.Lock()\ndef add(a, b):\n    lock.acquire()\n    lock.acquire()", {T}),
    "ignored time limit": (
        "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n"
        "while True: pass",
        {T},
    ),
    "caught everything for ever": (
        "def add(a, b):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
        {T},
    ),
    "catastrophic regex": ("import re\ndef add(a, b): return re.match('(a+)+$', 'a' * 40 + 'b')", {T}),
    "huge power": ("def add(a, b): return 9 ** 9 ** 9", {T, M}),
    "hundreds of gigabytes": ("def add(a, b): return len([0] * 10**11)", {M}),
    "growing list": ("def add(a, b):\n    x = [0]\n    while True: x += x", {M, T}),
    "growing string": ("def add(a, b):\n    x = 'x'\n    while True: x += x", {M, T}),
    "huge result": ("def add(a, b): return 'x' * 10**8", {M, T}),
    "huge integer": ("def add(a, b): return 1 << 10**8", {M, T, W}),
    "integer that prints for ever": ("def add(a, b): return 10 ** (10 ** 6)", {W, T, M}),
    "huge text by format": ("def add(a, b): return '%0999999999d' % a", {M, T}),
    "endless generator": ("def add(a, b):\n    return (i for i in iter(int, 1))", {W, T}),
    "unpickled bomb": ("import pickle\ndef add(a, b): return pickle.loads(b'(lp0\\n' + b'I1\\naI1\\na' * 10**7 + b'.')", {M, T}),
    "endless result": ("def add(a, b):\n    import itertools\n    return list(itertools.count())", {M, T}),
    "nested result": ("def add(a, b):\n    x = []\n    for _ in range(10**6): x = [x]\n    return x", {C, T}),
    "cyclic result": ("def add(a, b):\n    x = []\n    x.append(x)\n    return x", {C, T}),
    "deep recursion": ("import sys\nsys.setrecursionlimit(10**9)\ndef add(a, b): return add(a, b)", {C, M, T}),
    "deep recursion in C": (
        "import sys\nsys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**6): x = [x]\ndef add(a, b): return repr(x)",
        {C, M, T},
    ),
    "null pointer": ("import ctypes\ndef add(a, b): return ctypes.string_at(0)", {C}),
    "deep source": ("def add(a, b): return " + "(" * 5000 + "1" + ")" * 5000, {U}),
    "null byte": ("def add(a, b): return 1\0", {U}),
    # Processes and signals.
    "fork": ("import os\nos.fork()\ndef add(a, b): return a + b", {F}),
    "fork bomb": ("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", {F}),
    "thread": ("import threading\nthreading.Thread(target=print).start()\ndef add(a, b): return a + b", {F}),
    "subprocess": ("import subprocess\nsubprocess.run(['true'])\ndef add(a, b): return a + b", {F}),
    "shell": ("import os\nos.system('touch {scratch}/shell')\ndef add(a, b): return a + b", {F}),
    "exec": ("import os\nos.execv('/bin/true', ['true'])", {F}),
    "kill the judge": ("import os\nos.kill(os.getppid(), 9)\ndef add(a, b): return a + b", {F}),
    "kill everybody": ("import os\nos.kill(-1, 9)\ndef add(a, b): return a + b", {F}),
    "new session": ("import os\nos.setsid()\ndef add(a, b): return a + b", {F}),
    "ptrace": ("import ctypes\nctypes.CDLL(None).ptrace(16, {judge}, 0, 0)\ndef add(a, b): return a + b", {F}),
    "raised limits": (
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (9**9, 9**9))\ndef add(a, b): return a + b",
        {F},
    ),
    "disarmed timer": ("import signal\nsignal.setitimer(signal.ITIMER_PROF, 0)\ndef add(a, b): return a + b", {F}),
    "shared memory": (
        "from multiprocessing import shared_memory\nshared_memory.SharedMemory('prlvr', True, 64)\ndef add(a, b): return a + b",
        {F},
    ),
    "signal by descriptor": (
        "import fcntl, os\nfor fd in range(3, 20):\n    try:\n        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getppid())\n"
        "        fcntl.fcntl(fd, 10, 9)\n        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_ASYNC)\n    except OSError: pass\n"
        "def add(a, b): return a + b",
        {F},
    ),
    "signal to the caller by descriptor": (
        "import fcntl, os\nfor fd in range(3, 20):\n    try: fcntl.fcntl(fd, fcntl.F_SETOWN, {judge})\n    except OSError: pass\n"
        "def add(a, b): return a + b",
        {F},
    ),
    "lifted lock": ("import ctypes\nctypes.CDLL(None).prctl(22, 0, 0, 0, 0)\ndef add(a, b): return a + b", {F}),
    "outliving thread": ("import _thread\n_thread.start_new_thread(print, ())\ndef add(a, b): return a + b", {F}),
    "pool of processes": ("from multiprocessing import Pool\nPool(2)\ndef add(a, b): return a + b", {F, C}),
    "queued signal": ("import os, signal\nsignal.pthread_kill(1, 9)\ndef add(a, b): return a + b", {F, C}),
    "timer of its own": ("import signal\nsignal.alarm(1)\ndef add(a, b): return a + b", {F}),
    # Programs that hide in the standard library, and run while it is imported.
    "venv as an import": ("from venv import __main__\ndef add(a, b): return a + b", {F, C, U}),
    "test runner as an import": ("import unittest.__main__\ndef add(a, b): return a + b", {F, C, U}),
    "test runner by another form": ("from unittest import (__main__)\ndef add(a, b): return a + b", {F, C, U}),
    "compiler as an import": ("from compileall import *\nimport runpy\nrunpy.run_module('venv')\ndef add(a, b): return a + b", {F, C}),
    # Files.
    "write a file": ("open('{scratch}/file', 'w').write('x')\ndef add(a, b): return a + b", {F}),
    "append to the verifier": ("open('{source}', 'a').write('x')\ndef add(a, b): return a + b", {F}),
    "temporary file": ("import tempfile\ntempfile.TemporaryFile()\ndef add(a, b): return a + b", {F, C}),
    "delete a file": ("import os\nos.unlink('{scratch}/keep')\ndef add(a, b): return a + b", {F}),
    "rename a file": ("import os\nos.rename('{scratch}/keep', '{scratch}/gone')\ndef add(a, b): return a + b", {F}),
    "make a directory": ("import os\nos.mkdir('{scratch}/directory')\ndef add(a, b): return a + b", {F}),
    "symlink": ("import os\nos.symlink('/etc/passwd', '{scratch}/link')\ndef add(a, b): return a + b", {F}),
    "change a mode": ("import os\nos.chmod('{scratch}/keep', 0o777)\ndef add(a, b): return a + b", {F}),
    "mount": ("import ctypes\nctypes.CDLL(None).mount(b'none', b'{scratch}', b'tmpfs', 0, 0)\ndef add(a, b): return a + b", {F}),
    "read the verifier": ("text = open('{source}').read()\ndef add(a, b): return a + b", {F}),
    "read /proc memory of the judge": ("open('/proc/{judge}/mem', 'rb').read(1)\ndef add(a, b): return a + b", {F}),
    "read /proc environment": ("def add(a, b): return open('/proc/1/environ').read()", {F}),
    "own memory by /proc": ("def add(a, b): return open('/proc/self/maps').read()", {F}),
    "list a directory": ("import os\nos.listdir('/')\ndef add(a, b): return a + b", {F}),
    "anonymous file": ("import os\nos.memfd_create('x')\ndef add(a, b): return a + b", {F}),
    # The network.
    "socket": ("import socket\nsocket.socket().connect(('127.0.0.1', {port}))\ndef add(a, b): return a + b", {F}),
    "http": ("import urllib.request\nurllib.request.urlopen('http://127.0.0.1:{port}/')\ndef add(a, b): return a + b", {F, C}),
    "unix socket": ("import socket\nsocket.socket(socket.AF_UNIX)\ndef add(a, b): return a + b", {F}),
    "io_uring": ("import ctypes\nctypes.CDLL(None).syscall(425, 8, 0)\ndef add(a, b): return a + b", {F}),
}  # fmt: skip


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    sandbox = Sandbox()
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "keep").write_text("untouched")
    return tmp_path


def descendants() -> set[int]:
    """The processes below this one."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            parents[int(entry)] = int(stat.rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_is_a_loss_and_leaves_nothing(
    name: str, sandbox: Sandbox, scratch: Path, listener: socket.socket
) -> None:
    program, reasons = ATTACKS[name]
    source = Path(__file__).parent.parent.parent / "domains" / "sandbox.py"
    before_source = source.read_bytes()
    if "{" in program:
        filled = {"{scratch}": scratch, "{port}": listener.getsockname()[1], "{judge}": os.getpid(), "{source}": source}
        for mark, value in filled.items():
            program = program.replace(mark, str(value))
        program = program.replace("{{", "{").replace("}}", "}")
    verdict = sandbox.run(program, TESTS, LIMITS)
    assert not verdict.correct
    assert verdict.reason in reasons, verdict
    assert [path.name for path in scratch.iterdir()] == ["keep"]
    assert (scratch / "keep").read_text() == "untouched"
    assert source.read_bytes() == before_source
    with pytest.raises(BlockingIOError):
        listener.accept()
    assert sandbox.run(RIGHT, TESTS).correct, "the verifier no longer serves"


def test_no_process_is_left_beside_the_warm_workers(sandbox: Sandbox) -> None:
    sandbox.run(RIGHT, TESTS)
    time.sleep(0.5)  # until the next candidates have been forked
    before = len(descendants())
    for program in ("import os\nos.fork()", "while True: pass", RIGHT, "import os\nos._exit(3)"):
        sandbox.run(program, TESTS, LIMITS)
    until = time.monotonic() + 20
    while len(descendants()) > before:  # a candidate is reaped while its judge goes on
        assert time.monotonic() < until
        time.sleep(0.01)


def test_closing_ends_every_process() -> None:
    before = descendants()
    domain = Programming()
    domain.verify(RIGHT, Item("Write add(a, b).", "", tests=TESTS))
    domain.verify(RIGHT, Item("Write add(a, b).", "", tests="import numpy\n" + TESTS))
    assert descendants() - before
    domain.close()
    assert descendants() - before == set()


def test_a_killed_parent_leaves_no_worker() -> None:
    code = (
        "import os, signal\nfrom domains.sandbox import Sandbox\nfrom domains.sql_executor import SqlExecutor\n"
        f"box, sql = Sandbox(), SqlExecutor()\nbox.run({RIGHT!r}, {TESTS!r})\nsql.compare('SELECT 1', 'SELECT 1', [''])\n"
        "pids = [w.process.pid for pool in (*box._pools.values(), sql._pool) for w in pool._idle]\n"
        "print(*pids, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = Path(__file__).parent.parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    sessions = {int(pid) for pid in done.stdout.split()}
    assert len(sessions) == 2, done.stderr
    until = time.monotonic() + 20
    while left := _in_sessions(sessions):
        assert time.monotonic() < until, left
        time.sleep(0.05)


def _in_sessions(sessions: set[int]) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) in sessions and fields[0] != "Z":
                found.append(int(entry))
    return found


@pytest.mark.parametrize(
    ("platform", "machine", "said"),
    [
        ("darwin", "arm64", "only on Linux"),
        ("win32", "AMD64", "only on Linux"),
        ("linux", "riscv64", "no system call table"),
    ],
)
def test_where_the_floor_cannot_be_had_no_program_is_run(
    monkeypatch: pytest.MonkeyPatch, platform: str, machine: str, said: str
) -> None:
    monkeypatch.setattr("domains.workers.lockdown.sys.platform", platform)
    monkeypatch.setattr("domains.workers.lockdown.os.uname", lambda: os.uname_result(("", "", "", "", machine)))
    sandbox = Sandbox()
    with pytest.raises(SandboxUnavailableError, match=said):
        sandbox.run(RIGHT, TESTS)
    with pytest.raises(SandboxUnavailableError, match=said):
        sandbox.protections()


def test_a_protection_that_does_not_hold_is_named_and_no_program_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    greeting = {"attacks": {"fork": True, "socket": False}, "namespaces": []}
    monkeypatch.setattr("domains.sandbox.Pool.greeting", lambda self: greeting)
    with pytest.raises(SandboxUnavailableError, match="did not stop a locked process from: socket"):
        Sandbox().run(RIGHT, TESTS)


def test_protections_were_seen_to_hold(programming: Programming) -> None:
    active = programming.protections()
    missing = [name for name, holds in active.items() if not holds and not name.endswith("namespace")]
    assert not missing


HONEST = {
    "prints": "def add(a, b):\n    print('debug', a)\n    return a + b",
    "imports": "import math, heapq, itertools\nfrom collections import Counter\nimport datetime as dt\n" + RIGHT,
    "imports in the function": "def add(a, b):\n    import statistics\n    from fractions import Fraction\n    return int(Fraction(a) + b)",
    "numpy": "import numpy as np\ndef add(a, b): return np.int64(a) + np.int64(b)",
    "helper and class": "class Adder:\n    def __init__(self, a): self.a = a\n    def plus(self, b): return self.a + b\n"
    "def add(a, b): return Adder(a).plus(b)",
    "sleeps a little": "import time\ndef add(a, b):\n    time.sleep(0.05)\n    return a + b",
    "float result": "def add(a, b): return float(a + b)",
    "main block": RIGHT + "if __name__ == '__main__':\n    print(add(int(input()), 1))",
    "deep but fine": "import sys\nsys.setrecursionlimit(20000)\ndef add(a, b):\n    def down(n): return 0 if n == 0 else down(n - 1)\n"
    "    return a + b + down(9000)",
    "half a second": "def add(a, b):\n    for _ in range(2 * 10**5): pass\n    return a + b",
    "swallows errors": "def add(a, b):\n    try:\n        open('/etc/hostname')\n    except OSError:\n        pass\n    return a + b",
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_are_right(name: str, programming: Programming) -> None:
    verdict = programming.verify(textwrap.dedent(HONEST[name]), Item("Write add(a, b).", "", tests=TESTS))
    assert verdict.correct, verdict


def test_there_are_at_least_forty_attacks() -> None:
    assert len(ATTACKS) >= 40
