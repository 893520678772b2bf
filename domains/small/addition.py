"""Mathematics for a small real model: the sum of two numbers, asked in plain text after two worked examples.

Question: What is 12 + 30?
Answer: 42

Question: What is 47 + 25?
Answer: 72

Question: What is 58 + 16?
Answer: 74
"""

from __future__ import annotations

import random

from domains.base import Item
from domains.pocket.family import Family

SHOTS = "Question: What is 12 + 30?\nAnswer: 42\n\nQuestion: What is 47 + 25?\nAnswer: 72\n\n"
LOW, HIGH = 10, 99


class Addition(Family):
    name = "addition"
    domain = "mathematics"
    description = f"a + b with a and b uniform on {LOW}..{HIGH}, as plain text after two fixed worked examples"
    max_new_tokens = 6
    stop = "\n"

    def item(self, rng: random.Random) -> Item:
        a, b = rng.randint(LOW, HIGH), rng.randint(LOW, HIGH)
        return Item(prompt=f"{SHOTS}Question: What is {a} + {b}?\nAnswer:", gold=str(a + b))

    def write(self, item: Item) -> str:
        return f" {item.gold}"

    def mistake(self, rng: random.Random, item: Item) -> str:
        """A sum that is off by one or by ten."""
        return f" {int(item.gold) + rng.choice((-10, -1, 1, 10))}"


POPULATION = Addition()
