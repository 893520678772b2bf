"""What `prlvr run --dry-run` says, held against what happened.

python benchmarks/plan.py prompts --data-dir DIR      mean prompt length of the datasets, for plan.PROMPT_TOKENS
python benchmarks/plan.py run RUN [--tflops X --bandwidth Y]     a finished run beside its plan
"""

from __future__ import annotations

import argparse
from pathlib import Path

from domains.registry import get_domain
from pacbayes.evidence import read_evidence
from progressive_rlvr.config import load_config
from progressive_rlvr.metrics import Metrics
from progressive_rlvr.models import find_base
from progressive_rlvr.pipeline import CONFIG_FILE
from progressive_rlvr.plan import Device, plan

DATASETS = {
    "mathematics": ("gsm8k_train",),
    "programming": ("mbpp_train",),
    "knowledge": ("arc_easy_train", "arc_challenge_train", "openbookqa_train", "commonsenseqa_train"),
    "text_to_sql": ("spider_train",),
}


def prompts(data_dir: Path) -> None:
    """Tokens of every prompt of the training splits, in SmolLM2's tokenizer."""
    tokenizer = find_base("smollm2-135m").load_tokenizer()
    for name, populations in DATASETS.items():
        domain = get_domain(name, data_dir)
        for population in populations:
            loaded = domain.populations()[population]._load()  # type: ignore[attr-defined]  # golds are not checked
            ids = tokenizer([entry.item.prompt for entry in loaded.entries])["input_ids"]
            print(
                f"{population}: {sum(map(len, ids)) / len(ids):.0f} tokens a prompt, the longest {max(map(len, ids))}"
            )
        domain.close()


def run(folder: Path, device: Device) -> None:
    """Plan and fact of every stage: new tokens, and seconds as the metrics have them."""
    config = load_config(folder / CONFIG_FILE)
    for domain in config.domains:
        rows = Metrics(folder / domain / "metrics.jsonl").read()
        evidence = read_evidence(folder / domain / "evidence.parquet")
        generated = sum(o.tokens for o in evidence.outcomes.values())
        for row in plan(config, domain, device).rows:
            fact = [r for r in rows if r["stage"] == row.stage]
            if row.stage == "evaluate":
                print(
                    f"{domain} evaluate: {row.completions} completions planned, {len(evidence.outcomes)} made; "
                    f"≤ {row.new_tokens} tokens planned, {generated} made; {row.seconds:.0f} s planned"
                )
            elif fact:
                took = max(r.get("seconds", 0) for r in fact)
                tokens = [r["tokens"] for r in fact if "tokens" in r]
                made = f", {sum(tokens) / len(tokens) * row.completions:.0f} made" if tokens else ""
                print(
                    f"{domain} {row.stage}: ≤ {row.new_tokens} tokens planned{made}; {row.seconds:.0f} s planned, "
                    f"{took:.0f} s taken: {row.flops / max(took, 1e-9) / 1e9:.1f} GFLOP/s"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measured = commands.add_parser("prompts")
    measured.add_argument("--data-dir", type=Path, required=True)
    compared = commands.add_parser("run")
    compared.add_argument("folder", type=Path)
    compared.add_argument("--tflops", type=float, default=Device.tflops)
    compared.add_argument("--bandwidth", type=float, default=Device.bandwidth)
    arguments = parser.parse_args()
    if arguments.command == "prompts":
        prompts(arguments.data_dir)
    else:
        run(arguments.folder, Device(arguments.tflops, arguments.bandwidth))


if __name__ == "__main__":
    main()
