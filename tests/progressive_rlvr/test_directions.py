"""Directions of the base model's own answers: toward those that coincide, and eigenvectors of its Fisher information,
found without a label, exact in their span. Gradients are taken again by autograd, one answer at a time.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import PreTrainedModel

from domains.base import Item
from domains.registry import get_domain
from progressive_rlvr.config import Student
from progressive_rlvr.decoder import inject, merged, set_vector, target_modules
from progressive_rlvr.directions import (
    STRIDE,
    Answer,
    OwnAnswers,
    agreement,
    answer_directions,
    as_answer,
    cores,
    log_probability,
    own_answers,
)
from progressive_rlvr.engines import Completion, Settings, open_engine
from progressive_rlvr.errors import UserError
from progressive_rlvr.models import BaseModel, replaced

R, U = 3, 4
STUDENT = Student(directions="answers", answers=20, samples=5, r=R, u=U, groups=1)
TARGETS = STUDENT.targets
SETTINGS = Settings(max_new_tokens=6, temperature=1.0, stop=None, batch_size=16)


@pytest.fixture
def answers(tiny: BaseModel, model: PreTrainedModel) -> list[Answer]:
    tokenizer = tiny.load_tokenizer()
    population = get_domain("mathematics").populations()["pocket"]
    return own_answers(open_engine("hf", model, tokenizer), tokenizer, population, STUDENT, SETTINGS).answers


def prior_of(
    model: PreTrainedModel, answers: list[Answer], advantages: torch.Tensor | None = None
) -> dict[str, torch.Tensor]:
    """None: no two answers coincide."""
    own = OwnAnswers(answers, torch.zeros(len(answers), dtype=torch.float64) if advantages is None else advantages)
    return answer_directions(model, target_modules(model, TARGETS), own, r=R, u=U, batch=7)


def slopes_of(model: PreTrainedModel, answers: list[Answer], prior: dict[str, torch.Tensor]) -> torch.Tensor:
    """d log p(answer) / d v_i by plain autograd, (answers, U)."""
    slopes = torch.zeros(len(answers), U)
    for a, answer in enumerate(answers):
        for name, gradient in gradients(model, answer).items():
            A, B = prior[f"{name}.A"].float(), prior[f"{name}.B"].float()
            D = torch.einsum("or,irs,sn->ion", B, prior[f"{name}.P"], A)
            slopes[a] += torch.einsum("ion,on->i", D, gradient)
    return slopes


def gradients(model: PreTrainedModel, answer: Answer) -> dict[str, torch.Tensor]:
    """∇ log p(answer | prompt) by every target weight, by plain autograd on one unpadded row."""
    modules = target_modules(model, TARGETS)
    weights = [m.weight.requires_grad_() for m in modules.values()]
    prompt, body = answer
    logits = model(input_ids=torch.tensor([prompt + body])).logits[0, len(prompt) - 1 : -1]
    log_p = logits.log_softmax(-1)[torch.arange(len(body)), torch.tensor(body)].sum()
    return dict(zip(modules, torch.autograd.grad(log_p, weights), strict=True))


def test_cores_are_the_gradients_of_every_answer_between_the_bases(
    model: PreTrainedModel, answers: list[Answer]
) -> None:
    modules = target_modules(model, TARGETS)
    generator = torch.Generator().manual_seed(0)
    A = {name: torch.randn(2, m.in_features, generator=generator) for name, m in modules.items()}
    B = {name: torch.randn(m.out_features, 2, generator=generator) for name, m in modules.items()}
    chosen = sorted(answers[:6], key=lambda a: len(a[0]) + len(a[1]))  # the order in which they come back
    found = cores(model, modules, chosen, A, B, torch.sum)
    for i, answer in enumerate(chosen):
        for name, gradient in gradients(model, answer).items():
            assert torch.allclose(found[name][i], B[name].T @ gradient @ A[name].T, rtol=1e-3, atol=1e-3)


def test_every_direction_has_fisher_information_one_and_no_two_share_any(
    model: PreTrainedModel, answers: list[Answer]
) -> None:
    """⟨D_i, F D_j⟩ over the answers is 1 for i = j, else 0."""
    slopes = slopes_of(model, answers, prior_of(model, answers))
    assert torch.allclose(slopes.T @ slopes / len(answers), torch.eye(U), atol=2e-3)


def test_the_first_direction_leads_to_the_answers_that_coincide(model: PreTrainedModel, answers: list[Answer]) -> None:
    """It is the gradient of the mean of advantage · log p within the span of A and B: of all directions as long, it
    raises that mean fastest. It is STRIDE long, and the others share no Fisher information with it or each other.
    """
    advantages = torch.randn(len(answers), dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    prior = prior_of(model, answers, advantages)
    every = [gradients(model, answer) for answer in answers]
    inner, lengths = 0.0, [0.0, 0.0]
    for name in every[0]:
        A, B, P = prior[f"{name}.A"].float(), prior[f"{name}.B"].float(), prior[f"{name}.P"][0]
        mean = sum(a * g[name] for a, g in zip(advantages.float(), every, strict=True))
        core = B.T @ mean @ A.T
        inner += float((core * P).sum())
        lengths = [lengths[0] + float(core.square().sum()), lengths[1] + float(P.square().sum())]
    assert inner / (lengths[0] * lengths[1]) ** 0.5 == pytest.approx(1, abs=1e-4)
    slopes = slopes_of(model, answers, prior)
    expected = torch.diag(torch.tensor([STRIDE**2, *[1.0] * (U - 1)]))
    assert torch.allclose(slopes.T @ slopes / len(answers), expected, atol=1e-2)


def test_agreement_is_how_much_more_often_than_its_rivals_an_answer_was_given() -> None:
    """By hand: of a a a b the first three agree with 2/3 of the others, b with none, and the mean is 1/2."""
    found = agreement(["a", "a", "a", "b", "p", "q", "r", "s", "z", "z", "z", "z"], 4)
    assert found.tolist() == pytest.approx([1 / 6] * 3 + [-1 / 2] + [0] * 8)


def test_the_span_keeps_what_is_largest(model: PreTrainedModel, answers: list[Answer]) -> None:
    """The first direction moves the answers at least as much, for its length, as random ones of the same form."""
    prior = prior_of(model, answers)
    generator = torch.Generator().manual_seed(1)
    every = [gradients(model, answer) for answer in answers]

    def information(D: dict[str, torch.Tensor]) -> float:
        length = sum(float(d.square().sum()) for d in D.values())
        return sum(sum(float((g[n] * D[n]).sum()) for n in D) ** 2 for g in every) / len(every) / length

    first = {n: prior[f"{n}.B"].float() @ prior[f"{n}.P"][0] @ prior[f"{n}.A"].float() for n in every[0]}
    others = [{n: torch.randn(d.shape, generator=generator) for n, d in first.items()} for _ in range(20)]
    assert information(first) > 10 * max(map(information, others))


def test_a_unit_of_v_moves_log_p_as_the_score_says(tiny: BaseModel, answers: list[Answer]) -> None:
    model = tiny.load()
    prior = prior_of(model, answers)
    base = log_probability(model, answers)
    small = 1e-3
    moved = []
    for sign in (1, -1):
        with replaced(model, merged(model, STUDENT, prior, torch.tensor([sign * small, 0, 0, 0]))), torch.no_grad():
            moved.append(log_probability(model, answers))
    slope = (moved[0] - moved[1]) / (2 * small)
    assert float(slope.square().mean()) == pytest.approx(1, rel=0.05)
    assert torch.allclose(base, (moved[0] + moved[1]) / 2, atol=1e-3)


def test_the_student_of_such_directions_is_an_ordinary_tinylora(tiny: BaseModel, answers: list[Answer]) -> None:
    model = tiny.load()
    prior = prior_of(model, answers)
    v = torch.tensor([0.3, -0.2, 0.1, 0.4])
    tuned = inject(tiny.load(), STUDENT, prior)
    set_vector(tuned, v)
    ids = torch.tensor([[5, 9, 30, 77, 12]])
    with replaced(model, merged(model, STUDENT, prior, v)), torch.no_grad():
        assert torch.allclose(model(input_ids=ids).logits, tuned(input_ids=ids).logits, atol=1e-4)


def test_the_base_is_left_as_it_was(model: PreTrainedModel, answers: list[Answer]) -> None:
    before = {n: (p.clone(), p.requires_grad) for n, p in model.named_parameters()}
    prior_of(model, answers)
    assert all(torch.equal(p, before[n][0]) and p.requires_grad == before[n][1] for n, p in model.named_parameters())
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_hooks for m in model.modules())


def test_no_label_is_read(tiny: BaseModel, model: PreTrainedModel, answers: list[Answer]) -> None:
    """The same prompts with other golds and tests give the same answers."""
    tokenizer = tiny.load_tokenizer()
    population = get_domain("mathematics").populations()["pocket"]

    class Mislabelled:
        name, description, design = population.name, population.description, population.design
        max_new_tokens, stop = population.max_new_tokens, population.stop

        def draw(self, seed: str, n: int) -> list[Item]:
            return [replace(item, gold="0", tests="") for item in population.draw(seed, n)]

    engine = open_engine("hf", model, tokenizer)
    true, mislabelled = (own_answers(engine, tokenizer, p, STUDENT, SETTINGS) for p in (population, Mislabelled()))
    assert mislabelled.answers == true.answers == answers
    assert torch.equal(mislabelled.advantages, true.advantages)
    other = STUDENT.model_copy(update={"seed": 1})
    assert own_answers(engine, tokenizer, population, other, SETTINGS).answers != answers


def test_an_answer_ends_as_its_policy_ended_it(tiny: BaseModel) -> None:
    tokenizer = tiny.load_tokenizer()
    text = get_domain("mathematics").populations()["pocket"].draw("text", 1)[0].prompt
    ids = tokenizer(text)["input_ids"]
    assert as_answer(tokenizer, text, Completion(text, 3, truncated=True), None) == (ids, ids)
    assert as_answer(tokenizer, text, Completion(text, 3, truncated=False), None) == (
        ids,
        [*ids, tokenizer.eos_token_id],
    )
    stopped = as_answer(tokenizer, text, Completion(text, 3, truncated=False), text)
    assert stopped == (ids, tokenizer(text + text)["input_ids"])


def test_more_directions_than_answers_are_refused() -> None:
    with pytest.raises(ValueError, match="u = 40 directions need at least as many answers, not 30"):
        Student(directions="answers", answers=30, u=40)
    with pytest.raises(ValueError, match="30 answers cannot be 8 to every prompt"):
        Student(directions="answers", answers=30, u=4)


def test_a_base_that_has_less_to_decide_than_directions_is_refused(
    model: PreTrainedModel, answers: list[Answer]
) -> None:
    """Two different answers span two directions at most, however often they are repeated."""
    with pytest.raises(UserError, match=r"vary in 2 directions, student\.u asks for 4"):
        prior_of(model, answers[:2] * 10)
