"""Do engines agree? The same prompts and keys through every engine, dtype, batch size and order.

The oracle is `transformers` in float32, one prompt at a time. For everything else: how many completions differ from
the oracle's, how often a token is another one where all before it agree, how many verdicts turn, and, where two
completions part, how far apart the two best noisy scores (logits / T + g, in nats) were for the oracle.
"""

from __future__ import annotations

import random
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from transformers import PreTrainedModel

from pacbayes.gumbel import gumbel, gumbel_integers
from progressive_rlvr.chain import Chain, open_chain
from progressive_rlvr.config import load_config
from progressive_rlvr.engines import Completion, Request, engine_versions, open_engine
from progressive_rlvr.errors import UserError
from progressive_rlvr.evaluate import Policy, policies
from progressive_rlvr.models import Dtype
from progressive_rlvr.pipeline import CONFIG_FILE, only_process
from progressive_rlvr.stages import StageResult, run_stage, stage_folders

Order = Literal["given", "shuffled"]
ENGINES = ("hf", "vllm")


@dataclass(frozen=True)
class Variant:
    """One way of generating."""

    engine: str
    dtype: Dtype
    batch_size: int
    order: Order = "given"

    @classmethod
    def parse(cls, text: str) -> Variant:
        """`ENGINE:DTYPE:BATCH[:shuffled]`, such as `vllm:float32:64`. Raises UserError."""
        parts = re.fullmatch(r"(hf|vllm):(float32|bfloat16):([1-9]\d{0,5})(:shuffled)?", text)
        if parts is None:
            raise UserError(f"{text!r} is no variant: ENGINE:DTYPE:BATCH[:shuffled], such as vllm:float32:64")
        engine, dtype, batch, shuffled = parts.groups()
        return cls(
            engine, "float32" if dtype == "float32" else "bfloat16", int(batch), "shuffled" if shuffled else "given"
        )

    def __str__(self) -> str:
        return f"{self.engine}:{self.dtype}:{self.batch_size}" + (":shuffled" if self.order == "shuffled" else "")


ORACLE = Variant("hf", "float32", 1)
_SHAPES: tuple[tuple[Dtype, int, Order], ...] = (
    ("float32", 1, "given"),
    ("float32", 64, "given"),
    ("float32", 64, "shuffled"),
    ("bfloat16", 1, "given"),
    ("bfloat16", 64, "given"),
    ("bfloat16", 64, "shuffled"),
)
DEFAULT = tuple(Variant(engine, *shape) for engine in ENGINES for shape in _SHAPES)


@dataclass(frozen=True)
class Parting:
    """Where a completion leaves the oracle's: the position of the first token that differs (from 0).

    `margin`: by how much the oracle's best noisy score exceeds its second best; `gap`: by how much it exceeds the
    other engine's token. Both in nats, of the oracle's logits.
    """

    prompt: int
    position: int
    oracle: int
    other: int
    margin: float
    gap: float


@dataclass(frozen=True)
class Agreement:
    """A variant against the oracle: counts over all prompts."""

    variant: str
    prompts: int
    tokens: int
    """Tokens of the oracle up to where they part, that one included: how often a token could differ."""
    partings: list[Parting] = field(repr=False)
    right_to_wrong: int
    wrong_to_right: int
    correct: int

    @property
    def token_flip_rate(self) -> float:
        """Share of tokens that are others, where all tokens before them agree."""
        return len(self.partings) / self.tokens

    @property
    def verdict_flip_rate(self) -> float:
        """Share of prompts whose verdict is another one."""
        return (self.right_to_wrong + self.wrong_to_right) / self.prompts

    def row(self) -> dict[str, Any]:
        """As JSON."""
        margins = [p.margin for p in self.partings]
        return {
            **{k: v for k, v in asdict(self).items() if k != "partings"},
            "completions_that_differ": len(self.partings),
            "completion_flip_rate": len(self.partings) / self.prompts,
            "token_flip_rate": self.token_flip_rate,
            "verdict_flip_rate": self.verdict_flip_rate,
            "margin_median": statistics.median(margins) if margins else None,
            "margin_largest": max(margins) if margins else None,
            "partings": [asdict(p) for p in self.partings],
        }


def audit_engines(
    run_folder: Path,
    domain: str,
    policy: str = "coded",
    prompts: int = 500,
    variants: Sequence[Variant] | None = None,
    watch: Callable[[Agreement], None] = lambda done: None,
) -> dict[str, Any]:
    """Compare engines on the first `prompts` prompts of a run's sample under its committed noise.

    Args:
        run_folder, domain: a run whose locks exist; for another policy than `base` its stages have to be there, too.
        policy: `base`, `lora`, `distilled`, `tinylora` or `coded`.
        prompts: how many, at most the n of the run.
        variants: none: both engines, both dtypes, batches of 1 and 64, shuffled or not; vLLM only if it is here.
        watch: told about each variant when it is done.

    Returns: a JSON object with `oracle`, `policy`, `prompts`, `versions` and one object for each of `variants`.

    Raises:
        UserError: no such run, domain or policy, or an engine that was asked for is not here.
    """
    if not (run_folder / CONFIG_FILE).is_file():
        raise UserError(f"{run_folder} is no run: it has no {CONFIG_FILE}")
    config = load_config(run_folder / CONFIG_FILE)
    if domain not in config.domains:
        raise UserError(f"the run {run_folder} has no domain {domain!r}; it has {', '.join(config.domains)}")
    if not (run_folder / domain / "sample.lock.json").is_file():
        raise UserError(f"{run_folder / domain} has no sample.lock.json: lock the run first, with `prlvr lock`")
    versions = {"torch": torch.__version__, "transformers": version("transformers")}
    if variants is None:
        try:
            versions |= engine_versions("vllm")
            variants = [v for v in DEFAULT if v != ORACLE]
        except UserError:
            variants = [v for v in DEFAULT if v != ORACLE and v.engine != "vllm"]
    elif any(v.engine == "vllm" for v in variants):
        versions |= engine_versions("vllm")
    with only_process(run_folder / domain):
        chain = open_chain(config, run_folder, domain)
        try:
            audit = _Audit(chain, policy, prompts)
            rows = []
            for variant in variants:
                found = audit.compare(variant)
                watch(found)
                rows.append(found.row())
        finally:
            chain.domain.close()
    return {
        "run": run_folder.name,
        "domain": domain,
        "policy": policy,
        "prompts": len(audit.requests),
        "temperature": chain.settings.temperature,
        "max_new_tokens": chain.settings.max_new_tokens,
        "oracle": {"variant": str(ORACLE), "correct": sum(audit.right)},
        "device": audit.device,
        "versions": versions,
        "variants": rows,
    }


class _Audit:
    """The oracle's answers, and what others are compared with."""

    def __init__(self, chain: Chain, policy: str, prompts: int) -> None:
        self.chain, self.name = chain, policy
        self.requests: list[Request] = chain.requests("sample")[:prompts]
        self.answers = self._answers(ORACLE)
        self.right = self._right(self.answers)

    def compare(self, variant: Variant) -> Agreement:
        """One variant against the oracle."""
        answers = self._answers(variant)
        right = self._right(answers)
        parted = {
            i: position
            for i, (a, b) in enumerate(zip(self.answers, answers, strict=True))
            if (position := first_difference(a.ids, b.ids)) is not None
        }
        return Agreement(
            variant=str(variant),
            prompts=len(answers),
            tokens=sum(parted.get(i, len(a.ids) - 1) + 1 for i, a in enumerate(self.answers)),
            partings=self._partings(parted, answers),
            right_to_wrong=sum(a and not b for a, b in zip(self.right, right, strict=True)),
            wrong_to_right=sum(b and not a for a, b in zip(self.right, right, strict=True)),
            correct=sum(right),
        )

    def _answers(self, variant: Variant) -> list[Completion]:
        model, policy = self._policy(variant.dtype)
        self.device = model.device.type
        order = list(range(len(self.requests)))
        if variant.order == "shuffled":
            random.Random(0).shuffle(order)
        engine = open_engine(variant.engine, model, self.chain.tokenizer)
        settings = replace(self.chain.settings, batch_size=variant.batch_size)
        with engine.serving(policy.weights):
            found = engine.generate([self.requests[i] for i in order], settings)
        return [completion for _, completion in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])]

    def _policy(self, dtype: Dtype) -> tuple[PreTrainedModel, Policy]:
        """The base in that dtype, and the policy merged into it."""
        model = self.chain.base.load(dtype)
        stages: list[StageResult] = []
        if self.name != "base":
            for kind, folder in stage_folders(self.chain).items():
                if not (folder / "done.json").is_file():
                    break
                stages.append(run_stage(self.chain, kind, stages[-1] if stages else None))
        for policy in policies(self.chain, model, stages):
            if policy.name == self.name:
                return model, policy
        raise UserError(f"the run has no policy {self.name!r} yet: finish it with `prlvr run`")

    def _right(self, answers: list[Completion]) -> list[bool]:
        items = self.chain.items["sample"]
        return [self.chain.judge(a.text, a.truncated, items[i]).correct for i, a in enumerate(answers)]

    @torch.inference_mode()
    def _partings(self, parted: dict[int, int], answers: list[Completion]) -> list[Parting]:
        """What the oracle's logits were where completions part: from the whole sequence at once, without a cache."""
        if not parted:
            return []
        model, policy = self._policy("float32")
        engine = open_engine("hf", model, self.chain.tokenizer)
        temperature = self.chain.settings.temperature
        found = []
        with engine.serving(policy.weights):
            for i, position in parted.items():
                ids = self.chain.tokenizer(self.requests[i].prompt)["input_ids"] + list(self.answers[i].ids[:position])
                inputs = torch.tensor([ids], device=model.device)
                logits = model(input_ids=inputs, logits_to_keep=1).logits[0, -1].float().cpu().numpy()
                noise = gumbel(gumbel_integers([self.requests[i].key], position, len(logits)))[0]
                scores = logits.astype(np.float64) / temperature + noise
                second, best = np.sort(scores)[-2:]
                mine, other = self.answers[i].ids[position], answers[i].ids[position]
                found.append(
                    Parting(i, position, mine, other, float(best - second), float(scores[mine] - scores[other]))
                )
        return found


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """The first position at which two completions have different tokens; None if they are the same.

    Neither can be a mere beginning of the other: both end by the same rule.
    """
    if tuple(a) == tuple(b):
        return None
    return next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
