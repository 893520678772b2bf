"""Evidence: what each policy answered to each prompt under the committed noise, and the counts that follow from it.

One row per (policy, split, index, draw). Counting goes against the policy: a row that is missing is a loss, n is the
number of prompts in the lock and never the number of rows. The first evaluation of a policy binds: writing again can
add rows and turn right into wrong, never wrong into right.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from pacbayes.canonical import CanonicalError, canonical_json, digest, is_digest, parse_json, write_atomic
from pacbayes.sample import SampleLock

Split = Literal["sample", "heldout", "fresh"]
SCHEMA_NAME: Final = "prlvr/evidence/1"
INFRASTRUCTURE_REASONS: Final = frozenset({"timeout", "memory", "crashed"})
"""Reasons that may be the machine's fault and not the policy's."""

_METADATA_KEY: Final = b"prlvr"
_MAXIMUM_ROWS: Final = 50_000_000
_MAXIMUM_BYTES: Final = 4 << 30
_COLUMNS: Final = pa.schema(
    [
        pa.field("policy", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("index", pa.int64(), nullable=False),
        pa.field("prompt_digest", pa.string(), nullable=False),
        pa.field("occurrence", pa.int64(), nullable=False),
        pa.field("draw", pa.int64(), nullable=False),
        pa.field("correct", pa.bool_(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("tokens", pa.int64(), nullable=False),
        pa.field("completion", pa.string(), nullable=False),
    ]
)


class EvidenceError(ValueError):
    """Evidence is unreadable, contradicts itself or does not belong to the lock; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One completion and its verdict.

    Attributes:
        policy: name of the policy, such as "base" or "coded".
        split: "sample" (the n certified prompts), "heldout", or "fresh" (unlabelled, of a transfer lock).
        index: position of the prompt in that split of the lock, from 0.
        prompt_digest, occurrence: as the lock has them for this index.
        draw: which of the M completions, from 0.
        correct: the verifier's verdict; False where there is no label.
        reason: the verifier's typed reason, in lower case.
        tokens: number of tokens generated.
        completion: the text that the verifier read.
    """

    policy: str
    split: Split
    index: int
    prompt_digest: str
    occurrence: int
    draw: int
    correct: bool
    reason: str
    tokens: int
    completion: str

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What a file holds once: (policy, split, index, draw)."""
        return self.policy, self.split, self.index, self.draw

    @property
    def place(self) -> str:
        """The key in words, for messages."""
        return f"{self.policy}, {self.split} prompt {self.index}, draw {self.draw}"


@dataclass(frozen=True, slots=True)
class Count:
    """Outcomes of one policy on one split.

    ``correct + losses == n * draws``; rows that are ``missing`` stand among the losses, or the right ones if doubt is
    to count for the policy.
    """

    correct: int
    losses: int
    n: int
    draws: int = 1
    missing: int = 0

    @property
    def accuracy(self) -> float:
        """Fraction of right completions."""
        return self.correct / (self.n * self.draws)


@dataclass(frozen=True)
class Evidence:
    """The rows of one evidence file, checked to be consistent with themselves.

    Attributes:
        sample_lock: digest of the sample lock that the rows belong to.
        policies: digest of what was evaluated, by policy name (for ``coded`` the digest of the message).
        outcomes: the rows by (policy, split, index, draw), sorted.
    """

    sample_lock: str
    policies: Mapping[str, str]
    outcomes: Mapping[tuple[str, str, int, int], Outcome]

    @cached_property
    def _parts(self) -> dict[tuple[str, str], list[Outcome]]:
        parts: dict[tuple[str, str], list[Outcome]] = {}
        for outcome in self.outcomes.values():
            parts.setdefault((outcome.policy, outcome.split), []).append(outcome)
        return parts

    def part(self, policy: str, split: Split) -> list[Outcome]:
        """The rows of one policy on one split, by index and draw; empty if it was not evaluated there."""
        return self._parts.get((policy, split), [])

    def count(
        self,
        policy: str,
        split: Split,
        lock: SampleLock,
        *,
        draws: int = 1,
        doubt: Literal["against", "for"] = "against",
    ) -> Count:
        """Count right and wrong completions of a policy over all prompts of a split.

        Args:
            policy: name of the policy; it must be one that was evaluated.
            split: "sample" or "heldout".
            lock: the sample lock; every row must agree with it.
            draws: M, the completions per prompt that the method lock declares.
            doubt: "against" counts missing rows as losses. "for" counts them, and failures that may be the machine's,
                as right: for a base model whose losses would flatter a gain.

        Raises:
            EvidenceError: the rows belong to another lock or policy, or lie outside the lock's prompts and draws.
        """
        correct = self.correct_per_prompt(policy, split, lock, draws=draws, doubt=doubt)
        n = len(lock.split(split))
        present = len(self.part(policy, split))
        right = sum(correct)
        return Count(correct=right, losses=n * draws - right, n=n, draws=draws, missing=n * draws - present)

    def correct_per_prompt(
        self,
        policy: str,
        split: Split,
        lock: SampleLock,
        *,
        draws: int = 1,
        doubt: Literal["against", "for"] = "against",
    ) -> list[int]:
        """Right completions among the M of each prompt, in the lock's order; arguments and errors as :meth:`count`."""
        if self.sample_lock != lock.digest:
            raise EvidenceError(
                f"the evidence belongs to sample lock {self.sample_lock[:12]}…, "
                f"the sample lock at hand is {lock.digest[:12]}…"
            )
        if policy not in self.policies:
            raise EvidenceError(
                f"no policy {policy!r} in the evidence, which has {', '.join(sorted(self.policies)) or 'none'}"
            )
        items = lock.split(split)
        missing = draws if doubt == "for" else 0
        correct = [missing] * len(items)
        for outcome in self.part(policy, split):
            if outcome.index >= len(items) or outcome.draw >= draws:
                raise EvidenceError(f"{outcome.place}: the lock has {len(items)} prompts and {draws} draws")
            item = items[outcome.index]
            if (outcome.prompt_digest, outcome.occurrence) != (item.prompt_digest, item.occurrence):
                raise EvidenceError(f"{outcome.place}: not the prompt or occurrence of the sample lock")
            if doubt == "for":
                correct[outcome.index] -= not (outcome.correct or outcome.reason in INFRASTRUCTURE_REASONS)
            else:
                correct[outcome.index] += outcome.correct
        return correct


def collect(sample_lock: str, policies: Mapping[str, str], outcomes: Iterable[Outcome]) -> Evidence:
    """Sort rows and check that they do not contradict each other.

    Raises:
        EvidenceError: a value is out of range, a policy has no digest, or two rows for the same completion differ.
    """
    if not is_digest(sample_lock) or not all(is_digest(value) for value in policies.values()):
        raise EvidenceError("the digests of the sample lock and of the policies must be 64 hex digits")
    rows: dict[tuple[str, str, int, int], Outcome] = {}
    for outcome in outcomes:
        if outcome.policy not in policies:
            raise EvidenceError(f"{outcome.place}: the policy has no digest")
        if outcome.split not in ("sample", "heldout", "fresh"):
            raise EvidenceError(f"{outcome.place}: a split is called sample, heldout or fresh")
        if outcome.index < 0 or outcome.draw < 0 or outcome.occurrence < 0 or outcome.tokens < 0:
            raise EvidenceError(f"{outcome.place}: negative index, draw, occurrence or number of tokens")
        first = rows.setdefault(outcome.key, outcome)
        if first is not outcome and first != outcome:
            raise EvidenceError(f"{outcome.place}: two rows that differ")
    return Evidence(sample_lock, dict(sorted(policies.items())), dict(sorted(rows.items(), key=itemgetter(0))))


def write_evidence(
    path: str | os.PathLike[str], outcomes: Iterable[Outcome], *, sample_lock: str, policies: Mapping[str, str]
) -> str:
    """Write or extend an evidence file; the same rows give the same bytes.

    What stands in the file binds: rows of the same policy (name and digest) are kept, and stay wrong once they were
    wrong. Rows of a policy whose digest changed are replaced, since they are about something else.

    Args:
        path: the Parquet file.
        outcomes: rows, in any order.
        sample_lock: digest of the sample lock.
        policies: digest of each evaluated policy; those of the rows at least. For the coded policy the SHA-256 of the
            message.

    Returns: SHA-256 (hex) of the file.

    Raises:
        EvidenceError: rows contradict each other, or the file belongs to another lock.
        OSError: the file cannot be written; it is then unchanged.
    """
    path = Path(path)
    new = collect(sample_lock, policies, outcomes)
    if path.exists():
        old = read_evidence(path)
        if old.sample_lock != sample_lock:
            raise EvidenceError(
                f"{path} belongs to another sample lock ({old.sample_lock[:12]}…, not {sample_lock[:12]}…)"
            )
        new = _merge(old, new)
    data = _to_parquet(new)
    write_atomic(path, data)
    return digest(data)


def _merge(old: Evidence, new: Evidence) -> Evidence:
    rows = dict(new.outcomes)
    for key, before in old.outcomes.items():
        if new.policies.get(before.policy, old.policies[before.policy]) != old.policies[before.policy]:
            continue
        after = rows.get(key)
        if after is None or not (before.correct and not after.correct):
            rows[key] = before
        if after is not None and (after.prompt_digest, after.occurrence) != (before.prompt_digest, before.occurrence):
            raise EvidenceError(f"{before.place}: evaluated before with another prompt")
    return collect(new.sample_lock, {**old.policies, **new.policies}, rows.values())


def _to_parquet(evidence: Evidence) -> bytes:
    rows = evidence.outcomes.values()
    columns = {field.name: [getattr(row, field.name) for row in rows] for field in _COLUMNS}
    header = canonical_json(
        {"schema": SCHEMA_NAME, "sample_lock": evidence.sample_lock, "policies": dict(evidence.policies)}
    )
    sink = io.BytesIO()
    try:
        table = pa.table(columns, schema=_COLUMNS.with_metadata({_METADATA_KEY: header}))
        pq.write_table(table, sink, compression="zstd", version="2.6", data_page_version="1.0", row_group_size=1 << 20)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, UnicodeError) as error:
        raise EvidenceError(f"an outcome has a value of the wrong type: {str(error).splitlines()[0]}") from error
    return sink.getvalue()


def read_evidence(path: str | os.PathLike[str]) -> Evidence:
    """Read an evidence file of any origin.

    Raises:
        EvidenceError: missing, not Parquet, wrong columns or types, too large, contradicting rows; one line.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise EvidenceError(f"{path}: {error.strerror or error}") from error
    return parse_evidence(data, name=str(path))


def parse_evidence(data: bytes, *, name: str) -> Evidence:
    """Evidence from the bytes of its file; ``name`` is used in messages. Raises EvidenceError."""
    try:
        file = pq.ParquetFile(io.BytesIO(data))
        schema, metadata = file.schema_arrow, file.metadata
        size = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
        # Looked at before anything is unpacked: a small file may unpack to more than the memory holds.
        if metadata.num_rows > _MAXIMUM_ROWS or size > _MAXIMUM_BYTES:
            raise EvidenceError(
                f"{name} unpacks to {metadata.num_rows} rows and {size} bytes, more than evidence may have"
            )
        if not schema.equals(_COLUMNS, check_metadata=False):
            raise EvidenceError(f"{name} does not have the columns of {SCHEMA_NAME}: {', '.join(_COLUMNS.names)}")
        header = parse_json((schema.metadata or {}).get(_METADATA_KEY, b"null"))
        table = file.read()
        table.validate(full=True)
        columns = [table.column(name).to_pylist() for name in _COLUMNS.names]
        rows = [Outcome(*row) for row in zip(*columns, strict=True)]
    except EvidenceError:
        raise
    except CanonicalError as error:
        raise EvidenceError(f"{name} has a damaged header: {error}") from error
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, MemoryError, OverflowError) as error:
        raise EvidenceError(
            f"{name} is no readable Parquet file: {(str(error) or type(error).__name__).splitlines()[0][:200]}"
        ) from error
    match header:
        case {"schema": str(found), "sample_lock": str(sample_lock), "policies": dict(policies)} if all(
            isinstance(value, str) for value in policies.values()
        ):
            if found != SCHEMA_NAME:
                raise EvidenceError(f"{name} has schema {found[:60]!r}, this version reads {SCHEMA_NAME}")
            return collect(sample_lock, policies, rows)
    raise EvidenceError(f"{name} has no header that names its schema, sample lock and policies")
