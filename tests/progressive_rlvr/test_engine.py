"""The engine against an oracle without cache, padding or batches, and against its own batching."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Qwen2Config, Qwen2ForCausalLM

from domains.pocket import FAMILIES
from pacbayes.gumbel import gumbel, gumbel_integers
from progressive_rlvr.engines import Completion, Request, Settings
from progressive_rlvr.engines.base import common_prefix, cut
from progressive_rlvr.engines.hf import HfEngine, stop_tokens
from progressive_rlvr.engines.slots import masks
from progressive_rlvr.errors import UserError
from progressive_rlvr.models import BaseModel


def requests(n: int) -> list[Request]:
    items = [item for family in FAMILIES for item in family.draw("engine", n // 4)]
    return [Request(i.prompt, hashlib.sha256(f"{k}".encode()).digest()) for k, i in enumerate(items)]


@torch.no_grad()
def oracle(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, request: Request, settings: Settings
) -> Completion:
    """One sequence, the whole of it through the model at every token, noise from the NumPy reference."""
    ids = tokenizer(request.prompt)["input_ids"]
    tokens: list[int] = []
    while len(tokens) < settings.max_new_tokens:
        logits = model(input_ids=torch.tensor([ids + tokens])).logits[0, -1].double().numpy() / settings.temperature
        noise = gumbel(gumbel_integers([request.key], len(tokens), len(logits)))[0]
        tokens.append(int(np.argmax(logits + noise)))
        if tokens[-1] == tokenizer.eos_token_id or (settings.stop and settings.stop in tokenizer.decode(tokens[-1:])):
            break
    ended = tokens[-1] in stop_tokens(tokenizer, settings.stop)
    body = [t for t in tokens if t != tokenizer.eos_token_id]
    return Completion(cut(tokenizer.decode(body), settings.stop), len(tokens), truncated=not ended)


@pytest.mark.parametrize("stop", [None, "a"])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_every_completion_is_the_oracle_s(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, stop: str | None, temperature: float
) -> None:
    settings = Settings(max_new_tokens=12, temperature=temperature, stop=stop, batch_size=7)
    wanted = requests(24)
    found = HfEngine(model, tokenizer).generate(wanted, settings)
    assert found == [oracle(model, tokenizer, r, settings) for r in wanted]
    assert stop is None or {c.truncated for c in found} == {True, False}


def test_batch_order_and_size_change_nothing(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    wanted = requests(40)
    engine = HfEngine(model, tokenizer)
    alone = engine.generate(wanted, Settings(8, 1.0, None, 1))
    shuffled = list(range(len(wanted)))
    random.Random(1).shuffle(shuffled)
    mixed = engine.generate([wanted[i] for i in shuffled], Settings(8, 1.0, None, 16))
    assert [mixed[shuffled.index(i)] for i in range(len(wanted))] == alone


def test_noise_follows_the_key_and_not_the_place(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    prompt = "4821 + 374 ="
    keys = [bytes([k]) * 32 for k in range(12)]
    settings = Settings(8, 1.0, None, 12)
    engine = HfEngine(model, tokenizer)
    first = engine.generate([Request(prompt, k) for k in keys], settings)
    assert engine.generate([Request(prompt, k) for k in reversed(keys)], settings) == first[::-1]
    assert len({c.text for c in first}) > 6, "one key must not serve a whole batch"


def test_a_shared_prefix_is_prefilled_once_and_changes_nothing(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    shots = "12 + 30 =\n42\n47 - 25 =\n22\n"
    wanted = [
        Request(f"{shots}{a} + {b} =", bytes([a % 251]) * 32) for a, b in ((58, 16), (7, 1234), (900, 9), (58, 17))
    ]
    settings = Settings(6, 1.0, None, 4)
    assert HfEngine(model, tokenizer).generate(wanted, settings) == [
        oracle(model, tokenizer, r, settings) for r in wanted
    ]


def uneven(shared: str, n: int = 30) -> list[Request]:
    """Prompts of many lengths behind `shared`, one of them much longer than the others."""
    rng = random.Random(5)
    prompts = [shared + "+".join(str(rng.randrange(1000)) for _ in range(rng.randint(1, 5))) + "=" for _ in range(n)]
    prompts[11] = shared + "123+456-" * 6 + "7="
    return [Request(p, hashlib.sha256(f"{k}{p}".encode()).digest()) for k, p in enumerate(prompts)]


@pytest.mark.parametrize("shared", ["", "12 + 30 =\n42\n47 - 25 =\n22\n"])
@pytest.mark.parametrize("stop", [None, "a"])
def test_slots_are_refilled_and_nobody_notices(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, shared: str, stop: str | None
) -> None:
    """Seeds, stop strings and truncation end sequences at different times, so slots change hands all the time."""
    wanted = uneven(shared)
    engine = HfEngine(model, tokenizer)
    alone = engine.generate(wanted, Settings(10, 1.0, stop, 1))
    assert alone[:6] == [oracle(model, tokenizer, r, Settings(10, 1.0, stop, 1)) for r in wanted[:6]]
    assert len({c.tokens for c in alone}) > 1 or stop is None
    for batch_size, seed in ((2, 0), (5, 1), (8, 2), (30, 3), (64, 4)):
        order = random.Random(seed).sample(range(len(wanted)), len(wanted))
        mixed = engine.generate([wanted[i] for i in order], Settings(10, 1.0, stop, batch_size))
        assert [mixed[order.index(i)] for i in range(len(wanted))] == alone, f"batch size {batch_size}"


def test_a_slot_s_last_tenant_leaves_no_trace(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Short prompts that follow long ones into their slots read none of the long ones' columns."""
    short = [Request(f"{k}=", bytes([k]) * 32) for k in range(8)]
    long = [Request("98765+" * 12 + f"{k}=", bytes([100 + k]) * 32) for k in range(4)]
    settings = Settings(6, 1.0, None, 4)
    engine = HfEngine(model, tokenizer)
    assert engine.generate(long + short, settings)[4:] == engine.generate(short, settings)


def test_a_sliding_window_is_a_window(tokenizer: PreTrainedTokenizerBase) -> None:
    """Layers that see only the last tokens see those of their own sequence, whatever stands beside it."""
    torch.manual_seed(1)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        use_sliding_window=True,
        sliding_window=6,
        max_window_layers=1,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.4,
    )
    model = Qwen2ForCausalLM(config).eval()
    assert set(model.config.layer_types) == {"full_attention", "sliding_attention"}
    wanted, settings = uneven("12 + 30 = 42\n", 12), Settings(8, 1.0, None, 5)
    found = HfEngine(model, tokenizer).generate(wanted, settings)
    assert found == [oracle(model, tokenizer, r, settings) for r in wanted]


def test_everything_has_the_dtype_of_the_model(tiny: BaseModel, tokenizer: PreTrainedTokenizerBase) -> None:
    model = tiny.load("bfloat16")
    mask = masks(model.config, torch.tensor([[3], [0]]), 5, model.dtype)
    lowest = torch.finfo(torch.bfloat16).min
    rows = [[0, 0, 0, 0, lowest], [0, lowest, lowest, lowest, lowest]]
    assert torch.equal(mask, torch.tensor(rows, dtype=torch.bfloat16)[:, None, None])
    wanted, settings = requests(12), Settings(6, 1.0, None, 5)
    found = HfEngine(model, tokenizer).generate(wanted, settings)
    assert len(found) == 12
    assert found == HfEngine(model, tokenizer).generate(wanted, settings)


def test_layers_that_are_no_attention_are_refused(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    model.config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(UserError, match="linear_attention"):
        HfEngine(model, tokenizer).generate(requests(4), Settings(4, 1.0, None, 4))


def test_no_requests_no_completions(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    assert HfEngine(model, tokenizer).generate([], Settings(6, 1.0, None, 4)) == []


def test_common_prefix_leaves_every_row_a_token() -> None:
    assert common_prefix([[1, 2, 3], [1, 2, 4]]) == 2
    assert common_prefix([[1, 2], [1, 2]]) == 1
    assert common_prefix([[1], [1, 5]]) == 0
    assert common_prefix([[3, 1], [4, 1]]) == 0


def test_progress_adds_up(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    done: list[int] = []
    HfEngine(model, tokenizer).generate(requests(20), Settings(2, 1.0, None, 8), done.append)
    assert sum(done) == 20
