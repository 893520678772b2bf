"""Where a student can go: toward the answers on which the base model agrees with itself, and where it hesitates.

A base model that can do a task and does it only sometimes hesitates between ways of answering. Along which weights? The
score s(x, y) = ∇ log p(y | x) of its own answers y says it: their second moment F = E[s sᵀ] is the Fisher information,
KL(p ‖ p_{W + v D}) = ½ v² ⟨D, F D⟩ + O(v³), and its leading eigenvectors are the changes of the weights that change
the policy most for their length. Which way along them is better? Mistakes scatter, right answers coincide (Wang et al.,
Self-Consistency, ICLR 2023): the gradient of how often answers to one prompt coincide is a policy gradient whose reward
needs no label (as in TTRL, arXiv 2504.16084). It is the first direction; the others are the leading eigenvectors of F
without what they share with it. How much of what RLVR elicits lies in the span of a few of them was measured in
docs/COMPRESSION.md.

No label is read: the prompts are drawn from a seed of their own, and the answers are the base model's. So the
directions are independent of the sample, belong to the prior artifact, and cost no bits.

F is far too big to write down. Per module m the scores S_m (out, in) are taken to the span of the leading eigenvectors
of E[S_m S_mᵀ] and E[S_mᵀ S_m] (the truncated higher-order SVD of De Lathauwer et al., SIAM J. Matrix Anal. 2000): the
columns of B_m and the rows of A_m. The cores C_m = B_mᵀ S_m A_mᵀ (r, r) of all modules, side by side, have a small Gram
matrix, from which the u directions P_{i,m} follow, so that D_i = (B_m P_{i,m} A_m)_m: the form of TinyLoRA with one
vector v for all modules. They share no Fisher information, and each is scaled to 1: a unit of any v_i moves the policy
by about half a nat. Only the first, along which students go farthest, is twice as long: its integer is then smaller.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
STRIDE = 2.0  # length of the first direction, the square root of its Fisher information


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
        own = own_answers(engine, tokenizer, population, student, settings)
        modules = target_modules(model, student.targets)
        return answer_directions(model, modules, own, r=student.r, u=student.u, batch=ANSWERS_PER_PASS)


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class OwnAnswers:
    """Answers of the base model, those to one prompt side by side, and how much more often than the mean answer to
    its prompt each was given: (answers,), of mean 0 over the answers to a prompt.
    """

    answers: list[Answer]
    advantages: Tensor


def own_answers(
    engine: Engine, tokenizer: PreTrainedTokenizerBase, population: Population, student: Student, settings: Settings
) -> OwnAnswers:
    """`student.answers` answers of the base in `engine`, `student.samples` to each of so many prompts.

    Prompts and noise follow from `student.seed` alone, and the lock draws its sample from a hash: the two are
    independent.
    """
    name, samples = f"directions/{student.seed}", student.samples
    items = population.draw(name, student.answers // samples)
    root = hashlib.sha256(name.encode()).hexdigest()
    requests = [
        Request(item.prompt, prompt_key(root, item.prompt_digest, i, draw))
        for i, item in enumerate(items)
        for draw in range(samples)
    ]
    completions = engine.generate(requests, settings)
    return OwnAnswers(
        [
            as_answer(tokenizer, request.prompt, completion, settings.stop)
            for request, completion in zip(requests, completions, strict=True)
        ],
        agreement([c.text for c in completions], samples),
    )


def agreement(texts: Sequence[str], samples: int) -> Tensor:
    """How many of the other answers to its prompt are the same text, as a share of them, less the mean over the answers
    to the prompt: (texts,), for `samples` texts of one prompt after the other.
    """
    shares = torch.tensor(
        [
            [(Counter(of_prompt)[text] - 1) / (samples - 1) for text in of_prompt]
            for of_prompt in (texts[i : i + samples] for i in range(0, len(texts), samples))
        ],
        dtype=torch.float64,
    )
    return (shares - shares.mean(dim=1, keepdim=True)).flatten()


def as_answer(tokenizer: PreTrainedTokenizerBase, prompt: str, completion: Completion, stop: str | None) -> Answer:
    """A completion as tokens, with `stop` or the end token unless it was cut off."""
    text, end = completion.text, [tokenizer.eos_token_id]
    if completion.truncated:
        end = []
    elif stop is not None:
        text, end = text + stop, []
    return tokenizer(prompt)["input_ids"], tokenizer(text, add_special_tokens=False)["input_ids"] + end


def answer_directions(
    model: PreTrainedModel, modules: dict[str, nn.Linear], own: OwnAnswers, *, r: int, u: int, batch: int
) -> dict[str, Tensor]:
    """A (r, in) and B (out, r), bfloat16, and P (u, r, r), float32, of every module, keyed `<module>.A` and so on.

    Args:
        model: the base; its weights are not touched.
        own: the base model's answers, at least u of them.
        batch: answers per backward pass.

    Raises:
        UserError: the answers vary in fewer than u directions.

    Source: see the module's docstring; per-sample gradients of a linear layer are δᵀ x, with x (tokens, in) what it
    read and δ (tokens, out) the gradient of what it wrote.
    """
    order = sorted(range(len(own.answers)), key=lambda i: _length(own.answers[i]))  # as they will come back
    answers = [own.answers[i] for i in order]
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
    P = _directions(every.flatten(1).double(), own.advantages[order], u).reshape(u, *every.shape[1:]).float()
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


def _directions(scores: Tensor, advantages: Tensor, u: int) -> Tensor:
    """u directions (u, dimension) that share no Fisher information over `scores` (answers, dimension): the first up the
    mean of advantages · scores, the others the leading eigenvectors of the second moment of the scores, each without
    what it shares with those before it. Where no two answers coincide there is no such first direction, and all are
    eigenvectors.
    """
    values, vectors = torch.linalg.eigh(scores @ scores.T / len(scores))
    found = int((values > RESOLVED * values[-1]).sum())
    too_few = UserError(
        f"the base model's answers vary in {found} directions, student.u asks for {u}: lower it, raise "
        "student.answers or student.r, or leave student.directions at weights"
    )
    if found < u:
        raise too_few
    candidates = vectors.flip(1)[:, :u].T @ scores
    candidates *= torch.sign(candidates[torch.arange(u), candidates.abs().argmax(dim=1)])[:, None]
    agreeing = bool(advantages.any())
    if agreeing:
        candidates = torch.cat([(advantages @ scores)[None], candidates[:-1]])
    candidates /= candidates.norm(dim=1, keepdim=True)
    # Gram-Schmidt for the inner product ⟨D, F D'⟩: candidates = R D with R lower triangular, its diagonal positive.
    along = candidates @ scores.T
    R, failed = torch.linalg.cholesky_ex(along @ along.T / len(scores))
    if failed:
        raise too_few
    directions = torch.linalg.solve_triangular(R, candidates, upper=False)
    if agreeing:
        directions[0] *= STRIDE
    return directions


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
    by_length = sorted(answers, key=_length)
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


def _length(answer: Answer) -> int:
    return len(answer[0]) + len(answer[1])


def log_probability(model: PreTrainedModel, answers: Sequence[Answer]) -> Tensor:
    """log p(answer | prompt) in nats, (answers,)."""
    longest = max(map(_length, answers))
    first = min(len(prompt) for prompt, _ in answers)  # no token before it counts: no logits are needed for them
    ids = torch.zeros(len(answers), longest, dtype=torch.long)
    wanted = torch.zeros(len(answers), longest, dtype=torch.bool)
    for i, (prompt, answer) in enumerate(answers):
        ids[i, : len(prompt) + len(answer)] = torch.tensor([*prompt, *answer])
        wanted[i, len(prompt) : len(prompt) + len(answer)] = True
    ids, wanted = ids.to(model.device), wanted.to(model.device)
    # Padding stands on the right: no token that counts sees it.
    logits = model(input_ids=ids, use_cache=False, logits_to_keep=longest - first + 1).logits[:, :-1]
    target, counts = ids[:, first:], wanted[:, first:]
    log_p = logits.float().log_softmax(dim=-1).gather(2, target[:, :, None])[:, :, 0]
    return (log_p * counts).sum(dim=1)
