"""Where a student can go: the directions in which the base model's own answers vary most.

A base model that can do a task and does it only sometimes hesitates between ways of answering. Along which weights? The
score s(x, y) = ∇ log p(y | x) of its own answers y says it: their second moment F = E[s sᵀ] is the Fisher information,
KL(p ‖ p_{W + v D}) = ½ v² ⟨D, F D⟩ + O(v³), and its leading eigenvectors are the changes of the weights that change
the policy most for their length. How much of what RLVR elicits lies in the span of a few of them was measured in
docs/COMPRESSION.md.

No label is read: the prompts are drawn from a seed of their own, and the answers are the base model's. So the
directions are independent of the sample, belong to the prior artifact, and cost no bits.

F is far too big to write down. Per module m the scores S_m (out, in) are taken to the span of the leading eigenvectors
of E[S_m S_mᵀ] and E[S_mᵀ S_m] (the truncated higher-order SVD of De Lathauwer et al., SIAM J. Matrix Anal. 2000): the
columns of B_m and the rows of A_m. The cores C_m = B_mᵀ S_m A_mᵀ (r, r) of all modules, side by side, have a small Gram
matrix, and its eigenvectors give the u directions P_{i,m}, so that D_i = (B_m P_{i,m} A_m)_m: the form of TinyLoRA with
one vector v for all modules. Each is scaled to Fisher information 1: a unit of any v_i moves the policy by about half a
nat.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from domains.base import Population
from pacbayes.gumbel import prompt_key
from progressive_rlvr.config import Student
from progressive_rlvr.decoder import make_prior, target_modules
from progressive_rlvr.engines import Completion, Engine, Request, Settings, open_engine
from progressive_rlvr.errors import UserError
from progressive_rlvr.models import BaseModel, Dtype

Answer = tuple[list[int], list[int]]
"""Token ids of a prompt, and of the answer with the token that ended it."""
Objective = Callable[[Tensor], Tensor]
"""From log p(answer | prompt) in nats, (answers,), to a number."""


ANSWERS_PER_PASS = 32
RESOLVED = 1e-10  # gradients are float32: of their second moment less than this share of the largest is rounding


def prior_artifact(
    base: BaseModel, student: Student, population: Population, settings: Settings, dtype: Dtype
) -> dict[str, Tensor]:
    """A, B and P of every target module, as the student's `directions` ask for them.

    Args:
        population, settings: what is answered, and how, for directions that come from answers.
        dtype: the certified one, which is the dtype of a quantized base; others are read in float32.
    """
    model = base.load(dtype if base.quantized else "float32")
    if student.directions == "weights":
        return make_prior(model, student)
    tokenizer = base.load_tokenizer()
    with _one_thread():  # sums in another order give other digits: the same machine makes the same artifact again
        engine = open_engine("hf", model, tokenizer)
        answers = own_answers(engine, tokenizer, population, student.answers, student.seed, settings)
        modules = target_modules(model, student.targets)
        return answer_directions(model, modules, answers, r=student.r, u=student.u, batch=ANSWERS_PER_PASS)


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def own_answers(
    engine: Engine, tokenizer: PreTrainedTokenizerBase, population: Population, n: int, seed: int, settings: Settings
) -> list[Answer]:
    """The base model's answers to n prompts of the population, with what ended them, for the base in `engine`.

    Prompts and noise follow from `seed` alone, and the lock draws its sample from a hash: the two are independent.
    """
    name = f"directions/{seed}"
    items = population.draw(name, n)
    root = hashlib.sha256(name.encode()).hexdigest()
    requests = [Request(item.prompt, prompt_key(root, item.prompt_digest, i, 0)) for i, item in enumerate(items)]
    completions = engine.generate(requests, settings)
    return [
        as_answer(tokenizer, request.prompt, completion, settings.stop)
        for request, completion in zip(requests, completions, strict=True)
    ]


def as_answer(tokenizer: PreTrainedTokenizerBase, prompt: str, completion: Completion, stop: str | None) -> Answer:
    """A completion as tokens, with `stop` or the end token unless it was cut off."""
    text, end = completion.text, [tokenizer.eos_token_id]
    if completion.truncated:
        end = []
    elif stop is not None:
        text, end = text + stop, []
    return tokenizer(prompt)["input_ids"], tokenizer(text, add_special_tokens=False)["input_ids"] + end


def answer_directions(
    model: PreTrainedModel, modules: dict[str, nn.Linear], answers: Sequence[Answer], *, r: int, u: int, batch: int
) -> dict[str, Tensor]:
    """A (r, in) and B (out, r), bfloat16, and P (u, r, r), float32, of every module, keyed `<module>.A` and so on.

    Args:
        model: the base; its weights are not touched.
        answers: the base model's own answers, at least u of them.
        batch: answers per backward pass.

    Raises:
        UserError: the answers vary in fewer than u directions.

    Source: see the module's docstring; per-sample gradients of a linear layer are δᵀ x, with x (tokens, in) what it
    read and δ (tokens, out) the gradient of what it wrote.
    """
    left = {name: torch.zeros(m.out_features, m.out_features, device=model.device) for name, m in modules.items()}
    right = {name: torch.zeros(m.in_features, m.in_features, device=model.device) for name, m in modules.items()}
    for scores in _scores(model, modules, answers, batch, torch.sum):
        for name, (x, δ) in scores.items():
            # S Sᵀ = δᵀ (x xᵀ) δ, never forming S: a sum over the answers is one product of tall matrices.
            left[name] += δ.flatten(0, 1).T @ (x @ x.mT @ δ).flatten(0, 1)
            right[name] += x.flatten(0, 1).T @ (δ @ δ.mT @ x).flatten(0, 1)
    # Rounded before P is fitted to them.
    B = {name: _leading(moment, r).bfloat16() for name, moment in left.items()}
    A = {name: _leading(moment, r).T.bfloat16().contiguous() for name, moment in right.items()}
    every = torch.cat([torch.stack(list(c.values()), dim=1) for c in _cores(model, modules, answers, batch, A, B)])
    P = _principal(every.flatten(1).double(), u).reshape(u, *every.shape[1:]).float()
    prior: dict[str, Tensor] = {}
    for m, name in enumerate(modules):
        prior |= {f"{name}.A": A[name].cpu(), f"{name}.B": B[name].cpu(), f"{name}.P": P[:, m].cpu().contiguous()}
    return prior


def cores(
    model: PreTrainedModel,
    modules: dict[str, nn.Linear],
    answers: Sequence[Answer],
    A: dict[str, Tensor],
    B: dict[str, Tensor],
    objective: Objective,
) -> dict[str, Tensor]:
    """Bᵀ G Aᵀ of every module, (answers, r, r), where G is the gradient that each answer adds to the objective's."""
    return next(_cores(model, modules, answers, len(answers), A, B, objective))


def _cores(
    model: PreTrainedModel,
    modules: dict[str, nn.Linear],
    answers: Sequence[Answer],
    batch: int,
    A: dict[str, Tensor],
    B: dict[str, Tensor],
    objective: Objective = torch.sum,
) -> Iterator[dict[str, Tensor]]:
    for scores in _scores(model, modules, answers, batch, objective):
        yield {name: (δ @ B[name].to(δ)).mT @ (x @ A[name].to(x).T) for name, (x, δ) in scores.items()}


def _principal(scores: Tensor, u: int) -> Tensor:
    """The u leading eigenvectors of the second moment of `scores` (answers, dimension), each over the root of its
    eigenvalue: (u, dimension). The largest entry of each (the first, in a tie) is positive.
    """
    values, vectors = torch.linalg.eigh(scores @ scores.T / len(scores))
    values, vectors = values.flip(0)[:u], vectors.flip(1)[:, :u]
    if not values[-1] > RESOLVED * values[0]:
        found = int((values > RESOLVED * values[0]).sum())
        raise UserError(
            f"the base model's answers vary in {found} directions, student.u asks for {u}: lower it, raise "
            "student.answers or student.r, or leave student.directions at weights"
        )
    directions = vectors.T @ scores
    directions /= directions.norm(dim=1, keepdim=True) * values.sqrt()[:, None]
    return directions * torch.sign(directions[torch.arange(u), directions.abs().argmax(dim=1)])[:, None]


def _leading(moment: Tensor, r: int) -> Tensor:
    """The r leading eigenvectors of a second moment (d, d) as columns: (d, r)."""
    return torch.linalg.eigh(moment.double())[1].flip(1)[:, :r].float().contiguous()


def _scores(
    model: PreTrainedModel,
    modules: dict[str, nn.Linear],
    answers: Sequence[Answer],
    batch: int,
    objective: Objective,
) -> Iterator[dict[str, tuple[Tensor, Tensor]]]:
    """Batch by batch and per module: x (answers, tokens, in), and δ (answers, tokens, out), the gradient of the
    objective of log p(answer | prompt).
    """
    kept: dict[str, tuple[Tensor, Tensor]] = {}

    def keep(name: str) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
        def hook(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
            x = inputs[0].detach()
            output.register_hook(lambda δ: kept.__setitem__(name, (x, δ)))

        return hook

    handles = [module.register_forward_hook(keep(name)) for name, module in modules.items()]
    # Gradients flow to the embedded tokens, so that nothing but the hooks need be told of the weights.
    frozen = {p: p.requires_grad for p in model.parameters()}
    embedded = model.get_input_embeddings()
    handles.append(embedded.register_forward_hook(lambda _, __, output: output.requires_grad_()))
    for parameter in frozen:
        parameter.requires_grad_(False)
    by_length = sorted(answers, key=lambda answer: len(answer[0]) + len(answer[1]))
    try:
        for start in range(0, len(answers), batch):
            chosen = by_length[start : start + batch]
            objective(log_probability(model, chosen)).backward()
            yield {name: kept[name] for name in modules}
            kept.clear()
    finally:
        for handle in handles:
            handle.remove()
        for parameter, wanted in frozen.items():
            parameter.requires_grad_(wanted)


def log_probability(model: PreTrainedModel, answers: Sequence[Answer]) -> Tensor:
    """log p(answer | prompt) in nats, (answers,)."""
    longest = max(len(p) + len(a) for p, a in answers)
    ids = torch.zeros(len(answers), longest, dtype=torch.long)
    wanted = torch.zeros(len(answers), longest, dtype=torch.bool)
    for i, (prompt, answer) in enumerate(answers):
        ids[i, : len(prompt) + len(answer)] = torch.tensor([*prompt, *answer])
        wanted[i, len(prompt) : len(prompt) + len(answer)] = True
    ids, wanted = ids.to(model.device), wanted.to(model.device)
    # Padding stands on the right: no token that counts sees it.
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    target, counts = ids[:, 1:], wanted[:, 1:]
    log_p = logits.float().log_softmax(dim=-1).gather(2, target[:, :, None])[:, :, 0]
    return (log_p * counts).sum(dim=1)
