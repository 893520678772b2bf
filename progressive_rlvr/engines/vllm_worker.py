"""The process that holds vLLM, in vLLM's own environment; `engines/vllm.py` starts it and speaks to it.

Length-prefixed JSON over a socket, weights as safetensors files: nothing is pickled. The first message opens a model,
each further one is {"do": "serve", "weights": file or null} or {"do": "generate", ...}; answers are objects, and
{"error": ...} is what a user should read. The process ends when the other end is gone.

It imports vLLM, torch, safetensors, and of this project only `pacbayes.gumbel*`, `domains.workers.frames` and
`engines.vllm_noise`.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from domains.workers.frames import receive, send
from progressive_rlvr.engines.vllm_noise import KeyedNoise, check_version, extra_args

PROBED_COLUMNS = 8


class Server:
    """A model in vLLM: weights can be changed, completions are functions of (weights, prompt, key)."""

    def __init__(self, folder: str, dtype: str, batch_size: int, length: int, options: dict[str, Any]) -> None:
        """`length`: tokens of the longest prompt and completion together. `options` go to vLLM as they are."""
        from vllm import LLM

        self.folder = Path(folder)
        memory: dict[str, Any] = {"kv_cache_memory_bytes": 1 << 30}
        if torch.cuda.is_available():
            memory = {"gpu_memory_utilization": 0.5}  # the training process has its model there, too
        self.llm = LLM(
            model=folder,
            dtype=dtype,
            max_num_seqs=batch_size,
            max_model_len=length,
            skip_tokenizer_init=True,
            trust_remote_code=False,
            load_format="safetensors",
            generation_config="vllm",  # no sampling defaults of the model's own
            logits_processors=[KeyedNoise],
            enforce_eager=True,
            # A completion must not depend on what was asked before, nor on tokens that are still to come.
            enable_prefix_caching=False,
            async_scheduling=False,
            **{**memory, **options},
        )
        self._check({})

    def serve(self, weights: str | None) -> dict[str, Any]:
        """Put the base's weights, with those of a safetensors file in place of some, into the model, and look."""
        changed = load_file(weights) if weights else {}
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": self._checkpoint(changed)})
        self._check(changed)
        return {}

    def generate(
        self,
        prompts: list[list[int]],
        keys: list[str],
        temperature: float,
        max_new_tokens: int,
        stops: list[int],
    ) -> dict[str, Any]:
        """Token ids of every completion, the ending token included."""
        from vllm import SamplingParams

        params = [
            SamplingParams(
                temperature=0.0,
                max_tokens=max_new_tokens,
                stop_token_ids=stops,
                ignore_eos=True,  # the end token is among the stops
                detokenize=False,
                extra_args=extra_args(bytes.fromhex(key), temperature),
            )
            for key in keys
        ]
        before = KeyedNoise.returned
        outputs = self.llm.generate([{"prompt_token_ids": ids} for ids in prompts], params, use_tqdm=False)
        if [list(o.prompt_token_ids) for o in outputs] != prompts:
            raise RuntimeError("vLLM's completions are not in the order of the prompts")
        return {"tokens": [list(o.outputs[0].token_ids) for o in outputs], "returned": KeyedNoise.returned - before}

    def _checkpoint(self, changed: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Every tensor of the base's files by name, the changed ones in the place of theirs."""
        left = set(changed)
        for file in sorted(self.folder.glob("*.safetensors")):
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118  not a dict
                    left.discard(name)
                    yield name, changed[name] if name in changed else tensors.get_tensor(name)
        if left:
            raise ValueError(f"the base has no weight {min(left)}")

    def _check(self, changed: Mapping[str, Tensor]) -> None:
        check_served(self.llm.collective_rpc(_model_of)[0], self._checkpoint(changed))


def _model_of(worker: Any) -> nn.Module:
    model: nn.Module = worker.model_runner.get_model()
    return model


@torch.no_grad()
def check_served(model: nn.Module, checkpoint: Iterator[tuple[str, Tensor]]) -> None:
    """Compare what vLLM computes with to the checkpoint: a layer that a reload skipped would keep old weights.

    Weights of linear layers may be packed for the kernel and cannot be read, so the layer is asked: an input with a
    single 1 gives a column of the weight, exactly. Some columns of every layer are compared, other tensors whole.

    Raises:
        RuntimeError: a tensor is not there, or not the one of the checkpoint.
    """
    fused = {part: whole for whole, parts in getattr(model, "packed_modules_mapping", {}).items() for part in parts}
    order = {part: parts for parts in getattr(model, "packed_modules_mapping", {}).values() for part in parts}
    waiting: dict[str, dict[str, Tensor]] = {}
    for name, tensor in checkpoint:
        path, _, kind = name.rpartition(".")
        parent, _, last = path.rpartition(".")
        whole = f"{parent}.{fused[last]}" if last in fused else path
        if name == "lm_head.weight" and getattr(model.config, "tie_word_embeddings", False):
            continue
        try:
            module = model.get_submodule(whole)
        except AttributeError as error:
            raise RuntimeError(f"vLLM's model has no {whole}: {name} cannot be checked") from error
        if last in fused:
            parts = waiting.setdefault(f"{whole}.{kind}", {})
            parts[last] = tensor
            if len(parts) < len(order[last]):
                continue
            del waiting[f"{whole}.{kind}"]
            tensor = torch.cat([parts[part] for part in order[last]])
        if not _same(module, kind, tensor):
            raise RuntimeError(f"vLLM does not serve the weights that it was given: {whole}.{kind} differs")
    if waiting:
        raise RuntimeError(f"the checkpoint has only a part of {min(waiting)}")


def _same(module: nn.Module, kind: str, expected: Tensor) -> bool:
    from vllm.model_executor.layers.linear import LinearBase

    if kind != "weight" or not isinstance(module, LinearBase):
        found = getattr(module, kind)[: len(expected)]
        return torch.equal(found.cpu(), expected.to(found.dtype).cpu())
    columns = torch.linspace(0, expected.shape[1] - 1, PROBED_COLUMNS).long()
    probe = nn.functional.one_hot(columns, expected.shape[1]).to(module.params_dtype)
    device = next(module.parameters()).device
    found = module.quant_method.apply(module, probe.to(device), None)
    return torch.equal(found.cpu(), expected[:, columns].T.to(module.params_dtype).cpu())


def _end_with(parent: int) -> None:
    """End this process, in whatever it is doing, once its parent is gone."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Serve the socket whose number is the last argument."""
    _end_with(os.getppid())
    channel = socket.socket(fileno=int(sys.argv[-1]))
    server: Server | None = None
    while True:
        try:
            message = receive(channel)
        except EOFError:
            os._exit(0)  # vLLM has nothing to save, and its own end takes seconds
        try:
            what = message.pop("do")
            if what == "open":
                answer: dict[str, Any] = {"vllm": check_version()}
                server = Server(**message)
            elif server is None:
                raise RuntimeError("no model is open")
            else:
                answer = server.serve(**message) if what == "serve" else server.generate(**message)
        except Exception as error:  # whatever it is, the other end has to hear of it
            answer = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:500]}
        send(channel, answer)
