"""Locks: what was fixed before the outcomes, in which order, and the seeds and noise that follow from it.

1. A :class:`MethodLock` fixes everything that a certificate depends on but the prompts: model, template, verifier, n,
   M, δ, the bound and the whole menu of codes.
2. Its digest, with a public random number (the *beacon*) where there is one, is the seed from which the prompts are
   drawn.
3. A :class:`SampleLock` holds the ordered digests of those prompts and is numbered as one more attempt at the same
   claim.
4. The digests of both locks, with the beacon, are the root of the noise.

Locks hold no time, path, run name, training seed or hardware: running the same method twice is the same attempt.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self, TypeVar

import pydantic
from pydantic import Field, model_validator

from pacbayes.bounds import ACCURACY_BOUNDS
from pacbayes.canonical import CanonicalError, canonical_json, digest, parse_json, write_atomic
from pacbayes.codes import Menu, MenuEntry
from pacbayes.declarations import (
    ACCURACY_SHARE,
    DISAGREEMENT_SHARE,
    GAIN_SHARES,
    HOLDOUT_SHARE,
    KNOWN_SHARES,
    MAXIMUM_PROMPTS,
    STUDENT_SHARE,
    Joint,
    PriorData,
    Transfer,
)
from pacbayes.declarations import DeltaShare as DeltaShare  # part of the lock, and imported with it
from pacbayes.gumbel import SPECIFICATION
from pacbayes.ledger import bits_of
from pacbayes.schema import (
    DecimalFraction,
    Extended,
    FileName,
    Frozen,
    HexDigest,
    Name,
    Text,
    first_difference,
    one_line,
)

POOL_STATEMENTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "hypergeometric": (("unseen", "realised"), ("unseen", "expected"), ("pool", "realised")),
    "binomial": (("pool", "expected"),),
    "betting": (("pool", "expected"), ("pool", "realised"), ("unseen", "realised")),
}
"""By bound: what can be said of a finite pool, (part, outcome); the first is meant where the lock names none."""
MAXIMUM_DIMENSION = 10_000  # decoding takes quadratic time; a lock of any origin must not keep a verifier busy for ever


class LockError(ValueError):
    """A lock is missing, unreadable, or disagrees with what was locked before; the message is one sentence."""


class Claim(Frozen):
    """What is claimed about what; ``base_digest`` is the digest of the base model's :class:`ModelDigests`.

    The population's name stands in brackets in the statement, and may hold nothing that could end them and go on.
    """

    base: Name
    base_digest: HexDigest
    domain: FileName
    population: Annotated[Name, Field(pattern=r"^[^()%;]*$")]


class Quantization(Frozen):
    """How the base model's weights were quantized, and the digest of the packed weights that are served."""

    scheme: Name
    weights: HexDigest


class ModelDigests(Extended):
    """SHA-256 of the base model's files, as the engine loads them, and what quantizing them gave where it does."""

    added: ClassVar[frozenset[str]] = frozenset({"quantization"})

    weights: HexDigest
    tokenizer: HexDigest
    config: HexDigest
    quantization: Quantization | None = None


class PopulationLock(Frozen):
    """What "new prompts" means, and the template that makes model input of them."""

    description: Text
    digest: HexDigest
    template: str
    template_digest: HexDigest


class Generation(Frozen):
    """How completions are generated. ``max_new_tokens`` counts tokens, ``temperature`` divides logits."""

    temperature: Annotated[float, Field(gt=0)]
    max_new_tokens: Annotated[int, Field(ge=1, le=1_000_000)]
    stop: str | None
    engine: Name
    dtype: Name
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)]


class Iid(Frozen):
    """The prompts are independent draws from the population."""

    kind: Literal["iid"] = "iid"


class FinitePool(Extended):
    """The prompts are a uniform subset of a pool that was committed before the draw.

    ``part`` and ``outcome`` say what is certified, the whole pool or the part not drawn, under the committed noise or
    on average; where both are absent it is the first of `POOL_STATEMENTS`.
    """

    added: ClassVar[frozenset[str]] = frozenset({"part", "outcome"})

    kind: Literal["finite_pool"] = "finite_pool"
    pool_digest: HexDigest
    pool_size: Annotated[int, Field(ge=1, le=MAXIMUM_PROMPTS)]
    part: Literal["pool", "unseen"] | None = None
    outcome: Literal["realised", "expected"] | None = None

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.part is None) != (self.outcome is None):
            raise ValueError("part and outcome of a pool's statement are declared together")
        return self

    def statement(self, bound: str) -> tuple[str, str]:
        """(part, outcome) of what is certified by a bound of `POOL_STATEMENTS`."""
        if self.part is None or self.outcome is None:
            return POOL_STATEMENTS[bound][0]
        return self.part, self.outcome


class Reported(Frozen):
    """The domains that will be reported, and whether their statements are meant to hold all at once."""

    domains: Annotated[tuple[FileName, ...], Field(strict=False, min_length=1)]
    jointly: bool


class Lock(Frozen):
    """A lock as a file: canonical JSON, and ``sha256sum`` of the file is the lock's digest."""

    kind_of_lock: ClassVar[str]

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the canonical JSON."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, which does not validate; the copy has its own digest."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("digest", None)
        return copied


class MethodLock(Lock, Extended):
    """Everything that is fixed before the prompts are drawn.

    ``prompts`` is n and ``draws`` is M of the bound; ``heldout`` fresh prompts are scored beside them. ``bit_lines``
    names the lines that the bit ledger will have; ``delta_shares`` add up to at most ``delta``, and each is the share
    of a statement that the lock declares: the accuracy, a gain (two shares), the hold-out, a ``transfer``. ``joint``
    declares a statement over several domains, ``prior_data`` the labelled prompts that the prior was made from.
    """

    kind_of_lock: ClassVar[str] = "method lock"
    added: ClassVar[frozenset[str]] = frozenset({"transfer", "joint", "prior_data"})

    schema_: Annotated[Literal["prlvr/method-lock/1"], Field(alias="schema")] = "prlvr/method-lock/1"
    purpose: Literal["certificate", "development"]
    claim: Claim
    model: ModelDigests
    population: PopulationLock
    verifier: Name
    generation: Generation
    noise: str = SPECIFICATION
    design: Annotated[Iid | FinitePool, Field(discriminator="kind")]
    prompts: Annotated[int, Field(ge=1, le=MAXIMUM_PROMPTS)]
    draws: Annotated[int, Field(ge=1, le=10_000)] = 1
    heldout: Annotated[int, Field(ge=0, le=MAXIMUM_PROMPTS)] = 0
    delta: DecimalFraction
    delta_shares: Annotated[tuple[DeltaShare, ...], Field(strict=False, min_length=1)]
    bit_lines: Annotated[tuple[Name, ...], Field(strict=False, min_length=1)] = ("menu entry", "vector", "attempt")
    bound: Name
    menu: Annotated[tuple[MenuEntry, ...], Field(strict=False, min_length=1)]
    reported: Reported
    transfer: Transfer | None = None
    joint: Joint | None = None
    prior_data: PriorData | None = None

    @property
    def claim_key(self) -> str:
        """Digest under which attempts are counted: weights, domain and population.

        The same weights under another name, beside another configuration file, or quantized, are the same base:
        samples drawn for one may have taught something about the other, and are counted.
        """
        return digest([self.model.weights, self.claim.domain, self.claim.population])

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.noise != SPECIFICATION:
            raise ValueError(f"this version draws its noise by {SPECIFICATION!r}, the lock asks for {self.noise!r}")
        total = sum((Decimal(share.value) for share in self.delta_shares), Decimal(0))
        if not 0 < Decimal(self.delta) < 1:
            raise ValueError(f"delta must lie in (0, 1), got {self.delta}")
        if total > Decimal(self.delta):
            raise ValueError(f"the shares of delta add up to {total}, more than delta = {self.delta}")
        if any(Decimal(share.value) == 0 for share in self.delta_shares):
            raise ValueError("a share of delta is zero")
        for what, names in (
            ("delta_shares", [share.name for share in self.delta_shares]),
            ("bit_lines", list(self.bit_lines)),
            ("reported.domains", list(self.reported.domains)),
        ):
            if len(set(names)) < len(names):
                raise ValueError(f"a name appears twice in {what}: {', '.join(names)}")
        if self.claim.base_digest != digest(self.model.to_json()):
            raise ValueError("claim.base_digest must be the digest of the canonical JSON of model")
        if self.population.template_digest != digest(self.population.template.encode()):
            raise ValueError("population.template_digest must be the SHA-256 of population.template")
        if self.claim.domain not in self.reported.domains:
            raise ValueError(f"the claim's domain {self.claim.domain!r} is not among the reported domains")
        try:
            Menu(entries=self.menu)
        except pydantic.ValidationError as error:
            raise ValueError(f"menu: {one_line(error)}") from error
        for entry in self.menu:
            if entry.dimension > MAXIMUM_DIMENSION:
                raise ValueError(f"menu entry {entry.name!r} has more than {MAXIMUM_DIMENSION:,} integers")
        self._check_bound()
        self._check_shares()
        self._check_transfer()
        self._check_joint()
        if self.prior_data and isinstance(self.design, FinitePool):
            raise ValueError("a prior may depend on all of a finite pool: prior_data is for the iid design")
        if isinstance(self.design, FinitePool) and self.prompts + self.heldout > self.design.pool_size:
            raise ValueError(
                f"{self.prompts} + {self.heldout} prompts do not fit into a pool of {self.design.pool_size}"
            )
        return self

    def share(self, name: str) -> Decimal:
        """The share of δ with this name; 0 if the lock declares none."""
        return next((Decimal(share.value) for share in self.delta_shares if share.name == name), Decimal(0))

    @property
    def claims_gain(self) -> bool:
        """Whether the shares of δ are there for a certified gain over the base model."""
        return self.share(GAIN_SHARES[0]) > 0

    def _check_bound(self) -> None:
        """The bound must be valid for the design, the number of draws and what is claimed."""
        known = tuple(POOL_STATEMENTS) if isinstance(self.design, FinitePool) else tuple(ACCURACY_BOUNDS)
        if self.bound not in known:
            raise ValueError(
                f"for the design {self.design.kind} the bound is one of {', '.join(known)}, got {self.bound!r}"
            )
        if self.draws > 1 and self.bound != "betting":
            raise ValueError(f"{self.draws} draws per prompt need the bound 'betting', got {self.bound!r}")
        if isinstance(self.design, FinitePool):
            part, outcome = self.design.statement(self.bound)
            if (part, outcome) not in POOL_STATEMENTS[self.bound]:
                can = ", ".join(" ".join(pair) for pair in POOL_STATEMENTS[self.bound])
                raise ValueError(f"the bound {self.bound!r} can certify {can}; the lock asks for {part} {outcome}")
            if part == "unseen" and self.prompts == self.design.pool_size:
                raise ValueError(f"the bound {self.bound!r} is about the prompts that were not drawn, and all were")

    def _check_shares(self) -> None:
        """Every share of δ belongs to a statement, and every statement has its share."""
        for share in self.delta_shares:
            if share.name not in KNOWN_SHARES:
                raise ValueError(
                    f"no statement uses a share of delta called {share.name!r}; "
                    f"the shares are {', '.join(map(repr, KNOWN_SHARES))}"
                )
        if not self.share(ACCURACY_SHARE):
            raise ValueError(f"no share of delta is called {ACCURACY_SHARE!r}")
        iid = isinstance(self.design, Iid)
        if any(self.share(name) for name in GAIN_SHARES):
            whole = all(self.share(name) for name in GAIN_SHARES)
            if not whole or not iid or self.draws > 1 or self.bound != "binomial":
                raise ValueError(
                    f"a gain takes the shares of delta {' and '.join(map(repr, GAIN_SHARES))}, "
                    "the iid design, one draw and the binomial bound"
                )
        if self.share(HOLDOUT_SHARE) and (not self.heldout or not iid or self.draws > 1):
            raise ValueError(
                f"the share of delta {HOLDOUT_SHARE!r} takes held-out prompts, the iid design and one draw"
            )

    def _check_transfer(self) -> None:
        """A transfer needs its shares of δ, and prompts to compare on that nobody has used."""
        shares = self.share(STUDENT_SHARE), self.share(DISAGREEMENT_SHARE)
        if self.transfer is None:
            if any(shares):
                name = STUDENT_SHARE if shares[0] else DISAGREEMENT_SHARE
                raise ValueError(f"the share of delta {name!r} is for a transfer, and the lock declares none")
            return
        if not shares[1]:
            raise ValueError(f"a transfer takes a share of delta called {DISAGREEMENT_SHARE!r}")
        if not isinstance(self.design, FinitePool):
            if shares[0] or self.transfer.drawn != "population":
                raise ValueError(
                    "under the iid design a transfer draws from the population, and its student's event is that of "
                    f"the share {ACCURACY_SHARE!r}"
                )
        elif not shares[0] or self.transfer.drawn != "unseen" or self.draws > 1:
            raise ValueError(
                f"on a finite pool a transfer takes a share of delta called {STUDENT_SHARE!r}, draws from the unseen "
                "part and is for one draw per prompt"
            )
        elif self.transfer.prompts > self.design.pool_size - self.prompts:
            raise ValueError(
                f"{self.transfer.prompts} prompts to compare on do not fit into the unseen part of the pool, "
                f"{self.design.pool_size - self.prompts} prompts"
            )

    def _check_joint(self) -> None:
        """A joint statement is about the reported domains, and this domain's share of it is its δ."""
        if self.joint is None:
            return
        if not self.reported.jointly or self.joint.domains != self.reported.domains:
            raise ValueError("a joint statement is about all reported domains, in their order, reported jointly")
        own = next(share.delta for share in self.joint.shares if share.domain == self.claim.domain)
        if Decimal(own) != Decimal(self.delta):
            raise ValueError(f"the joint statement gives {self.claim.domain} a delta of {own}, the lock {self.delta}")


class LockedItem(Frozen):
    """One prompt of a sample.

    ``digest`` covers prompt, gold, tests and database; ``occurrence`` counts earlier items with the same prompt.
    """

    digest: HexDigest
    prompt_digest: HexDigest
    occurrence: Annotated[int, Field(ge=0, lt=MAXIMUM_PROMPTS)]


class HasDigests(Protocol):
    """What a lock needs of an item: ``domains.Item`` has it, and so has :class:`LockedItem`."""

    @property
    def digest(self) -> str: ...
    @property
    def prompt_digest(self) -> str: ...


class SampleLock(Lock):
    """The prompts, in order, drawn after the method was locked.

    ``attempt`` counts from 1; it is 0 in a development run, which is not counted.
    """

    kind_of_lock: ClassVar[str] = "sample lock"

    schema_: Annotated[Literal["prlvr/sample-lock/1"], Field(alias="schema")] = "prlvr/sample-lock/1"
    method: HexDigest
    beacon: Name | None
    seed: HexDigest
    attempt: Annotated[int, Field(ge=0, le=1_000_000)]
    previous: HexDigest | None
    items: Annotated[tuple[LockedItem, ...], Field(strict=False, min_length=1)]
    heldout: Annotated[tuple[LockedItem, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.seed != sample_seed(self.method, self.beacon):
            raise ValueError("the seed does not follow from the method's digest and the beacon")
        if (self.previous is None) != (self.attempt <= 1):
            raise ValueError(f"attempt {self.attempt} {'needs' if self.attempt > 1 else 'has no'} previous attempt")
        check_occurrences("items", self.items)
        check_occurrences("heldout", self.heldout)
        return self

    def split(self, name: str) -> tuple[LockedItem, ...]:
        """The items of the split "sample" or "heldout"."""
        if name not in ("sample", "heldout"):
            raise ValueError(f"a split is called sample or heldout, got {name!r}")
        return self.items if name == "sample" else self.heldout

    def check_method(self, method: MethodLock) -> None:
        """Raise LockError unless this sample was drawn for that method."""
        if self.method != method.digest:
            raise LockError(
                f"the sample lock belongs to method {self.method[:12]}…, "
                f"the method lock has the digest {method.digest[:12]}…"
            )
        for what, found, expected in (
            ("prompts", self.items, method.prompts),
            ("held-out prompts", self.heldout, method.heldout),
        ):
            if len(found) != expected:
                raise LockError(f"the method lock declares {expected} {what}, the sample lock holds {len(found)}")
        if method.prior_data is not None:
            of_prior = set(method.prior_data.prompts)
            for what, found in (("prompts", self.items), ("held-out prompts", self.heldout)):
                for index, item in enumerate(found):
                    if item.prompt_digest in of_prior:
                        raise LockError(
                            f"the prior was made from data that the sample holds: number {index} of the {what}, "
                            f"{item.prompt_digest[:12]}…"
                        )
        if (self.attempt == 0) != (method.purpose == "development"):
            raise LockError(f"attempt number {self.attempt} does not fit the purpose {method.purpose!r}")


def _occurrences(items: Iterable[HasDigests]) -> Iterator[int]:
    seen: Counter[str] = Counter()
    for item in items:
        yield seen[item.prompt_digest]
        seen[item.prompt_digest] += 1


def check_occurrences(name: str, items: Sequence[LockedItem]) -> None:
    """Raise ValueError unless every item counts the earlier items with its prompt; ``name`` is used in messages."""
    for index, (item, expected) in enumerate(zip(items, _occurrences(items), strict=True)):
        if item.occurrence != expected:
            raise ValueError(f"{name}[{index}] is occurrence {expected} of its prompt, the lock says {item.occurrence}")


def lock_items(items: Iterable[HasDigests]) -> tuple[LockedItem, ...]:
    """Items as a lock holds them: digests and the occurrence that keeps the noise of repeated prompts apart."""
    items = tuple(items)
    return tuple(
        LockedItem(digest=item.digest, prompt_digest=item.prompt_digest, occurrence=occurrence)
        for item, occurrence in zip(items, _occurrences(items), strict=True)
    )


# --- what follows from the locks ----------------------------------------------------------------------------


def derive(label: str, *parts: str | None) -> str:
    """H(label, parts): SHA-256 (hex) of their canonical JSON, which no other label or parts have."""
    return digest(["prlvr/1", label, *parts])


def sample_seed(method: str, beacon: str | None) -> str:
    """Seed of the prompts: known only once the method is locked and the beacon has been published."""
    return derive("sample", method, beacon)


def noise_root(method: str, sample: str, beacon: str | None) -> str:
    """Root of the noise on the sample, from the digests of both locks and the beacon."""
    return derive("noise", method, sample, beacon)


def heldout_seed(method: str, beacon: str | None) -> str:
    """Seed of the held-out prompts."""
    return derive("held-out sample", method, beacon)


def heldout_noise_root(method: str, sample: str, beacon: str | None) -> str:
    """Root of the noise on the held-out prompts."""
    return derive("held-out noise", method, sample, beacon)


def attempt_weight(number: int) -> Fraction:
    """The prior weight of the t-th attempt: w_1 = 15/16, w_t = 1 / (16 t (t - 1)); all weights add up to 1."""
    if number < 1:
        raise ValueError(f"attempts count from 1, got {number}")
    return Fraction(15, 16) if number == 1 else Fraction(1, 16 * number * (number - 1))


def attempt_bits(number: int) -> float:
    """What the t-th sample of a claim pays: -log2 w_t bits, rounded up (0.0931 for the first, 5 for the second)."""
    return bits_of(attempt_weight(number))


# --- files --------------------------------------------------------------------------------------------------

LockType = TypeVar("LockType", bound=Lock)
NumberedLock = TypeVar("NumberedLock", bound=Lock)


def write_lock(path: str | os.PathLike[str], lock: Lock) -> None:
    """Write a lock once. The same content again is no change.

    Raises:
        LockError: the file exists and holds another lock (the message names the first field that differs).
        OSError: the file cannot be written.
    """
    path = Path(path)
    data = lock.to_bytes()
    if not path.exists():
        write_atomic(path, data)
    elif path.read_bytes() != data:
        found = read_lock(path, type(lock))
        where = first_difference(found.to_json(), lock.to_json()) or "its form"
        raise LockError(
            f"{path} was locked before with another content: {where}; "
            "a changed method needs a new run directory and a new sample"
        )


def read_lock(path: str | os.PathLike[str], kind: type[LockType]) -> LockType:
    """Read and validate a lock.

    Raises:
        LockError: the file is missing, is not canonical JSON, or is no valid lock of that kind.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise LockError(f"{path}: {error.strerror or error}") from error
    return parse_lock(data, kind, name=str(path))


def parse_lock(data: bytes, kind: type[LockType], *, name: str) -> LockType:
    """A lock from the bytes of its file; ``name`` is used in messages. Raises LockError."""
    try:
        parse_json(data)
        lock = kind.model_validate_json(data)
        canonical = lock.to_bytes()
    except pydantic.ValidationError as error:
        raise LockError(f"{name} is no valid {kind.kind_of_lock}: {one_line(error)}") from error
    except CanonicalError as error:
        raise LockError(f"{name} is no valid {kind.kind_of_lock}: {error}") from error
    if canonical != data:
        raise LockError(f"{name} is not the canonical JSON of its content")
    return lock


# --- attempts -----------------------------------------------------------------------------------------------


class AttemptEntry(Frozen):
    """One line of the log: one sample lock, chained to the one before it for the same claim.

    Draws of a transfer are counted in the same way, each claim being one sample.
    """

    schema_: Annotated[Literal["prlvr/attempt/1"], Field(alias="schema")] = "prlvr/attempt/1"
    claim: HexDigest
    number: Annotated[int, Field(ge=1)]
    method: HexDigest
    beacon: Name | None
    sample: HexDigest
    previous: HexDigest | None


class AttemptLog:
    """The append-only log of sample locks, JSON lines, shared by all runs on one machine.

    Each sample lock of a claim pays for all that were drawn before it, used or not, so the number is given when the
    prompts are drawn. The same method and beacon draw the same prompts and are the same attempt. Development runs are
    not counted and cannot be certified.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def register(
        self,
        method: MethodLock,
        items: Iterable[HasDigests],
        heldout: Iterable[HasDigests] = (),
        *,
        beacon: str | None = None,
    ) -> SampleLock:
        """Number a sample and return its lock.

        Args:
            method: the locked method.
            items: the n prompts drawn with ``sample_seed(method.digest, beacon)``, in order.
            heldout: the held-out prompts drawn with ``heldout_seed(method.digest, beacon)``, in order.
            beacon: the public random number, if there is one.

        Raises:
            LockError: the counts are not the method's, the log is damaged, or the same method and beacon were
                registered with other prompts (a gold corrected after the lock, or a population that does not follow
                from its seed).
            OSError: the log cannot be written.
        """
        locked, locked_heldout = lock_items(items), lock_items(heldout)

        def lock(number: int, previous: str | None) -> SampleLock:
            seed = sample_seed(method.digest, beacon)
            sample = SampleLock(
                method=method.digest,
                beacon=beacon,
                seed=seed,
                attempt=number,
                previous=previous,
                items=locked,
                heldout=locked_heldout,
            )
            sample.check_method(method)
            return sample

        if method.purpose == "development":
            return lock(0, None)
        return self.number(method.claim_key, method.digest, beacon, lock)

    def number(
        self, claim: str, key: str, beacon: str | None, lock: Callable[[int, str | None], NumberedLock]
    ) -> NumberedLock:
        """Number a draw of prompts among those of the same claim, and return its lock.

        Args:
            claim: digest under which draws are counted.
            key: digest of what, with the beacon, determines the draw: the same again is the same draw.
            beacon: the public random number, if there is one.
            lock: makes the lock of the draw from its number (from 1) and the digest of the lock before it; what it
                raises, it raises before anything is written.

        Raises:
            LockError: the log is damaged, or the same key and beacon were registered with other prompts.
            OSError: the log cannot be written.
        """
        with self._open() as descriptor:
            earlier = [entry for entry in self._read(descriptor) if entry.claim == claim]
            for entry in earlier:
                if (entry.method, entry.beacon) == (key, beacon):
                    found = lock(entry.number, entry.previous)
                    if found.digest != entry.sample:
                        raise LockError(
                            f"attempt {entry.number} was registered in {self.path} with other prompts or golds "
                            "for the same method and beacon"
                        )
                    return found
            number, previous = len(earlier) + 1, earlier[-1].sample if earlier else None
            drawn = lock(number, previous)
            entry = AttemptEntry(
                claim=claim, number=number, method=key, beacon=beacon, sample=drawn.digest, previous=previous
            )
            self._append(descriptor, canonical_json(entry.to_json()) + b"\n")
            return drawn

    def entries(self) -> list[AttemptEntry]:
        """All attempts in the log, oldest first. Raises LockError if a line or the chain is damaged."""
        if not self.path.exists():
            return []
        with self._open() as descriptor:
            return self._read(descriptor)

    @contextmanager
    def _open(self) -> Iterator[int]:
        """The log's descriptor under an exclusive lock; two runs that register at once wait for each other."""
        import fcntl  # POSIX only; the rest of the package also runs elsewhere

        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int) -> list[AttemptEntry]:
        entries: list[AttemptEntry] = []
        last: dict[str, AttemptEntry] = {}
        with open(descriptor, "rb", closefd=False) as file:
            file.seek(0)
            data = file.read()
        # A last line without its end was being written when the machine stopped: its lock was never handed out.
        for number, line in enumerate(data.split(b"\n")[:-1], start=1):
            try:
                parse_json(line)
                entry = AttemptEntry.model_validate_json(line)
            except (CanonicalError, pydantic.ValidationError) as error:
                raise LockError(f"{self.path}, line {number}, is no attempt: {str(error).splitlines()[0]}") from error
            before = last.get(entry.claim)
            if (entry.number, entry.previous) != ((before.number + 1, before.sample) if before else (1, None)):
                raise LockError(
                    f"{self.path}, line {number}, does not follow the attempt before it: a line was removed or changed"
                )
            last[entry.claim] = entry
            entries.append(entry)
        return entries

    def _append(self, descriptor: int, line: bytes) -> None:
        end = os.lseek(descriptor, 0, os.SEEK_END)
        while end > 0 and os.pread(descriptor, 1, end - 1) != b"\n":
            end -= 1
        os.ftruncate(descriptor, end)
        os.lseek(descriptor, end, os.SEEK_SET)
        try:
            written = os.write(descriptor, line)
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, end)
            raise
        if written != len(line):
            os.ftruncate(descriptor, end)
            raise OSError(f"only {written} of {len(line)} bytes could be written to {self.path}")
