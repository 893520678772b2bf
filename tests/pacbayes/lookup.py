"""A language model that is a table, and the whole chain from lock to certificate around it, without any other package.

A prompt is a number, a completion one token of eight, and the right token is the prompt modulo eight. The base model is
uniform. A message is four integers; the policy adds ``step * q[j]`` to the logit of the right token on prompts of kind
j = prompt // 8 % 4. So the
true accuracy of every policy is known: 1/4 sum_j e^(step q_j) / (e^(step q_j) + 7).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pacbayes.canonical import digest, write_atomic
from pacbayes.certificate import Certificate, Engine, build_certificate, write_certificate
from pacbayes.codes import Menu, MenuEntry, parse_code
from pacbayes.evidence import Outcome, write_evidence
from pacbayes.gumbel import key_words, prompt_key, sample_tokens
from pacbayes.pool import Pool, draw_from_pool
from pacbayes.sample import (
    AttemptLog,
    Claim,
    DeltaShare,
    Generation,
    Iid,
    MethodLock,
    ModelDigests,
    PopulationLock,
    Reported,
    SampleLock,
    heldout_noise_root,
    heldout_seed,
    noise_root,
    sample_seed,
    write_lock,
)

VOCABULARY, KINDS = 8, 4
MODEL = ModelDigests(weights=digest(b"a table"), tokenizer=digest(b"tokenizer"), config=digest(b"config"))
BASE = digest(MODEL.to_json())
ENGINE = Engine(name="table", dtype="float64", batch_size=1, device="cpu", versions={"numpy": np.__version__})


@dataclass(frozen=True)
class Prompt:
    """One prompt and its right answer."""

    number: int

    @property
    def prompt_digest(self) -> str:
        return digest(str(self.number).encode())

    @property
    def digest(self) -> str:
        return digest({"prompt": str(self.number), "gold": str(self.number % VOCABULARY)})


def draw(seed: str, n: int, population: int = 2**32) -> list[Prompt]:
    """n independent prompts; the i-th depends on (seed, i) only."""
    return [
        Prompt(int.from_bytes(hashlib.sha256(f"{seed} {i}".encode()).digest()[:8], "little") % population)
        for i in range(n)
    ]


def menu() -> tuple[MenuEntry, ...]:
    """Two entries of four integers each: a fine and a coarse grid."""
    code = parse_code({"kind": "laplace", "ratio": "1/2", "bound": 15})
    return tuple(
        MenuEntry(
            name=name,
            probability=probability,
            dimension=KINDS,
            step=step,
            code=code,
            structure={"table": name},
            prior_artifact=digest(name.encode()),
        )
        for name, probability, step in (("coarse", "3/4", "1"), ("fine", "1/4", "0.25"))
    )


def method_lock(**changes: Any) -> MethodLock:
    """The method of the table; keyword arguments replace fields."""
    fields: dict[str, Any] = {
        "purpose": "certificate",
        "claim": Claim(base="table", base_digest=BASE, domain="remainders", population="numbers"),
        "model": MODEL,
        "population": PopulationLock(
            description="uniform 32-bit numbers",
            digest=digest(b"numbers"),
            template="{prompt}",
            template_digest=digest(b"{prompt}"),
        ),
        "verifier": "1",
        "generation": Generation(
            temperature=1.0, max_new_tokens=1, stop=None, engine="table", dtype="float64", batch_size=1
        ),
        "design": Iid(),
        "prompts": 400,
        "heldout": 50,
        "delta": "0.05",
        "delta_shares": (DeltaShare(name="accuracy", value="0.05"),),
        "bound": "binomial",
        "menu": menu(),
        "reported": Reported(domains=("remainders",), jointly=False),
    }
    return MethodLock(**{**fields, **changes})


def boosts(method: MethodLock, index: int, integers: Sequence[int]) -> np.ndarray:
    """What the policy adds to the right token's logit, by kind of prompt: (4,) float64."""
    return float(method.menu[index].step) * np.asarray(integers, dtype=np.float64)


def true_accuracy(boost: np.ndarray) -> float:
    """Expected accuracy on a fresh prompt under fresh noise."""
    return float(np.mean(np.exp(boost) / (np.exp(boost) + VOCABULARY - 1)))


def complete(prompts: Sequence[Prompt], keys: Sequence[bytes], boost: np.ndarray) -> np.ndarray:
    """One token per prompt: (n,) int64."""
    numbers = np.array([prompt.number for prompt in prompts])
    logits = np.zeros((len(prompts), VOCABULARY))
    logits[np.arange(len(prompts)), numbers % VOCABULARY] = boost[numbers // VOCABULARY % KINDS]
    return sample_tokens(logits, key_words(keys), 0)


@dataclass(frozen=True)
class Chain:
    """A method, its sample and the prompts, ready to evaluate policies."""

    method: MethodLock
    sample: SampleLock
    prompts: list[Prompt]
    heldout: list[Prompt]

    pool: Pool | None = None

    @classmethod
    def from_pool(cls, method: MethodLock, log: Path, pool: Sequence[Prompt]) -> Chain:
        """A uniform sample of a pool, and held-out prompts of the rest."""
        order = draw_from_pool(sample_seed(method.digest, None), len(pool), method.prompts + method.heldout)
        drawn = [pool[index] for index in order]
        prompts, heldout = drawn[: method.prompts], drawn[method.prompts :]
        sample = AttemptLog(log).register(method, prompts, heldout)
        return cls(method, sample, prompts, heldout, Pool.of(pool))

    @classmethod
    def draw(cls, method: MethodLock, log: Path, beacon: str | None = None, population: int = 2**32) -> Chain:
        prompts = draw(sample_seed(method.digest, beacon), method.prompts, population)
        heldout = draw(heldout_seed(method.digest, beacon), method.heldout, population)
        sample = AttemptLog(log).register(method, prompts, heldout, beacon=beacon)
        return cls(method, sample, prompts, heldout)

    def keys(self, split: str = "sample", draw: int = 0) -> list[bytes]:
        root = noise_root if split == "sample" else heldout_noise_root
        hexadecimal = root(self.method.digest, self.sample.digest, self.sample.beacon)
        return [prompt_key(hexadecimal, item.prompt_digest, item.occurrence, draw) for item in self.sample.split(split)]

    def outcomes(self, policy: str, boost: np.ndarray) -> list[Outcome]:
        rows = []
        for split, prompts in (("sample", self.prompts), ("heldout", self.heldout)):
            for draw in range(self.method.draws if prompts else 0):
                tokens = complete(prompts, self.keys(split, draw), boost)
                for i, (prompt, item, token) in enumerate(zip(prompts, self.sample.split(split), tokens, strict=True)):
                    right = int(token) == prompt.number % VOCABULARY
                    what = (
                        item.prompt_digest,
                        item.occurrence,
                        draw,
                        right,
                        "right" if right else "wrong",
                        1,
                        str(token),
                    )
                    rows.append(Outcome(policy, split, i, *what))
        return rows

    def certify(self, folder: Path, index: int, integers: Sequence[int]) -> Certificate:
        """Encode, decode, evaluate, certify and write everything into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        codec = Menu(entries=self.method.menu)
        message = codec.encode(index, integers)
        decoded = boosts(self.method, *codec.decode(message))
        write_lock(folder / "method.lock.json", self.method)
        write_lock(folder / "sample.lock.json", self.sample)
        if self.pool:
            write_lock(folder / "pool.json", self.pool)
        write_atomic(folder / "message.bin", message)
        write_evidence(
            folder / "evidence.parquet",
            self.outcomes("coded", decoded) + self.outcomes("base", np.zeros(KINDS)),
            sample_lock=self.sample.digest,
            policies={"coded": digest(message), "base": MODEL.weights},
        )
        certificate = build_certificate(
            method=self.method,
            sample=self.sample,
            message=message,
            evidence=(folder / "evidence.parquet").read_bytes(),
            policy=digest(decoded.tobytes()),
            engine=ENGINE,
            stages=({"kind": "search"},),
            pool=self.pool,
        )
        write_certificate(folder / "certificate.json", certificate)
        return certificate


def replaced(lock: MethodLock, **changes: Any) -> MethodLock:
    """A lock with other fields, validated."""
    return method_lock(**{**{name: getattr(lock, name) for name in type(lock).model_fields}, **changes})
