"""Completions taken from stored evidence: nothing is generated, so what was answered can be scored again.

engine = ReplayEngine.of(read_evidence(path), "coded", {"sample": root})
engine.generate(requests, settings)
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor

from pacbayes.evidence import Evidence, Split
from pacbayes.gumbel import prompt_key
from progressive_rlvr.engines.base import Completion, Progress, Request, Settings

# (SHA-256 of the prompt in hex, noise key): what a completion is a function of, once the policy is fixed.
Unit = tuple[str, bytes]

logger = logging.getLogger(__name__)


@dataclass
class ReplayEngine:
    """The answers of one policy by (prompt, key). A unit that is not among them is lost, and a lost unit is a loss."""

    completions: Mapping[Unit, Completion]
    lost: list[Unit] = field(default_factory=list)

    @classmethod
    def of(cls, evidence: Evidence, policy: str, roots: Mapping[Split, str]) -> ReplayEngine:
        """What a policy answered on some splits, whose noise roots (hex) are given.

        Raises:
            ValueError: that policy was not evaluated.
        """
        if policy not in evidence.policies:
            raise ValueError(f"no policy {policy!r} in the evidence, which has {', '.join(sorted(evidence.policies))}")
        return cls(
            {
                (row.prompt_digest, prompt_key(root, row.prompt_digest, row.occurrence, row.draw)): Completion(
                    row.completion, row.tokens, truncated=row.reason == "truncated"
                )
                for split, root in roots.items()
                for row in evidence.part(policy, split)
            }
        )

    @contextmanager
    def serving(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """The policy is the one whose answers were stored, whatever the weights: they are not looked at."""
        yield

    def generate(
        self, requests: Sequence[Request], settings: Settings, progress: Progress = lambda done: None
    ) -> list[Completion]:
        """Stored completions in the order of the requests. One that is not stored is lost, and a warning says so."""
        units = [(hashlib.sha256(r.prompt.encode()).hexdigest(), r.key) for r in requests]
        lost = [unit for unit in units if unit not in self.completions]
        if lost:
            self.lost += lost
            logger.warning(
                "replay: %d of %d completions are not in the evidence and count as losses, the first for prompt %s…",
                len(lost),
                len(units),
                lost[0][0][:12],
            )
        progress(len(requests))
        return [self.completions.get(unit, Completion("", 0, truncated=True, lost=True)) for unit in units]
