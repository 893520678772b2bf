"""One domain's chain: its folder, its locks, its prompts. Everything that the stages share and none of them may change.

Opening a chain locks the method, draws the sample that follows from the lock, and numbers it as an attempt; opening
it again finds the same locks. Only then may anything be trained.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import pydantic
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from domains.base import Domain, Item, Population, Reason, Verdict
from pacbayes.canonical import digest, write_atomic
from pacbayes.codes import Menu, MenuEntry
from pacbayes.evidence import Split
from pacbayes.gumbel import prompt_key
from pacbayes.pool import Pool
from pacbayes.sample import (
    AttemptLog,
    Claim,
    Generation,
    Iid,
    MethodLock,
    ModelDigests,
    PopulationLock,
    Quantization,
    Reported,
    SampleLock,
    heldout_noise_root,
    noise_root,
    write_lock,
)
from progressive_rlvr.config import RunConfig
from progressive_rlvr.declare import declare
from progressive_rlvr.decoder import (
    group_count,
    read_prior,
    tensors_digest,
    write_prior,
)
from progressive_rlvr.directions import prior_artifact
from progressive_rlvr.engines import Completion, Engine, Request, Settings, engine_versions, open_engine
from progressive_rlvr.engines.ray import RayEngine, WorkerSpec
from progressive_rlvr.errors import UserError
from progressive_rlvr.metrics import Metrics
from progressive_rlvr.models import BaseModel, find_base
from progressive_rlvr.populations import draw_items, find_population, open_domain, pool_items, self_test

SPLITS: tuple[Split, ...] = ("sample", "heldout")


@dataclass(frozen=True)
class Chain:
    """What every stage of one domain works with."""

    config: RunConfig
    folder: Path
    base: BaseModel
    domain: Domain
    population: Population
    method: MethodLock
    sample: SampleLock
    items: dict[str, list[Item]]
    pool: Pool | None = None  # what the prompts were drawn from, if that is a finite pool
    workers: int | None = None  # Ray workers that generate; none: this process does

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The base model's tokenizer."""
        return self.base.load_tokenizer()

    @cached_property
    def prior(self) -> dict[str, torch.Tensor]:
        """The locked prior artifact: A, B and P of every target module."""
        return read_prior(self.folder / "prior.safetensors", self.method.menu[0].prior_artifact)

    @property
    def menu(self) -> Menu:
        """The locked codes."""
        return Menu(entries=self.method.menu)

    @property
    def settings(self) -> Settings:
        """The locked way of answering."""
        locked = self.method.generation
        return Settings(locked.max_new_tokens, locked.temperature, locked.stop, locked.batch_size)

    @property
    def metrics(self) -> Metrics:
        """The chain's `metrics.jsonl`."""
        return Metrics(self.folder / "metrics.jsonl")

    def training_model(self) -> PreTrainedModel:
        """A fresh base in the training dtype."""
        return self.base.load(self.config.base.training_dtype)

    def certified_model(self) -> PreTrainedModel:
        """A fresh base in the dtype that the certificate is about."""
        return self.base.load(self.config.generation.dtype)

    def engine(self, model: PreTrainedModel) -> Engine:
        """The locked engine over the certified model, in this process or in Ray workers."""
        if self.workers is not None:
            return self._ray
        return open_engine(self.method.generation.engine, model, self.tokenizer)

    @cached_property
    def _ray(self) -> RayEngine:
        assert self.workers is not None
        config = self.config
        spec = WorkerSpec.of(
            self.base,
            self.method.generation.engine,
            config.generation.dtype,
            threads=config.threads,
            revision=config.base.revision,
        )
        return RayEngine(spec, self.workers)

    def close(self) -> None:
        """End the verifier's processes and, if there are any, the Ray workers."""
        self.domain.close()
        if "_ray" in self.__dict__:
            self._ray.close()

    def noise_root(self, split: str) -> str:
        """Root of the noise on a split (hex)."""
        root = noise_root if split == "sample" else heldout_noise_root
        return root(self.method.digest, self.sample.digest, self.sample.beacon)

    def requests(self, split: str, draws: int = 1) -> list[Request]:
        """Prompts and noise keys of a split in the lock's order; the first `draws` draws of a prompt stand together."""
        root = self.noise_root(split)
        locked = self.sample.split(split)
        return [
            Request(item.prompt, prompt_key(root, item.prompt_digest, lock.occurrence, draw))
            for item, lock in zip(self.items[split], locked, strict=True)
            for draw in range(draws)
        ]

    @cached_property
    def _verdicts(self) -> dict[bytes, Verdict]:
        return {}

    def verdict(self, completion: Completion, item: Item) -> Verdict:
        """The verdict on what an engine answered; what it lost is a loss."""
        if completion.lost:
            return Verdict.loss(Reason.CRASHED)
        return self.judge(completion.text, completion.truncated, item)

    def judge(self, text: str, truncated: bool, item: Item) -> Verdict:
        """The verdict on one completion; one that did not end is a loss whatever it says.

        Policies of a chain give mostly the same completions, so a completion that was found right or wrong for an
        item is not run again. Other verdicts (a time limit, a crash) may depend on the machine's mood.
        """
        if truncated:
            return Verdict.loss(Reason.TRUNCATED)
        key = hashlib.sha256(f"{item.digest}{text}".encode("utf-8", "surrogatepass")).digest()
        if (known := self._verdicts.get(key)) is not None:
            return known
        verdict = self.domain.verify(text, item)
        if verdict.reason in (Reason.RIGHT, Reason.WRONG):
            self._verdicts[key] = verdict
        return verdict


def open_chain(config: RunConfig, run_folder: Path, domain_name: str, workers: int | None = None) -> Chain:
    """Lock the method, draw and lock the sample, or find both as they were locked before.

    `workers`: how many Ray workers generate; none: this process does.

    Raises:
        UserError: unknown population, missing base model, a verifier that fails its self-test, too few prompts.
        LockError: the run was locked with another method.
        OSError: the run directory cannot be written.
    """
    folder = run_folder / domain_name
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(config.threads)
    domain = open_domain(domain_name, config.data_dir)
    population = find_population(domain, config.domains[domain_name].population)
    if not (folder / "sample.lock.json").exists():
        engine_versions(config.generation.engine)  # one that is not here is refused before anything is locked
        self_test(domain, population)
    base = base_of(config)
    artifact, modules = _prior(config, base, population, folder / "prior.safetensors")
    pool = _lock_pool(population, folder / "pool.json")
    method = lock_method(config, base, domain, population, artifact, modules, pool)
    write_lock(folder / "method.lock.json", method)
    beacon = config.sample.beacon
    items = draw_items(population, method, beacon)
    log = AttemptLog(run_folder.parent / "attempts.jsonl")
    sample = log.register(method, items["sample"], items["heldout"], beacon=beacon)
    write_lock(folder / "sample.lock.json", sample)
    _write_prompts(folder / "prompts.jsonl", items)
    if pool is not None:
        pool.check_draw(method, sample)
    return Chain(config, folder, base, domain, population, method, sample, items, pool, workers)


def base_of(config: RunConfig) -> BaseModel:
    """The base model of a configuration, quantized if it says so."""
    scheme = None if config.base.quantization == "none" else config.base.quantization
    return find_base(config.base.model, config.base.revision, scheme, config.generation.dtype)


def _lock_pool(population: Population, path: Path) -> Pool | None:
    """The pool as a lock, before anything is drawn from it; None for a population that is no pool."""
    if population.design != "finite_pool":
        return None
    try:
        pool = Pool.of(pool_items(population))
    except pydantic.ValidationError as error:
        raise UserError(f"population {population.name} is no pool: {error.errors()[0]['msg']}") from error
    write_lock(path, pool)
    return pool


def _write_prompts(path: Path, items: dict[str, list[Item]]) -> None:
    """The prompts in clear, for readers of the report; the locks hold their digests."""
    if not path.exists():
        rows = {
            i.prompt_digest: {"prompt_digest": i.prompt_digest, "prompt": i.prompt, "gold": i.gold}
            for s in SPLITS
            for i in items[s]
        }
        write_atomic(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows.values()).encode())


def _prior(config: RunConfig, base: BaseModel, population: Population, path: Path) -> tuple[str, int]:
    """Digest of the prior artifact, made if it is not there, and the number of target modules."""
    if path.exists():
        prior = read_prior(path)
    else:
        generation = config.generation
        settings = Settings(population.max_new_tokens, generation.temperature, population.stop, generation.batch_size)
        prior = prior_artifact(base, config.student, population, settings, generation.dtype)
        write_prior(path, prior)
    return tensors_digest(prior), len(prior) // 3


def lock_method(
    config: RunConfig,
    base: BaseModel,
    domain: Domain,
    population: Population,
    artifact: str,
    modules: int,
    pool: Pool | None = None,
) -> MethodLock:
    """The method lock that a configuration means; `pool` is what a finite population was locked as."""
    if pool is not None and config.sample.n + config.sample.heldout > len(pool.items):
        raise UserError(
            f"population {population.name} has {len(pool.items)} prompts; the sample and the held-out prompts together "
            f"are {config.sample.n + config.sample.heldout}"
        )
    if pool is not None and config.statements is not None:
        raise UserError(
            f"population {population.name} is a finite pool; `statements` (gain, holdout, transfer, joint) are made "
            "for generated populations only: leave them out"
        )
    if pool is not None and config.sample.draws > 1 and config.sample.pool_claim == "unseen":
        raise UserError(
            f"population {population.name} is a finite pool; several draws per prompt are about expected accuracy on "
            "it: give sample.pool_claim: expected, or sample.draws: 1"
        )
    declared = declare(config)
    student = config.student
    dimension = group_count(student, modules) * student.u
    # What was not there to choose when the first locks were written is said only where it is chosen.
    unsaid = {"directions", "answers", "samples"} if student.directions == "weights" else set()
    chosen = student.model_dump(mode="json", exclude=unsaid)
    structure = {"adapter": "tinylora", **chosen, "groups": group_count(student, modules)}
    codes = [
        (step, number, code) for step in config.menu.steps for number, code in enumerate(config.menu.codes, start=1)
    ]
    menu = tuple(
        MenuEntry(
            name=f"step {step}, code {number}: {code.kind}",
            probability=str(Fraction(1, len(codes))),
            dimension=dimension,
            step=step,
            code=code,
            structure=structure,
            prior_artifact=artifact,
        )
        for step, number, code in codes
    )
    return MethodLock(
        purpose=config.sample.purpose,
        claim=Claim(base=base.label, base_digest=base.digest, domain=domain.name, population=population.name),
        model=ModelDigests(
            weights=base.weights,
            tokenizer=base.tokenizer,
            config=base.config,
            quantization=Quantization.model_validate(asdict(base.quantized)) if base.quantized else None,
        ),
        population=PopulationLock(
            description=population.description,
            digest=digest([domain.name, population.name, population.description]),
            template="{prompt}",
            template_digest=hashlib.sha256(b"{prompt}").hexdigest(),
        ),
        verifier=domain.version,
        generation=Generation(
            temperature=config.generation.temperature,
            max_new_tokens=population.max_new_tokens,
            stop=population.stop,
            engine=config.generation.engine,
            dtype=config.generation.dtype,
            batch_size=config.generation.batch_size,
        ),
        design=Iid() if pool is None else pool.design,
        prompts=config.sample.n,
        draws=config.sample.draws,
        heldout=config.sample.heldout,
        delta=declared.delta,
        delta_shares=declared.shares,
        bound=_bound(config, pool),
        menu=menu,
        reported=Reported(domains=tuple(config.domains), jointly=declared.joint is not None),
        transfer=declared.transfer,
        joint=declared.joint,
    )


def _bound(config: RunConfig, pool: Pool | None) -> str:
    """The tightest bound of what a configuration claims: betting needs more than right or wrong to win anything."""
    if config.sample.draws > 1:
        return "betting"
    return "hypergeometric" if pool is not None and config.sample.pool_claim == "unseen" else "binomial"
