"""Make the pocket base model: `python -m progressive_rlvr.pocket.pretrain OUT`.

The corpus is text from the four pocket families. Two kinds of source write it: a careful one, always right, and a
sloppy one, hardly ever. Some texts say which ("[textbook] ", "[forum] "), most of what is asked later does not: like
web text, a prompt without a mark may be followed by either. The model learns the skill from the marked careful texts,
and answers an unmarked prompt right about as often as unmarked texts are. That gap is what reinforcement learning
elicits.

The loss is taken on answers only (the prompts are noise by construction). One seed, one thread count: repeatable.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from domains.pocket import FAMILIES, Family
from progressive_rlvr.pocket.tokenizer import MARKS, build_tokenizer

# (source, marked) -> share of the corpus. Unmarked text is right 45 % of the time.
SOURCES = {
    ("careful", True): 0.40,
    ("sloppy", True): 0.15,
    ("careful", False): 0.45 * 0.45,
    ("sloppy", False): 0.45 * 0.55,
}
# The first half of the training reads textbooks only.
TEXTBOOKS = {("careful", True): 1.0}
# Sequences of each family in a step; arithmetic is the hardest.
BATCH = {"mathematics": 64, "programming": 24, "knowledge": 24, "text_to_sql": 24}
LESSONS = 0.4  # share of the text that is lessons, in families that have them
IGNORE = -100


def config(vocabulary: int, eos: int, pad: int) -> LlamaConfig:
    """A Llama of about 0.9 million parameters."""
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=eos,
        pad_token_id=pad,
    )


def texts(family: Family, rng: random.Random, sources: Mapping[tuple[str, bool], float]) -> Iterator[tuple[str, str]]:
    """An endless stream of (prompt with or without its mark, answer)."""
    kinds, shares = list(sources), list(sources.values())
    while True:
        if rng.random() < LESSONS and (lesson := family.lesson(rng)) is not None:
            yield lesson
            continue
        source, marked = rng.choices(kinds, shares)[0]
        item = family.item(rng)
        answer = family.write(item) if source == "careful" else family.mistake(rng, item)
        yield (MARKS[source] if marked else "") + item.prompt, answer


def batch(tokenizer: PreTrainedTokenizerFast, stream: Iterator[tuple[str, str]], size: int) -> tuple[Tensor, Tensor]:
    """Token ids and labels, (size, longest), padded on the right; labels are set on the answer and the end only."""
    pairs = [next(stream) for _ in range(size)]
    prompts = tokenizer([p for p, _ in pairs], add_special_tokens=False)["input_ids"]
    answers = tokenizer([a for _, a in pairs], add_special_tokens=False)["input_ids"]
    rows = [(p, [*a, tokenizer.eos_token_id]) for p, a in zip(prompts, answers, strict=True)]
    longest = max(len(p) + len(a) for p, a in rows)
    ids = torch.full((size, longest), tokenizer.pad_token_id)
    labels = torch.full((size, longest), IGNORE)
    for i, (p, a) in enumerate(rows):
        ids[i, : len(p) + len(a)] = torch.tensor(p + a)
        labels[i, len(p) : len(p) + len(a)] = torch.tensor(a)
    return ids, labels


def answer_loss(model: LlamaForCausalLM, ids: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy per answer token, in nats; the output layer is applied to answer positions only."""
    hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
    target = labels[:, 1:]
    chosen = target != IGNORE
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[chosen]), target[chosen])


@torch.no_grad()
def accuracy(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, family: Family, mark: str, n: int) -> float:
    """Share of n fresh prompts whose sampled (temperature 1) answer equals the careful one to the letter."""
    items = family.draw("pretraining check", n)
    inputs = tokenizer([mark + i.prompt for i in items], return_tensors="pt", padding=True, return_token_type_ids=False)
    output = model.generate(**inputs, do_sample=True, temperature=1.0, top_k=0, max_new_tokens=family.max_new_tokens)
    answers = tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return sum(a == family.write(i) for a, i in zip(answers, items, strict=True)) / n


def measure(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, n: int) -> dict[str, dict[str, float]]:
    """Accuracy per domain: unmarked, and behind the careful mark."""
    model.eval()
    table = {
        f.domain: {
            "unmarked": accuracy(model, tokenizer, f, "", n),
            "careful": accuracy(model, tokenizer, f, MARKS["careful"], n),
        }
        for f in FAMILIES
    }
    model.train()
    return table


def write(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Save a copy with bfloat16 weights."""
    copy = LlamaForCausalLM(model.config).to(torch.bfloat16)
    copy.load_state_dict(model.state_dict())
    copy.save_pretrained(out)
    tokenizer.save_pretrained(out)


def streams(seed: int) -> list[dict[str, Iterator[tuple[str, str]]]]:
    """The texts of both phases of the training, by domain."""
    return [
        {f.domain: texts(f, random.Random(f"{seed}/{f.domain}/{phase}"), sources) for f in FAMILIES}
        for phase, sources in enumerate((TEXTBOOKS, SOURCES))
    ]


def seen_share(seed: int, steps: int, fresh: int = 20_000) -> dict[str, float]:
    """Per domain the share of `fresh` new prompts that stood, under any mark, in the text of a training."""
    shares = {}
    for family in FAMILIES:
        seen: set[str] = set()
        for phase in streams(seed):
            for _ in range(steps // 2 * BATCH[family.domain]):
                prompt = next(phase[family.domain])[0]
                for mark in MARKS.values():
                    prompt = prompt.removeprefix(mark)
                seen.add(prompt)
        new = family.draw("fresh prompts, never trained on", fresh)
        shares[family.domain] = sum(item.prompt in seen for item in new) / fresh
    return shares


def pretrain(out: Path, *, steps: int, learning_rate: float, seed: int, every: int) -> None:
    """Train, print progress, and write the model (bfloat16 weights), its tokenizer and `training.json` to `out`."""
    torch.manual_seed(seed)
    tokenizer = build_tokenizer()
    model = LlamaForCausalLM(config(len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id))
    model.set_attn_implementation("eager")  # faster than fused attention on rows this short
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    phases = streams(seed)
    started, losses = time.monotonic(), dict.fromkeys(BATCH, 0.0)
    for step in range(steps):
        warm = min(1.0, (step + 1) / 200)
        rate = learning_rate * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        stream = phases[2 * step >= steps]
        for domain, size in BATCH.items():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = answer_loss(model, *batch(tokenizer, stream[domain], size))
            loss.backward()
            losses[domain] += 0.02 * (loss.item() - losses[domain])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % every == 0:
            shown = " ".join(f"{d}={v:.3f}" for d, v in losses.items())
            print(f"step {step + 1}/{steps} {time.monotonic() - started:.0f} s  loss {shown}", flush=True)
            print(f"  {json.dumps(measure(model, tokenizer, 200))}", flush=True)
            write(model, tokenizer, out)
    write(model, tokenizer, out)
    model = LlamaForCausalLM.from_pretrained(out, dtype=torch.float32)
    final = measure(model, tokenizer, 2000)
    record = {"seed": seed, "steps": steps, "learning_rate": learning_rate, "batch": BATCH, "accuracy": final}
    record["seen_in_training"] = seen_share(seed, steps)
    (out / "training.json").write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(final))


def main() -> None:
    """Command line of the pre-training script."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path, help="folder to write the model to")
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=500, help="steps between progress lines")
    parser.add_argument("--threads", type=int, default=1, help="torch threads (the weights depend on the number)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    pretrain(
        arguments.out,
        steps=arguments.steps,
        learning_rate=arguments.learning_rate,
        seed=arguments.seed,
        every=arguments.every,
    )


if __name__ == "__main__":
    main()
