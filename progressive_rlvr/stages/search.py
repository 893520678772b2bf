"""Search among the integers of a message, for the highest certified accuracy.

The objective has no noise in it. A *witness* of a prompt is a completion of the sample that the verifier found right;
p(witness | prompt) is less than the policy's chance of a right answer, and its mean over prompts, a lower bound on
the expected accuracy, changes smoothly with the weights. At the integers q of the best rounding its gradient says
which coordinates are worth moving by one, and which two where one has to pay for the other; the most promising few
are tried, then all that help together, and the best is taken, until none is better.
Whatever is found was found on the sample, and pays for itself in the bits of its message like any other candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pacbayes.bounds import certified_accuracy
from pacbayes.codes import Menu, SupportError
from progressive_rlvr.decoder import target_modules
from progressive_rlvr.directions import Answer, cores, log_probability
from progressive_rlvr.models import replaced
from progressive_rlvr.policies import student_of, weights_of

TRIES = 6  # moves that are tried out of those that the gradient recommends
EXCHANGED = 8  # steps that promise most, and steps that save bits, of which all pairs are considered
BATCH = 64


@dataclass(frozen=True)
class Place:
    """Integers under an entry of the menu, what they cost, and what they promise."""

    index: int
    q: tuple[int, ...]
    bits: float
    promise: float


@dataclass(frozen=True)
class Search:
    """Everything that the objective is made of; n and delta are those of the certificate."""

    model: PreTrainedModel
    menu: Menu
    prior: Mapping[str, Tensor]
    witnesses: list[Answer | None]
    n: int
    delta: float
    max_bits: float | None

    def climb(self, index: int, q: tuple[int, ...], rounds: int) -> Iterator[Place]:
        """Better and better places, at most `rounds` of them, each at most 2 TRIES steps of one from the one before."""
        here = self.place(index, q)
        for _ in range(rounds):
            tried = [self._place(index, move) for move in apart(here.q, self._recommended(here), TRIES)]
            better = [place for place in tried if place is not None and place.promise > here.promise]
            if len(better) > 1:
                changed = [next((p.q[i] for p in better if p.q[i] != at), at) for i, at in enumerate(here.q)]
                together = self._place(index, tuple(changed))
                better += [together] if together is not None else []
            if not better:
                return
            here = max(better, key=lambda place: place.promise)
            yield here

    def place(self, index: int, q: tuple[int, ...]) -> Place:
        """The place of integers that a code of the menu can say."""
        found = self._place(index, q)
        if found is None:
            raise SupportError(f"{q} cannot be said with {self.menu.entries[index].name}")
        return found

    def _place(self, index: int, q: tuple[int, ...]) -> Place | None:
        bits = self._bits(index, q)
        if bits is None or not self._affordable(bits):
            return None
        with replaced(self.model, weights_of(self.model, self.menu, index, q, self.prior)), torch.no_grad():
            p = sum(float(log_probability(self.model, batch).double().exp().sum()) for batch in self._batches())
        return Place(index, q, bits, self._certified(p / len(self.witnesses), bits))

    def _recommended(self, here: Place) -> list[tuple[int, ...]]:
        """Steps of one coordinate by one, and pairs of which one saves bits, within the limit of bits: those first that
        a linear forecast puts highest.
        """
        p, gradient = self._gradient(here)
        step = float(self.menu.entries[here.index].step)

        def forecast(*moves: tuple[int, int]) -> Place | None:
            q, accuracy = list(here.q), p
            for i, change in moves:
                q[i] += change
                accuracy += gradient[i] * change * step
            if (bits := self._bits(here.index, tuple(q))) is None:
                return None
            return Place(here.index, tuple(q), bits, self._certified(min(1.0, max(0.0, accuracy)), bits))

        moves = [(i, change) for i in range(len(here.q)) for change in (-1, 1)]
        steps = sorted(
            ((place, move) for move in moves if (place := forecast(move)) is not None), key=lambda s: -s[0].promise
        )
        saving = [move for place, move in steps if place.bits < here.bits][:EXCHANGED]
        pairs = [forecast(move, saved) for _, move in steps[:EXCHANGED] for saved in saving if move[0] != saved[0]]
        places = [place for place, _ in steps] + [place for place in pairs if place is not None]
        within = {place.q: place.promise for place in places if self._affordable(place.bits)}
        return sorted(within, key=lambda q: -within[q])

    def _gradient(self, here: Place) -> tuple[float, list[float]]:
        """Mean probability of the witnesses, and its derivative by every coordinate of v."""
        student = student_of(self.menu.entries[here.index].structure)
        modules = target_modules(self.model, student.targets)
        total = 0.0

        def objective(log_p: Tensor) -> Tensor:
            nonlocal total
            p = log_p.double().exp().sum()
            total += float(p.detach())
            return p

        slopes = torch.zeros(len(modules), student.u, dtype=torch.float64)
        with replaced(self.model, weights_of(self.model, self.menu, here.index, here.q, self.prior)):
            device = self.model.device
            A = {name: self.prior[f"{name}.A"].float().to(device) for name in modules}
            B = {name: self.prior[f"{name}.B"].float().to(device) for name in modules}
            for batch in self._batches():
                # dL/dv_i is the sum over a group's modules of <P_i, Bᵀ (dL/dW) Aᵀ>.
                for m, (name, core) in enumerate(cores(self.model, modules, batch, A, B, objective).items()):
                    P = self.prior[f"{name}.P"].double()
                    slopes[m] += torch.einsum("irs,ars->i", P, core.double().cpu())
        groups = len(here.q) // student.u
        tied = slopes.reshape(groups, -1, student.u).sum(dim=1).flatten() / len(self.witnesses)
        return total / len(self.witnesses), tied.tolist()

    def _batches(self) -> Iterator[list[Answer]]:
        answers = sorted((w for w in self.witnesses if w is not None), key=lambda w: len(w[0]) + len(w[1]))
        for start in range(0, len(answers), BATCH):
            yield answers[start : start + BATCH]

    def _affordable(self, bits: float) -> bool:
        return self.max_bits is None or bits <= self.max_bits

    def _bits(self, index: int, q: tuple[int, ...]) -> float | None:
        try:
            return self.menu.bits(index, q)
        except SupportError:
            return None

    def _certified(self, accuracy: float, bits: float) -> float:
        """The bound is a staircase in the losses; between its steps it is read off the straight line."""
        losses = (1 - accuracy) * self.n
        low = int(losses)
        bound: Callable[[int], float] = lambda k: certified_accuracy(k, self.n, bits=bits, delta=self.delta)  # noqa: E731
        return bound(low) + (losses - low) * (bound(min(low + 1, self.n)) - bound(low))


def apart(here: tuple[int, ...], moves: list[tuple[int, ...]], most: int) -> list[tuple[int, ...]]:
    """The first `most` of the moves from `here` no two of which change the same coordinate: a forecast that is wrong
    about one coordinate is then wrong once, and all that help can be done together.
    """
    taken: set[int] = set()
    chosen: list[tuple[int, ...]] = []
    for q in moves:
        changed = {i for i, (a, b) in enumerate(zip(here, q, strict=True)) if a != b}
        if len(chosen) < most and not changed & taken:
            chosen.append(q)
            taken |= changed
    return chosen
