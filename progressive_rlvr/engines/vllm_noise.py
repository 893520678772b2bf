"""The keyed noise inside vLLM: what depends on vLLM's version, and nothing else.

vLLM decodes greedily (temperature 0) and this logits processor chooses: every row of logits becomes -inf but for the
token that :func:`pacbayes.gumbel_torch.sample_tokens` draws from it. A request carries its key and its temperature in
`SamplingParams.extra_args`; the position is the number of tokens that the request has, so that a row's noise depends
neither on its place in the batch nor on how often it left the batch and came back.

This is the interface of the V1 sampler. Model Runner V2 has another one, which needs Triton and was never seen to run
this: the worker asks for V1 (`VLLM_USE_V2_MODEL_RUNNER=0`), and whatever is not known here is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import vllm
from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from pacbayes.gumbel import UInt32Array, key_words
from pacbayes.gumbel_torch import sample_tokens

KNOWN_VERSIONS = ("0.32.",)
KEY, TEMPERATURE = "prlvr_key", "prlvr_temperature"


def check_version() -> str:
    """The version of the installed vLLM. Raises ValueError for one that nobody has tried."""
    if not vllm.__version__.startswith(KNOWN_VERSIONS):
        known = ", ".join(f"{v}x" for v in KNOWN_VERSIONS)
        raise ValueError(f"vLLM {vllm.__version__} is not known to sample with keyed noise; known: {known}")
    return str(vllm.__version__)


def check_runner(config: VllmConfig) -> None:
    """Raise ValueError if vLLM would run another sampler than the one that this module is written for."""
    if config.use_v2_model_runner:
        raise ValueError("vLLM has chosen Model Runner V2, whose logits processors differ: only the V1 runner is known")
    if config.speculative_config is not None:
        raise ValueError("speculative decoding is refused: drafted tokens would not be drawn with keyed noise")


def extra_args(key: bytes, temperature: float) -> dict[str, Any]:
    """What a request carries: the four words of its key (integers below 2^32, vLLM takes none from 2^64) and T."""
    return {KEY: [int(word) for word in key_words([key])[0]], TEMPERATURE: temperature}


@dataclass(frozen=True)
class _Row:
    """A request in the batch; `output` is vLLM's own list of its tokens, which grows."""

    words: UInt32Array
    temperature: float
    output: list[int]


class KeyedNoise(LogitsProcessor):
    """One token per row, drawn with the request's own key."""

    returned = 0
    """How many requests came back into a batch with tokens already generated: preempted, or left out of a step."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        check_runner(vllm_config)
        self.rows: dict[int, _Row] = {}

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Raise ValueError unless the noise, the temperature and the masks are ours alone."""
        p = sampling_params
        given = p.extra_args or {}
        if KEY not in given or TEMPERATURE not in given:
            raise ValueError(f"a request without a noise key: extra_args need {KEY} and {TEMPERATURE}")
        neutral = {
            "n": 1,
            "temperature": 0.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "top_p": 1.0,
            "min_p": 0.0,
            "min_tokens": 0,
            "logit_bias": None,
            "allowed_token_ids": None,
            "structured_outputs": None,
        }
        for name, value in neutral.items():
            if getattr(p, name) != value:
                raise ValueError(f"{name} = {getattr(p, name)!r} is refused: with keyed noise it has to be {value!r}")
        if p.bad_words:
            raise ValueError("bad_words are refused: masks belong to the lock")

    def is_argmax_invariant(self) -> bool:
        """No: it decides the argmax."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow the requests through the batch: removed, then added, then moved."""
        if batch_update is None:
            return
        for index in batch_update.removed:
            self.rows.pop(index, None)
        for index, params, _, output in batch_update.added:
            words = np.array(params.extra_args[KEY], dtype=np.uint32)
            self.rows[index] = _Row(words, params.extra_args[TEMPERATURE], output)
            type(self).returned += bool(output)
        for a, b, direction in batch_update.moved:
            row, other = self.rows.pop(a, None), self.rows.pop(b, None)
            if row is not None:
                self.rows[b] = row
            if other is not None and direction == MoveDirectionality.SWAP:
                self.rows[a] = other

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits (rows, vocabulary): -inf everywhere, 0 at each row's token."""
        rows = [self.rows[i] for i in range(len(logits))]  # a row without a key must fail, never fall back to greedy
        tokens = torch.empty(len(rows), dtype=torch.int64, device=logits.device)
        for temperature in sorted({row.temperature for row in rows}):
            chosen = [i for i, row in enumerate(rows) if row.temperature == temperature]
            words = np.stack([rows[i].words for i in chosen])
            positions = [len(rows[i].output) for i in chosen]
            part = logits if len(chosen) == len(rows) else logits[chosen]
            tokens[chosen] = sample_tokens(part, words, positions, temperature)
        logits.fill_(-torch.inf)
        logits[torch.arange(len(rows), device=logits.device), tokens] = 0.0
        return logits
