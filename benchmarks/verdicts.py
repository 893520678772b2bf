"""Two checks of verdicts on real data: programming tests that a constant passes, and worked solutions that are refused.

python benchmarks/verdicts.py --data-dir DIR
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from domains import Item, close_all, get_domain

CONSTANTS = (
    *("None", "True", "False", "0", "1", '""', "[]", "()", "{}"),
    *("float('nan')", "float('inf')", "numpy.array([])"),
)


def constants(data_dir: Path) -> None:
    """Which tasks accept a function that returns the same whatever it is given."""
    domain = get_domain("programming", data_dir)
    names = ("mbpp_train", "mbpp_validation", "mbpp_test", "humaneval")
    items = [item for name in names for item in domain.populations()[name].items]  # type: ignore[attr-defined]
    passed: dict[str, list[str]] = {}
    for item in items:
        entry = re.findall(r"^check\((\w+)\)", item.tests, re.MULTILINE)
        functions = entry[-1:] or re.findall(r"^def\s+(\w+)", item.gold, re.MULTILINE)
        for constant in CONSTANTS:
            head = "import numpy\n" if "numpy" in constant else ""
            program = head + "".join(f"def {name}(*a, **k):\n    return {constant}\n" for name in functions)
            if domain.verify(program, item).correct:
                passed.setdefault(item.id, []).append(constant)
    print(f"{len(items)} tasks, {len(CONSTANTS)} constants; tasks that accept one: {passed or 'none'}")


def solutions(data_dir: Path) -> None:
    """How many worked solutions of GSM8K score 1, with their answer line and, where they end with it, without."""
    domain = get_domain("mathematics")
    marked = bare = refused = rows = 0
    for split in ("train", "test"):
        for line in (data_dir / f"math/gsm8k_{split}.jsonl").open(encoding="utf-8"):
            row = json.loads(line)
            rows += 1
            item = Item(row["question"], str(row["answer"]))
            steps = re.sub(r"<<.*?>>", "", row["solution"].partition("####")[0]).strip()
            marked += domain.verify(f"{steps}\n#### {item.gold}", item).correct
            numbers = re.findall(r"-?\d*\.?\d+", steps.split("\n")[-1].replace(",", ""))
            if numbers and numbers[-1] == item.gold:
                bare += 1
                refused += not domain.verify(steps, item).correct
    print(f"{rows} solutions with an answer line, {marked} score 1; {bare} that end with it instead, {refused} refused")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    data_dir = parser.parse_args().data_dir
    solutions(data_dir)
    constants(data_dir)
    close_all()


if __name__ == "__main__":
    main()
