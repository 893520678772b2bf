"""Checks that run inside vLLM's own environment: `test_vllm.py` starts one of these functions by its name."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch
import vllm
from vllm import SamplingParams
from vllm.exceptions import VLLMValidationError
from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

from pacbayes.gumbel import prompt_key, sample_tokens
from progressive_rlvr.engines import vllm_noise
from progressive_rlvr.engines.vllm_noise import KeyedNoise, check_runner, check_version, extra_args

ROOT, PROMPT = bytes(range(32)).hex(), bytes(range(32, 64)).hex()
V1 = SimpleNamespace(use_v2_model_runner=False, speculative_config=None)


def params(key: bytes, ours: float = 1.0, **other: object) -> SamplingParams:
    """Greedy for vLLM, at temperature `ours` for the noise."""
    return SamplingParams(**{"temperature": 0.0, "extra_args": extra_args(key, ours), **other})


def processor() -> KeyedNoise:
    return KeyedNoise(V1, torch.device("cpu"), False)


def refused(call: Callable[[], object], said: str, kind: type[Exception] = ValueError) -> None:
    """The call is refused, and says so. (vLLM's environment has no pytest.)"""
    found = None
    try:
        call()
    except kind as error:
        found = error
    assert found is not None, f"not refused: {said}"
    assert said in str(found), found


def golden_values() -> None:
    """The integers of `tests/pacbayes/test_gumbel.py`, of which the largest wins where all logits are equal."""
    first, second = prompt_key("00" * 32, "11" * 32, 0, 0), prompt_key(ROOT, PROMPT, 3, 2)
    x = [
        [1591971455, 1747318076, 2462023902, 1651410860, 1298850539, 3536487555],
        [2880874584, 1086471836, 1296269887, 4035075195, 1050124698, 2644881897],
    ]
    noise = processor()
    added = [(0, params(first), None, []), (1, params(second), None, [9] * 7)]
    noise.update_state(BatchUpdate(batch_size=2, removed=[], added=added, moved=[]))
    chosen = noise.apply(torch.zeros(2, 6))
    assert chosen.argmax(dim=1).tolist() == [int(np.argmax(row)) for row in x]
    assert (chosen == 0).sum(dim=1).tolist() == [1, 1]
    assert torch.isneginf(chosen).sum() == 10


def shuffled_batches() -> None:
    """Requests that come, go and trade places: every token is the reference's for (key, number of tokens so far)."""
    rng, generator = random.Random(3), torch.Generator().manual_seed(3)
    noise, batch, waiting, made = processor(), [], [], 0
    for step in range(300):
        removed, added, moved = [], [], []
        for i in sorted(rng.sample(range(len(batch)), rng.randint(0, len(batch) // 2)), reverse=True):
            if rng.random() < 0.5:
                waiting.append(batch[i])  # preempted: it will be back with its tokens
            removed.append(i)
            batch[i] = None
        holes = [i for i, r in enumerate(batch) if r is None]
        for _ in range(rng.randint(0, 4)):
            if waiting and rng.random() < 0.5:
                request = waiting.pop()
            else:
                made += 1
                request = (prompt_key(ROOT, PROMPT, made, 0), rng.choice([0.7, 1.0]), [])
            index = holes.pop(0) if holes else len(batch)
            if index == len(batch):
                batch.append(None)
            elif index in removed:
                removed.remove(index)
            batch[index] = request
            added.append((index, params(*request[:2]), None, request[2]))
        while None in batch:  # vLLM closes holes with the last requests
            if batch[-1] is None:
                batch.pop()
                continue
            hole = batch.index(None)
            moved.append((len(batch) - 1, hole, MoveDirectionality.UNIDIRECTIONAL))
            batch[hole] = batch.pop()
        if len(batch) > 1 and rng.random() < 0.5:
            a, b = rng.sample(range(len(batch)), 2)
            moved.append((a, b, MoveDirectionality.SWAP))
            batch[a], batch[b] = batch[b], batch[a]
        update = BatchUpdate(batch_size=len(batch), removed=removed, added=added, moved=moved)
        noise.update_state(update if removed or added or moved else None)
        if not batch:
            continue
        logits = 3 * torch.randn(len(batch), 50, generator=generator)
        expected = [
            int(sample_tokens(row[None].numpy(), [key], len(output), temperature)[0])
            for row, (key, temperature, output) in zip(logits, batch, strict=True)
        ]
        assert noise.apply(logits.clone()).argmax(dim=1).tolist() == expected, step
        for token, (_, _, output) in zip(expected, batch, strict=True):
            output.append(token)
    assert made > 200


def refused_settings() -> None:
    """What would take noise, temperature or masks out of the lock's hands, and versions that nobody tried."""
    key = bytes(32)
    KeyedNoise.validate_params(params(key))
    refused(lambda: KeyedNoise.validate_params(SamplingParams(temperature=0.0)), "without a noise key")
    for setting, said in (
        ({"temperature": 1.0, "n": 2}, "n = 2"),
        ({"temperature": 1.0}, "temperature = 1.0"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"min_tokens": 3}, "min_tokens"),
        ({"logit_bias": {1: 2.0}}, "logit_bias"),
        ({"allowed_token_ids": [1, 2]}, "allowed_token_ids"),
    ):
        refused(lambda s=setting: KeyedNoise.validate_params(params(key, **s)), said)
    refused(lambda: check_runner(SimpleNamespace(use_v2_model_runner=True)), "Model Runner V2")
    refused(
        lambda: check_runner(SimpleNamespace(use_v2_model_runner=False, speculative_config={})), "speculative decoding"
    )
    assert check_version() == vllm.__version__
    vllm_noise.vllm = SimpleNamespace(__version__="0.99.1")
    refused(check_version, "vLLM 0.99.1 is not known")
    refused(lambda: processor().apply(torch.zeros(1, 4)), "0", KeyError)  # a row without a key


def refused_by_vllm_itself(folder: str) -> None:
    """What the processor refuses does not get through the real engine."""
    from progressive_rlvr.engines.vllm_worker import Server

    server = Server(folder, "float32", 4, 128, {})

    def ask(asked: SamplingParams) -> None:
        server.llm.generate({"prompt_token_ids": [5, 6, 7]}, asked, use_tqdm=False)

    refused(lambda: ask(SamplingParams(temperature=0.0)), "without a noise key", VLLMValidationError)
    refused(lambda: ask(params(bytes(32), temperature=1.0)), "temperature = 1.0 is refused", VLLMValidationError)
    assert server.generate([[5, 6, 7]], ["00" * 32], 1.0, 3, [1])["tokens"]


def served_weights(folder: str) -> None:
    """The check of what is served sees a layer that kept its old weights."""
    from safetensors.torch import save_file

    from progressive_rlvr.engines import vllm_worker

    server = vllm_worker.Server(folder, "float32", 4, 128, {})
    name = "model.layers.2.self_attn.v_proj.weight"
    original = dict(server._checkpoint({}))
    changed = {name: original[name].float() * 1.001}
    server._check({})
    refused(lambda: server._check(changed), "model.layers.2.self_attn.qkv_proj.weight differs", RuntimeError)
    file = f"{sys.argv[-1]}/changed.safetensors"
    save_file(changed, file)
    server.serve(file)
    server._check(changed)
    server.serve(None)
    server._check({})


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:3])
