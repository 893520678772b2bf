"""A realistic run, written by the schema: files only, no training."""

from __future__ import annotations

import hashlib
import json
import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

POLICIES = ("base", "lora", "distilled", "tinylora", "coded")
ACCURACY = {
    "mathematics": (0.4312, 0.9655, 0.9475, 0.9562, 0.9527),
    "programming": (0.5210, 0.9312, 0.9040, 0.9290, 0.9288),
    "knowledge": (0.3370, 0.8980, 0.8820, 0.8917, 0.8802),
    "text_to_sql": (0.4645, 0.9440, 0.9167, 0.9380, 0.9312),
}
PROMPTS = {
    "mathematics": ("Question: What is {a} + {b}?\nAnswer:", " {c}\n"),
    "programming": ("# add {a} to x, then double it\ndef f(x): return", " (x + {a}) * 2"),
    "knowledge": ("Where does Mira of house {a} live?\n(A) Ost (B) Vell (C) Karn (D) Thun\nAnswer:", " B"),
    "text_to_sql": ("Table t(name, age, town). Who is older than {a}?\nSQL:", " SELECT name FROM t WHERE age > {a}"),
}


def sha(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def outcomes(domain: str, n: int, heldout: int, rng: random.Random) -> list[dict[str, Any]]:
    prompt, answer = PROMPTS[domain]
    rows = []
    for split, size in (("sample", n), ("heldout", heldout)):
        for index in range(size):
            a, b = rng.randrange(100, 999), rng.randrange(100, 999)
            text = prompt.format(a=a, b=b)
            luck = rng.random()
            for policy, accuracy in zip(POLICIES, ACCURACY[domain], strict=True):
                shift = -0.004 if split == "heldout" and policy != "base" else 0.0
                correct = luck < accuracy + shift
                reason = "right" if correct else rng.choice(["wrong"] * 12 + ["unparseable", "truncated", "timeout"])
                good = answer.format(a=a, b=b, c=a + b)
                bad = answer.format(a=a + 1, b=b, c=a + b + rng.choice([-10, 10, 1]))
                completion = good if correct else "" if reason == "unparseable" else bad
                rows.append(
                    {
                        "policy": policy,
                        "split": split,
                        "index": index,
                        "prompt_digest": sha(text),
                        "occurrence": 0,
                        "draw": 0,
                        "correct": correct,
                        "reason": reason,
                        "tokens": 6,
                        "completion": completion,
                        "prompt": text,
                    }
                )
    return rows


def count(rows: list[dict[str, Any]], policy: str, split: str) -> dict[str, Any]:
    mine = [row["correct"] for row in rows if row["policy"] == policy and row["split"] == split]
    return {"accuracy": sum(mine) / len(mine), "correct": sum(mine), "n": len(mine)}


def certificate(domain: str, rows: list[dict[str, Any]], *, vector_bits: float, length: int) -> dict[str, Any]:
    rng = random.Random(domain)
    n = sum(row["policy"] == "coded" and row["split"] == "sample" for row in rows)
    measured = {p: count(rows, p, "sample") | {"heldout": count(rows, p, "heldout")} for p in POLICIES}
    lines = [
        {"name": "menu entry", "value": 3.0, "why": "probability 1/8 in the locked menu"},
        {"name": "vector", "value": vector_bits, "why": "-log2 of its probability under the entry's code"},
        {"name": "attempt", "value": 0.0932, "why": "first attempt at this claim, w = 15/16"},
    ]
    total = round(sum(float(str(line["value"])) for line in lines), 4)
    losses = n - measured["coded"]["correct"]
    slack = math.sqrt(2 * losses / n * (total * math.log(2) + math.log(20)) / n) + (total * math.log(2) + 3) / n
    certified = max(0.0, math.floor((measured["coded"]["accuracy"] - slack) * 1e6) / 1e6)
    bits = math.ceil(total)
    return {
        "schema": "prlvr/certificate/1",
        "kind": "accuracy",
        "purpose": "certificate",
        "model": {"name": "pocket", "digest": sha("pocket")},
        "domain": domain,
        "design": "iid",
        "n": n,
        "draws": 1,
        "delta": 0.05,
        "population": f"fresh draws from the seeded {domain} generator, version 1",
        "statement": "With probability at least 1 - delta over the sample, expected pass@1 is at least this.",
        "bits": {"total": total, "lines": lines},
        "deltas": {"total": 0.05, "lines": [{"name": "accuracy", "value": 0.05, "why": "the whole of it"}]},
        "bound": {"name": "binomial", "losses": losses, "n": n, "certified_accuracy": certified},
        **measured,
        "message": {
            "hex": rng.randbytes((bits + 7) // 8).hex(),
            "bits": (bits + 7) // 8 * 8,
            "entry": "all-linear-r2-u1/step-0.4",
            "integers": [round(rng.gauss(0, 1.6)) for _ in range(length)],
        },
        "stages": [
            {"kind": "rlvr", "steps": 80, "parameters": 49152, "seconds": 41.5},
            {"kind": "distill", "steps": 30, "parameters": length, "final_kl": 0.083},
            {"kind": "tinylora", "steps": 60, "parameters": length},
            {"kind": "quantize", "step": "0.4", "candidates": 24},
        ],
        "attempt": {"number": 1, "previous": None},
        "noise": {"specification": "gumbel-philox4x32-10/1", "root": sha("noise" + domain)},
        "novelty": {"heldout_in_sample": 1, "heldout": 200, "repeats_in_sample": 2},
        "digests": {
            k: sha(k + domain)
            for k in ("method_lock", "sample_lock", "message", "evidence", "prior_artifact", "policy")
        },
        "engine": {
            "name": "hf",
            "dtype": "float32",
            "batch_size": 256,
            "device": "cpu",
            "versions": {"torch": "2.13.0", "transformers": "5.1.0", "peft": "0.21.2"},
        },
        "assumptions": [
            "The prompts are independent draws from the named population, and the base model is independent of them.",
            "The noise generator behaves as an ideal hash of its key.",
            "No public randomness was used: assumes that the producer did not grind the seed of the sample.",
            "The claim is about this engine, dtype and batch size; other engines may flip near-ties.",
        ],
    }


def write_metrics(path: Path) -> None:
    rng = random.Random(7)
    lines = []
    for step in range(80):
        lines.append(
            {
                "stage": "rlvr",
                "step": step,
                "reward": min(1, max(0, 0.43 + 0.52 * (1 - math.exp(-step / 20)) + rng.gauss(0, 0.04))),
                "loss": 0.01,
            }
        )
    for step in range(30):
        lines.append({"stage": "distill", "step": step, "loss": 0.9 * math.exp(-step / 8) + 0.08 + rng.random() * 0.05})
    for step in range(60):
        lines.append(
            {"stage": "tinylora", "step": step, "reward": min(1, max(0, 0.94 + step * 0.0002 + rng.gauss(0, 0.02)))}
        )
    for step in range(24):
        bits, accuracy = 20 + 5.3 * step, 0.96 - 0.3 * math.exp(-step / 4) + rng.gauss(0, 0.01)
        expected = accuracy - 0.02 - 0.0009 * bits
        values = {"bits": bits, "accuracy": accuracy, "expected": expected}
        lines.append({"stage": "quantize", "step": step, "entry": f"step {step}", **values})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def write_domain(
    folder: Path, domain: str, *, n: int = 400, heldout: int = 200, vector_bits: float = 38.2918, length: int = 28
) -> dict[str, Any]:
    """One domain's folder as a run leaves it; returns the certificate."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = outcomes(domain, n, heldout, random.Random(domain))
    write_evidence(folder / "evidence.parquet", rows)
    write_metrics(folder / "metrics.jsonl")
    made = certificate(domain, rows, vector_bits=vector_bits, length=length)
    made["digests"]["evidence"] = hashlib.sha256((folder / "evidence.parquet").read_bytes()).hexdigest()
    write_certificate(folder / "certificate.json", made)
    return made


def write_evidence(path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


def write_certificate(path: Path, made: dict[str, Any]) -> None:
    path.write_text(json.dumps(made, sort_keys=True), "utf-8")


def write_run(folder: Path, **sizes: Any) -> dict[str, dict[str, Any]]:
    """A run of four domains."""
    made = {domain: write_domain(folder / domain, domain, **sizes) for domain in ACCURACY}
    (folder / "config.resolved.yaml").write_text("name: demo\nmodel: pocket\nn: 4000\ndelta: 0.05\n", "utf-8")
    return made
