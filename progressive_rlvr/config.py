"""The configuration of a run: frozen, complete, and closed to unknown keys.

    name: pocket
    base: {model: pocket}
    domains: {mathematics: {population: pocket}}

is a whole configuration; everything else has a default. What enters the locks is marked "locked" in the field's
description, everything else (learning rates, steps, seeds of training) is free by the theorem: it costs no bits.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from domains.registry import canonical_name
from pacbayes.codes import LaplaceCode
from pacbayes.codes.priors import AnyCode
from progressive_rlvr.errors import UserError

Positive = Annotated[int, Field(gt=0)]
Rate = Annotated[float, Field(gt=0, lt=10)]
StageName = Literal["rlvr", "distill", "tinylora", "quantize"]
STAGES: tuple[StageName, ...] = ("rlvr", "distill", "tinylora", "quantize")
LINEAR_KINDS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class Frozen(BaseModel):
    """Unknown keys are refused, values cannot change."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Base(Frozen):
    """The model that is tuned."""

    model: str = Field(description="locked: `pocket`, `smollm2-135m`, a hub id, or a folder")
    revision: str | None = Field(None, description="locked through the weights' digest: a hub commit")
    training_dtype: Literal["float32", "bfloat16"] = Field("float32", description="dtype of the training stages")
    quantization: Literal["none", "int8", "nf4"] = Field(
        "none", description="locked: bitsandbytes weights of the linear layers, in training and in what is certified"
    )


class DomainChoice(Frozen):
    """Which prompts of a domain are meant by "new prompts"."""

    population: str = Field("pocket", description="locked: see `prlvr domains show DOMAIN`")


class Sample(Frozen):
    """The certification sample, drawn after the method is locked."""

    n: Positive = Field(4000, description="locked: prompts in the sample, all of them used for training")
    draws: int = Field(
        1, ge=1, le=10_000, description="locked: answers to each prompt; several are certified by the betting bound"
    )
    heldout: int = Field(2000, ge=0, description="locked: fresh prompts that are only looked at, for comparison")
    pool_claim: Literal["unseen", "expected"] = Field(
        "unseen",
        description="locked, for a dataset: what is certified. unseen: the answers, under the committed noise, to the "
        "prompts of the dataset that were not drawn. expected: the expected accuracy on all of its prompts",
    )
    beacon: str | None = Field(None, description="public randomness dated after the method lock was witnessed")
    purpose: Literal["certificate", "development"] = Field(
        "certificate", description="locked: development runs draw other prompts, are no attempt, and certify nothing"
    )


class Generation(Frozen):
    """How the certified policy answers."""

    engine: Literal["hf", "vllm"] = Field("hf", description="locked: transformers, or vLLM in its own environment")
    temperature: float = Field(1.0, gt=0, description="locked")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="locked: dtype of the certified weights")
    batch_size: Positive = Field(256, description="locked: sequences decoded together")


class Student(Frozen):
    """TinyLoRA: W' = W + B (sum_i v_i P_i) A (arXiv 2602.04118). All locked."""

    directions: Literal["weights", "answers"] = Field(
        "weights",
        description="weights: A, B from the rank-r SVD of W and P random, as published. answers: A, B, P from the "
        "base model's own answers to fresh unlabelled prompts: where they agree, and where they vary most",
    )
    answers: Positive = Field(512, description="how many answers, for directions: answers")
    samples: int = Field(8, ge=2, description="answers to one prompt, for directions: answers; divides them")
    r: Positive = 2
    u: Positive = 1
    groups: Positive | None = Field(None, description="tied groups, a divisor of the modules; none: one per module")
    targets: tuple[str, ...] = LINEAR_KINDS
    seed: int = Field(0, ge=0, description="of the fixed random P, or of the prompts that are answered")

    @model_validator(mode="after")
    def _enough_answers(self) -> Student:
        if self.directions == "answers" and self.u > self.answers:
            raise ValueError(f"u = {self.u} directions need at least as many answers, not {self.answers}")
        if self.directions == "answers" and self.answers % self.samples:
            raise ValueError(f"{self.answers} answers cannot be {self.samples} to every prompt")
        return self


class MenuChoice(Frozen):
    """The menu of codes: every step with every code, all equally likely. All locked."""

    steps: tuple[str, ...] = Field(("0.2", "0.4"), min_length=1, description="grid steps, as decimal strings")
    codes: tuple[AnyCode, ...] = Field(
        (LaplaceCode(ratio="1/2", bound=15),), min_length=1, description="declarations of pacbayes.codes"
    )

    @field_validator("steps")
    @classmethod
    def _decimals(cls, steps: tuple[str, ...]) -> tuple[str, ...]:
        for step in steps:
            try:
                positive = Fraction(step) > 0
            except (ValueError, ZeroDivisionError):
                positive = False
            if not positive:
                raise ValueError(f"a grid step is a positive decimal string such as '0.2', not {step!r}")
        return steps


class Rlvr(Frozen):
    """LoRA by GRPO on the verifier's reward."""

    steps: Positive = 40
    prompts: Positive = Field(16, description="prompts a step")
    samples: int = Field(8, ge=2, description="completions a prompt")
    learning_rate: Rate = 2e-3
    weight_decay: float = Field(0.0, ge=0, description="pull to zero a step, as a share of the learning rate")
    rank: Positive = 8


class Distill(Frozen):
    """On-policy distillation of the LoRA teacher into TinyLoRA: reverse KL on the student's own samples."""

    steps: Positive = 40
    prompts: Positive = 128
    learning_rate: Rate = 4e-2
    weight_decay: float = Field(0.5, ge=0, description="v loses this share of itself a step, times the learning rate")
    shrinkage: float = Field(0.0, ge=0, description="v comes nearer to zero by this a step, times the learning rate")


class TinyLora(Frozen):
    """GRPO in TinyLoRA space."""

    steps: Positive = 25
    prompts: Positive = 16
    samples: int = Field(8, ge=2)
    learning_rate: Rate = 1e-2
    weight_decay: float = Field(0.5, ge=0, description="v loses this share of itself a step, times the learning rate")
    shrinkage: float = Field(0.0, ge=0, description="v comes nearer to zero by this a step, times the learning rate")


class Quantize(Frozen):
    """Rounding v to the grids of the menu."""

    candidates_on: Positive = Field(2000, description="prompts of the sample on which candidates are compared")
    max_bits: float | None = Field(None, gt=0, description="longer messages are not considered")
    rounds: int = Field(0, ge=0, description="of search from the integers of the best candidate")


class Stages(Frozen):
    """The stages of the chain; a stage set to null is left out (quantize cannot be)."""

    rlvr: Rlvr | None = Rlvr()
    distill: Distill | None = Distill()
    tinylora: TinyLora | None = TinyLora()
    quantize: Quantize = Quantize()
    checkpoint_every: Positive | None = Field(None, description="training steps between checkpoints of long stages")
    micro_batch: Positive | None = Field(None, description="sequences per backward pass; none: a whole step at once")
    rollouts: Literal["hf", "vllm"] = Field(
        "hf", description="what generates in rlvr and tinylora; vllm: TRL's, in its own process, on a GPU only"
    )

    @model_validator(mode="after")
    def _chain(self) -> Stages:
        if self.distill is not None and self.rlvr is None:
            raise ValueError("distill needs the teacher that rlvr trains: give rlvr, or set distill to null as well")
        if self.distill is None and self.tinylora is None:
            raise ValueError("no stage trains the student: give distill or tinylora")
        return self


class GainChoice(Frozen):
    """A certified gain over the base model: the shares of delta of the base's accuracy and of the paired bet."""

    base: str
    paired: str


class TransferChoice(Frozen):
    """A certificate for a policy without a message, by `prlvr bound certify-transfer`. All locked."""

    policy: Literal["lora", "distilled", "tinylora"] = Field("lora", description="the policy of that stage")
    teachers: Positive = Field(1, description="comparisons that may be made; each pays log2 of their number")
    prompts: Positive = Field(1000, description="fresh unlabelled prompts on which it is compared with the student")
    delta: str = Field(description="share of delta of the disagreement")


class Statements(Frozen):
    """Statements beside the accuracy, each with its share of a domain's delta as decimal text. All locked."""

    gain: GainChoice | None = None
    holdout: str | None = Field(None, description="share of the hold-out, so that it holds jointly")
    transfer: TransferChoice | None = None
    joint: str | None = Field(
        None, description="delta of all domains at once, split evenly: it replaces `delta`; at least two domains"
    )


class RunConfig(Frozen):
    """One run: one base model, one or more domains, one certificate for each."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    base: Base
    domains: dict[str, DomainChoice] = Field(min_length=1)
    data_dir: Path | None = Field(None, description="folder of local datasets; none: the hub")
    sample: Sample = Sample()
    generation: Generation = Generation()
    delta: float = Field(0.05, gt=0, lt=1, description="locked: each certificate may be wrong with this probability")
    statements: Statements | None = Field(None, description="locked: what is certified beside the accuracy")
    student: Student = Student()
    menu: MenuChoice = MenuChoice()
    stages: Stages = Stages()
    seed: int = Field(0, ge=0, description="of training; free")
    processes: Positive = Field(2, description="domains worked on at the same time")
    threads: Positive = Field(1, description="threads of each process")

    @field_validator("domains")
    @classmethod
    def _canonical(cls, domains: dict[str, DomainChoice]) -> dict[str, DomainChoice]:
        return {canonical_name(name): choice for name, choice in domains.items()}

    @model_validator(mode="after")
    def _one_draw_where_needed(self) -> RunConfig:
        for name in ("gain", "holdout") if self.statements is not None and self.sample.draws > 1 else ():
            if getattr(self.statements, name) is not None:
                raise ValueError(
                    f"statements.{name} is for one draw per prompt, and sample.draws is {self.sample.draws}: leave one "
                    "of them out"
                )
        return self

    @model_validator(mode="after")
    def _quantized_once(self) -> RunConfig:
        if self.base.quantization != "none" and self.base.training_dtype != self.generation.dtype:
            raise ValueError(
                f"a quantized base is one model: base.training_dtype ({self.base.training_dtype}) must be "
                f"generation.dtype ({self.generation.dtype})"
            )
        return self


def load_config(path: Path, data_dir: Path | None = None) -> RunConfig:
    """Read a YAML configuration; `data_dir` goes before the one that it names.

    Raises:
        UserError: no such file, no YAML, an unknown key, or a value out of range (all of them listed).
    """
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the configuration {path}: {error}") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(raw, dict):
        raise UserError(f"{path} must be a mapping of keys such as name, base and domains, not {type(raw).__name__}")
    if data_dir is not None:
        raw["data_dir"] = str(data_dir)
    try:
        return RunConfig.model_validate(raw)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, e['loc'])) or 'top level'}: {e['msg']} (got {e['input']!r:.80})"
            for e in error.errors()
        )
        raise UserError(f"{path}: {faults}") from error


def with_seed(config: RunConfig, seed: int | None) -> RunConfig:
    """The configuration with another training seed K, called NAME-seedK; None: as it is.

    Raises:
        UserError: the name would become too long.
    """
    if seed is None:
        return config
    try:
        return RunConfig.model_validate(config.model_dump() | {"name": f"{config.name}-seed{seed}", "seed": seed})
    except ValidationError as error:
        raise UserError(f"no run can be called {config.name}-seed{seed}: {error.errors()[0]['msg']}") from error


def dump_config(config: RunConfig) -> str:
    """The configuration with every default written out, as YAML."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
