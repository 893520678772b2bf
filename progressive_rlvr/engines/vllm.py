"""Generation with vLLM in a process and an environment of its own.

    engine = VllmEngine(model, tokenizer)
    with engine.serving(weights):
        engine.generate([Request("12 + 30 =", key)], settings)

vLLM pins other versions of `transformers` than training needs, so it runs where `PRLVR_VLLM_PYTHON` says, else with the
interpreter at hand (`engines/vllm_worker.py`). Prompts go there as token ids and completions come back as token ids:
tokenizer, stop rule and cut are the ones of the other engines. Policies are served as merged weights, never as
adapters: an adapter would be added after the product with W has been rounded, and what was locked is W + B R A
rounded once.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from domains.workers.frames import receive, send
from progressive_rlvr.engines.base import Completion, Progress, Request, Settings, completed
from progressive_rlvr.engines.hf import stop_tokens
from progressive_rlvr.errors import UserError

INTERPRETER = "PRLVR_VLLM_PYTHON"
SHORTEST = 256  # tokens of prompt and completion that a worker is opened for at least, so that it is seldom reopened
# Packages of this project are stubs in the worker: importing a module runs no `__init__`, and nothing that lies beside
# the project shadows what vLLM's environment holds.
_BOOT = (
    "import sys, types, importlib\n"
    "root = sys.argv[1]\n"
    "for name in ('pacbayes', 'domains', 'domains.workers', 'progressive_rlvr', 'progressive_rlvr.engines'):\n"
    "    package = sys.modules[name] = types.ModuleType(name)\n"
    "    package.__path__ = [root + '/' + name.replace('.', '/')]\n"
    "importlib.import_module('progressive_rlvr.engines.vllm_worker').main()\n"
)
_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine lives in the worker itself
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",  # the model is a folder
    "OMP_WAIT_POLICY": "PASSIVE",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
}


def interpreter() -> str:
    """The Python that has vLLM.

    Raises:
        UserError: there is none.
    """
    named = os.environ.get(INTERPRETER)
    if named:
        if not os.access(named, os.X_OK):
            raise UserError(f"{INTERPRETER} is {named!r}, which is no program")
        return named
    if find_spec("vllm") is None:
        raise UserError(
            "the engine vllm needs vLLM, which this environment does not have: install it in one of its own "
            f"(`make vllm`) and set {INTERPRETER} to that environment's python"
        )
    return sys.executable


@cache
def versions(python: str) -> dict[str, str]:
    """Versions of vLLM and of what it computes with, as installed for that interpreter.

    Raises:
        UserError: it has no vLLM.
    """
    code = (
        "import json; from importlib.metadata import version, PackageNotFoundError\n"
        "found = {}\n"
        "for name in ('vllm', 'vllm-cpu', 'torch', 'transformers'):\n"
        "    try: found[name] = version(name)\n"
        "    except PackageNotFoundError: pass\n"
        "print(json.dumps(found))"
    )
    result = subprocess.run([python, "-P", "-c", code], capture_output=True, text=True)
    found: dict[str, str] = json.loads(result.stdout) if result.returncode == 0 else {}
    if not {"vllm", "vllm-cpu"} & set(found):
        raise UserError(f"{python} has no vLLM: {(result.stderr.strip() or 'it is not installed').splitlines()[-1]}")
    return {name if name.startswith("vllm") else f"vllm/{name}": value for name, value in found.items()}


class _Worker:
    """The process, and what was asked of it."""

    def __init__(self, scratch: Path, threads: int) -> None:
        self.log = scratch / "worker.log"
        ours, theirs = socket.socketpair()
        root = Path(__file__).resolve().parents[2]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), **_ENVIRONMENT}
        environment.pop("PYTHONPATH", None)
        with theirs, open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [interpreter(), "-P", "-c", _BOOT, str(root), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                env=environment,
            )
        self.channel = ours
        weakref.finalize(self, _end, self.process)

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """One question, one answer.

        Raises:
            UserError: it refused, or is gone.
        """
        try:
            send(self.channel, {"do": do, **arguments})
            answer: dict[str, Any] = receive(self.channel)
        except (OSError, EOFError) as error:
            raise UserError(f"the vLLM worker {self._how_it_ended()}; the same command goes on from here") from error
        if "error" in answer:
            raise UserError(f"vLLM: {answer['error']}")
        return answer

    def _how_it_ended(self) -> str:
        """How it ended, and the last that it said."""
        try:
            code = self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        said = self.log.read_text(errors="replace").strip().splitlines()
        return f"{how} (it said last: {said[-1][:200]})" if said else how

    def close(self) -> None:
        """End the process."""
        self.channel.close()
        _end(self.process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


class VllmEngine:
    """vLLM behind the protocol of `engines/base.py`. The worker starts with the first prompts, and again after it
    died.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        options: Mapping[str, object] | None = None,
    ) -> None:
        """`model` says what to serve: vLLM reads the folder that it was loaded from, in its dtype. `options` go to
        vLLM's `LLM`.

        Raises:
            UserError: no vLLM, a model that was not loaded from a folder, or a quantized one.
        """
        import torch

        versions(interpreter())
        if getattr(model, "is_quantized", False):
            raise UserError("the engine vllm serves no quantized base: its kernels would round in another way than hf")
        if not Path(model.name_or_path).is_dir():
            raise UserError(f"the engine vllm reads a model's folder, and {model.name_or_path!r} is none")
        self.tokenizer, self.folder = tokenizer, model.name_or_path
        self.dtype = str(model.dtype).removeprefix("torch.")
        self.limit: int = model.config.max_position_embeddings
        self.threads = torch.get_num_threads()
        self.options = dict(options or {})
        self.returned = 0
        """Requests that left vLLM's batch and came back, in the last `generate`."""
        self._stops: dict[str | None, list[int]] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="prlvr-vllm-")  # gone with the engine
        self._scratch = Path(self._folder.name)
        self._worker: _Worker | None = None
        self._opened: tuple[int, int] = (0, 0)
        self._wanted: Path | None = None
        self._served: Path | None = None
        self._files = 0

    @contextmanager
    def serving(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """For the time of a `with` block the base with these weights replaced; then the base again."""
        if not weights:
            yield
            return
        self._files += 1
        file = self._scratch / f"{self._files}.safetensors"
        save_file({name: weight.detach().cpu().contiguous() for name, weight in weights.items()}, file)
        self._wanted = file
        try:
            yield
        finally:
            self._wanted = None
            file.unlink()

    def generate(
        self, requests: Sequence[Request], settings: Settings, progress: Progress = lambda done: None
    ) -> list[Completion]:
        """Completions in the order of the requests; `progress` is told how many more are finished.

        Raises:
            UserError: a prompt does not fit, vLLM refuses, or its process died.
        """
        if not requests:
            return []
        prompts: list[list[int]] = self.tokenizer([r.prompt for r in requests])["input_ids"]
        stops = self._stop_ids(settings.stop)
        try:
            answer = self._ready(settings.batch_size, max(map(len, prompts)) + settings.max_new_tokens).ask(
                "generate",
                prompts=prompts,
                keys=[r.key.hex() for r in requests],
                temperature=settings.temperature,
                max_new_tokens=settings.max_new_tokens,
                stops=stops,
            )
        except UserError:
            self.close()
            raise
        self.returned = answer["returned"]
        progress(len(requests))
        return [completed(self.tokenizer, tokens, stops, settings.stop) for tokens in answer["tokens"]]

    def close(self) -> None:
        """End the worker; the next prompts start another."""
        if self._worker is not None:
            self._worker.close()
        self._worker, self._served = None, None

    def _ready(self, batch_size: int, length: int) -> _Worker:
        """A worker for so many sequences of so many tokens that serves the weights that are wanted."""
        if length > self.limit:
            raise UserError(
                f"a prompt and its completion take up to {length} tokens; the model has {self.limit} positions"
            )
        if self._worker is None or self._opened[0] != batch_size or self._opened[1] < length:
            self.close()
            self._worker = _Worker(self._scratch, self.threads)
            room = min(self.limit, max(SHORTEST, 1 << (length - 1).bit_length()))
            self._worker.ask(
                "open",
                folder=self.folder,
                dtype=self.dtype,
                batch_size=batch_size,
                length=room,
                options=self.options,
            )
            self._opened = (batch_size, room)
        if self._served != self._wanted:
            self._worker.ask("serve", weights=str(self._wanted) if self._wanted else None)
            self._served = self._wanted
        return self._worker

    def _stop_ids(self, stop: str | None) -> list[int]:
        if stop not in self._stops:
            self._stops[stop] = stop_tokens(self.tokenizer, stop)
        return self._stops[stop]
