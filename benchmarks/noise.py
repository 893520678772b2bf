"""What the keyed noise costs: against plain multinomial sampling, and as a share of a decoding step.

    python benchmarks/noise.py                         a step of 4.3 ms a sequence (SmolLM2-135M, batch 64, one thread)
    python benchmarks/noise.py --model DIRECTORY       a step of that model, measured

The decoding step is one forward pass of one new token for each of 64 sequences with a key-value cache. "Added" is the
time of the exact keyed argmax minus that of plain multinomial sampling, as a share of (step + multinomial sampling).
The exponential race is what serving engines draw with: as random as the multinomial, and as little reproducible.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from pacbayes import gumbel, gumbel_torch

ROWS, VOCABULARY, REPETITIONS = 64, 49_152, 15


def milliseconds(work: Callable[[], object]) -> float:
    """Median time of a call after two to warm up."""
    times = []
    for repetition in range(REPETITIONS + 2):
        start = time.perf_counter()
        work()
        if repetition >= 2:
            times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def decoding_step(directory: str, context: int = 64) -> float:
    """Milliseconds of one forward pass of a new token for each row, with a cache of ``context`` tokens."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory).eval()
    with torch.inference_mode():
        prompt = torch.randint(0, model.config.vocab_size, (ROWS, context), generator=torch.Generator().manual_seed(0))
        cache = model(prompt, use_cache=True).past_key_values

        def step() -> None:
            model(prompt[:, :1], past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache.crop(-1)

        return milliseconds(step)


def main() -> None:
    """Print one line per sampler."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a transformers model directory whose decoding step is measured")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logits = 3 * torch.randn(ROWS, VOCABULARY, generator=torch.Generator().manual_seed(0))
    keys = gumbel.key_words([hashlib.sha256(bytes([row])).digest() for row in range(ROWS)])
    array, race = logits.numpy(), torch.empty_like(logits)
    samplers: dict[str, Callable[[], object]] = {
        "plain multinomial": lambda: torch.multinomial(torch.softmax(logits, -1), 1),
        "exponential race": lambda: torch.argmax(torch.softmax(logits, -1).div_(race.exponential_()), -1),
        "keyed, gumbel_torch": lambda: gumbel_torch.sample_tokens(logits, keys, 7),
        "keyed, NumPy reference": lambda: gumbel.sample_tokens(array, keys, 7),
    }
    results = {name: milliseconds(work) for name, work in samplers.items()}
    plain = results["plain multinomial"]
    step = decoding_step(arguments.model) if arguments.model else 4.3 * ROWS
    same = np.array_equal(gumbel_torch.sample_tokens(logits, keys, 7).numpy(), gumbel.sample_tokens(array, keys, 7))
    print(f"batch {ROWS}, vocabulary {VOCABULARY:,}, {arguments.threads} thread(s)")
    print(f"decoding step {'measured' if arguments.model else 'assumed'}: {step:.1f} ms; same tokens: {same}")
    for name, value in results.items():
        added = 100 * (value - plain) / (step + plain)
        per_row, ratio = value / ROWS, value / plain
        print(f"{name:24} {value:8.2f} ms  {per_row:6.3f} ms a row  x {ratio:5.2f}  adds {added:+6.2f} % to a step")


if __name__ == "__main__":
    main()
