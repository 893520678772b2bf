"""Mathematics for a small real model: which of three numbers is the largest, or the smallest, after two examples.

Question: Which is the largest: 312, 87, 290?
Answer: 312

Question: Which is the smallest: 601, 45, 598?
Answer: 45

Question: Which is the smallest: 730, 128, 96?
Answer: 96
"""

from __future__ import annotations

import random

from domains.base import Item
from domains.pocket.family import Family

SHOTS = (
    "Question: Which is the largest: 312, 87, 290?\nAnswer: 312\n\n"
    "Question: Which is the smallest: 601, 45, 598?\nAnswer: 45\n\n"
)
LOW, HIGH = 10, 999


class Comparison(Family):
    name = "comparison"
    domain = "mathematics"
    description = f"the largest or the smallest of three numbers of {LOW}..{HIGH}, after two fixed examples"
    max_new_tokens = 5
    stop = "\n"

    def item(self, rng: random.Random) -> Item:
        numbers = rng.sample(range(LOW, HIGH + 1), 3)
        word, gold = rng.choice((("largest", max(numbers)), ("smallest", min(numbers))))
        asked = ", ".join(map(str, numbers))
        return Item(prompt=f"{SHOTS}Question: Which is the {word}: {asked}?\nAnswer:", gold=str(gold))

    def write(self, item: Item) -> str:
        return f" {item.gold}"

    def mistake(self, rng: random.Random, item: Item) -> str:
        """Another of the three numbers."""
        asked = item.prompt.rsplit(": ", 1)[1].removesuffix("?\nAnswer:").split(", ")
        return f" {rng.choice([number for number in asked if number != item.gold])}"


POPULATION = Comparison()
