"""Generation on Ray workers: the answers are those of one process, whatever the number of workers and whoever dies.

Workers and drivers that are killed are slow tests: `make test-ray`.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from small_runs import ENVIRONMENT, command, prlvr, write_config
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from domains.base import Item
from pacbayes.certificate import read_certificate
from pacbayes.evidence import INFRASTRUCTURE_REASONS, EvidenceError, Outcome, write_evidence
from progressive_rlvr.chain import Chain
from progressive_rlvr.engines import Completion, Request, Settings
from progressive_rlvr.engines.hf import HfEngine
from progressive_rlvr.engines.ray import ATTEMPTS, Answers, RayEngine, WorkerSpec, batches, build_engine
from progressive_rlvr.errors import UserError
from progressive_rlvr.evaluate import Policy, check_complete
from progressive_rlvr.metrics import Metrics
from progressive_rlvr.models import BaseModel

SETTINGS = Settings(max_new_tokens=6, temperature=1.0, stop=None, batch_size=4)
POISON = "poison"


def requests(count: int) -> list[Request]:
    rng = random.Random(3)
    return [Request(f"{rng.randrange(10 ** rng.randrange(1, 5))} + {k} =", rng.randbytes(32)) for k in range(count)]


def test_batches_hold_every_unit_once_whatever_the_order() -> None:
    wanted = requests(30)
    shuffled = random.Random(1).sample(wanted, 30)
    first, second = batches(wanted, 7, 0), batches([*shuffled, *wanted[:5]], 7, 0)
    assert [b.requests for b in first] == [b.requests for b in second]
    assert [len(b.units) for b in first] == [7, 7, 7, 7, 2]
    assert len({u for b in first for u in b.units}) == 30


def test_a_unit_may_be_answered_twice_but_not_otherwise() -> None:
    (batch,) = batches(requests(3), 3, 0)
    answers = Answers()
    said = [Completion(str(k), 1, truncated=False) for k in range(3)]
    assert answers.add(batch, said) == 3
    assert answers.add(batch, said) == 0
    with pytest.raises(UserError, match="answered differently"):
        answers.add(batch, [*said[:2], replace(said[2], text="other")])


def test_answers_are_counted() -> None:
    """A worker that leaves a prompt out must not make n smaller."""
    (batch,) = batches(requests(3), 3, 0)
    with pytest.raises(UserError, match="2 of a batch of 3"):
        Answers().add(batch, [Completion("", 1, truncated=False)] * 2)


def test_what_is_given_up_is_lost_unless_somebody_answered() -> None:
    first, second = batches(requests(4), 2, 0)
    answers = Answers()
    answers.add(first, [Completion("x", 1, truncated=False)] * 2)
    assert (answers.lose(first), answers.lose(second)) == (0, 2)
    assert [answers.found[u].lost for b in (first, second) for u in b.units] == [False, False, True, True]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers must find the engines that this file defines."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)


def test_a_lost_unit_is_a_loss_that_may_be_the_machines_fault() -> None:
    """So it counts against the coded policy, and for the base model in a gain."""
    lost = Completion("42", 1, truncated=False, lost=True)
    verdict = Chain.verdict(cast(Chain, None), lost, Item("6 * 7 =", "42"))
    assert (verdict.correct, str(verdict.reason)) == (False, "crashed")
    assert str(verdict.reason) in INFRASTRUCTURE_REASONS


def test_an_evaluation_with_a_hole_is_no_evaluation(tmp_path: Path) -> None:
    lock, policy = "a" * 64, Policy("coded", {}, "b" * 64)
    sample, method = SimpleNamespace(split=lambda split: range(3)), SimpleNamespace(draws=1)
    chain = cast(Chain, SimpleNamespace(sample=sample, method=method))
    path = tmp_path / "evidence.parquet"
    rows = [Outcome("coded", "sample", i, "c" * 64, 0, 0, True, "right", 1, "x") for i in range(3)]
    write_evidence(path, rows[:2], sample_lock=lock, policies={"coded": policy.digest})
    with pytest.raises(EvidenceError, match="2 outcomes of coded on the 3 prompts"):
        check_complete(chain, policy, "sample", path)
    write_evidence(path, rows, sample_lock=lock, policies={"coded": policy.digest})
    check_complete(chain, policy, "sample", path)


def spec_of(base: BaseModel) -> WorkerSpec:
    return WorkerSpec.of(base, "hf", "float32", threads=1, revision=None)


def test_workers_answer_as_one_process_does_base_and_changed(
    tiny: BaseModel, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    wanted, name = requests(37), "model.layers.0.mlp.up_proj.weight"
    weights = {name: -dict(model.named_parameters())[name].detach()}
    here = HfEngine(model, tokenizer)
    base = here.generate(wanted, SETTINGS)
    with here.serving(weights):
        changed = here.generate(wanted, SETTINGS)
    assert base != changed
    done: list[int] = []
    with closing(RayEngine(spec_of(tiny), 2)) as there:
        assert there.generate(wanted, SETTINGS, done.append) == base
        with there.serving(weights):
            assert there.generate(wanted, SETTINGS) == changed
        assert there.generate(wanted[::-1], SETTINGS) == base[::-1]
    assert sum(done) == 37


class Fragile:
    """A real engine in a process that a certain prompt ends."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.engine = build_engine(spec)
        self.serving = self.engine.serving

    def generate(self, requests: Sequence[Request], settings: Settings) -> list[Completion]:
        if any(POISON in r.prompt for r in requests):
            os.kill(os.getpid(), signal.SIGKILL)
        return self.engine.generate(requests, settings)


@pytest.mark.slow
def test_what_ends_every_worker_is_lost_and_nothing_else(
    tiny: BaseModel, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    wanted = [*requests(11), Request(f"1 + 1 = {POISON} and longer than any other", bytes(32))]
    expected = HfEngine(model, tokenizer).generate(wanted[:11], SETTINGS)
    with closing(RayEngine(spec_of(tiny), 2, build=Fragile)) as engine:
        found = engine.generate(wanted, replace(SETTINGS, batch_size=1))
    assert found[:11] == expected
    assert found[11] == Completion("", 0, truncated=False, lost=True)


class Hanging(Fragile):
    """A real engine in processes of which the first hangs at its first batch but one."""

    def generate(self, requests: Sequence[Request], settings: Settings) -> list[Completion]:
        for mark in ("first", "second"):
            try:
                (Path(os.environ["PRLVR_TEST_MARKS"]) / mark).touch(exist_ok=False)
            except FileExistsError:
                continue
            time.sleep(600 if mark == "second" else 0)
            break
        return super().generate(requests, settings)


def test_what_hangs_with_one_worker_is_answered_by_another(
    tiny: BaseModel,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PRLVR_TEST_MARKS", str(tmp_path))
    wanted = requests(24)
    with closing(RayEngine(spec_of(tiny), 2, build=Hanging)) as engine:
        assert engine.generate(wanted, SETTINGS) == HfEngine(model, tokenizer).generate(wanted, SETTINGS)


def test_another_model_of_the_same_name_is_refused(tiny: BaseModel) -> None:
    spec = replace(spec_of(tiny), digest="0" * 64)
    with closing(RayEngine(spec, 1)) as engine, pytest.raises(UserError, match="another model than the lock names"):
        engine.generate(requests(1), SETTINGS)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The certificate of a small run of the pocket model without Ray."""
    folder = tmp_path_factory.mktemp("alone")
    prlvr("run", write_config(folder), "--runs", folder / "runs")
    return certificate(folder)


def certificate(folder: Path) -> bytes:
    return (folder / "runs" / "small" / "certificates" / "knowledge.json").read_bytes()


def test_two_workers_give_the_same_certificate(alone: bytes, tmp_path: Path) -> None:
    prlvr("run", write_config(tmp_path), "--runs", tmp_path / "runs", "--engine", "ray", "--workers", "2")
    assert certificate(tmp_path) == alone
    path = tmp_path / "runs" / "small" / "certificates" / "knowledge.json"
    assert read_certificate(path).engine.name == "hf"
    said = prlvr("verify", path, "--level", "2", "--prompts", "20", "--engine", "ray", "--workers", "2").stdout
    assert "FAIL" not in said
    assert "(V2)" in said.splitlines()[-1]


def descendants(root: int, title: bytes) -> Iterator[int]:
    """Ids of the processes below `root` whose command line contains `title`."""
    parents, titles = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            status = (entry / "stat").read_text().rpartition(")")[2].split()
            titles[int(entry.name)] = (entry / "cmdline").read_bytes()
        except (OSError, ValueError):
            continue
        parents[int(entry.name)] = int(status[1])
    for process, text in titles.items():
        above = process
        while above in parents and above != root:
            above = parents[above]
        if above == root and title in text:
            yield process


def killing(process: subprocess.Popen[bytes], rng: random.Random, kills: list[int], limit: int) -> Callable[[], None]:
    """Ends a random Ray worker of a run every few seconds, at most `limit` in all."""

    def work() -> None:
        while process.poll() is None and len(kills) < limit:
            time.sleep(rng.uniform(0.2, 3))
            if victims := sorted(descendants(process.pid, b"ray::Worker")):
                victim = rng.choice(victims)
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                kills.append(victim)

    return work


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_workers_killed_at_random_change_no_byte(alone: bytes, tmp_path: Path, workers: int) -> None:
    """Fewer kills than ATTEMPTS, so that no batch can be given up."""
    arguments = ("run", write_config(tmp_path), "--runs", tmp_path / "runs", "--engine", "ray", "--workers", workers)
    process = subprocess.Popen(command(*map(str, arguments)), env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    kills: list[int] = []
    thread = threading.Thread(target=killing(process, random.Random(workers), kills, ATTEMPTS - 1))
    thread.start()
    assert process.wait(timeout=1200) == 0
    thread.join()
    assert kills, "no worker was killed: the test showed nothing"
    assert certificate(tmp_path) == alone


@pytest.mark.slow
def test_a_killed_driver_goes_on_with_another_number_of_workers(alone: bytes, tmp_path: Path) -> None:
    config, runs = write_config(tmp_path), tmp_path / "runs"
    metrics = Metrics(runs / "small" / "knowledge" / "metrics.jsonl")
    process = subprocess.Popen(
        command("run", config, "--runs", runs, "--engine", "ray", "--workers", "2"),
        env=ENVIRONMENT,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    while not ((row := metrics.last()) and row["stage"].startswith("evaluate lora")):
        assert process.poll() is None
        time.sleep(0.02)
    below = list(descendants(process.pid, b"ray"))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    prlvr("run", config, "--runs", runs, "--engine", "ray", "--workers", "3")
    assert certificate(tmp_path) == alone
    assert below
    assert not any(Path(f"/proc/{pid}").exists() for pid in below), "the killed driver's cluster must not live on"


def test_ray_and_workers_go_together(tmp_path: Path) -> None:
    said = prlvr("run", write_config(tmp_path), "--workers", "2", code=2).stderr
    assert "--engine ray and --workers N go together" in said
