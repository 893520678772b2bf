"""Stage `quantize`: v to integers on a grid of the locked menu, entropy-coded into the bytes of the message.

Every entry of the menu, with all coordinates or the largest of them alone, is tried on prompts of the sample under
their committed noise, and what has the highest certified accuracy is taken. From there the integers themselves are
searched (search.py), and what was found is taken if it does better on the same prompts. Looking at the sample costs
nothing; the choice of the entry and the integers are paid for in bits.

Where the lock asks for M > 1 draws per prompt, candidates answer as often, and are compared by the betting bound. The
search still promises by the binomial, to which bits are dearer, so that it may stop early; what it finds is compared
like any other candidate.

The comparison is by successive halving: all candidates answer a quarter of the prompts, the better half of them as
many again, and so on, until the best have answered all (Jamieson and Talwalkar, AISTATS 2016).
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from pacbayes.bounds import certified_accuracy, certified_mean_accuracy
from pacbayes.canonical import write_atomic
from pacbayes.codes import Menu, SupportError
from pacbayes.declarations import ACCURACY_SHARE
from progressive_rlvr.chain import Chain
from progressive_rlvr.directions import Answer, as_answer
from progressive_rlvr.errors import UserError
from progressive_rlvr.policies import read_vector, weights_of
from progressive_rlvr.stages.search import Search

MESSAGE_FILE = "message.bin"
FIRST_SHARE = 4  # of the prompts, one in this many is answered by every candidate


@dataclass
class Candidate:
    """A message that could be sent, and how many draws of each of the first prompts of the sample it had right."""

    entry: str
    index: int
    q: tuple[int, ...]
    message: bytes
    bits: float
    right: list[int] = field(default_factory=list)

    @property
    def answered(self) -> int:
        """How many prompts it was given."""
        return len(self.right)

    def accuracy(self, draws: int) -> float:
        """Share of right completions."""
        return sum(self.right) / (self.answered * draws)

    def expected(self, n: int, delta: float, draws: int) -> float:
        """The accuracy that would be certified if the rest of the n prompts went like those answered, rounded down."""
        prompts = {k: count * n // self.answered for k, count in Counter(self.right).items() if k}
        losses = n - sum(prompts.values())  # prompts without a right draw
        if draws == 1:
            return certified_accuracy(losses, n, bits=self.bits, delta=delta)
        rewards = np.repeat([0.0, *(k / draws for k in prompts)], [losses, *prompts.values()])
        return certified_mean_accuracy(rewards, bits=self.bits, delta=delta)


def run(chain: Chain, previous: Path | None, folder: Path) -> dict[str, Any]:
    """Write `message.bin`."""
    assert previous is not None
    v = read_vector(previous)
    settings = chain.config.stages.quantize
    candidates = roundings(chain.menu, v, settings.max_bits)
    if not candidates:
        raise UserError(
            f"no entry of the menu codes the vector (largest |v| {float(v.abs().max()):.3g}) within the bound of its "
            f"code and max_bits {settings.max_bits}: add a larger step"
        )
    trial = Trial(chain, min(settings.candidates_on, chain.method.prompts), settings.rounds)
    best = trial.halve(candidates)
    if settings.rounds:
        best = trial.search(best, settings.max_bits)
    write_atomic(folder / MESSAGE_FILE, best.message)
    return {
        "candidates": len(candidates),
        "rounds": trial.climbed,
        "compared_on": best.answered,
        "entry": best.entry,
        "bits": best.bits,
        "accuracy": best.accuracy(chain.method.draws),
        "expected": trial.expected(best),
    }


def roundings(menu: Menu, v: Tensor, max_bits: float | None) -> list[Candidate]:
    """v rounded to every grid of the menu, as it is and with fewer and fewer of its largest coordinates, where the
    message is within `max_bits`.
    """
    candidates: dict[tuple[str, tuple[int, ...]], Candidate] = {}
    by_size = sorted(range(len(v)), key=lambda i: -abs(float(v[i])))
    for index, entry in enumerate(menu.entries):
        q = tuple(round(float(x) / float(entry.step)) for x in v)
        kept = sum(x != 0 for x in q)
        while True:
            pruned = tuple(x if i in by_size[:kept] else 0 for i, x in enumerate(q))
            if (entry.step, pruned) not in candidates:
                with suppress(SupportError):  # a value beyond the bounds of this grid's codes
                    candidates[entry.step, pruned] = cheapest(menu, index, pruned)
            if kept <= 1:
                break
            kept = kept * 3 // 4
    return [c for c in candidates.values() if max_bits is None or c.bits <= max_bits]


class Trial:
    """Candidates answering the first `prompts` prompts of the sample under their committed noise."""

    def __init__(self, chain: Chain, prompts: int, rounds: int) -> None:
        self.chain, self.prompts, self.rounds = chain, prompts, rounds
        self.n, self.draws = chain.method.prompts, chain.method.draws
        self.delta = float(chain.method.share(ACCURACY_SHARE))
        self.requests = chain.requests("sample", self.draws)
        self.model = chain.certified_model()
        self.engine = chain.engine(self.model)
        self.witnesses: list[Answer | None] = [None] * prompts
        self.started, self.answered, self.work, self.climbed = time.monotonic(), 0, 0, 0

    def answer(self, candidate: Candidate, goal: int) -> None:
        """Have a candidate answer the prompts up to `goal` that it has not answered yet."""
        chain, new = self.chain, range(candidate.answered, goal)
        requests = self.requests[new.start * self.draws : goal * self.draws]
        weights = weights_of(self.model, chain.menu, candidate.index, candidate.q, chain.prior)
        with self.engine.serving(weights):
            completions = self.engine.generate(requests, chain.settings)
        candidate.right += [0] * len(new)
        units = [i for i in new for _ in range(self.draws)]
        for i, request, completion in zip(units, requests, completions, strict=True):
            right = chain.verdict(completion, chain.items["sample"][i]).correct
            candidate.right[i] += right
            if right and self.rounds and self.witnesses[i] is None:
                self.witnesses[i] = as_answer(chain.tokenizer, request.prompt, completion, chain.settings.stop)
        self.answered += len(units)
        self._record(
            candidate.entry,
            candidate.bits,
            accuracy=candidate.accuracy(self.draws),
            expected=self.expected(candidate),
        )

    def expected(self, candidate: Candidate) -> float:
        """The accuracy that would be certified if the rest of the sample went like what was answered."""
        return candidate.expected(self.n, self.delta, self.draws)

    def halve(self, candidates: list[Candidate]) -> Candidate:
        """The candidate with the highest expected certified accuracy."""
        goal = -(-self.prompts // FIRST_SHARE)
        self.work = halving_work(len(candidates), goal, self.prompts) + self.prompts * (self.rounds > 0)
        self.work *= self.draws
        while True:
            for candidate in candidates:
                self.answer(candidate, goal)
            # Ties go to the entry that stands first in the menu.
            candidates = sorted(candidates, key=lambda c: -self.expected(c))
            if goal == self.prompts:
                return candidates[0]
            candidates, goal = candidates[: -(-len(candidates) // 2)], min(2 * goal, self.prompts)

    def search(self, best: Candidate, max_bits: float | None) -> Candidate:
        """`best`, or what a search from its integers finds, if that does better."""
        menu = self.chain.menu
        search = Search(self.model, menu, self.chain.prior, self.witnesses, self.n, self.delta, max_bits)
        place = None
        for place in search.climb(best.index, best.q, self.rounds):
            self.climbed += 1
            self._record(menu.entries[place.index].name, place.bits, promise=place.promise)
        if place is None:
            return best
        found = cheapest(menu, place.index, place.q)
        self.answer(found, self.prompts)
        return max(best, found, key=self.expected)

    def _record(self, entry: str, bits: float, **values: float) -> None:
        seconds = round(time.monotonic() - self.started, 1)
        self.chain.metrics.append(
            "quantize", self.answered, self.work, seconds=seconds, entry=entry, bits=bits, **values
        )


def cheapest(menu: Menu, index: int, q: tuple[int, ...]) -> Candidate:
    """Integers in the code of the menu that says them in the fewest bits, on the grid of entry `index`."""
    wanted = menu.entries[index]
    costs = {}
    for i, entry in enumerate(menu.entries):
        if (entry.step, entry.structure) == (wanted.step, wanted.structure):
            with suppress(SupportError):
                costs[i] = menu.bits(i, q)
    if not costs:
        raise SupportError(f"no code of the menu says {q} on the grid of {wanted.name}")
    i = min(costs, key=lambda i: costs[i])
    message = menu.encode(i, q)
    if menu.decode(message) != (i, q):
        raise UserError(f"the message for {menu.entries[i].name} does not decode to the integers that were encoded")
    return Candidate(menu.entries[i].name, i, q, message, costs[i])


def halving_work(candidates: int, goal: int, prompts: int) -> int:
    """How many answers `halve` asks for, with one draw per prompt."""
    work = candidates * goal
    while goal < prompts:
        candidates, more = -(-candidates // 2), min(goal, prompts - goal)
        work, goal = work + candidates * more, goal + more
    return work
