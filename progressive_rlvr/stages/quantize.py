"""Stage `quantize`: v to integers on a grid of the locked menu, entropy-coded into the bytes of the message.

Every entry of the menu is tried on prompts of the sample under their committed noise, and the one with the highest
certified accuracy is taken. Looking at the sample costs nothing; the choice of the entry and the integers are paid
for in bits.

The comparison is by successive halving: all candidates answer a quarter of the prompts, the better half of them as
many again, and so on, until the best have answered all (Jamieson and Talwalkar, AISTATS 2016).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from pacbayes.bounds import certified_accuracy
from pacbayes.canonical import write_atomic
from pacbayes.codes import Menu, SupportError
from progressive_rlvr.chain import Chain
from progressive_rlvr.errors import UserError
from progressive_rlvr.policies import decode_message, read_vector

MESSAGE_FILE = "message.bin"
FIRST_SHARE = 4  # of the prompts, one in this many is answered by every candidate


@dataclass
class Candidate:
    """A message that could be sent, and how it did on the first `answered` prompts of the sample."""

    entry: str
    message: bytes
    bits: float
    right: int = 0
    answered: int = 0

    def expected(self, n: int, delta: float) -> float:
        """The accuracy that would be certified if the rest of the n prompts went like those answered."""
        return certified_accuracy(n - self.right * n // self.answered, n, bits=self.bits, delta=delta)


def run(chain: Chain, previous: Path | None, folder: Path) -> dict[str, Any]:
    """Write `message.bin`."""
    assert previous is not None
    v = read_vector(previous)
    settings, n, delta = chain.config.stages.quantize, chain.config.sample.n, chain.config.delta
    candidates = roundings(chain.menu, v, settings.max_bits)
    if not candidates:
        raise UserError(
            f"no entry of the menu codes the vector (largest |v| {float(v.abs().max()):.3g}) within the bound of its "
            f"code and max_bits {settings.max_bits}: add a larger step"
        )
    best = halve(chain, candidates, min(settings.candidates_on, n))
    write_atomic(folder / MESSAGE_FILE, best.message)
    return {
        "candidates": len(candidates),
        "compared_on": best.answered,
        "entry": best.entry,
        "bits": best.bits,
        "accuracy": best.right / best.answered,
        "expected": best.expected(n, delta),
    }


def roundings(menu: Menu, v: Tensor, max_bits: float | None) -> list[Candidate]:
    """v rounded to every grid of the menu, in the code that says it in the fewest bits, where they are within
    `max_bits`.

    Raises:
        UserError: a message does not decode to the integers that it was made of.
    """
    candidates: dict[tuple[str, tuple[int, ...]], Candidate] = {}
    for index, entry in enumerate(menu.entries):
        q = tuple(round(float(x) / float(entry.step)) for x in v)
        try:
            message, bits = menu.encode(index, q), menu.bits(index, q)
        except SupportError:
            continue  # a value beyond the bound of this entry's code
        if max_bits is not None and bits > max_bits:
            continue
        if menu.decode(message) != (index, q):
            raise UserError(f"the message for {entry.name} does not decode to the integers that were encoded")
        same = candidates.get((entry.step, q))
        if same is None or bits < same.bits:
            candidates[entry.step, q] = Candidate(entry.name, message, bits)
    return list(candidates.values())


def halve(chain: Chain, candidates: list[Candidate], prompts: int) -> Candidate:
    """The candidate with the highest expected certified accuracy on the first `prompts` prompts of the sample."""
    model = chain.certified_model()
    engine = chain.engine(model)
    requests, items = chain.requests("sample"), chain.items["sample"]
    n, delta = chain.config.sample.n, chain.config.delta
    started, answered, goal = time.monotonic(), 0, -(-prompts // FIRST_SHARE)
    work = halving_work(len(candidates), goal, prompts)
    while True:
        for candidate in candidates:
            new = slice(candidate.answered, goal)
            with engine.serving(decode_message(model, chain.menu, candidate.message, chain.prior)):
                completions = engine.generate(requests[new], chain.settings)
            verdicts = [chain.verdict(c, i) for c, i in zip(completions, items[new], strict=True)]
            answered += len(verdicts)
            candidate.right += sum(verdict.correct for verdict in verdicts)
            candidate.answered = goal
            chain.metrics.append(
                "quantize",
                answered,
                work,
                seconds=round(time.monotonic() - started, 1),
                entry=candidate.entry,
                bits=candidate.bits,
                prompts=goal,
                accuracy=candidate.right / goal,
                expected=candidate.expected(n, delta),
            )
        # Ties go to the entry that stands first in the menu.
        candidates = sorted(candidates, key=lambda c: -c.expected(n, delta))
        if goal == prompts:
            return candidates[0]
        candidates, goal = candidates[: -(-len(candidates) // 2)], min(2 * goal, prompts)


def halving_work(candidates: int, goal: int, prompts: int) -> int:
    """How many answers `halve` asks for."""
    work = candidates * goal
    while goal < prompts:
        candidates, more = -(-candidates // 2), min(goal, prompts - goal)
        work, goal = work + candidates * more, goal + more
    return work
