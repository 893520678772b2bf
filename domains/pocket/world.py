"""Pocket general knowledge: multiple choice over a small world of people and what is true of them.

What pet does Ann have? A) crab B) goat C) newt D) lion E) mole
Answer: newt
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

from domains.base import Item
from domains.pocket.family import Family, keyed_random

LETTERS = "ABCDE"
PEOPLE = tuple(
    "Ann Bob Cleo Dan Eva Finn Gail Hugo Ida Jack Kim Leo Mia Ned Ola Pam Quin Rosa Sam Tara Una Vic Wes Zoe".split()
)
ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "pet": tuple("cat dog crab goat newt lion mole hen pig owl fox eel yak bee ram toad".split()),
    "fruit": tuple("fig kiwi lime pear plum date nut apple mango grape peach lemon melon berry guava olive".split()),
    "colour": tuple("red blue pink gold grey teal black white green brown amber ivory coral lilac khaki beige".split()),
    "sport": tuple(
        "golf judo polo chess yoga rugby darts squash tennis hockey boxing diving sailing skiing rowing archery".split()
    ),
}
QUESTIONS: Mapping[str, str] = {
    "pet": "What pet does {person} have?",
    "fruit": "What fruit does {person} like?",
    "colour": "What colour does {person} wear?",
    "sport": "What sport does {person} play?",
}


def _facts() -> dict[tuple[str, str], str]:
    rng = keyed_random("the pocket world", 1)
    return {(person, attribute): rng.choice(values) for attribute, values in ATTRIBUTES.items() for person in PEOPLE}


FACTS: Mapping[tuple[str, str], str] = _facts()


def options(prompt: str) -> dict[str, str]:
    """The options of a prompt of this family, by letter."""
    return dict(re.findall(r"([A-E])\) (\w+)", prompt))


class World(Family):
    domain = "knowledge"
    description = "one of 96 facts (24 people, 4 attributes of 16 values), five options in random order"
    max_new_tokens = 4

    def item(self, rng: random.Random) -> Item:
        person, attribute = rng.choice(PEOPLE), rng.choice(list(ATTRIBUTES))
        truth = FACTS[person, attribute]
        values = [truth, *rng.sample([v for v in ATTRIBUTES[attribute] if v != truth], len(LETTERS) - 1)]
        rng.shuffle(values)
        listed = " ".join(f"{letter}) {value}" for letter, value in zip(LETTERS, values, strict=True))
        question = QUESTIONS[attribute].format(person=person)
        return Item(prompt=f"{question} {listed}\nAnswer:", gold=LETTERS[values.index(truth)])

    def write(self, item: Item) -> str:
        return f" {options(item.prompt)[item.gold]}"

    def mistake(self, rng: random.Random, item: Item) -> str:
        """Another option."""
        return " " + rng.choice([option for letter, option in options(item.prompt).items() if letter != item.gold])

    def lesson(self, rng: random.Random) -> tuple[str, str]:
        """The plain fact, without options."""
        (person, attribute), truth = rng.choice(list(FACTS.items()))
        return f"{QUESTIONS[attribute].format(person=person)}\nAnswer:", f" {truth}"


POPULATION = World()
