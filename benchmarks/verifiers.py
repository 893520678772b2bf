"""How many completions a second the four verifiers judge, on two cores.

    python benchmarks/verifiers.py [--items 1000] [--threads 2]

Programs have a trivial test; queries and the rest are those of the pocket family. "new" is one completion on each item,
as in an evaluation; "again" is eight completions on each item, as in training, half of them with a mistake.
"""

from __future__ import annotations

import argparse
import random
import time
from concurrent.futures import ThreadPoolExecutor

from domains import Item, close_all, get_domain
from domains.pocket import FAMILIES

ADD = Item("Write add(a, b).", "def add(a, b):\n    return a + b\n", tests="assert add(2, 3) == 5\n")


def measure(name: str, what: str, work: list[tuple[str, Item]], threads: int) -> None:
    domain = get_domain(name)
    for completion, item in work[: 4 * threads]:  # workers start, modules load
        domain.verify(completion, item)
    with ThreadPoolExecutor(threads) as pool:
        start = time.perf_counter()
        verdicts = list(pool.map(lambda one: domain.verify(*one), work))
        seconds = time.perf_counter() - start
    right = sum(verdict.correct for verdict in verdicts)
    print(f"{name:12} {what:28} {threads} threads {len(work) / seconds:8.0f} a second, {right} of {len(work)} right")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    for threads in sorted({1, arguments.threads}):
        measure("programming", "one trivial program", [(ADD.gold, ADD)] * (2 * arguments.items), threads)
        for family in FAMILIES:
            rng = random.Random(0)
            items = family.draw(f"throughput {threads}", arguments.items)
            right = [(family.write(item), item) for item in items]
            wrong = [(family.mistake(rng, item), item) for item in family.draw(f"wrong {threads}", arguments.items)]
            again = [
                (family.write(item) if i % 2 else family.mistake(rng, item), item)
                for item in family.draw(f"again {threads}", arguments.items // 8)
                for i in range(8)
            ]
            for what, work in (("new, right", right), ("new, with a mistake", wrong), ("again", again)):
                measure(family.domain, f"pocket, {what}", work, threads)
    close_all()


if __name__ == "__main__":
    main()
