"""Generation on many machines: every worker is a Ray actor with a whole engine of the locked kind.

    engine = RayEngine(WorkerSpec.of(base, "hf", "float32", threads=1, revision=None), workers=5)
    with engine.serving(weights):
        engine.generate(requests, settings)                 # as any other engine; what it answers does not depend on 5
    engine.close()

The unit of work is a request: a prompt and its own noise key, which is made of (root, prompt digest, occurrence, draw).
A completion follows from weights, prompt and key, so it does not matter which worker makes it, when, or how often.

- Execution is at least once. A worker that dies is replaced, and what it was at is done again; what a worker is slow
  at is given to an idle one as well. A unit that comes back twice must come back the same, or the evaluation stops.
- Batches do not depend on the number of workers: they are runs of `batch_size` requests in the order of their length.
- A batch that ended `ATTEMPTS` workers is lost: its completions have `lost` set, and count as losses.

Workers load the base by its name and refuse one with another digest, versions of other packages than the driver's,
and another kind of device: the certificate names one engine. Changed weights travel as the bytes of a safetensors file
in Ray's object store. Requests and completions travel by Ray's own serialization, which is pickle: it connects
processes of one producer, on machines of that producer, and reads nothing that came from elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from progressive_rlvr.engines.base import Completion, Engine, Progress, Request, Settings
from progressive_rlvr.errors import EXPECTED, UserError
from progressive_rlvr.models import BaseModel, Dtype, find_base
from progressive_rlvr.quantized import Scheme

ATTEMPTS = 5  # of a batch, each of which ended a worker, before its units are lost
SLOW = 3.0  # times the median batch, before an idle worker takes a running batch as well
START_SECONDS = 900.0  # until the first worker answers
POLL_SECONDS = 1.0
SAME_VERSIONS = ("progressive-rlvr", "ray", "torch", "transformers")  # in all processes of an evaluation


@dataclass(frozen=True)
class WorkerSpec:
    """What a worker loads. `base` is a name that means the same model on every machine, as its digest says."""

    engine: str
    base: str
    revision: str | None
    digest: str
    scheme: Scheme | None  # of quantization
    dtype: Dtype
    threads: int

    @classmethod
    def of(cls, base: BaseModel, engine: str, dtype: Dtype, *, threads: int, revision: str | None) -> WorkerSpec:
        """A base model that is here, under an engine of that name."""
        name = str(base.folder.resolve()) if Path(base.name).is_dir() else base.name
        scheme = base.quantized.scheme if base.quantized else None
        return cls(engine, name, revision, base.digest, scheme, dtype, threads)


def build_engine(spec: WorkerSpec) -> Engine:
    """The engine that a worker works with.

    Raises:
        UserError: the base is not on this machine, or another one has its name.
    """
    from progressive_rlvr.engines import open_engine

    torch.set_num_threads(spec.threads)
    base = find_base(spec.base, spec.revision, spec.scheme, spec.dtype)
    if base.digest != spec.digest:
        raise UserError(f"{base.folder} holds another model than the lock names (digest {base.digest[:16]}…)")
    return open_engine(spec.engine, base.load(spec.dtype), base.load_tokenizer())


def platform_facts(spec: WorkerSpec) -> dict[str, str]:
    """What must be the same in all processes, since the certificate names it once."""
    from progressive_rlvr.engines import engine_versions

    device = "cuda" if torch.cuda.is_available() else "cpu"
    names = (*SAME_VERSIONS, *(["bitsandbytes"] if spec.scheme else []))
    return {"device": device, **{name: version(name) for name in names}, **engine_versions(spec.engine)}


class Worker:
    """The actor: one process with one engine, and the weights that it serves now."""

    def __init__(self, spec: WorkerSpec, build: Callable[[WorkerSpec], Engine]) -> None:
        self.spec, self.build = spec, build
        self.served, self.stack = 0, ExitStack()

    def start(self) -> dict[str, str] | str:
        """Load the engine; returns facts about the platform, or the error that a user should read."""
        try:
            self.engine = self.build(self.spec)
        except EXPECTED as error:
            return " ".join(str(error).split())
        return platform_facts(self.spec)

    def generate(
        self, number: int, weights: list[Any], requests: list[Request], settings: Settings
    ) -> list[Completion]:
        """Completions under the weights of that number; `weights` holds a reference to them, none for the base."""
        import ray

        if number != self.served:
            self.stack.close()
            for reference in weights:
                self.stack.enter_context(self.engine.serving(load(ray.get(reference).tobytes())))
            self.served = number
        return self.engine.generate(requests, settings)


def unit(request: Request) -> bytes:
    """What identifies a unit of work: the prompt and its noise key."""
    return hashlib.sha256(request.key + request.prompt.encode("utf-8", "surrogatepass")).digest()


@dataclass
class Batch:
    """Units that are generated together, under the weights of number `served`."""

    units: list[bytes]
    requests: list[Request]
    served: int
    attempts: int = 0
    running: int = 0


def batches(requests: Sequence[Request], size: int, served: int) -> list[Batch]:
    """Every unit once, in runs of `size` in the order of their length: no batch depends on the number of workers."""
    units = {unit(r): r for r in requests}
    order = sorted(units, key=lambda u: (len(units[u].prompt), u))
    chosen = (order[start : start + size] for start in range(0, len(order), size))
    return [Batch(c, [units[u] for u in c], served) for c in chosen]


class Answers:
    """Completions by unit. A unit may be answered again, but never otherwise."""

    def __init__(self) -> None:
        self.found: dict[bytes, Completion] = {}

    def add(self, batch: Batch, completions: Sequence[Completion]) -> int:
        """Take a batch's completions; returns how many are new.

        Raises:
            UserError: not one for each unit, or one that differs from an earlier answer.
        """
        if len(completions) != len(batch.units):
            raise UserError(f"a worker answered {len(completions)} of a batch of {len(batch.units)} prompts")
        before = len(self.found)
        for key, request, completion in zip(batch.units, batch.requests, completions, strict=True):
            first = self.found.setdefault(key, completion)
            if first != completion and not first.lost:
                raise UserError(
                    f"two workers answered differently to the prompt {request.prompt[-40:]!r} under the same weights "
                    f"and noise: {first.text[:40]!r} and {completion.text[:40]!r}; the evaluation stops, since no "
                    "answer can be trusted (another kind of processor among the workers, or a dtype that depends on "
                    "the batch?)"
                )
        return len(self.found) - before

    def lose(self, batch: Batch) -> int:
        """Give a batch up; returns how many of its units nobody answered."""
        before = len(self.found)
        for key in batch.units:
            self.found.setdefault(key, Completion("", 0, truncated=False, lost=True))
        return len(self.found) - before

    def has(self, batch: Batch) -> bool:
        """Whether all units of the batch are settled."""
        return all(key in self.found for key in batch.units)


@dataclass
class Member:
    """A worker as the driver sees it: starting, idle, or at a batch."""

    actor: Any
    pending: Any = None  # the reference that is waited for
    ready: bool = False
    batch: Batch | None = None
    since: float = field(default_factory=time.monotonic)


class RayEngine:
    """An `Engine` over actors of a Ray cluster: that of `RAY_ADDRESS`, or one on this machine, made for it."""

    def __init__(self, spec: WorkerSpec, workers: int, build: Callable[[WorkerSpec], Engine] = build_engine) -> None:
        """`build` makes a worker's engine, in the worker."""
        self.spec, self.workers, self.build = spec, workers, build
        self.members: list[Member] = []
        self.deaths = 0  # of workers, since the last answer
        self._number = self._served = 0
        self._weights: list[Any] = []
        self._answers = Answers()
        self._seconds: list[float] = []  # that batches took

    @contextmanager
    def serving(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """For the time of a `with` block every worker's base with these weights replaced; then the base again."""
        import ray

        self._connect()
        plain = {name: weight.detach().cpu().contiguous() for name, weight in weights.items()}
        self._number += 1
        self._weights = [ray.put(np.frombuffer(save(plain), dtype=np.uint8))] if plain else []
        self._served, self._answers = self._number, Answers()
        try:
            yield
        finally:
            self._served, self._weights, self._answers = 0, [], Answers()

    def generate(
        self, requests: Sequence[Request], settings: Settings, progress: Progress = lambda done: None
    ) -> list[Completion]:
        """Completions in the order of the requests; `progress` is told how many more are finished.

        Raises:
            UserError: workers contradict each other, do not start, or die one after the other.
        """
        self._connect()
        work = [b for b in batches(requests, settings.batch_size, self._served) if not self._answers.has(b)]
        waiting, started = deque(work), time.monotonic()
        while not all(map(self._answers.has, work)):
            for member in self.members:
                if member.ready and member.batch is None:
                    if (batch := self._next(waiting)) is None:
                        break
                    self._give(member, batch, settings)
            for member in self._finished():
                progress(self._settle(member, waiting))
            if not any(m.ready for m in self.members) and time.monotonic() - started > START_SECONDS:
                raise UserError(self._no_worker())
        completions = [self._answers.found[unit(r)] for r in requests]
        assert len(completions) == len(requests), "a unit is missing"
        return completions

    def close(self) -> None:
        """End the workers, and the cluster if it is this engine's own."""
        if self.members:
            import ray

            for member in self.members:
                ray.kill(member.actor)
            self.members = []
            ray.shutdown()

    def _connect(self) -> None:
        if self.members:
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        own = {"num_cpus": self.workers * self.spec.threads, "include_dashboard": False}
        address = os.environ.get("RAY_ADDRESS")
        try:
            ray.init(address=address or "local", log_to_driver=False, **({} if address else own))
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            raise UserError(f"no Ray cluster at {address or 'this machine'}: {str(error)[:200]}") from error
        self.members = [self._hire() for _ in range(self.workers)]

    def _hire(self) -> Member:
        import ray

        remote = ray.remote(Worker).options(
            num_cpus=self.spec.threads, num_gpus=1 if torch.cuda.is_available() else 0, max_restarts=0
        )
        actor = remote.remote(self.spec, self.build)
        return Member(actor, pending=actor.start.remote())

    def _give(self, member: Member, batch: Batch, settings: Settings) -> None:
        member.batch, member.since = batch, time.monotonic()
        batch.running += 1
        member.pending = member.actor.generate.remote(self._served, self._weights, batch.requests, settings)

    def _next(self, waiting: deque[Batch]) -> Batch | None:
        """A batch for an idle worker: one that waits, or one that another worker is slow at (a backup task as in Dean
        and Ghemawat, MapReduce, OSDI 2004).
        """
        while waiting:
            if not self._answers.has(batch := waiting.popleft()):
                return batch
        if not self._seconds:
            return None
        limit = SLOW * statistics.median(self._seconds)
        for member in self.members:
            batch_of = member.batch
            if batch_of is None or batch_of.served != self._served or self._answers.has(batch_of):
                continue
            if batch_of.running == 1 and time.monotonic() - member.since > limit:
                return batch_of
        return None

    def _finished(self) -> list[Member]:
        """Members whose reference is there now, waiting a little for one."""
        import ray

        pending = {m.pending: m for m in self.members if m.pending is not None}
        done, _ = ray.wait(list(pending), num_returns=1, timeout=POLL_SECONDS)
        return [pending[reference] for reference in done]

    def _settle(self, member: Member, waiting: deque[Batch]) -> int:
        """Take what a member answered, or replace it; returns how many units that settled."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        try:
            answer = ray.get(member.pending)
        except RayTaskError:
            raise  # the engine's own error, as it would be without Ray
        except RayError as death:
            return self._bury(member, waiting, death)
        member.pending = None
        if not member.ready:
            self._check(answer)
            member.ready = True
            return 0
        batch, member.batch = member.batch, None
        assert batch is not None
        batch.running -= 1
        self.deaths = 0
        if batch.served != self._served:
            return 0  # late, and about weights that are not served any more
        self._seconds.append(time.monotonic() - member.since)
        return self._answers.add(batch, answer)

    def _bury(self, member: Member, waiting: deque[Batch], death: Exception) -> int:
        """Replace a dead member and queue its batch again, or give that up; returns how many units are lost."""
        import ray

        self.deaths += 1
        if self.deaths > ATTEMPTS * (self.workers + 1):
            raise UserError(
                f"{self.deaths} Ray workers died one after the other without an answer, the last so: "
                f"{' '.join(str(death).split())[-300:]} (nothing was counted; the same command goes on from here)"
            )
        ray.kill(member.actor)  # it may be out of reach and not dead
        self.members[self.members.index(member)] = self._hire()
        batch = member.batch
        if batch is None or batch.served != self._served:
            return 0
        batch.running -= 1
        batch.attempts += 1
        if batch.running or self._answers.has(batch):
            return 0
        if batch.attempts >= ATTEMPTS:
            return self._answers.lose(batch)
        waiting.appendleft(batch)
        return 0

    def _check(self, answer: dict[str, str] | str) -> None:
        """Refuse a worker that is not like this process."""
        if isinstance(answer, str):
            raise UserError(f"a Ray worker cannot start: {answer}")
        for name, mine in platform_facts(self.spec).items():
            if answer.get(name) != mine:
                raise UserError(
                    f"a Ray worker has {name} {answer.get(name)}, this process {mine}: the certificate names one "
                    "engine, so all machines need the same"
                )

    def _no_worker(self) -> str:
        import ray

        resources = {k: v for k, v in ray.cluster_resources().items() if k in ("CPU", "GPU", "memory")}
        return (
            f"no Ray worker started within {START_SECONDS:.0f} s: each needs {self.spec.threads} CPU"
            f"{' and 1 GPU' if torch.cuda.is_available() else ''}, the cluster has {resources}"
        )
