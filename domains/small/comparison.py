"""Mathematics for a small real model: which of three numbers is the largest, or the smallest, after two examples.

Largest of 312, 87, 290: 312
Smallest of 601, 45, 598: 45
Smallest of 730, 128, 96: 96
"""

from __future__ import annotations

import random

from domains.base import Item
from domains.pocket.family import Family

SHOTS = "Largest of 312, 87, 290: 312\nSmallest of 601, 45, 598: 45\n"
LOW, HIGH = 10, 999


class Comparison(Family):
    name = "comparison"
    domain = "mathematics"
    description = f"the largest or the smallest of three numbers of {LOW}..{HIGH}, after two fixed examples"
    max_new_tokens = 5
    stop = "\n"

    def item(self, rng: random.Random) -> Item:
        numbers = rng.sample(range(LOW, HIGH + 1), 3)
        word, gold = rng.choice((("Largest", max(numbers)), ("Smallest", min(numbers))))
        return Item(prompt=f"{SHOTS}{word} of {', '.join(map(str, numbers))}:", gold=str(gold))

    def write(self, item: Item) -> str:
        return f" {item.gold}"

    def mistake(self, rng: random.Random, item: Item) -> str:
        """Another of the three numbers."""
        asked = item.prompt.rsplit(" of ", 1)[1].removesuffix(":").split(", ")
        return f" {rng.choice([number for number in asked if number != item.gold])}"


POPULATION = Comparison()
