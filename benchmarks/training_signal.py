"""What training learned from: groups without signal, lengths, form against content, and sampling against scoring.

    python benchmarks/training_signal.py runs/pocket-8000-seed1 [RUN ...]
    python benchmarks/training_signal.py --mismatch pocket smollm2-135m

For every domain of finished runs, from `metrics.jsonl` and `evidence.parquet`:

    no signal   groups of RLVR whose rewards are all alike, and so teach nothing: first and second half of the steps
    tokens      mean length of the completions of base, LoRA and coded policy on the sample; and of LoRA's wrong ones
                (a reward that length can buy shows here)
    form        losses of the base that are no readable answer, as a share of its answers; what the base would have if
                all of those were right as often as its readable ones; and the coded policy's accuracy. What is above
                the second number is not form.

`--mismatch`: TRL samples with a cache, token by token, and scores whole sequences in one pass. Mean and largest
difference of the two log probabilities of a sampled token, in nats: GRPO takes it to be none.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from domains.registry import get_domain
from pacbayes.evidence import Outcome, read_evidence
from progressive_rlvr.models import DTYPES, find_base

READABLE = ("right", "wrong")


def signal(run: Path) -> None:
    """Print a row for every domain of a run."""
    for path in sorted(run.glob("*/evidence.parquet")):
        steps = [json.loads(line) for line in (path.parent / "metrics.jsonl").read_text().splitlines()]
        without = [s["groups_without_signal"] for s in steps if s["stage"] == "rlvr" and "groups_without_signal" in s]
        half = len(without) // 2
        everything = list(read_evidence(path).outcomes.values())
        base, lora, coded = (
            [o for o in everything if (o.policy, o.split) == (policy, "sample")] for policy in ("base", "lora", "coded")
        )
        readable = [o for o in base if o.reason in READABLE]
        shown = [
            f"{run.name}, {path.parent.name}",
            *(f"{100 * sum(part) / len(part):.0f} %" for part in (without[:half], without[half:])),
            *(f"{tokens(part):.1f}" for part in (base, lora, coded, [o for o in lora if not o.correct])),
            f"{100 * (1 - len(readable) / len(base)):.1f} %",
            f"{100 * sum(o.correct for o in readable) / len(readable):.1f} %",
            f"{100 * sum(o.correct for o in coded) / len(coded):.1f} %",
        ]
        print(f"| {' | '.join(shown)} |")


def tokens(outcomes: list[Outcome]) -> float:
    """Mean length of completions."""
    return sum(o.tokens for o in outcomes) / max(1, len(outcomes))


@torch.no_grad()
def mismatch(name: str, dtype: str, n: int = 64, new: int = 12) -> None:
    """Print how far sampling and scoring of the same tokens are apart."""
    base = find_base(name)
    model, tokenizer = base.load(dtype), base.load_tokenizer()  # type: ignore[arg-type]
    population = get_domain("mathematics").populations()["pocket" if name == "pocket" else "addition"]
    prompts = tokenizer([i.prompt for i in population.draw("mismatch", n)], return_tensors="pt", padding=True)
    torch.manual_seed(0)
    made = model.generate(
        **{key: prompts[key] for key in ("input_ids", "attention_mask")},
        max_new_tokens=new,
        min_new_tokens=new,
        do_sample=True,
        top_k=0,
        top_p=1.0,
        return_dict_in_generate=True,
        output_logits=True,
        pad_token_id=tokenizer.pad_token_id,
    )
    ids, start = made.sequences, prompts["input_ids"].shape[1]
    sampled = torch.stack(made.logits, dim=1).float().log_softmax(-1)
    attention = torch.cat([prompts["attention_mask"], torch.ones_like(ids[:, start:])], dim=1)
    scored = (
        model(input_ids=ids, attention_mask=attention, logits_to_keep=new + 1).logits[:, :-1].float().log_softmax(-1)
    )
    apart = (sampled - scored).gather(2, ids[:, start:, None]).abs()
    print(f"| {name} | {dtype} | {apart.mean():.1e} | {apart.max():.1e} |", flush=True)


def main() -> None:
    """Parse arguments and print Markdown tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--mismatch", nargs="*", default=[], metavar="MODEL")
    arguments = parser.parse_args()
    if arguments.runs:
        print(
            "| | no signal, first half | second | tokens: base | LoRA | coded | LoRA wrong | base: no answer | ", end=""
        )
        print("right of its answers | coded |\n|---|" + "---:|" * 9)
    for run in arguments.runs:
        signal(run)
    if arguments.mismatch:
        print("| model | dtype | mean | largest |\n|---|---|---:|---:|")
    for name in arguments.mismatch:
        for dtype in DTYPES:
            mismatch(name, dtype)


if __name__ == "__main__":
    main()
