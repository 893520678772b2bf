"""What a certificate says by each bound and by two accountings of the message, on the same evidence; with times.

    python benchmarks/accounting.py [--n 7500] [--accuracy 0.8] [--dimension 28] [--delta 0.05]

"declared" is a prior of this library: normalised, declared beforehand, -log2 P bits. "learned" is the accounting of
published compression bounds: a codebook of 16-bit levels, a histogram of their counts, the entropy of the symbols, and
2 log2 of the total for a prefix (pacbayes/peers.py).
"""

import argparse
import math
import random
import time
from collections.abc import Sequence

from pacbayes.bounds import ACCURACY_BOUNDS, certified_accuracy
from pacbayes.codes import parse_code
from pacbayes.peers import codebook_message

PRIOR = {
    "kind": "mixture",
    "parts": [
        *({"probability": "1/4", "code": {"kind": "laplace", "ratio": r, "bound": 31}} for r in ("1/4", "1/2", "3/4")),
        {"probability": "1/4", "code": {"kind": "adaptive", "bound": 7}},
    ],
}


def declared_bits(q: Sequence[int]) -> float:
    return -parse_code(PRIOR).log2_probability(q)


def milliseconds(losses: int, n: int, bits: float, delta: float, bound: str) -> tuple[float, float]:
    """(certified accuracy, the least of five times)."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        certified = certified_accuracy(losses, n, bits=bits, delta=delta, bound=bound)
        times.append(1e3 * (time.perf_counter() - start))
    return certified, min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=7500)
    parser.add_argument("--accuracy", type=float, default=0.8)
    parser.add_argument("--dimension", type=int, default=28)
    parser.add_argument("--delta", type=float, default=0.05)
    options = parser.parse_args()
    n, losses = options.n, math.ceil(options.n * (1 - options.accuracy))
    rng = random.Random(0)
    q = [round(rng.gauss(0, 1.5)) for _ in range(options.dimension)]
    print(f"n = {n}, {n - losses} right, {options.dimension} integers, delta = {options.delta}\n")
    print(f"{'message':10} {'bits':>7}  {'bound':14} {'certified':>9} {'ms':>8}")
    for name, bits in (("declared", declared_bits(q)), ("learned", codebook_message(q).bits)):
        for bound in ACCURACY_BOUNDS:
            certified, elapsed = milliseconds(losses, n, bits, options.delta, bound)
            print(f"{name:10} {bits:7.1f}  {bound:14} {certified:9.4f} {elapsed:8.2f}")
    certified, elapsed = milliseconds(200_000, 10**6, 10_000, options.delta, "binomial")
    print(f"\nexact inversion at n = 10^6, 10^4 bits: {certified:.4f} in {elapsed:.1f} ms")


if __name__ == "__main__":
    main()
