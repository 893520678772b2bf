"""Replay gives back what the evidence holds, by prompt and key, and says loudly what it does not."""

from __future__ import annotations

import hashlib
import logging

import pytest

from pacbayes.evidence import Outcome, collect
from pacbayes.gumbel import prompt_key
from progressive_rlvr.engines import Completion, Request, Settings
from progressive_rlvr.engines.replay import ReplayEngine

ROOT, OTHER_ROOT, LOCK = "ab" * 32, "cd" * 32, "11" * 32
SETTINGS = Settings(8, 1.0, None, 4)


def digest_of(prompt: str) -> str:
    return hashlib.sha256(prompt.encode()).hexdigest()


def outcome(index: int, prompt: str, occurrence: int, text: str, reason: str, policy: str = "coded") -> Outcome:
    digest = digest_of(prompt)
    return Outcome(policy, "sample", index, digest, occurrence, 0, reason == "right", reason, 3, text)


@pytest.fixture
def engine() -> ReplayEngine:
    rows = [
        outcome(0, "1 + 1 =", 0, " 2", "right"),
        outcome(1, "1 + 1 =", 1, " 3", "wrong"),
        outcome(2, "2 + 2 =", 0, " 4444444", "truncated"),
        outcome(0, "1 + 1 =", 0, " base", "wrong", "base"),
    ]
    evidence = collect(LOCK, {"coded": "22" * 32, "base": "33" * 32}, rows)
    return ReplayEngine.of(evidence, "coded", {"sample": ROOT})


def request(prompt: str, occurrence: int = 0, root: str = ROOT) -> Request:
    return Request(prompt, prompt_key(root, digest_of(prompt), occurrence, 0))


def test_answers_are_found_by_prompt_and_key_in_any_order(engine: ReplayEngine) -> None:
    wanted = [request("2 + 2 ="), request("1 + 1 =", 1), request("1 + 1 =")]
    with engine.serving({}):
        assert engine.generate(wanted, SETTINGS) == [
            Completion(" 4444444", 3, truncated=True),
            Completion(" 3", 3, truncated=False),
            Completion(" 2", 3, truncated=False),
        ]
    assert engine.lost == []


@pytest.mark.parametrize(
    "unknown", [request("3 + 3 ="), request("1 + 1 =", 2), request("1 + 1 =", root=OTHER_ROOT)], ids=str
)
def test_what_is_not_stored_is_lost_and_said(
    engine: ReplayEngine, unknown: Request, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = engine.generate([request("1 + 1 ="), unknown], SETTINGS)
    assert found == [Completion(" 2", 3, truncated=False), Completion("", 0, truncated=True, lost=True)]
    assert engine.lost == [(digest_of(unknown.prompt), unknown.key)]
    assert "1 of 2 completions are not in the evidence and count as losses" in caplog.text


def test_a_policy_that_was_not_evaluated_is_refused() -> None:
    with pytest.raises(ValueError, match="no policy 'lora' in the evidence, which has base"):
        ReplayEngine.of(collect(LOCK, {"base": "33" * 32}, []), "lora", {"sample": ROOT})
