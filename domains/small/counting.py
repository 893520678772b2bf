"""Mathematics for a small real model: the number after a number, or ten times it, after two worked examples.

The number after 312 is 313
The number after 4870 is 4871
The number after 8369 is 8370

312 * 10 = 3120
47 * 10 = 470
8369 * 10 = 83690
"""

from __future__ import annotations

import random

from domains.base import Item
from domains.pocket.family import Family

LOW, HIGH = 100, 99_999
AFTER = "The number after 312 is 313\nThe number after 4870 is 4871\n"
TIMES_TEN = "312 * 10 = 3120\n47 * 10 = 470\n"


class Counting(Family):
    name = "counting"
    domain = "mathematics"
    description = f"a + 1 or 10 a with a uniform on {LOW}..{HIGH}, in plain text after two fixed examples of the same"
    max_new_tokens = 8
    stop = "\n"

    def item(self, rng: random.Random) -> Item:
        a = rng.randint(LOW, HIGH)
        prompt, gold = rng.choice(((f"{AFTER}The number after {a} is", a + 1), (f"{TIMES_TEN}{a} * 10 =", 10 * a)))
        return Item(prompt=prompt, gold=str(gold))

    def write(self, item: Item) -> str:
        return f" {item.gold}"

    def mistake(self, rng: random.Random, item: Item) -> str:
        """One digit replaced, or the last one left out."""
        place = rng.randrange(len(item.gold) + 1)
        if place == len(item.gold):
            return f" {item.gold[:-1]}"
        other = rng.choice([d for d in "123456789" if d != item.gold[place]])
        return f" {item.gold[:place]}{other}{item.gold[place + 1 :]}"


POPULATION = Counting()
