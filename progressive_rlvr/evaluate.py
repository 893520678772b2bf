"""Scoring policies on the sample and on held-out prompts, under the committed noise, into `evidence.parquet`.

Where the lock asks for several draws per prompt, every policy is given all of them on both splits: accuracies that are
compared stand on the same prompts and noise, and what is missing would count as wrong.
What stands in the file binds. A policy that is evaluated in part is finished, never begun again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel

from pacbayes.canonical import file_digest
from pacbayes.evidence import Evidence, EvidenceError, Outcome, Split, read_evidence, write_evidence
from progressive_rlvr.chain import SPLITS, Chain
from progressive_rlvr.decoder import merged, tensors_digest
from progressive_rlvr.engines import Engine
from progressive_rlvr.policies import ADAPTER_FILES, Weights, decode_message, lora_weights, read_vector
from progressive_rlvr.stages import StageResult
from progressive_rlvr.stages.quantize import MESSAGE_FILE

EVIDENCE_FILE = "evidence.parquet"
BATCHES_PER_WRITE = 8
# The policy that each stage leaves behind.
POLICY_OF_STAGE = {"rlvr": "lora", "distill": "distilled", "tinylora": "tinylora", "quantize": "coded"}


@dataclass(frozen=True)
class Policy:
    """A name, the weights it changes, and the digest of what it is (for `coded` that of the message)."""

    name: str
    weights: Weights
    digest: str


def policies(chain: Chain, model: PreTrainedModel, stages: list[StageResult]) -> Iterator[Policy]:
    """The base, and what every stage of the chain left behind, one at a time."""
    yield Policy("base", {}, chain.base.weights)
    for stage in stages:
        name = POLICY_OF_STAGE[stage.kind]
        if name == "coded":
            file = stage.folder / MESSAGE_FILE
            yield Policy(name, decode_message(model, chain.menu, file.read_bytes(), chain.prior), file_digest(file))
            continue
        if (stage.folder / ADAPTER_FILES[0]).exists():
            weights = lora_weights(model, stage.folder)
        else:
            weights = merged(model, chain.config.student, chain.prior, read_vector(stage.folder))
        yield Policy(name, weights, tensors_digest(weights))


def evaluate(chain: Chain, stages: list[StageResult]) -> Path:
    """Evaluate every policy on every split that is not yet in the evidence; returns the evidence file."""
    path = chain.folder / EVIDENCE_FILE
    model = chain.certified_model()
    engine = chain.engine(model)
    for policy in policies(chain, model, stages):
        with engine.serving(policy.weights):
            for split in SPLITS:
                evaluate_split(chain, engine, policy, split, path)
                check_complete(chain, policy, split, path)
    return path


def check_complete(chain: Chain, policy: Policy, split: Split, path: Path) -> None:
    """Raise EvidenceError unless there is one outcome for every prompt and draw of the lock: n never shrinks."""
    found, n = len(read_evidence(path).part(policy.name, split)) if path.exists() else 0, len(chain.sample.split(split))
    draws = chain.method.draws
    if found != n * draws:
        times = f", {draws} draws each" if draws > 1 else ""
        raise EvidenceError(f"{path} has {found} outcomes of {policy.name} on the {n} prompts of the {split}{times}")


def evaluate_split(chain: Chain, engine: Engine, policy: Policy, split: Split, path: Path) -> None:
    """Generate and judge what the evidence does not hold yet of a policy on a split; the engine has its weights."""
    locked, items, draws = chain.sample.split(split), chain.items[split], chain.method.draws
    requests = chain.requests(split, draws)
    missing = _missing(path, policy, split, len(locked), draws)
    stage, total = f"evaluate {policy.name} {split}", len(requests)
    size = BATCHES_PER_WRITE * chain.settings.batch_size * (chain.workers or 1)
    for start in range(0, len(missing), size):
        chosen = missing[start : start + size]
        completions = engine.generate([requests[i * draws + draw] for i, draw in chosen], chain.settings)
        outcomes = []
        for (i, draw), completion in zip(chosen, completions, strict=True):
            verdict = chain.verdict(completion, items[i])
            outcomes.append(
                Outcome(
                    policy=policy.name,
                    split=split,
                    index=i,
                    prompt_digest=locked[i].prompt_digest,
                    occurrence=locked[i].occurrence,
                    draw=draw,
                    correct=verdict.correct,
                    reason=str(verdict.reason),
                    tokens=completion.tokens,
                    completion=completion.text,
                )
            )
        write_evidence(path, outcomes, sample_lock=chain.sample.digest, policies={policy.name: policy.digest})
        done = total - len(missing) + start + len(chosen)
        right = sum(o.correct for o in outcomes) / len(outcomes)
        chain.metrics.append(stage, done, total, accuracy=right)


def _missing(path: Path, policy: Policy, split: Split, n: int, draws: int) -> list[tuple[int, int]]:
    """(index of the prompt, draw) of what this very policy has not answered yet."""
    units = [(i, draw) for i in range(n) for draw in range(draws)]
    if not path.exists():
        return units
    evidence: Evidence = read_evidence(path)
    if evidence.policies.get(policy.name) != policy.digest:
        return units
    return [(i, draw) for i, draw in units if (policy.name, split, i, draw) not in evidence.outcomes]
