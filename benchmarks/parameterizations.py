"""Which few numbers follow a teacher farthest: TinyLoRA along two kinds of directions, and Uni-LoRA.

    python benchmarks/parameterizations.py RUN DOMAIN [--rates 0.01 0.03 0.1 0.3]

RUN is a finished run whose LoRA teacher is distilled again, with the settings of its `distill` stage but without
shrinkage, into students of as many numbers each:

    answers    TinyLoRA along the run's own directions (`directions: answers`, one vector for all modules)
    weights    TinyLoRA as published: singular vectors of W, random P, one number for each group of tied modules
    unilora    Uni-LoRA (Li et al., arXiv 2506.00799; PEFT's): every entry of the LoRA factors is one of the numbers,
               chosen by fixed random indices. It begins at small random numbers, which are not the base.

Learning rates are tried for each, since their units differ. Accuracies are of the trained numbers in float32, not of a
message, on fresh prompts under keyed noise; no label of theirs is used. Nothing is certified.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from peft import PeftModel, UniLoraConfig, get_peft_model
from transformers import PreTrainedModel
from trl import DistillationConfig, DistillationTrainer

from pacbayes.gumbel import prompt_key
from progressive_rlvr.chain import Chain, open_chain
from progressive_rlvr.config import Distill, Student, load_config
from progressive_rlvr.decoder import get_vector, inject, make_prior, merged
from progressive_rlvr.engines import Request
from progressive_rlvr.engines.hf import HfEngine
from progressive_rlvr.pipeline import CONFIG_FILE
from progressive_rlvr.stages.training import Shrinking, arguments, end_tokens, prompts, train

FRESH = "benchmark of parameterizations"


def tinylora(chain: Chain, student: Student, distill: Callable[[PreTrainedModel], None]) -> PreTrainedModel:
    """A base with the merged weights of a distilled TinyLoRA student."""
    prior = chain.prior if student == chain.config.student else make_prior(chain.certified_model(), student)
    tuned = inject(chain.training_model(), student, prior)
    distill(tuned)
    model = chain.certified_model()
    model.load_state_dict({**model.state_dict(), **merged(model, student, prior, get_vector(tuned))})
    return model


def unilora(chain: Chain, numbers: int, distill: Callable[[PreTrainedModel], None]) -> PreTrainedModel:
    """A base with the merged weights of a distilled Uni-LoRA student."""
    targets = list(chain.config.student.targets)
    config = UniLoraConfig(r=4, theta_d_length=numbers, target_modules=targets, task_type="CAUSAL_LM")
    tuned = get_peft_model(chain.training_model(), config)
    assert sum(p.numel() for p in tuned.parameters() if p.requires_grad) == numbers
    distill(tuned)
    return tuned.merge_and_unload().eval()


def distilling(chain: Chain, settings: Distill, rate: float, folder: Path) -> Callable[[PreTrainedModel], None]:
    """The run's distillation, at a learning rate, for any student."""

    def distill(student: PreTrainedModel) -> None:
        teacher = PeftModel.from_pretrained(chain.training_model(), chain.folder / "stages" / "1-rlvr").eval()
        end_tokens(chain, student)
        trainer = DistillationTrainer(
            model=student,
            teacher_model=teacher,
            args=DistillationConfig(**arguments(chain, folder, steps=settings.steps, batch=settings.prompts), beta=1.0),
            train_dataset=prompts(chain),
            processing_class=chain.tokenizer,
            optimizers=(Shrinking([p for p in student.parameters() if p.requires_grad], rate, 0.0, 0.0), None),
        )
        train(trainer, folder)

    return distill


def accuracy(chain: Chain, model: PreTrainedModel, n: int) -> float:
    """Share of n fresh prompts that are answered right."""
    items, root = chain.population.draw(FRESH, n), hashlib.sha256(FRESH.encode()).hexdigest()
    requests = [Request(item.prompt, prompt_key(root, item.prompt_digest, i, 0)) for i, item in enumerate(items)]
    completions = HfEngine(model, chain.tokenizer).generate(requests, chain.settings)
    return sum(chain.verdict(c, item).correct for c, item in zip(completions, items, strict=True)) / n


def main() -> None:
    """Parse arguments, train, print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("domain")
    parser.add_argument("--rates", type=float, nargs="*", default=[0.01, 0.03, 0.1, 0.3])
    parser.add_argument("--n", type=int, default=2000, help="fresh prompts")
    arguments_ = parser.parse_args()
    torch.set_num_threads(1)
    chain = open_chain(load_config(arguments_.run / CONFIG_FILE), arguments_.run, arguments_.domain)
    settings, own = chain.config.stages.distill, chain.config.student
    assert settings is not None
    modules = len(chain.prior) // 3
    numbers = max(k for k in range(1, modules + 1) if modules % k == 0 and k <= own.u)
    published = Student(r=2, u=1, groups=numbers, targets=own.targets)
    teacher = PeftModel.from_pretrained(chain.certified_model(), chain.folder / "stages" / "1-rlvr")
    reference = accuracy(chain, teacher.merge_and_unload().eval(), arguments_.n)
    base = accuracy(chain, chain.certified_model(), arguments_.n)
    print(f"{arguments_.domain}: base {100 * base:.1f}, LoRA {100 * reference:.1f} % of {arguments_.n:,} fresh prompts")
    print(f"| numbers | student |{'|'.join(f' rate {rate:g} ' for rate in arguments_.rates)}|")
    print(f"|---:|---|{'---:|' * len(arguments_.rates)}")
    students: list[tuple[int, str, Callable[[Callable[[PreTrainedModel], None]], PreTrainedModel]]] = [
        (own.u, "answers", lambda distill: tinylora(chain, own, distill)),
        (numbers, "weights", lambda distill: tinylora(chain, published, distill)),
        (own.u, "unilora", lambda distill: unilora(chain, own.u, distill)),
    ]
    for count, name, student in students:
        shown = []
        for rate in arguments_.rates:
            with tempfile.TemporaryDirectory() as folder:
                torch.manual_seed(chain.config.seed)
                model = student(distilling(chain, settings, rate, Path(folder)))
            shown.append(f"{100 * accuracy(chain, model, arguments_.n):.1f}")
        print(f"| {count} | {name} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
