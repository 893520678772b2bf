"""What a report reads of a certificate. Other keys are let through: checking them is the business of `prlvr verify`."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_PREFIX = "prlvr/certificate/"
POLICIES = {"base": "Base", "lora": "LoRA", "distilled": "Distilled", "tinylora": "TinyLoRA", "coded": "Coded"}


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Score(_Read):
    """Right answers among n."""

    accuracy: Decimal = Field(ge=0, le=1)
    correct: Decimal = Field(ge=0)
    n: int = Field(gt=0)


class Measured(Score):
    """A policy on the sample, and on held-out prompts where there are any."""

    heldout: Score | None = None


class MergedLogits(_Read):
    """Divergences of next-token distributions, in nats."""

    positions: int = Field(gt=0)
    mean_divergence: float = Field(ge=0, allow_inf_nan=False)
    same_argmax: float = Field(ge=0, le=1)


class MergedCompletions(_Read):
    """How many completions are not the same any more."""

    changed: int = Field(ge=0)


class MergedVerdicts(_Read):
    """How many completions are right before and after, and how many verdicts turned."""

    right_before: int = Field(ge=0)
    right_after: int = Field(ge=0)
    right_to_wrong: int = Field(ge=0)
    wrong_to_right: int = Field(ge=0)


class MergeAudit(_Read):
    """What merging the message into quantized weights does, by `prlvr audit merge`."""

    message: str | None
    quantization: Literal["int8", "nf4"]
    prompts: int = Field(gt=0)
    logits: MergedLogits
    completions: MergedCompletions
    verdicts: MergedVerdicts


class Line(_Read):
    """One line of a ledger."""

    name: str
    value: Decimal = Field(ge=0)
    why: str = ""


class Ledger(_Read):
    """Named lines and their total."""

    total: Decimal = Field(ge=0)
    lines: tuple[Line, ...]


class Bound(_Read):
    """The bound that was used and what it gave."""

    name: str
    losses: Decimal = Field(ge=0)
    n: int = Field(gt=0)
    certified_accuracy: Decimal = Field(ge=0, le=1)


class Message(_Read):
    """The coded fine-tune."""

    hex: str = Field(pattern="^[0-9a-fA-F]*$")
    bits: Decimal = Field(ge=0)
    entry: Any = None
    integers: tuple[int, ...] = ()


class Attempt(_Read):
    """Which attempt at this claim it was."""

    number: int = Field(ge=0)
    previous: Any = None


class Certificate(_Read):
    """The parts of a certificate that are printed."""

    schema_name: str = Field(alias="schema", pattern=f"^{SCHEMA_PREFIX}")
    purpose: Literal["certificate", "development"]
    model: dict[str, Any] = {}
    domain: str
    population: str | dict[str, Any] = ""
    design: str
    n: int = Field(gt=0)
    draws: int = Field(default=1, ge=1)
    delta: Decimal = Field(gt=0, lt=1)
    statement: str = ""
    bits: Ledger
    deltas: Ledger
    bound: Bound
    coded: Measured
    base: Measured | None = None
    lora: Measured | None = None
    distilled: Measured | None = None
    tinylora: Measured | None = None
    message: Message
    stages: tuple[dict[str, Any], ...] = ()
    attempt: Attempt
    noise: dict[str, Any] = {}
    novelty: dict[str, Any] | None = None
    digests: dict[str, Any] = {}
    engine: dict[str, Any] = {}
    assumptions: tuple[str, ...] = ()

    @property
    def certified(self) -> Decimal:
        """The certified accuracy, as a fraction."""
        return self.bound.certified_accuracy

    @property
    def risk(self) -> Decimal:
        """The probability that this statement fails: its own share of delta, where delta is shared."""
        return next((line.value for line in self.deltas.lines if line.name == "accuracy"), self.delta)

    @property
    def development(self) -> bool:
        """Whether this is a development run, which certifies nothing."""
        return self.purpose == "development"

    def policies(self) -> list[tuple[str, Measured]]:
        """The measured policies in the order of the pipeline."""
        return [(name, score) for name in POLICIES if (score := getattr(self, name)) is not None]
