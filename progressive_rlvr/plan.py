"""What a run will need, from its configuration and the model's `config.json` alone: `prlvr run CONFIG --dry-run`.

    for row in plan(load_config(path), "mathematics", Device(tflops=200, bandwidth=1500)).rows:
        print(row.stage, row.memory, row.seconds)

Counts of completions are exact; a completion is taken to be as long as it may become, so generated tokens, and what
follows from them, are upper ends. FLOPs and memory are the formulas of the functions below, for one device and
transformers' kernels. Seconds follow from what the device is *assumed* to sustain, which is the user's to say. Not
counted: loading, verifiers, the SVDs or answers of the prior artifact, the gradients of a search for integers
(`quantize.rounds`), memory of vLLM beside training, and what an allocator wastes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from progressive_rlvr.config import Distill, Rlvr, RunConfig, StageName, TinyLora
from progressive_rlvr.errors import UserError

ARCHITECTURES = Path(__file__).parent / "architectures"
BYTES = {"float32": 4, "bfloat16": 2}
# Mean tokens of a prompt in SmolLM2's tokenizer: benchmarks/plan.py prompts. They stand in where a population cannot
# be drawn without its dataset, or the model's tokenizer is not here.
PROMPT_TOKENS = {
    "gsm8k_train": 79,
    "mbpp_train": 66,
    "arc_easy_train": 60,
    "arc_challenge_train": 69,
    "openbookqa_train": 45,
    "commonsenseqa_train": 48,
    "spider_train": 507,
}
UNKNOWN_PROMPT_TOKENS = 512  # for a population that is not in the table
SAMPLED = 200  # prompts that are drawn to measure their length
OPTIMIZER_BYTES = 16  # a trained number: float32 value, gradient and two moments of Adam (Kingma and Ba, 2015)
NOISE_BYTES = 24  # a logit that a token is drawn from: float32 and float64 copies, and its noise


@dataclass(frozen=True)
class Device:
    """What one device is assumed to sustain: TFLOP/s in matrix products, and GB/s (1e9 bytes) from its memory.

    The defaults are no measurement: about a fifth, and a half, of what the data sheet of an H100 SXM promises.
    """

    tflops: float = 200.0
    bandwidth: float = 1500.0


@dataclass(frozen=True)
class Architecture:
    """A decoder of the Llama and Qwen2 family, from its `config.json`."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    tied: bool
    biases: bool  # of q, k and v

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Architecture:
        """From the content of a `config.json`.

        Raises:
            UserError: another family, or a missing size.
        """
        kind = config.get("model_type")
        if kind not in ("llama", "qwen2"):
            raise UserError(f"a plan knows the model types llama and qwen2, not {kind!r}")
        try:
            heads = int(config["num_attention_heads"])
            return cls(
                hidden=int(config["hidden_size"]),
                intermediate=int(config["intermediate_size"]),
                layers=int(config["num_hidden_layers"]),
                heads=heads,
                kv_heads=int(config.get("num_key_value_heads") or heads),
                head_size=int(config.get("head_dim") or config["hidden_size"] // heads),
                vocabulary=int(config["vocab_size"]),
                tied=bool(config.get("tie_word_embeddings", False)),
                biases=kind == "qwen2" or bool(config.get("attention_bias", False)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"the model's config.json has no usable {error}") from error

    @property
    def kinds(self) -> dict[str, tuple[int, int]]:
        """(in, out) of the linear modules of a layer, by name."""
        d, f = self.hidden, self.intermediate
        q, kv = self.heads * self.head_size, self.kv_heads * self.head_size
        return {
            "q_proj": (d, q),
            "k_proj": (d, kv),
            "v_proj": (d, kv),
            "o_proj": (q, d),
            "gate_proj": (d, f),
            "up_proj": (d, f),
            "down_proj": (f, d),
        }

    @property
    def body(self) -> int:
        """Weights of all layers' matrices: those that every token is multiplied with."""
        return self.layers * sum(i * o for i, o in self.kinds.values())

    @property
    def head(self) -> int:
        """Weights of the matrix from hidden states to logits."""
        return self.hidden * self.vocabulary

    @property
    def parameters(self) -> int:
        """All of them: matrices, embeddings (once where they are tied), norms and biases."""
        q, kv = self.heads * self.head_size, self.kv_heads * self.head_size
        small = self.layers * (2 * self.hidden + (q + 2 * kv if self.biases else 0)) + self.hidden
        return self.body + self.head * (1 if self.tied else 2) + small

    def forward(self, tokens: float, context: float, heads: float | None = None) -> float:
        """FLOPs of `tokens` tokens that each attend to `context` others: 2 a weight, and 4 a position and channel of
        the attention (Kaplan et al., arXiv 2001.08361, table 1, where a causal mask halves the context).

        `heads`: how many of the tokens need logits; none: all.
        """
        attention = 4 * self.layers * self.heads * self.head_size * context
        return tokens * (2 * self.body + attention) + 2 * self.head * (tokens if heads is None else heads)

    def cache(self, tokens: float, dtype: str) -> float:
        """Bytes of keys and values of `tokens` tokens."""
        return 2 * self.layers * self.kv_heads * self.head_size * BYTES[dtype] * tokens

    def saved(self, dtype: str) -> float:
        """Bytes a token that a training pass with adapters on all matrices keeps for its backward pass.

        Counted as in Korthikanti et al. (arXiv 2205.05198, section 4.1), for what transformers and PEFT run over frozen
        weights: the norms' inputs in float32; q, k, v and the output of the attention; gate, up and activation of the
        MLP; and the adapters' inputs, which are copies in float32 unless the model is in float32 itself.
        """
        d, f, q, kv = self.hidden, self.intermediate, self.heads * self.head_size, self.kv_heads * self.head_size
        inputs = 2 * d + f if dtype == "float32" else 5 * d + q + f
        return self.layers * (4 * (2 * d + inputs) + BYTES[dtype] * (2 * q + 2 * kv + 3 * f))


@dataclass(frozen=True)
class Row:
    """One stage: completions (exact), tokens of their prompts, tokens generated at most, FLOPs, bytes at the peak by
    what they are for, and seconds on the assumed device.
    """

    stage: str
    completions: int
    prompt_tokens: int
    new_tokens: int
    flops: float
    bytes: dict[str, float]
    seconds: float

    @property
    def memory(self) -> float:
        """Bytes at the peak."""
        return sum(self.bytes.values())


@dataclass(frozen=True)
class Plan:
    """The stages of one domain, and what was taken for granted."""

    domain: str
    parameters: int
    student: int
    svd_flops: float
    prompt_tokens: float
    prompt_source: str
    max_new_tokens: int
    device: Device
    rows: list[Row]

    def as_json(self) -> dict[str, Any]:
        """For `--json`: bytes, FLOPs and seconds, unrounded."""
        return {**asdict(self), "rows": [{**asdict(row), "memory": row.memory} for row in self.rows]}


def find_architecture(name: str) -> Architecture:
    """The sizes of a base model: of a folder or a fetched model its `config.json`, of well-known names what is shipped.

    Raises:
        UserError: the model is not here, and its sizes are not shipped either.
    """
    from progressive_rlvr.models import POCKET, cache_folder

    shipped = ARCHITECTURES / f"{name.rpartition('/')[2].lower()}.json"
    places = [POCKET] if name == "pocket" else [Path(name), cache_folder() / "models" / name]
    for path in (*(place / "config.json" for place in places), shipped):
        try:
            return Architecture.of(json.loads(path.read_text(encoding="utf-8")))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except ValueError as error:
            raise UserError(f"{path} is not JSON: {error}") from error
    known = ", ".join(sorted(file.stem for file in ARCHITECTURES.glob("*.json")))
    raise UserError(
        f"the sizes of {name!r} are not known here: a plan takes them from the model's folder, or from {known}"
    )


def plan(config: RunConfig, domain_name: str, device: Device) -> Plan:
    """Estimate every stage of one domain of a run.

    Raises:
        UserError: unknown domain, population or model, or an adapter that does not fit the model.
    """
    from progressive_rlvr.populations import find_population, open_domain

    model = find_architecture(config.base.model)
    modules = [shape for name, shape in model.kinds.items() if name in config.student.targets]
    if missing := set(config.student.targets) - set(model.kinds):
        raise UserError(f"student.targets names {sorted(missing)}, which this model does not have")
    domain = open_domain(domain_name, config.data_dir)
    try:
        population = find_population(domain, config.domains[domain_name].population)
        length, source = _prompt_length(config, population)
        new = population.max_new_tokens
    finally:
        domain.close()
    scene = _Scene(config, model, modules, length, new, device)
    rows = [scene.training(kind) for kind in ("rlvr", "distill", "tinylora") if getattr(config.stages, kind)]
    rows.append(scene.answering("quantize", _quantize_completions(config)))
    policies = 2 + len(rows) - 1  # base, what each training stage leaves, coded
    units = (config.sample.n + config.sample.heldout) * config.sample.draws
    rows.append(scene.answering("evaluate", policies * units))
    groups = config.student.groups or model.layers * len(modules)
    return Plan(
        domain_name,
        model.parameters,
        groups * config.student.u,
        model.layers * sum(svd(*shape) for shape in modules) if config.student.directions == "weights" else 0.0,
        length,
        source,
        new,
        device,
        rows,
    )


def svd(rows: int, columns: int) -> float:
    """FLOPs of a thin SVD of an (m, n) matrix, m >= n, with both sets of vectors: 6 m n^2 + 20 n^3 (Golub and Van Loan,
    Matrix Computations, 4th edition, figure 8.6.1, R-SVD).
    """
    m, n = max(rows, columns), min(rows, columns)
    return 6.0 * m * n**2 + 20.0 * n**3


def _prompt_length(config: RunConfig, population: Any) -> tuple[float, str]:
    """Mean tokens of a prompt, and where the number is from."""
    from progressive_rlvr.models import find_base

    if population.design == "iid":
        try:
            tokenizer = find_base(config.base.model, config.base.revision).load_tokenizer()
        except UserError:
            tokenizer = None  # the weights are not here; a plan does without
        if tokenizer is not None:
            ids = tokenizer([item.prompt for item in population.draw("plan", SAMPLED)])["input_ids"]
            return sum(map(len, ids)) / SAMPLED, f"{SAMPLED} prompts drawn"
    if population.name in PROMPT_TOKENS:
        return PROMPT_TOKENS[population.name], "measured with the tokenizer of SmolLM2"
    return UNKNOWN_PROMPT_TOKENS, "assumed"


def _quantize_completions(config: RunConfig) -> int:
    """How many answers the candidates of `quantize` give at most: one candidate a step, all of them within max_bits,
    and what a search finds.
    """
    from progressive_rlvr.stages.quantize import FIRST_SHARE, halving_work

    settings = config.stages.quantize
    prompts = min(settings.candidates_on, config.sample.n)
    work = halving_work(len(config.menu.steps), -(-prompts // FIRST_SHARE), prompts) + prompts * (settings.rounds > 0)
    return work * config.sample.draws


@dataclass(frozen=True)
class _Scene:
    """What all stages of a domain have in common. `prompt` and `new`: tokens of a prompt, and of a completion."""

    config: RunConfig
    model: Architecture
    modules: list[tuple[int, int]]
    prompt: float
    new: int
    device: Device

    def _generation(self, completions: int, batch: int, dtype: str) -> tuple[float, float]:
        """FLOPs and seconds of generating. A step reads all weights and the cache of its batch once, or computes,
        whichever takes longer (Pope et al., arXiv 2211.05102, section 2).
        """
        batch = min(batch, completions)
        prefill = self.model.forward(completions * self.prompt, self.prompt / 2, heads=completions)
        context = self.prompt + self.new / 2
        decode = self.model.forward(completions * self.new, context)
        steps = -(-completions // batch) * self.new
        read = (self.model.body + self.model.head) * BYTES[dtype] + self.model.cache(batch * context, dtype)
        seconds = max(steps * read / (self.device.bandwidth * 1e9), decode / self._flops)
        return prefill + decode, prefill / self._flops + seconds

    @property
    def _flops(self) -> float:
        return self.device.tflops * 1e12

    @property
    def _targets(self) -> int:
        """Weights of the modules that a policy changes."""
        return self.model.layers * sum(i * o for i, o in self.modules)

    def _decoding_bytes(self, batch: int, dtype: str) -> dict[str, float]:
        return {
            "cache": self.model.cache(batch * (self.prompt + self.new), dtype),
            "logits": float(batch * self.model.vocabulary * (BYTES[dtype] + NOISE_BYTES)),
        }

    def answering(self, stage: str, completions: int) -> Row:
        """Generation by the certified policy. In memory: the base, and of every changed weight the new and the kept
        one.
        """
        settings = self.config.generation
        batch = min(settings.batch_size, completions)
        flops, seconds = self._generation(completions, batch, settings.dtype)
        size = BYTES[settings.dtype]
        memory = {
            "weights": float(self.model.parameters * size),
            "changed weights": 2.0 * self._targets * size,
            **self._decoding_bytes(batch, settings.dtype),
        }
        return self._row(stage, completions, flops, memory, seconds)

    def training(self, kind: StageName) -> Row:
        """Rollouts, then one update a step. A frozen matrix costs 2 FLOPs a weight forward and 2 for the gradient of
        its input, none for its own (a full update has 6: Kaplan et al., section 2.1). Memory is that of the rollout or
        of the update, whichever is larger.
        """
        stages, dtype = self.config.stages, self.config.base.training_dtype
        settings: Rlvr | Distill | TinyLora = getattr(stages, kind)
        batch = settings.prompts if isinstance(settings, Distill) else settings.prompts * settings.samples
        completions, micro = settings.steps * batch, min(stages.micro_batch or batch, batch)
        rollout, seconds = self._generation(completions, batch, dtype)
        length = self.prompt + self.new
        forward = self.model.forward(completions * length, length / 2, heads=completions * self.new)
        update = (3 if kind == "distill" else 2) * forward  # forward and back, and the teacher's forward
        bases = 2 if kind == "distill" else 1
        if isinstance(settings, Rlvr):
            adapter = self.model.layers * sum(settings.rank * (i + o) for i, o in self.modules) * OPTIMIZER_BYTES
        else:  # A and B of the student are fixed
            adapter = self.model.layers * sum(self.config.student.r * (i + o) for i, o in self.modules) * BYTES[dtype]
        logits = micro * self.new * self.model.vocabulary * (2 * BYTES[dtype] + 4) * bases
        passing = {"activations": micro * length * self.model.saved(dtype), "logits": float(logits)}
        decoding = self._decoding_bytes(batch, dtype)
        memory = {
            "weights": float(bases * self.model.parameters * BYTES[dtype]),
            "adapter": float(adapter),
            **max(passing, decoding, key=lambda parts: sum(parts.values())),
        }
        return self._row(kind, completions, rollout + update, memory, seconds + update / self._flops)

    def _row(self, stage: str, completions: int, flops: float, memory: dict[str, float], seconds: float) -> Row:
        return Row(stage, completions, round(completions * self.prompt), completions * self.new, flops, memory, seconds)
