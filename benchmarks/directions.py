"""How far one number goes: accuracy of the embedded model along the directions that it finds in its own answers.

    python benchmarks/directions.py [DOMAIN ...] [--n 1000] [--answers 2048]

For every domain: the base model, the first direction (toward the answers on which the base agrees with itself) and the
leading eigenvector of the Fisher information of its answers, at several values of the one number v that is not zero. No
label is used for the directions; the accuracies are on prompts of a seed of their own, under keyed noise.
"""

from __future__ import annotations

import argparse
import hashlib
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from domains.base import Reason
from domains.registry import get_domain
from pacbayes.gumbel import prompt_key
from progressive_rlvr.config import Student
from progressive_rlvr.decoder import merged
from progressive_rlvr.directions import prior_artifact
from progressive_rlvr.engines import Request, Settings, open_engine
from progressive_rlvr.models import find_base

VALUES = (-1.0, -0.5, 0.0, 0.5, 0.75, 1.0, 1.5)


def measure(name: str, n: int, answers: int) -> None:
    """Print the rows of one domain."""
    base = find_base("pocket")
    model, domain = base.load(), get_domain(name)
    population = domain.populations()["pocket"]
    settings = Settings(population.max_new_tokens, 1.0, population.stop, 512)
    student = Student(directions="answers", answers=answers, r=8, u=2, groups=1)
    prior = prior_artifact(base, student, population, settings, "float32")
    engine = open_engine("hf", model, base.load_tokenizer())
    items = population.draw("benchmark of directions", n)
    root = hashlib.sha256(b"benchmark of directions").hexdigest()
    requests = [Request(item.prompt, prompt_key(root, item.prompt_digest, i, 0)) for i, item in enumerate(items)]
    try:
        for row, label in enumerate(("toward agreement", "leading eigenvector")):
            shown = []
            for value in VALUES:
                v = torch.zeros(2)
                v[row] = value
                with engine.serving(merged(model, student, prior, v)):
                    completions = engine.generate(requests, settings)
                verdicts = [
                    None if c.truncated else domain.verify(c.text, item)
                    for c, item in zip(completions, items, strict=True)
                ]
                shown.append(sum(v is not None and v.reason is Reason.RIGHT for v in verdicts) / n)
            print(f"{name:12} {label:20}", *(f"{100 * share:6.1f}" for share in shown), flush=True)
    finally:
        domain.close()


def main() -> None:
    """Parse arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ("text_to_sql", "programming", "mathematics", "knowledge")
    parser.add_argument("domain", nargs="*", default=names, help="none: all four")
    parser.add_argument("--n", type=int, default=1000, help="prompts")
    parser.add_argument("--answers", type=int, default=2048, help="answers of the base, eight to a prompt")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':33}", *(f"{value:6}" for value in VALUES))
    for name in arguments.domain:
        measure(name, arguments.n, arguments.answers)


if __name__ == "__main__":
    main()
