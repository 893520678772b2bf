"""The populations for a small real model: what is right is accepted, what is plausible and wrong is not."""

from __future__ import annotations

import random

import pytest

from domains.base import Reason
from domains.pocket import Family
from domains.registry import get_domain
from domains.small import FAMILIES

by_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)


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
    mistakes = [domain.verify(family.mistake(rng, i), i) for i in items]
    assert sum(verdict.correct for verdict in mistakes) <= 5
    assert {verdict.reason for verdict in mistakes if not verdict.correct} == {Reason.WRONG}


@by_family
def test_the_examples_in_the_prompt_are_written_as_a_careful_source_writes(family: Family) -> None:
    """What stands before the question is answered in the form that the verifier accepts, and ended by the stop."""
    item = family.draw("form", 1)[0]
    *examples, question = item.prompt.split("\n\n")
    assert len(examples) == 2
    last = question.rsplit("\n", 1)[-1]
    for example in examples:
        head, answer = example.rsplit("\n", 1)[-1].split(":", 1)
        assert last == f"{head}:"
        assert answer.startswith(" ")
        assert len(answer.split()) == len(family.write(item).split())


def test_the_largest_and_the_smallest_are_what_python_says() -> None:
    for item in next(f for f in FAMILIES if f.name == "comparison").draw("gold", 200):
        asked = item.prompt.split("\n\n")[-1]
        numbers = [int(n) for n in asked.split(": ", 2)[2].removesuffix("?\nAnswer:").split(", ")]
        assert len(set(numbers)) == 3
        assert int(item.gold) == (max if "largest" in asked else min)(numbers)
