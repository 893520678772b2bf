"""How fast the engine `hf` generates: against `transformers.generate`, against an older version, and what noise costs.

    python benchmarks/generation.py --model smollm2-135m                 SmolLM2, 1,000 prompts behind four examples
    python benchmarks/generation.py --model pocket --n 4000 --batch 512  the embedded model on its own prompts
    python benchmarks/generation.py --memory                             peak memory for 500 and for 4,000 prompts

The same prompts go through each way of generating, sorted by length and cut into rounds that alternate, and CPU
seconds are counted (of all threads), so that a machine that is busy with something else slows all of them alike.
`generate` samples with the same temperature, stop tokens, dtype and batch size, without a prefix cache. A token counts
if it belongs to a completion: nothing after the stop. What the noise costs is what choosing a token by it takes, less
what the engine takes to find the largest logit where it samples without noise.

`--against FILE` is another version of progressive_rlvr/engines/hf.py, such as
`git show e2b7a94:progressive_rlvr/engines/hf.py > old_hf.py`.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(4 << 30))  # as `prlvr run` sets it; glibc reads it at the start
os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", str(16 << 30))
if os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE") and "PRLVR_BENCHMARK" not in os.environ:
    os.environ["PRLVR_BENCHMARK"] = "1"
    os.execv(sys.executable, [sys.executable, *sys.argv])

import torch

from domains.pocket import FAMILIES
from progressive_rlvr.engines import Request, Settings, hf
from progressive_rlvr.models import find_base

SHOTS = "".join(
    f"Question: What is {a} + {b}?\nAnswer: {a + b}\n\n" for a, b in ((12, 30), (47, 25), (31, 9), (18, 64))
)


def requests(model: str, n: int) -> list[Request]:
    """Two-digit additions after four worked examples; for the embedded model, its own four families."""
    rng = random.Random(0)
    if model == "pocket":
        prompts = [item.prompt for family in FAMILIES for item in family.draw("benchmark", n // 4)]
    else:
        prompts = [
            f"{SHOTS}Question: What is {rng.randint(10, 999)} + {rng.randint(10, 99)}?\nAnswer:" for _ in range(n)
        ]
    rng.shuffle(prompts)
    return [Request(p, hashlib.sha256(f"{k}".encode()).digest()) for k, p in enumerate(prompts)]


def plain(model: Any, tokenizer: Any, settings: Settings) -> Callable[[list[Request]], int]:
    """`transformers.generate` batch by batch; the calls return how many tokens belong to completions."""
    stops = hf.stop_tokens(tokenizer, settings.stop)

    def run(chosen: list[Request]) -> int:
        tokens = 0
        for start in range(0, len(chosen), settings.batch_size):
            batch = tokenizer(
                [r.prompt for r in chosen[start : start + settings.batch_size]], return_tensors="pt", padding=True
            )
            made = model.generate(
                **{k: batch[k].to(model.device) for k in ("input_ids", "attention_mask")},
                max_new_tokens=settings.max_new_tokens,
                do_sample=True,
                temperature=settings.temperature,
                top_k=0,
                top_p=1.0,
                eos_token_id=stops,
                pad_token_id=tokenizer.pad_token_id,
            )[:, batch["input_ids"].shape[1] :]
            ended = torch.isin(made, torch.tensor(stops, device=made.device)).int()
            tokens += int((ended.cumsum(dim=1) - ended == 0).sum())
        return tokens

    return run


def keyed(module: ModuleType, model: Any, tokenizer: Any, settings: Settings) -> Callable[[list[Request]], int]:
    """The engine of a version of `hf.py`."""
    engine = module.HfEngine(model, tokenizer)
    return lambda chosen: sum(c.tokens for c in engine.generate(chosen, settings))


class Stopwatch:
    """Counts the seconds inside a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.seconds = function, 0.0

    def __call__(self, *arguments: Any) -> Any:
        start = time.process_time()
        try:
            return self.function(*arguments)
        finally:
            self.seconds += time.process_time() - start


def largest(logits: torch.Tensor, *_: object) -> torch.Tensor:
    """The token with the largest logit in every row: what remains of sampling without noise."""
    return logits.argmax(dim=1)


def other_version(path: Path) -> ModuleType:
    """A module by its file."""
    spec = importlib.util.spec_from_file_location("other_hf", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compare(arguments: argparse.Namespace) -> None:
    """Print tokens and seconds of each way of generating, and their ratios."""
    base = find_base(arguments.model)
    model, tokenizer = base.load(arguments.dtype), base.load_tokenizer()
    settings = Settings(arguments.tokens, 1.0, arguments.stop, arguments.batch)
    everything = requests(arguments.model, arguments.n)
    everything.sort(key=lambda r: len(tokenizer(r.prompt)["input_ids"]))
    ways = {name: keyed(hf, model, tokenizer, settings) for name in ("engine hf", "without noise")}
    if not arguments.no_plain:
        ways["generate"] = plain(model, tokenizer, settings)
    if arguments.against:
        ways[arguments.against.name] = keyed(other_version(arguments.against), model, tokenizer, settings)
    choosing = {"engine hf": Stopwatch(hf.sample_tokens), "without noise": Stopwatch(largest)}

    def answer(name: str, chosen: list[Request]) -> int:
        hf.sample_tokens = choosing.get(name, choosing["engine hf"])  # type: ignore[assignment, attr-defined]
        return ways[name](chosen)

    for name in ways:
        answer(name, everything[:4])
    for watch in choosing.values():
        watch.seconds = 0.0
    seconds, tokens, elapsed = dict.fromkeys(ways, 0.0), dict.fromkeys(ways, 0), dict.fromkeys(ways, 0.0)
    size = -(-len(everything) // arguments.rounds)
    for start in range(0, len(everything), size):
        for name in ways:
            begun, clock = time.process_time(), time.perf_counter()
            tokens[name] += answer(name, everything[start : start + size])
            seconds[name] += time.process_time() - begun
            elapsed[name] += time.perf_counter() - clock
    longest = len(tokenizer(everything[-1].prompt)["input_ids"])
    print(
        f"{arguments.model}, {arguments.dtype}, {len(everything):,} prompts of up to {longest} tokens, "
        f"at most {arguments.tokens} new ones, stop {arguments.stop!r}, batch {arguments.batch}, "
        f"{arguments.threads} thread(s), {arguments.rounds} rounds"
    )
    own = tokens["engine hf"] / seconds["engine hf"]
    for name in ways:
        speed = tokens[name] / seconds[name]
        print(
            f"{name:13} {tokens[name]:7,} tokens {seconds[name]:8.1f} CPU s {speed:8.1f} tokens/CPU s   engine hf: "
            f"x {own / speed:.2f}   ({elapsed[name]:.1f} s by the clock)"
        )
    share = {name: watch.seconds / tokens[name] * own for name, watch in choosing.items()}
    print(
        f"choosing tokens: {100 * share['engine hf']:.1f} % of the engine's time, {100 * share['without noise']:.1f} % "
        f"without noise: the noise takes {100 * (share['engine hf'] - share['without noise']):.1f} %"
    )


def memory(arguments: argparse.Namespace) -> None:
    """Print the peak memory of processes that differ only in how many prompts they answer."""
    for n in (500, 4000):
        command = [sys.executable, __file__, "--peak", "--n", str(n), "--batch", str(arguments.batch)]
        subprocess.run([*command, "--model", arguments.model, "--stop", arguments.stop or ""], check=True)


def peak(arguments: argparse.Namespace) -> None:
    """Print this process's peak memory before and after generating."""
    base = find_base(arguments.model)
    engine = hf.HfEngine(base.load(arguments.dtype), base.load_tokenizer())
    settings = Settings(arguments.tokens, 1.0, arguments.stop, arguments.batch)
    wanted = requests(arguments.model, arguments.n)
    engine.generate(wanted[: arguments.batch], settings)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    engine.generate(wanted, settings)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{arguments.model}, n = {arguments.n:,}: peak {before:,.0f} MB after one batch, {after:,.0f} MB after all")


def main() -> None:
    """Parse and dispatch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--stop", default="", help="a completion ends with it; empty: only with the end token")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--no-plain", action="store_true", help="leave `generate` out")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--peak", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.stop = arguments.stop or None
    torch.set_num_threads(arguments.threads)
    memory(arguments) if arguments.memory else peak(arguments) if arguments.peak else compare(arguments)


if __name__ == "__main__":
    main()
