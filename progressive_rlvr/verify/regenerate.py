"""Level V2: a random part of the coded policy's right completions, generated again from base, prior artifact and
message under the committed noise.

Only completions stored as right are drawn: the others cannot flip in the claim's disfavour, and the limit on flips is
the tighter the larger a share of the right ones was looked at. `pacbayes.bounds.audit` has the statistics.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from typing import cast, get_args

import torch
from transformers import PreTrainedModel

from domains.base import Domain
from pacbayes.bounds import flips_upper
from pacbayes.certificate import CertificateError
from pacbayes.certificate import decode_message as decode_integers
from pacbayes.codes import Menu
from pacbayes.evidence import Outcome
from pacbayes.gumbel import prompt_key
from pacbayes.pool import draw_from_pool
from pacbayes.sample import FinitePool, derive, noise_root
from progressive_rlvr.decoder import read_prior, tensors_digest
from progressive_rlvr.directions import prior_artifact
from progressive_rlvr.engines import Completion, Engine, Request, Settings, open_engine
from progressive_rlvr.engines.ray import RayEngine, WorkerSpec
from progressive_rlvr.errors import UserError
from progressive_rlvr.models import DTYPES, BaseModel, Dtype, find_base
from progressive_rlvr.policies import Weights, decode_message, student_of
from progressive_rlvr.populations import find_population
from progressive_rlvr.quantized import Scheme
from progressive_rlvr.verify.case import Case, Finding, Options, Progress, Questions
from progressive_rlvr.verify.flips import LEVEL, accuracy_finding, compare, gain_finding, observed, parts_of

PRIOR_FILE = "prior.safetensors"


def regenerate(case: Case, questions: Questions, options: Options, progress: Progress) -> Iterator[Finding]:
    """Decode the message into the base model, generate, judge, and bound the flips.

    Raises:
        UserError: the locked base model or prior artifact is not here, or the lock asks for what this version cannot
            generate.
    """
    method = case.method
    if method.bound == "betting" and isinstance(method.design, FinitePool):
        _, outcome = method.design.statement(method.bound)
        if outcome == "realised":
            raise UserError("V2 cannot bound flips for betting on realised outcomes, which depend on their order")
    if method.population.template != "{prompt}":
        raise UserError(f"V2 knows the template {{prompt}}, the lock has {method.population.template!r}")
    if method.generation.dtype not in DTYPES:
        raise UserError(f"V2 generates in {', '.join(DTYPES)}, the lock asks for {method.generation.dtype!r}")
    base = _base(case, options)
    yield _same_base(base)
    prior, origin = _prior(case, base, questions.domain)
    yield origin
    model = base.load(method.generation.dtype)  # type: ignore[arg-type]  # it is one of DTYPES
    with _open(case, base, model, options.workers) as engine:
        weights = decode_message(model, Menu(entries=method.menu), case.message, prior)
        yield _same_weights(case, weights)
        yield _engine(case, model.device.type)
        seed = secrets.token_hex(16) if options.seed is None else options.seed
        limits: dict[str, int] = {}
        parts = parts_of(case, weights)
        share, spent = Decimal(str(options.delta)) / len(parts), Decimal(0)
        for part in parts:
            chosen = draw_flip_sample(
                part.stored, options.prompts, seed, case.certificate.digests.evidence, part.policy
            )
            with engine.serving(part.weights):
                completions = _generate(case, questions, engine, chosen, progress, part.policy)
            flips = compare(questions, part, chosen, completions)
            count, total = len(flips.outcomes), len(part.stored)
            limits[part.policy] = flips_upper(count, flips.regenerated, total, delta=float(share))
            spent += share if flips.regenerated < total else 0
            yield observed(case, part, flips, seed, options)
        yield accuracy_finding(case, limits["coded"], spent)
        if "base" in limits:
            yield gain_finding(case, limits, spent)


@contextmanager
def _open(case: Case, base: BaseModel, model: PreTrainedModel, workers: int | None) -> Iterator[Engine]:
    """The locked engine over the model, in this process or in Ray workers, for the time of a `with` block."""
    locked = case.method.generation
    if workers is not None:
        dtype: Dtype = locked.dtype  # type: ignore[assignment]  # it is one of DTYPES
        spec = WorkerSpec.of(base, locked.engine, dtype, threads=torch.get_num_threads(), revision=None)
        with closing(RayEngine(spec, workers)) as engine:
            yield engine
        return
    try:
        engine_here = open_engine(locked.engine, model, base.load_tokenizer())
    except ValueError as error:
        raise UserError(f"the locked engine is not here: {error}") from error
    yield engine_here


def draw_flip_sample(stored: list[Outcome], count: int, seed: str, evidence: str, policy: str) -> list[Outcome]:
    """A uniform subset of the outcomes, all if there are no more; from the seed and the evidence's digest."""
    root = derive("verification V2", evidence, policy, seed)
    return [stored[i] for i in sorted(draw_from_pool(root, len(stored), min(count, len(stored))))]


def _base(case: Case, options: Options) -> BaseModel:
    locked, scheme = case.method.model, None
    if locked.quantization is not None:
        if locked.quantization.scheme not in get_args(Scheme):
            raise UserError(
                f"V2 knows the quantizations {', '.join(get_args(Scheme))}, not {locked.quantization.scheme!r}"
            )
        scheme = cast(Scheme, locked.quantization.scheme)
    name = options.base or case.method.claim.base.removesuffix(f" ({scheme})")
    try:
        base = find_base(name, scheme=scheme, dtype=cast(Dtype, case.method.generation.dtype))
    except UserError as error:
        if options.base:
            raise
        raise UserError(f"{error}; a copy of it in a folder can be given with --base") from error
    different = [what for what in ("weights", "tokenizer", "config") if getattr(base, what) != getattr(locked, what)]
    if different:
        raise UserError(
            f"the base model in {base.folder} has another digest of {', '.join(different)} than the lock names: V2 "
            "needs the locked model; give its folder with --base"
        )
    packed = base.quantized.weights if base.quantized else None
    if packed != (locked.quantization.weights if locked.quantization else None):
        raise UserError(
            f"quantized to {scheme} here, {base.name} has other packed weights than the lock names; the certificate "
            "says which version of bitsandbytes made them"
        )
    return base


def _same_base(base: BaseModel) -> Finding:
    detail = f"weights, tokenizer and configuration of {base.name} are those of the lock"
    return Finding(LEVEL, "base model", True, detail, {"digest": base.digest})


def _prior(case: Case, base: BaseModel, domain: Domain) -> tuple[Weights, Finding]:
    """The prior artifact of the message's menu entry: the file beside the certificate, or made again."""
    index, _ = decode_integers(case.method, case.message)
    entry = case.method.menu[index]
    try:
        path = case.find(PRIOR_FILE)
    except CertificateError:
        population = find_population(domain, case.method.claim.population)
        dtype = cast(Dtype, case.method.generation.dtype)
        prior = prior_artifact(base, student_of(entry.structure), population, _settings(case), dtype)
        if tensors_digest(prior) != entry.prior_artifact:
            raise UserError(
                f"there is no {PRIOR_FILE} beside the certificate, and the one made here has another digest than the "
                "lock names (a decomposition is not the same on every machine): ask the producer for the file"
            ) from None
        detail = f"made again here, with the digest that the lock names, {entry.prior_artifact[:16]}…"
    else:
        prior = read_prior(path, entry.prior_artifact)
        detail = f"{PRIOR_FILE} has the digest that the lock names, {entry.prior_artifact[:16]}…"
    return prior, Finding(LEVEL, "prior artifact", True, detail, {"digest": entry.prior_artifact})


def _same_weights(case: Case, weights: Weights) -> Finding:
    same = tensors_digest(weights) == case.certificate.digests.policy
    detail = (
        "the message decodes to the very weights that the producer served"
        if same
        else "the message decodes to weights that differ somewhere from those that the producer says it served; what "
        "is generated here is what the message says here"
    )
    return Finding(LEVEL, "decoded weights", True, detail, {"identical": same})


def _engine(case: Case, device: str) -> Finding:
    locked, shown = case.method.generation, case.certificate.engine
    version = str(torch.__version__)
    detail = (
        f"{locked.engine} in {locked.dtype} at batch size {locked.batch_size} on {device}, torch {version}; the "
        f"producer's was {shown.name} on {shown.device}, torch {shown.versions.get('torch', 'of unknown version')}"
    )
    return Finding(LEVEL, "engine", True, detail, {"device": device, "torch": version})


def _settings(case: Case) -> Settings:
    locked = case.method.generation
    return Settings(locked.max_new_tokens, locked.temperature, locked.stop, locked.batch_size)


def _generate(
    case: Case, questions: Questions, engine: Engine, chosen: list[Outcome], progress: Progress, policy: str
) -> list[Completion]:
    method, sample = case.method, case.sample
    root = noise_root(method.digest, sample.digest, sample.beacon)
    items = questions.items["sample"]
    requests = [Request(items[o.index].prompt, prompt_key(root, o.prompt_digest, o.occurrence, o.draw)) for o in chosen]
    done = 0

    def finished(more: int) -> None:
        nonlocal done
        done += more
        progress(f"V2 {policy}", done, len(requests))

    progress(f"V2 {policy}", 0, len(requests))
    return engine.generate(requests, _settings(case), finished)
