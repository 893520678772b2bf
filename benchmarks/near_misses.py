"""How many wrong queries the Text-to-SQL verifier takes for right: the gold with one or two of its parts replaced.

    python benchmarks/near_misses.py                      # the pocket family
    python benchmarks/near_misses.py --population geography_train --data-dir DIR --items 200

The pocket family's queries have four parts, so which replacements mean the same is known and those are left out. For
other populations the parts are those that can be seen in any SQL (comparisons, constants, aggregates, DISTINCT, order,
ends of a range), and some mutants mean the same as the gold on every database: what is printed is an upper limit.
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from domains import GoldError, Item, close_all, get_domain
from domains.pocket.tables import AGGREGATES, COMPARISONS, query

Mutant = tuple[str, str]  # what was replaced, the query
SWAPS = {
    "comparison": [(">=", ">"), ("<=", "<"),
                    (">", ">="), ("<", "<="), (">", "<"), ("<", ">"), ("=", "<>"), ("!=", "=")],
    "aggregate": [(a, b) for a, b in itertools.permutations(("MAX", "MIN", "SUM", "AVG"), 2)],
    "word": [("COUNT(DISTINCT", "COUNT("), ("SELECT DISTINCT", "SELECT"), (" DESC", " ASC"),
             (" AND ", " OR "), (" OR ", " AND "),
             ("INTERSECT", "UNION"), ("EXCEPT", "UNION"), ("NOT IN", "IN")],
}  # fmt: skip


def pocket_mutants(item: Item, rng: random.Random) -> Iterator[Mutant]:
    """Every replacement of one part, and some of two, that asks for something else."""
    match = re.fullmatch(r"SELECT (\w+)\(([\w*]+)\) FROM (\w+) WHERE (\w+) (.) (\d+)", item.gold)
    assert match is not None
    aggregate, column, table, where, comparison, value = *match.groups()[:5], int(match[6])
    columns = item.prompt[item.prompt.index("(") + 1 : item.prompt.index(")")].split(", ")
    near = [value + step for step in (-9, -3, -2, -1, 1, 2, 3, 9)] + [rng.randint(10, 89) for _ in range(4)]
    parts = {
        "aggregate": [(a, c) for a in AGGREGATES for c in (columns if a != "COUNT" else ["*"])],
        "condition": columns,
        "comparison": list(COMPARISONS),
        "number": near,
    }
    gold = ((aggregate, column), where, comparison, value)
    single = [
        (name, (*gold[:place], other, *gold[place + 1 :]))
        for place, (name, others) in enumerate(parts.items())
        for other in others
    ]
    double = [("two parts", tuple(rng.choice(others) for others in parts.values())) for _ in range(30)]
    for name, mutant in (*single, *double):
        if mutant != gold and not _means_the_same(gold, mutant):
            (a, c), w, op, v = mutant
            yield name, query(a, c, table, w, op, v)


def _means_the_same(gold: tuple, mutant: tuple) -> bool:
    """The largest, the smallest and the average of equal values are one."""
    ((a, c), w, op, _), ((b, d), *rest) = gold, mutant
    picks = {"MAX", "MIN", "AVG"}
    return op == "=" and list(gold[1:]) == list(rest) and c == d == w and {a, b} <= picks


def mutants(item: Item, rng: random.Random) -> Iterator[Mutant]:
    """The gold of any population with one visible part replaced."""
    gold = item.gold
    for kind, swaps in SWAPS.items():
        for old, new in swaps:
            for match in re.finditer(rf"(?<![<>=!\w]){re.escape(old)}(?![<>=])", gold, re.IGNORECASE):
                yield kind, gold[: match.start()] + new + gold[match.end() :]
    for match in re.finditer(r"(?<![\w.'])\d+(?![\w.'])", gold):
        for step in (-1, 1):
            yield "number", f"{gold[: match.start()]}{int(match[0]) + step}{gold[match.end() :]}"
    for match in re.finditer(
        r"\s+(?:WHERE|HAVING)\s+(?:(?!GROUP BY|ORDER BY|LIMIT|UNION|EXCEPT|INTERSECT|[()]).)+", gold, re.I
    ):
        yield "condition", gold[: match.start()] + " " + gold[match.end() :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--population", default="pocket")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--show", type=int, default=0, help="print so many mutants that were taken for right")
    arguments = parser.parse_args()
    domain = get_domain("sql", arguments.data_dir)
    population = domain.populations()[arguments.population]
    make = pocket_mutants if arguments.population == "pocket" else mutants
    tried: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    rng, shown, start = random.Random(0), 0, time.perf_counter()
    for item in population.draw("near misses", arguments.items):
        try:
            assert domain.verify(item.gold, item).correct, item
        except GoldError as error:
            print("gold:", item.id, error)
            continue
        for kind, text in dict.fromkeys(make(item, rng)):
            tried[kind] += 1
            if domain.verify(text, item).correct:
                taken[kind] += 1
                shown += 1
                if shown <= arguments.show:
                    print(f"  {kind}: {text}\n    gold: {item.gold}")
    for kind in tried:
        print(f"{kind:12} {tried[kind]:6} wrong queries, {taken[kind]:4} scored 1 ({taken[kind] / tried[kind]:.2%})")
    total, wrong = sum(tried.values()), sum(taken.values())
    seconds = time.perf_counter() - start
    print(
        f"{'all':12} {total:6} wrong queries, {wrong:4} scored 1 ({wrong / total:.2%}); {total / seconds:.0f} a second"
    )
    close_all()


if __name__ == "__main__":
    main()
