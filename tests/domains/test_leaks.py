# ruff: noqa: E501  (tables of cases read better one a line)
"""Many verifications in a row leave no memory, no process and no descriptor behind: 1,000 by default, 50,000 with `-m slow`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from domains.base import Item
from domains.knowledge import Knowledge
from domains.mathematics import Mathematics
from domains.programming import Programming
from domains.text_to_sql import TextToSQL

ADD = Item("Write add(a, b).", "", tests="assert add(2, 3) == 5\n")
COUNT = [
    Item(
        "q",
        f"SELECT COUNT(*) FROM t WHERE a > {i}",
        database=f"CREATE TABLE t(a); INSERT INTO t VALUES (1), ({i + 1});",
    )
    for i in range(60)
]
SUM, LATEX = Item("What is 40 + 2?", "42"), Item("Simplify.", "x+1")
CHOICE = Item("Which? A) crab B) goat C) newt\nAnswer:", "C")


def tree(root: int) -> list[int]:
    """A process and everything below it."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parents[int(entry)] = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def measure() -> tuple[int, int, int]:
    """Processes, open descriptors and resident KiB of this process and its workers."""
    processes = tree(os.getpid())
    descriptors = resident = 0
    for pid in processes:
        try:
            descriptors += len(os.listdir(f"/proc/{pid}/fd"))
            resident += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4
        except OSError:
            continue
    return len(processes), descriptors, resident


@pytest.fixture
def work(
    mathematics: Mathematics, knowledge: Knowledge, programming: Programming, text_to_sql: TextToSQL
) -> Callable[[int], None]:
    def once(i: int) -> None:
        programming.verify(
            ("def add(a, b): return a + b", "import os\nos._exit(0)", "def add(", "import os\nos.fork()")[i % 4], ADD
        )
        text_to_sql.verify(("SELECT COUNT(*) FROM t", "DROP TABLE t", "SELECT 1")[i % 3], COUNT[i % 60])
        mathematics.verify(f"so {i} and \\boxed{{{i % 50}}}", SUM)
        mathematics.verify(f"\\boxed{{x+{i % 3}}}", LATEX)
        knowledge.verify("ABC"[i % 3], CHOICE)

    return once


def run(work: Callable[[int], None], rounds: int) -> None:
    for i in range(150):  # caches fill first
        work(i)
    first = processes, descriptors, resident = measure()
    for i in range(rounds):
        work(i)
    after = measure()
    for name, one, other in zip(("processes", "descriptors", "resident KiB"), first, after, strict=True):
        print(f"{name}: {one} before, {other} after {5 * rounds} verifications")
    assert after[0] <= processes + 1
    assert after[1] <= descriptors + 8
    assert after[2] <= resident + 24 * 1024


def test_a_thousand_verifications_leak_nothing(work: Callable[[int], None]) -> None:
    run(work, 200)


@pytest.mark.slow
def test_fifty_thousand_verifications_leak_nothing(work: Callable[[int], None]) -> None:
    run(work, 10_000)
