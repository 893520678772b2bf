"""Stage `quantize`: v to integers on a grid of the locked menu, entropy-coded into the bytes of the message.

Every entry of the menu is tried on prompts of the sample under their committed noise, and the one with the highest
certified accuracy is taken. Looking at the sample costs nothing; the choice of the entry and the integers are paid
for in bits.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pacbayes.bounds import certified_accuracy
from pacbayes.canonical import write_atomic
from pacbayes.codes import SupportError
from progressive_rlvr.chain import Chain
from progressive_rlvr.engines.hf import HfEngine
from progressive_rlvr.errors import UserError
from progressive_rlvr.models import replaced
from progressive_rlvr.policies import decode_message, read_vector

MESSAGE_FILE = "message.bin"


def run(chain: Chain, previous: Path | None, folder: Path) -> dict[str, Any]:
    """Write `message.bin`."""
    assert previous is not None
    v = read_vector(previous)
    menu, n, limit = chain.menu, chain.config.sample.n, chain.config.stages.quantize.max_bits
    tried = min(chain.config.stages.quantize.candidates_on, n)
    model = chain.certified_model()
    engine = HfEngine(model, chain.tokenizer)
    requests, items = chain.requests("sample")[:tried], chain.items["sample"][:tried]
    best: tuple[float, bytes, dict[str, str | float]] | None = None
    started = time.monotonic()
    for index, entry in enumerate(menu.entries):
        q = tuple(round(float(x) / float(entry.step)) for x in v)
        try:
            message = menu.encode(index, q)
        except SupportError:
            continue  # a value beyond the bound of this entry's code
        if limit is not None and menu.bits(index, q) > limit:
            continue
        if menu.decode(message) != (index, q):
            raise UserError(f"the message for {entry.name} does not decode to the integers that were encoded")
        with replaced(model, decode_message(model, menu, message, chain.prior)):
            completions = engine.generate(requests, chain.settings)
        right = sum(chain.judge(c.text, c.truncated, i).correct for c, i in zip(completions, items, strict=True))
        bits = menu.bits(index, q)
        expected = certified_accuracy(n - right * n // tried, n, bits=bits, delta=chain.config.delta)
        candidate: dict[str, str | float] = {
            "entry": entry.name,
            "bits": bits,
            "accuracy": right / tried,
            "expected": expected,
        }
        seconds = round(time.monotonic() - started, 1)
        chain.metrics.append("quantize", index + 1, len(menu.entries), seconds=seconds, **candidate)
        if best is None or expected > best[0]:
            best = expected, message, candidate
    if best is None:
        raise UserError(
            f"no entry of the menu codes the vector (largest |v| {float(v.abs().max()):.3g}) within the bound of its "
            f"code and max_bits {limit}: add a larger step"
        )
    write_atomic(folder / MESSAGE_FILE, best[1])
    return {"candidates": len(menu.entries), "compared_on": tried, **best[2]}
