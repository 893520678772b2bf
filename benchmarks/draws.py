"""Several draws per prompt: what they gain on a finished run, with independent and with rotated noise.

    python benchmarks/draws.py run RUN DOMAIN [--prompts N] [--draws 8] [--noise independent rotated] [--exact]
    python benchmarks/draws.py simulate

`run` answers the sample of a run with its message, M times a prompt, and prints what would be certified at the run's
bits and delta from one draw by the binomial and from M = 1, 2, 4, … draws by betting. A row is the mean over disjoint
groups of M draws, so that rows differ by the bound and not by the luck of a draw. Nothing is written, and nothing that
is printed is a certificate.

Rotated noise: the integers of draw j are those of draw 0 plus j 2^32 / M, modulo 2^32, for every position and token.
Each draw by itself is exactly as random; draws of a prompt depend on each other, which the betting bound allows.

`--exact`, for answers of one token: the probability that the policy answers right instead of draws, the limit M → ∞.
A right answer is one token and then the end; whatever is longer, and tokens below 1e-4, count as wrong.

`simulate` takes one token from a known distribution and compares the variance of the mean reward of M draws with that
of independent draws: rotated Gumbel noise, and, as the best that could be had, one uniform rotated through the inverse
of the distribution function (another sampler, which no engine here has).
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from domains.base import Domain, Item, Reason
from pacbayes.bounds import certified_accuracy, certified_mean_accuracy
from pacbayes.certificate import decode_message as decode_integers
from pacbayes.certificate.assembly import bit_ledger
from pacbayes.codes import Menu
from pacbayes.declarations import ACCURACY_SHARE
from pacbayes.gumbel import gumbel, gumbel_integers, prompt_key
from pacbayes.ledger import delta_as_float
from pacbayes.sample import MethodLock, SampleLock, noise_root, read_lock
from progressive_rlvr.decoder import read_prior
from progressive_rlvr.engines import Request, Settings, hf
from progressive_rlvr.engines.base import cut
from progressive_rlvr.engines.hf import HfEngine, stop_tokens
from progressive_rlvr.models import find_base, replaced
from progressive_rlvr.policies import decode_message
from progressive_rlvr.populations import draw_items, find_population, open_domain

LIKELY = 1e-4  # first tokens below this are not looked at, and count as wrong
FORWARD = 256
TRIALS = 200_000

# --- noise ---------------------------------------------------------------------------------------------------


def rotated_key(key: bytes, draw: int, draws: int) -> bytes:
    """The key of draw 0 with the rotation in the bytes that Philox does not read."""
    return key[:16] + (draw * 2**32 // draws).to_bytes(4, "little") + bytes(12)


@contextmanager
def rotation() -> Iterator[None]:
    """For the time of a `with` block the engine reads keys of `rotated_key`."""

    def words(keys: Sequence[bytes]) -> NDArray[np.uint32]:
        return np.frombuffer(b"".join(key[:20] for key in keys), dtype="<u4").reshape(-1, 5).astype(np.uint32)

    def sample(
        logits: torch.Tensor, keys: NDArray[np.uint32], positions: torch.Tensor, temperature: float
    ) -> torch.Tensor:
        x = gumbel_integers(keys[:, :4].copy(), positions.numpy(), logits.shape[1]) + keys[:, 4:]
        return torch.from_numpy((logits.float().double().numpy() / temperature + gumbel(x)).argmax(axis=1))

    before = hf.key_words, hf.sample_tokens
    hf.key_words, hf.sample_tokens = words, sample  # type: ignore[assignment]
    try:
        yield
    finally:
        hf.key_words, hf.sample_tokens = before


# --- a finished run ------------------------------------------------------------------------------------------


@dataclass
class Case:
    """The coded policy of a run with the prompts of its sample."""

    method: MethodLock
    sample: SampleLock
    domain: Domain
    items: list[Item]
    engine: HfEngine
    bits: float

    @property
    def settings(self) -> Settings:
        locked = self.method.generation
        return Settings(locked.max_new_tokens, locked.temperature, locked.stop, locked.batch_size)


@contextmanager
def opened(run: Path, name: str, prompts: int | None, data_dir: Path | None) -> Iterator[Case]:
    """The policy that the run's message decodes to is served for the time of a `with` block."""
    folder = run / name
    method = read_lock(folder / "method.lock.json", MethodLock)
    sample = read_lock(folder / "sample.lock.json", SampleLock)
    message = (folder / "message.bin", *sorted(folder.glob("stages/*-quantize/message.bin")))
    shipped = next(file for file in message if file.is_file()).read_bytes()
    domain = open_domain(name, data_dir)
    items = draw_items(find_population(domain, method.claim.population), method, sample.beacon)["sample"]
    if [item.prompt_digest for item in items] != [item.prompt_digest for item in sample.items]:
        raise SystemExit(f"the population of {name} is not the one that {run} drew from")
    base = find_base(method.claim.base)
    model = base.load(method.generation.dtype)  # type: ignore[arg-type]
    prior = read_prior(folder / "prior.safetensors", method.menu[0].prior_artifact)
    bits = bit_ledger(method, sample, *decode_integers(method, shipped)).total
    weights = decode_message(model, Menu(entries=method.menu), shipped, prior)
    with replaced(model, weights):
        yield Case(method, sample, domain, items[:prompts], HfEngine(model, base.load_tokenizer()), bits)
    domain.close()


def outcomes(case: Case, draws: int, noise: str) -> NDArray[np.int64]:
    """Right or wrong, (n, draws)."""
    root = noise_root(case.method.digest, case.sample.digest, case.sample.beacon)
    requests = []
    for item, locked in zip(case.items, case.sample.items, strict=False):
        for draw in range(draws):
            key = prompt_key(root, item.prompt_digest, locked.occurrence, 0 if noise == "rotated" else draw)
            requests.append(Request(item.prompt, rotated_key(key, draw, draws) if noise == "rotated" else key))
    if noise == "rotated":
        with rotation():
            completions = case.engine.generate(requests, case.settings)
    else:
        completions = case.engine.generate(requests, case.settings)
    known: dict[tuple[str, str], bool] = {}
    right = np.zeros(len(requests), np.int64)
    for place, completion in enumerate(completions):
        item = case.items[place // draws]
        key_of = (item.digest, completion.text)
        if not completion.truncated and key_of not in known:
            known[key_of] = case.domain.verify(completion.text, item).reason == Reason.RIGHT
        right[place] = not completion.truncated and known[key_of]
    return right.reshape(-1, draws)


@torch.inference_mode()
def exact(case: Case) -> NDArray[np.float64]:
    """The probability of a right answer of one token, (n,): a lower limit of that of any right answer."""
    tokenizer, settings = case.engine.tokenizer, case.settings
    stops = torch.tensor(stop_tokens(tokenizer, settings.stop))
    prompts = [list(map(int, tokenizer(item.prompt)["input_ids"])) for item in case.items]
    first = _next(case, prompts)
    total = np.zeros(len(prompts))
    pairs: list[tuple[int, int]] = []
    for i, p in enumerate(first):
        for token in (p >= LIKELY).nonzero().flatten().tolist():
            body = [] if token == tokenizer.eos_token_id else [token]
            text = cut(tokenizer.decode(body), settings.stop)
            if case.domain.verify(text, case.items[i]).reason == Reason.RIGHT:
                if token in stops:
                    total[i] += float(p[token])
                else:
                    pairs.append((i, token))
    second = _next(case, [[*prompts[i], token] for i, token in pairs])
    # Of the ways to end only the end token and a bare stop leave the text as it was judged.
    ends = [s for s in stops.tolist() if s == tokenizer.eos_token_id or cut(tokenizer.decode([s]), settings.stop) == ""]
    for (i, token), p in zip(pairs, second, strict=True):
        total[i] += float(first[i][token]) * float(p[ends].sum())
    return np.minimum(total, 1.0)


def _next(case: Case, rows: list[list[int]]) -> list[torch.Tensor]:
    """Distribution of the next token after every row, float64."""
    found: list[torch.Tensor] = [torch.empty(0)] * len(rows)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    by_length: dict[int, list[int]] = {}
    for i in order:
        by_length.setdefault(len(rows[i]), []).append(i)
    for same in by_length.values():
        for start in range(0, len(same), FORWARD):
            chosen = same[start : start + FORWARD]
            logits = case.engine.model(input_ids=torch.tensor([rows[i] for i in chosen])).logits[:, -1]
            for i, row in zip(chosen, torch.softmax(logits.double() / case.settings.temperature, -1), strict=True):
                found[i] = row
    return found


def groups(right: NDArray[np.int64], m: int, noise: str) -> list[NDArray[np.float64]]:
    """Mean rewards of the disjoint groups of m draws, each (n,); rotated draws of a group are equally spaced."""
    draws = right.shape[1]
    step = draws // m
    columns = [range(g, draws, step) if noise == "rotated" else range(g * m, g * m + m) for g in range(step)]
    return [right[:, list(c)].mean(axis=1) for c in columns]


def table(case: Case, by_noise: dict[str, NDArray[np.int64]], probabilities: NDArray[np.float64] | None) -> None:
    n, bits, delta = len(case.items), case.bits, delta_as_float(case.method.share(ACCURACY_SHARE))
    print(f"{case.method.claim.domain}: n = {n}, {bits:.1f} bits, delta = {delta}")
    print(f"{'draws':>9} {'noise':12} {'bound':9} {'right %':>8} {'var X':>7} {'certified %':>11} {'gain':>6}")
    single = next(iter(by_noise.values()))
    ones = groups(single, 1, "independent")
    reference = statistics.mean(certified_accuracy(n - int(x.sum()), n, bits=bits, delta=delta) for x in ones)
    right = single.mean()

    def line(m: str, noise: str, bound: str, mean: float, variance: float, certified: float) -> None:
        # Groups of all rows but the first noise's have other draws: the gain is that of the gap, not of their luck.
        gain = (certified - mean) - (reference - right)
        print(
            f"{m:>9} {noise:12} {bound:9} {100 * mean:8.2f} {variance:7.4f} {100 * certified:11.2f} {100 * gain:+6.2f}"
        )

    line("1", "", "binomial", right, float(np.mean([x.var() for x in ones])), reference)
    for noise, found in by_noise.items():
        m = 1
        while m <= found.shape[1]:
            if found.shape[1] % m == 0 and not (m == 1 and noise == "rotated"):
                parts = groups(found, m, noise)
                certified = statistics.mean(certified_mean_accuracy(x, bits=bits, delta=delta) for x in parts)
                line(str(m), noise, "betting", found.mean(), float(np.mean([x.var() for x in parts])), certified)
            m *= 2
    if probabilities is not None:
        certified = certified_mean_accuracy(probabilities, bits=bits, delta=delta)
        line("exact", "", "betting", float(probabilities.mean()), float(probabilities.var()), certified)
    # Var X of one draw is the variance between prompts plus that within them; draws remove only the latter.
    d = single.shape[1]
    if d > 1:
        within = float((single.mean(axis=1) * (1 - single.mean(axis=1))).mean() * d / (d - 1))
        share = within / single.var()
        print(f"of the variance {single.var():.4f} of one draw, {within:.4f} lies within prompts ({share:.0%})")
        shares = [float((single.mean(axis=1) == k).mean()) for k in (0.0, 1.0)]
        print(f"in {d} draws always right {shares[1]:.1%} of the prompts, never {shares[0]:.1%}")


# --- simulation ----------------------------------------------------------------------------------------------


def simulate() -> None:
    rng = np.random.default_rng(0)
    print("variance of the mean reward of M draws, as a share of that of independent draws")
    print(f"{'right':>6} {'others':>6} {'M':>3} {'rotated':>8} {'inverse':>8}")
    for right in (0.5, 0.8, 0.9, 0.97):
        for others in (1, 30):
            p = np.array([right, *[(1 - right) / others] * others])
            logits = np.log(p)
            for m in (2, 4, 8):
                independent = right * (1 - right) / m
                means = []
                for _ in range(max(1, TRIALS * (others + 1) // 2_000_000)):
                    rows = TRIALS // max(1, TRIALS * (others + 1) // 2_000_000)
                    x = rng.integers(0, 2**32, (rows, others + 1), dtype=np.uint32)
                    tokens = [(logits + gumbel(x + np.uint32(j * 2**32 // m))).argmax(axis=1) for j in range(m)]
                    means.append((np.stack(tokens) == 0).mean(axis=0))
                rotated = float(np.concatenate(means).var())
                u = rng.random(TRIALS)
                inverse = float(np.mean([(u + j / m) % 1.0 < right for j in range(m)], axis=0).var())
                print(f"{right:6} {others:6} {m:3} {rotated / independent:8.3f} {inverse / independent:8.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("simulate")
    run = commands.add_parser("run")
    run.add_argument("run", type=Path)
    run.add_argument("domain")
    run.add_argument("--prompts", type=int, help="only the first so many of the sample")
    run.add_argument("--draws", type=int, default=8, help="a power of two")
    run.add_argument("--noise", nargs="+", choices=("independent", "rotated"), default=["independent"])
    run.add_argument("--exact", action="store_true")
    run.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.command == "simulate":
        simulate()
        return
    with opened(arguments.run, arguments.domain, arguments.prompts, arguments.data_dir) as case:
        found = {noise: outcomes(case, arguments.draws, noise) for noise in arguments.noise}
        table(case, found, exact(case) if arguments.exact else None)


if __name__ == "__main__":
    main()
