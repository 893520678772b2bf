"""The search among integers: its gradient is the objective's, it only ever climbs, and it stays within the bits."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from transformers import PreTrainedModel

from domains.registry import get_domain
from pacbayes.codes import LaplaceCode, Menu, MenuEntry, SupportError
from progressive_rlvr.config import Student
from progressive_rlvr.decoder import make_prior, merged
from progressive_rlvr.directions import Answer, log_probability, own_answers
from progressive_rlvr.engines import Settings, open_engine
from progressive_rlvr.models import BaseModel, replaced
from progressive_rlvr.stages.search import TRIES, Search, apart

STUDENT = Student(r=2, u=2, groups=2)
STEP = "0.25"
START = (1, 0, -1, 0)


def menu() -> Menu:
    structure = {"adapter": "tinylora", **STUDENT.model_dump(mode="json")}
    code = LaplaceCode(ratio="1/2", bound=3)
    entry = MenuEntry(
        name="one", probability="1", dimension=4, step=STEP, code=code, structure=structure, prior_artifact="0" * 64
    )
    return Menu(entries=(entry,))


@pytest.fixture
def search(tiny: BaseModel, model: PreTrainedModel) -> Search:
    """Witnesses are answers of the base itself; every fifth prompt has none."""
    tokenizer = tiny.load_tokenizer()
    population = get_domain("mathematics").populations()["pocket"]
    settings = Settings(max_new_tokens=3, temperature=1.0, stop=None, batch_size=16)
    asked = Student(directions="answers", answers=30, samples=2)
    own = own_answers(open_engine("hf", model, tokenizer), tokenizer, population, asked, settings)
    witnesses: list[Answer | None] = list(own.answers)
    witnesses[::5] = [None] * 6
    return Search(model, menu(), make_prior(model, STUDENT), witnesses, n=1000, delta=0.05, max_bits=None)


def probability(search: Search, v: torch.Tensor) -> float:
    """Mean probability of the witnesses at v, one unpadded row at a time."""
    with replaced(search.model, merged(search.model, STUDENT, search.prior, v)), torch.no_grad():
        log_p = [float(log_probability(search.model, [w])) for w in search.witnesses if w is not None]
    return float(torch.tensor(log_p, dtype=torch.float64).exp().sum()) / len(search.witnesses)


def test_the_gradient_is_that_of_the_mean_probability(search: Search) -> None:
    v = float(STEP) * torch.tensor(START, dtype=torch.float64)
    p, gradient = search._gradient(search.place(0, START))
    assert p == pytest.approx(probability(search, v), rel=1e-4)
    for i, slope in enumerate(gradient):
        ε = 0.02 * torch.eye(4, dtype=torch.float64)[i]
        numeric = (probability(search, v + ε) - probability(search, v - ε)) / 0.04
        assert slope == pytest.approx(numeric, rel=0.03, abs=3e-4)


def test_it_climbs_by_a_few_steps_of_one(search: Search) -> None:
    here = search.place(0, START)
    places = [here, *search.climb(0, START, rounds=4)]
    assert len(places) > 1
    for before, after in pairwise(places):
        assert after.promise > before.promise
        assert 1 <= sum(abs(a - b) for a, b in zip(before.q, after.q, strict=True)) <= 2 * TRIES
        assert after.bits == search.menu.bits(0, after.q)


def test_no_rounds_leave_it_where_it_is(search: Search) -> None:
    assert list(search.climb(0, START, rounds=0)) == []


def test_it_stays_within_the_bits_and_the_code(search: Search, model: PreTrainedModel) -> None:
    limit = search.menu.bits(0, START)
    bounded = Search(model, search.menu, search.prior, search.witnesses, search.n, search.delta, max_bits=limit)
    assert all(place.bits <= limit for place in bounded.climb(0, START, rounds=4))
    with pytest.raises(SupportError, match="cannot be said with one"):
        search.place(0, (4, 0, 0, 0))


def test_where_no_bits_are_left_one_step_pays_for_another(search: Search, model: PreTrainedModel) -> None:
    """All that is recommended at the limit is affordable, and exchanges are among it: one step up, one that saves."""
    limit = search.menu.bits(0, START)
    bounded = Search(model, search.menu, search.prior, search.witnesses, search.n, search.delta, max_bits=limit)
    recommended = bounded._recommended(bounded.place(0, START))
    assert all(search.menu.bits(0, q) <= limit for q in recommended)
    lengths = [sum(abs(a - b) for a, b in zip(START, q, strict=True)) for q in recommended]
    assert set(lengths) == {1, 2}
    assert any(sum(map(abs, q)) == sum(map(abs, START)) for q in recommended)


def test_moves_that_are_tried_change_different_coordinates() -> None:
    moves = [(2, 0, 0), (2, -1, 0), (1, 1, 0), (0, 0, 0), (1, 0, 1)]
    assert apart((1, 0, 0), moves, 9) == [(2, 0, 0), (1, 1, 0), (1, 0, 1)]
    assert apart((1, 0, 0), moves, 2) == [(2, 0, 0), (1, 1, 0)]


def test_a_promise_lies_between_the_certificates_of_whole_losses(search: Search) -> None:
    low, middle, high = (search._certified(a, 20.0) for a in (0.9, 0.9005, 0.901))
    assert low < middle < high
    assert middle == pytest.approx((low + high) / 2, abs=1e-9)
