"""Giving up, for good, everything a program does not need in order to compute.

    lock = Lock(CANDIDATE)   # before a fork, so that the child only has to put it on
    lock.close()             # from here on: no file opens, no process starts, no socket exists, no limit can be raised

The floor is a seccomp filter that lists what is allowed: what is not on the list kills the process (SIGSYS), except
for a few harmless questions that are answered with an error so that imports and `isatty` fail softly. It needs Linux
on x86-64 or aarch64. Namespaces, where the kernel grants them, are a second wall and not relied upon.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import signal
import struct
import sys
from typing import NamedTuple

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CLONE_NEWIPC, _CLONE_NEWUTS, _CLONE_NEWNET, _CLONE_NEWUSER = 0x08000000, 0x04000000, 0x40000000, 0x10000000

# name: (x86-64, aarch64); None where the architecture has no such call.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63), "write": (1, 64), "open": (2, None), "close": (3, 57), "stat": (4, None), "fstat": (5, 80),
    "lstat": (6, None), "poll": (7, None), "lseek": (8, 62), "mmap": (9, 222), "mprotect": (10, 226),
    "munmap": (11, 215), "brk": (12, 214), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139), "ioctl": (16, 29), "pread64": (17, 67), "readv": (19, 65), "writev": (20, 66),
    "access": (21, None), "select": (23, None), "sched_yield": (24, 124), "mremap": (25, 216), "madvise": (28, 233),
    "dup": (32, 23), "dup2": (33, None), "nanosleep": (35, 101), "getpid": (39, 172), "sendto": (44, 206),
    "recvfrom": (45, 207), "exit": (60, 93), "uname": (63, 160),
    "fcntl": (72, 25), "getdents": (78, None), "getcwd": (79, 17), "readlink": (89, None), "gettimeofday": (96, 169),
    "getrlimit": (97, 163), "getrusage": (98, 165), "sysinfo": (99, 179), "times": (100, 153), "getuid": (102, 174),
    "getgid": (104, 176), "geteuid": (107, 175), "getegid": (108, 177), "getppid": (110, 173),
    "sigaltstack": (131, 132), "gettid": (186, 178), "time": (201, None), "futex": (202, 98),
    "sched_getaffinity": (204, 123), "getdents64": (217, 61), "restart_syscall": (219, 128),
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "clock_nanosleep": (230, 115), "exit_group": (231, 94),
    "openat": (257, 56), "newfstatat": (262, 79), "readlinkat": (267, 78), "faccessat": (269, 48),
    "pselect6": (270, 72), "ppoll": (271, 73), "set_robust_list": (273, 99), "dup3": (292, 24),
    "prlimit64": (302, 261), "getrandom": (318, 278), "membarrier": (324, 283), "statx": (332, 291),
    "rseq": (334, 293), "clone3": (435, 435), "faccessat2": (439, 439),
    "prctl": (157, 167), "fsync": (74, 82), "fdatasync": (75, 83), "setitimer": (38, 103), "set_tid_address": (218, 96),
}  # fmt: skip

_COMPUTE = (
    "read write close fstat lseek mmap mprotect munmap brk mremap madvise rt_sigaction rt_sigprocmask rt_sigreturn "
    "sigaltstack readv writev pread64 poll ppoll select pselect6 sched_yield nanosleep clock_nanosleep sendto recvfrom "
    "dup dup2 dup3 fcntl getpid gettid getppid getuid geteuid getgid getegid uname getcwd gettimeofday time times "
    "clock_gettime clock_getres getrusage getrlimit sysinfo futex set_robust_list rseq membarrier set_tid_address "
    "restart_syscall sched_getaffinity getrandom exit exit_group"
).split()
_LOOKING = "stat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat getdents getdents64".split()


class Profile(NamedTuple):
    """What a process may still do once locked: compute always; read files, set its timer, lock itself further if
    said."""

    reads_files: bool = False
    sets_timer: bool = False
    locks: bool = False


CANDIDATE = Profile()
JUDGE = Profile(reads_files=True)
IMPORTING = Profile(reads_files=True, sets_timer=True, locks=True)
DATABASE = Profile(reads_files=True, sets_timer=True)


def supported() -> str:
    """An empty string where the floor of protections can be had, otherwise the sentence that says why not."""
    if sys.platform != "linux":
        return f"generated code runs only on Linux (seccomp); this is {sys.platform}"
    if os.uname().machine not in _ARCHES:
        return f"no system call table for {os.uname().machine}; known: {', '.join(_ARCHES)}"
    return ""


def limit(*, cpu: float, memory: int) -> None:
    """Hard limits: seconds of CPU, bytes of address space beyond what is mapped at `measure`, no files, no core."""
    for kind, value in (
        (resource.RLIMIT_AS, _mapped + memory),
        (resource.RLIMIT_CPU, int(cpu) + 1),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 512),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))


def measure() -> None:
    """Take the address space in use now as the zero from which `limit` counts; children inherit it."""
    global _mapped
    with open("/proc/self/statm") as statm:
        _mapped = int(statm.read().split()[0]) * resource.getpagesize()


def arm(cpu: float) -> None:
    """Die of SIGPROF after `cpu` more seconds of CPU; finer than RLIMIT_CPU, which counts whole seconds."""
    signal.setitimer(signal.ITIMER_PROF, cpu)


def die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def hide() -> None:
    """Nobody of the same user may read or write this process's memory, in /proc or by ptrace."""
    _prctl(_PR_SET_DUMPABLE, 0)


def drop_capabilities() -> None:
    """Root keeps its name but not its powers, so that `hide` holds against it as well."""
    header = struct.pack("<Ii", 0x20080522, 0)
    if _libc.capset(header, bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def leave_namespaces() -> list[str]:
    """Leave the host's network, IPC and host name where the kernel grants it; the names of what was left."""
    flags = _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWUTS
    for extra in (0, _CLONE_NEWUSER):
        if _libc.unshare(flags | extra) == 0:
            return ["network", "ipc", "uts"] + ["user"] * bool(extra)
    return []


class Lock:
    """A filter made ready for the kernel. Closing it cannot be undone, and children would inherit it."""

    def __init__(self, profile: Profile) -> None:
        lines = _filter(profile)
        self._code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in lines))
        self._header = ctypes.c_char_p(struct.pack("<H6xQ", len(lines), ctypes.addressof(self._code)))

    def close(self) -> None:
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        if _libc.prctl(_PR_SET_SECCOMP, 2, self._header, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "seccomp filter refused by the kernel")


_mapped = 0
_libc = ctypes.CDLL(None, use_errno=True)
_Line = tuple[int, int, int, int]


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def _filter(profile: Profile) -> list[_Line]:
    """The filter as classic BPF: (code, jump if true, jump if false, operand)."""
    machine = os.uname().machine
    column = list(_ARCHES).index(machine)

    def load(offset: int) -> _Line:
        return (0x20, 0, 0, offset)

    def give(action: int) -> _Line:
        return (0x06, 0, 0, action)

    def soft(code: int) -> int:
        return _ERRNO | code

    def flags_at(argument: int) -> list[_Line]:
        """Opening to write kills; opening to read is allowed or refused."""
        otherwise = _ALLOW if profile.reads_files else soft(errno.EACCES)
        return [load(16 + 8 * argument), (0x45, 0, 1, _WRITING), give(_KILL), give(otherwise)]

    rules: dict[str, list[_Line]] = {name: [give(_ALLOW)] for name in _COMPUTE}
    rules |= {name: [give(_ALLOW if profile.reads_files else soft(errno.EACCES))] for name in _LOOKING}
    rules |= {"open": flags_at(1), "openat": flags_at(2), "ioctl": [give(soft(errno.ENOTTY))]}
    rules["clone3"] = [give(soft(errno.ENOSYS))]  # glibc then tries clone, which is not on the list
    # Asking for a limit is fine (third argument NULL, both halves); setting one is not.
    asking = [load(32), (0x15, 0, 3, 0), load(36), (0x15, 0, 1, 0), give(_ALLOW), give(_KILL)]
    rules["prlimit64"] = asking
    # A descriptor may be copied or asked about. To name who gets its signals would be a way to kill any process.
    rules["fcntl"] = [load(24)]
    for command in (fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC, fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL):
        rules["fcntl"] += [(0x15, 0, 1, command), give(_ALLOW)]
    rules["fcntl"] += [give(_KILL)]
    if profile.locks:
        rules["prctl"] = [load(16)]
        for option in (_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS):
            rules["prctl"] += [(0x15, 0, 1, option), give(_ALLOW)]
        rules["prctl"] += [give(_KILL)]
    if profile.sets_timer:
        rules |= {"setitimer": [give(_ALLOW)]}

    lines: list[_Line] = [load(4), (0x15, 1, 0, _ARCHES[machine]), give(_KILL), load(0)]
    for name, rule in rules.items():
        number = _NUMBERS[name][column]
        if number is not None:
            lines += [(0x15, 0, len(rule), number), *rule]
    return [*lines, give(_KILL)]
