"""What each part of the chain buys: the whole of it, and the same budget spent otherwise, over several training seeds.

    python benchmarks/ablation.py run OUT [--domain mathematics ...] [--seeds 5] [--variant NAME ...]
    python benchmarks/ablation.py table OUT

Every variant trains for the same FLOPs as `whole`, as `prlvr run --dry-run` counts them, and all of them have the same
locks, and so the same prompts and noise: differences between rows are paired. They are development runs, which certify
nothing; "certified" is what the bound gives for their counts and bits, without attempts. The settings are those of
`configs/pocket-8000.yaml`. `run` goes on where it was stopped. `table` gives medians, with the smallest and the largest
in brackets, rounded against us.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from pacbayes.bounds import certified_accuracy
from pacbayes.certificate import read_certificate
from progressive_rlvr.config import RunConfig, load_config
from progressive_rlvr.plan import Device, plan

DOMAINS = ("text_to_sql", "programming", "mathematics", "knowledge")
BASE: dict[str, Any] = yaml.safe_load((Path(__file__).parents[1] / "configs" / "pocket-8000.yaml").read_text())
# What differs from `whole`; None: the stage is left out. Its steps then go to the stage named in BUDGET.
VARIANTS: dict[str, dict[str, Any]] = {
    "whole": {},
    "no search": {"quantize": {"rounds": 0}},
    "rounding only": {"distill": {"shrinkage": 0}, "tinylora": {"shrinkage": 0}, "quantize": {"rounds": 0}},
    "no TinyLoRA stage": {"tinylora": None},
    "TinyLoRA only": {"rlvr": None, "distill": None},
    "TinyLoRA only, fast": {"rlvr": None, "distill": None, "tinylora": {"learning_rate": 0.1}},
}
BUDGET = {"no TinyLoRA stage": "distill", "TinyLoRA only": "tinylora", "TinyLoRA only, fast": "tinylora"}
DEVICE = Device(tflops=1.0, bandwidth=1.0)


def training_flops(config: RunConfig, domain: str) -> float:
    """FLOPs of the stages that train."""
    rows = plan(config, domain, DEVICE).rows
    return sum(row.flops for row in rows if row.stage in ("rlvr", "distill", "tinylora"))


def configuration(variant: str, domain: str, n: int) -> dict[str, Any]:
    """A variant of the chain, its steps chosen so that training costs what it costs in `whole`, or just less."""
    stages = {
        name: None if change is None else {**BASE["stages"][name], **change}
        for name in BASE["stages"]
        for change in [VARIANTS[variant].get(name, {})]
    }
    made = {
        **BASE,
        "name": f"{domain}-{variant.lower().replace(' ', '-').replace(',', '')}",
        "domains": {domain: {"population": "pocket"}},
        "sample": {"purpose": "development", "n": n, "heldout": 0},
        "stages": stages,
        "processes": 1,
    }
    if variant in BUDGET:
        spend, whole = BUDGET[variant], configuration("whole", domain, n)

        def cost(steps: int) -> float:
            stages[spend] = {**stages[spend], "steps": steps}
            return training_flops(RunConfig.model_validate({**made, "stages": stages}), domain)

        none, many = cost(1), cost(101)
        budget = training_flops(RunConfig.model_validate(whole), domain)
        stages[spend] = {**stages[spend], "steps": 1 + int((budget - none) / (many - none) * 100 + 1e-6)}
    return made


def run(out: Path, domains: list[str], variants: list[str], seeds: int, n: int) -> None:
    """Run what is missing, seed by seed, so that a run that is stopped leaves whole rows."""
    out.mkdir(parents=True, exist_ok=True)
    for seed in range(seeds):
        for domain in domains:
            for variant in variants:
                made = configuration(variant, domain, n)
                path = out / f"{made['name']}.yaml"
                path.write_text(yaml.safe_dump(made, sort_keys=False))
                load_config(path)
                folder = out / "runs" / f"{made['name']}-seed{seed}"
                if (folder / "certificates" / f"{domain}.json").exists():
                    continue
                lend_prior(out, domain, folder / domain)
                print(f"{domain}, {variant}, seed {seed}", flush=True)
                command = [sys.executable, "-m", "progressive_rlvr.cli", "run", str(path), "--seed", str(seed)]
                environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
                subprocess.run([*command, "--runs", str(out / "runs")], check=True, env=environment)


def lend_prior(out: Path, domain: str, folder: Path) -> None:
    """The prior artifact is the same in all runs of a domain (the lock compares its digest): made once."""
    made = sorted((out / "runs").glob(f"{domain}-*/{domain}/prior.safetensors"))
    if made and not (folder / "prior.safetensors").exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(made[0], folder / "prior.safetensors")


def table(out: Path) -> None:
    """Print a Markdown table of what is there, and write it as `ablation.json`."""
    rows = []
    for domain in DOMAINS:
        for variant in VARIANTS:
            name = configuration(variant, domain, 1)["name"]
            found = sorted((out / "runs").glob(f"{name}-seed[0-9]*/certificates/{domain}.json"))
            if found:
                rows.append({"domain": domain, "variant": variant, "seeds": len(found), **medians(found)})
    (out / "ablation.json").write_text(json.dumps(rows, indent=1))
    print("| | variant | seeds | LoRA | coded | bits | certified |\n|---|---|---:|---:|---:|---:|---:|")
    for row in rows:
        shown = " | ".join(row[key]["shown"] for key in ("lora", "coded", "bits", "certified"))
        print(f"| {row['domain']} | {row['variant']} | {row['seeds']} | {shown} |")


def medians(certificates: list[Path]) -> dict[str, Any]:
    """Median, smallest and largest of accuracies (per cent) and bits."""
    values: dict[str, list[float]] = {"lora": [], "coded": [], "bits": [], "certified": []}
    for path in certificates:
        c = read_certificate(path)
        bits = sum(line.value for line in c.bits.lines if line.name != "attempt")
        bound = certified_accuracy(c.coded.n - c.coded.correct, c.coded.n, bits=bits, delta=float(Fraction(c.delta)))
        values["coded"].append(100 * c.coded.correct / c.coded.n)
        values["bits"].append(bits)
        values["certified"].append(100 * bound)
        if c.lora is not None:
            values["lora"].append(100 * c.lora.correct / c.lora.n)
    return {key: described(seen, up=key in ("lora", "bits")) for key, seen in values.items()}


def described(seen: list[float], *, up: bool) -> dict[str, Any]:
    """Median and range, and their text with one digit."""
    if not seen:
        return {"median": None, "range": None, "shown": "–"}
    low, middle, high = min(seen), statistics.median(seen), max(seen)
    one = [(-(-10 * x // 1) if up else 10 * x // 1) / 10 for x in (middle, low, high)]
    return {"median": middle, "range": [low, high], "shown": f"{one[0]:.1f} ({one[1]:.1f}–{one[2]:.1f})"}


def main() -> None:
    """Parse arguments and run or tabulate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--domain", nargs="*", default=["mathematics"], choices=DOMAINS)
    parser.add_argument("--variant", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--n", type=int, default=4000, help="prompts in the sample")
    arguments = parser.parse_args()
    if arguments.what == "table":
        table(arguments.out)
    else:
        run(arguments.out, arguments.domain, arguments.variant, arguments.seeds, arguments.n)


if __name__ == "__main__":
    main()
