"""Pocket mathematics: a four-digit number plus or minus a three-digit one.

    4821 + 374 =
    5915 #### 5195

The working is the sum as one writes it on paper, ones first; the answer follows the marker, as in GSM8K.
"""

from __future__ import annotations

import random

from domains.base import Item
from domains.pocket.family import Family


class Arithmetic(Family):
    domain = "mathematics"
    description = "a + b or a - b with a uniform on 2000..8999 and b uniform on 100..999: four-digit answers"
    max_new_tokens = 14

    def item(self, rng: random.Random) -> Item:
        a, b = rng.randint(2000, 8999), rng.randint(100, 999)
        if rng.random() < 0.5:
            return Item(prompt=f"{a} + {b} =", gold=str(a + b))
        return Item(prompt=f"{a} - {b} =", gold=str(a - b))

    def write(self, item: Item) -> str:
        return _worked(item.gold)

    def mistake(self, rng: random.Random, item: Item) -> str:
        """One digit off by one (a carry forgotten or carried twice), or two neighbouring digits swapped."""
        digits = [int(d) for d in item.gold]
        place = rng.randrange(len(digits))
        if rng.random() < 0.3 and place > 0 and digits[place] != digits[place - 1] and (place > 1 or digits[place]):
            digits[place - 1], digits[place] = digits[place], digits[place - 1]
        else:
            low = 1 if place == 0 else 0
            digits[place] = rng.choice([d for d in (digits[place] - 1, digits[place] + 1) if low <= d <= 9])
        return _worked("".join(map(str, digits)))


def _worked(answer: str) -> str:
    return f" {answer[::-1]} #### {answer}"


POPULATION = Arithmetic()
