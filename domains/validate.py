"""A verifier's self-test on real items, before money is spent on what it says.

report = validate(get_domain("mathematics"), population, n=200)
report.passed                    # every gold scores 1; corrupted golds and completions that answer nothing score 0
print(report)                    # with throughput, duplicates removed and the protections that are active
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from domains.base import Domain, GoldError, Item, Population
from domains.quantity import values

# Completions that answer nothing, whatever was asked.
NON_ANSWERS = {
    "empty": "",
    "blank": " \n\t\n",
    "refusal": "I am sorry, I do not know.",
    "noise": "\x00\ud800\ufffe%s{}[]\\boxed{",
    "unfinished reasoning": "<think>Let me see",
    "empty answer": "<answer></answer>",
    "empty box": "\\boxed{}",
    "empty fence": "```python\n```",
}
HOSTILE_ITEMS = 20  # hostile completions take a verifier to its limits of time, so they are tried on no more items
HOSTILE = {
    "mathematics": {
        "every digit": "0 or 1 or 2 or 3 or 4 or 5 or 6 or 7 or 8 or 9",
        "tower": "\\boxed{9^{9^{9^{9}}}}",
        "nested": "\\boxed{" + "\\frac{1}{" * 300 + "x" + "}" * 300 + "}",
    },
    "programming": {
        "exit": "import os\nos._exit(0)\n",
        "equal to all": "class E:\n    def __eq__(self, other): return True\n    def __getattr__(self, n): return E()\n"
        "    def __call__(self, *a, **k): return E()\nimport sys\n",
        "loop": "while True: pass\n",
    },
    "knowledge": {"every letter": "(A) (B) (C) (D) (E)", "letters": "ABCDE", "listed": "A, B, C, D or E"},
    "text_to_sql": {
        "drop": "DROP TABLE sqlite_master",
        "attach": "ATTACH DATABASE '/tmp/prlvr-validate.db' AS other",
        "endless": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
        "extension": "SELECT load_extension('libc.so.6')",
    },
}


@dataclass
class ValidationReport:
    domain: str
    population: str
    items: int = 0
    removed: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)  # id, why its gold cannot be checked
    gold_failures: list[tuple[str, str]] = field(default_factory=list)  # id, why
    attacked: int = 0  # items on which completions that answer nothing were tried
    refused: dict[str, int] = field(default_factory=dict)  # how many of them scored 0, by kind
    false_rights: list[tuple[str, str]] = field(default_factory=list)  # id, what kind of completion scored 1
    per_second: float = 0.0  # golds verified
    protections: dict[str, bool] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return bool(self.items) and not self.gold_failures and not self.false_rights

    def __str__(self) -> str:
        lines = [
            f"{self.domain} / {self.population}: {'passed' if self.passed else 'FAILED'}",
            f"  {self.items} golds, {self.per_second:.0f} a second; {len(self.gold_failures)} do not score 1",
            *(f"    {name}: {why}" for name, why in self.gold_failures),
            f"  {sum(self.refused.values())} completions that answer nothing, on {self.attacked} items, score 0: "
            + ", ".join(f"{count} {kind}" for kind, count in self.refused.items()),
            f"  {len(self.false_rights)} of them score 1",
            *(f"    {name}: {kind}" for name, kind in self.false_rights),
        ]
        if any(self.removed.values()):
            lines.append("  left out: " + ", ".join(f"{count} {why}" for why, count in self.removed.items() if count))
        lines += [f"    {name}: {why}" for name, why in self.rejected.items()]
        lines += [f"  {'active' if holds else 'NOT ACTIVE'}: {name}" for name, holds in self.protections.items()]
        return "\n".join(lines)


def validate(
    domain: Domain, population: Population, n: int = 200, seed: str = "validate", attacked: int = 20
) -> ValidationReport:
    """Score the golds of n items (all of a smaller pool) and, on `attacked` of them, what must never score 1."""
    items = _draw(population, seed, n)
    report = ValidationReport(domain.name, population.name, len(items), dict(getattr(population, "removed", {})))
    report.rejected = dict(getattr(population, "rejected", {}))
    if hasattr(domain, "protections"):
        report.protections = domain.protections()
    write: Callable[[Item], str] = getattr(population, "write", gold_completion)
    start = time.perf_counter()
    for item in items:
        name = item.id or item.digest[:12]
        try:
            verdict = domain.verify(write(item), item)
        except GoldError as error:
            report.gold_failures.append((name, str(error)))
            continue
        if not verdict.correct:
            report.gold_failures.append((name, f"{verdict.reason}: {verdict.detail}"))
    report.per_second = len(items) / (time.perf_counter() - start)
    broken = {name for name, _ in report.gold_failures}
    for item in items[:attacked]:
        name = item.id or item.digest[:12]
        if name in broken:
            continue
        report.attacked += 1
        hostile = report.attacked <= HOSTILE_ITEMS
        for kind, completion in attacks(domain.name, item, hostile):
            if domain.verify(completion, item).correct:
                report.false_rights.append((name, kind))
            else:
                report.refused[kind] = report.refused.get(kind, 0) + 1
    return report


def gold_completion(item: Item) -> str:
    return item.gold


def attacks(domain: str, item: Item, hostile: bool = True) -> Iterator[tuple[str, str]]:
    """Completions by kind, none of which answers the item."""
    yield from NON_ANSWERS.items()
    yield "repeated prompt", item.prompt
    yield from _corrupted(domain, item).items()
    if hostile:
        yield from HOSTILE.get(domain, {}).items()


def _corrupted(domain: str, item: Item) -> dict[str, str]:
    """The gold with a fault, and a constant where a program or a query was asked for."""
    gold = item.gold
    if domain == "mathematics":
        found = sorted(values(gold))
        if not found:
            return {"corrupted gold": f"\\boxed{{{gold}+1}}"}
        return {"corrupted gold": str(found[-1] + 1), "corrupted sign": str(-found[-1] - 1)}
    if domain == "knowledge":
        letter = gold.strip("().")
        other = chr(ord(letter) + (1 if letter == "A" else -1)) if re.fullmatch("[A-J]", letter) else f"not {gold}"
        return {"corrupted gold": other}
    if domain == "programming":
        constant = (
            re.sub(r"\breturn\b[^\n]*", "return None", gold) if "return" in gold else f"{gold} if False else None"
        )
        return {"corrupted gold": gold[: len(gold) // 2] + " §", "constant": constant}
    if domain == "text_to_sql":
        body = gold.strip().rstrip(";")
        return {
            "corrupted gold": f"SELECT * FROM ({body}) UNION ALL SELECT * FROM ({body})",
            "constant": "SELECT 987654321",
        }
    return {}


def _draw(population: Population, seed: str, n: int) -> list[Item]:
    items: list[Item] = list(getattr(population, "items", ()))
    return items if items and len(items) <= n else population.draw(seed, n)
