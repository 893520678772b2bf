"""The generated populations: what is right is accepted, what is plausible and wrong is not."""

from __future__ import annotations

import random
import re

import pytest

from domains import pocket, small
from domains.pocket import Family
from domains.registry import get_domain

FAMILIES = (*pocket.FAMILIES, *small.FAMILIES)

by_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f"{f.domain}-{f.name}")


@by_family
def test_the_registry_has_it_and_an_item_depends_on_seed_and_index_only(family: Family) -> None:
    assert get_domain(family.domain).populations()[family.name] is family
    assert family.draw("a", 5) == family.draw("a", 9)[:5]
    assert family.draw("a", 5) != family.draw("b", 5)


@by_family
def test_the_verifier_accepts_the_careful_and_refuses_nearly_all_mistakes(family: Family) -> None:
    domain, rng = get_domain(family.domain), random.Random(0)
    items = family.draw("verifier", 100)
    assert all(domain.verify(family.write(i), i).correct for i in items)
    assert sum(domain.verify(family.mistake(rng, i), i).correct for i in items) <= 5


def test_the_examples_and_the_answers_of_counting_are_what_python_says() -> None:
    for item in next(f for f in FAMILIES if f.name == "counting").draw("gold", 200):
        for line in f"{item.prompt} {item.gold}".splitlines():
            if after := re.fullmatch(r"The number after (\d+) is (\d+)", line):
                assert int(after[2]) == int(after[1]) + 1
            else:
                times = re.fullmatch(r"(\d+) \* 10 = (\d+)", line)
                assert times
                assert int(times[2]) == 10 * int(times[1])
