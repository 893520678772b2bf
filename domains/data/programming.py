"""MBPP with MBPP+ as hidden tests, and HumanEval.

# Write a python function to identify non-prime numbers.
# It must pass:  assert is_not_prime(2) == False
(the other assertions of MBPP and those of MBPP+ stay hidden)
"""

from __future__ import annotations

import builtins
import re
from functools import partial
from pathlib import Path

from domains.base import Item, Population
from domains.data.pool import Entry, Loaded, Pool, fingerprints
from domains.data.rows import DataError, Row, Source, read_rows

TEMPLATE = "{text}\nYour Python code must pass this test and others like it:\n{test}\n"
_MBPP = {
    split: Source("code/mbpp", "google-research-datasets/mbpp", "full", split)
    for split in ("train", "validation", "test")
}
_PLUS = Source("code/mbpp_plus", "evalplus/mbppplus", None, "test")
_HUMANEVAL = Source("code/humaneval", "openai/openai_humaneval", None, "test")
# Seconds of CPU for MBPP+ tests on which the reference itself is slow; the others get _CPU_PLUS.
_SLOW = {"599": 240, "255": 60, "392": 45, "271": 40, "603": 30, "123": 30, "592": 30, "389": 20}
_CPU_PLUS = 12
_TOO_BIG = {"255"}  # its MBPP+ inputs ask for more than a gigabyte of tuples: MBPP's own tests are kept
_DEFINED = re.compile(r"^(?:async\s+)?(?:def|class)\s+(\w+)", re.MULTILINE)


def populations(data_dir: Path | None) -> dict[str, Population]:
    """MBPP by split and HumanEval."""
    found: dict[str, Population] = {
        f"mbpp_{split}": Pool(
            f"mbpp_{split}",
            f"MBPP, {split} split, with MBPP+ where it has the task",
            partial(_load_mbpp, split, data_dir),
        )
        for split in _MBPP
    }
    found["humaneval"] = Pool("humaneval", "HumanEval", partial(_load_humaneval, data_dir), max_new_tokens=384)
    return found


def _load_mbpp(split: str, data_dir: Path | None) -> Loaded:
    rows = [row for row in read_rows(_MBPP[split], data_dir) if row.get("split", split) == split]
    plus = {_number(row): row for row in _plus_rows(data_dir)}
    entries = [_mbpp_entry(row, plus.get(_number(row))) for row in rows]
    reserved: frozenset[str] = frozenset()
    if split != "test":
        test = [row for row in read_rows(_MBPP["test"], data_dir) if row.get("split", "test") == "test"]
        reserved = fingerprints(_text(row) for row in test)
    return Loaded(entries, reserved)


def _plus_rows(data_dir: Path | None) -> list[Row]:
    try:
        return read_rows(_PLUS, data_dir)
    except DataError:
        if data_dir is not None:  # a folder may hold MBPP alone; its tasks then have MBPP's own assertions only
            return []
        raise


def _mbpp_entry(row: Row, plus: Row | None) -> Entry:
    own = list(row.get("tests") or row["test_list"]) + list(
        row.get("extra_tests") or row.get("challenge_test_list") or []
    )
    setup = row.get("test_setup") or row.get("test_setup_code") or ""
    reference = str(row.get("reference") or row.get("code")).replace("\r\n", "\n")
    parts = [setup, *own]
    cpu = 0
    if plus is not None and _number(row) not in _TOO_BIG:  # its own assertions correct those of MBPP
        reference = str(plus.get("reference") or plus["code"])
        parts = [*(plus.get("tests_base") or plus["test_list"]), str(plus.get("test_plus") or plus["test"])]
        cpu = _SLOW.get(_number(row), _CPU_PLUS)
    tests = "\n".join(part.replace("\r\n", "\n") for part in parts if part) + "\n"
    text = _text(plus or row)
    item = Item(
        TEMPLATE.format(text=text, test=(plus.get("tests_base") or plus["test_list"] if plus else own)[0]),
        reference,
        tests=_settings(reference, tests, cpu) + tests,
        id=f"mbpp-{_number(row)}",
    )
    return Entry(item, _text(row))


def _load_humaneval(data_dir: Path | None) -> Loaded:
    entries = []
    for row in read_rows(_HUMANEVAL, data_dir):
        prompt, entry = str(row["prompt"]), str(row["entry_point"])
        # What the prompt defines beside the function that is asked for is the judge's too, not the program's to
        # redefine.
        given = prompt[: re.search(rf"^def {entry}\b", prompt, re.MULTILINE).start()]  # type: ignore[union-attr]
        reference = str(row.get("reference") or row["canonical_solution"])
        tests = f"{given}\n{row['test']}\ncheck({entry})\n"
        name = str(row.get("id") or row["task_id"])
        item = Item(prompt, reference, tests=_settings(f"def {entry}", tests, 10) + tests, id=name)
        entries.append(Entry(item, prompt))
    return Loaded(entries)


def _settings(reference: str, tests: str, cpu: int) -> str:
    """The first lines of the tests: built-in names that the task asks to define, and a CPU limit where it differs."""
    shadowing = sorted(
        {name for name in _DEFINED.findall(reference) if hasattr(builtins, name) and f"{name}(" in tests}
    )
    lines = [f"# candidate: {', '.join(shadowing)}"] if shadowing else []
    return "".join(f"{line}\n" for line in [*lines, *([f"# cpu: {cpu}"] if cpu else [])])


def _number(row: Row) -> str:
    return re.sub(r"\D", "", str(row.get("id") or row.get("task_id")))


def _text(row: Row) -> str:
    return str(row.get("text") or row["prompt"]).strip()
