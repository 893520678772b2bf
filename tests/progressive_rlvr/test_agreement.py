"""The audit of engines: what it counts, on real engines and on one that is made to disagree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import prlvr, write_config

from progressive_rlvr import agreement
from progressive_rlvr.agreement import Agreement, Parting, Variant, audit_engines, first_difference
from progressive_rlvr.engines import Completion, Request, Settings, open_engine
from progressive_rlvr.engines.hf import HfEngine
from progressive_rlvr.errors import UserError


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its locks and nothing more."""
    folder = tmp_path_factory.mktemp("locked")
    prlvr("lock", write_config(folder, domains={"mathematics": {}}), "--runs", folder / "runs")
    return folder / "runs" / "small"


class OtherNoise(HfEngine):
    """Every second prompt is answered with another key."""

    def generate(self, requests: Sequence[Request], settings: Settings, *_: Any) -> list[Completion]:
        wrong = [replace(r, key=r.key[::-1]) if i % 2 else r for i, r in enumerate(requests)]
        return super().generate(wrong, settings)


def test_an_engine_that_agrees_and_one_that_does_not(locked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(name: str, model: Any, *arguments: Any) -> Any:
        other = model.dtype == torch.bfloat16
        return OtherNoise(model.float(), arguments[0]) if other else open_engine(name, model, *arguments)

    monkeypatch.setattr(agreement, "open_engine", opened)
    variants = [Variant.parse("hf:float32:16:shuffled"), Variant.parse("hf:bfloat16:16")]
    seen: list[Agreement] = []
    found = audit_engines(locked, "mathematics", "base", 40, variants, seen.append)
    assert found["oracle"]["variant"] == "hf:float32:1"
    same, other = seen
    assert (same.partings, same.token_flip_rate, same.verdict_flip_rate) == ([], 0, 0)
    assert same.correct == found["oracle"]["correct"]
    parted = [p.prompt for p in other.partings]
    assert len(parted) > 10
    assert all(i % 2 for i in parted)
    # The oracle chose the best score, so the other token is at least as far away as the second best.
    assert all(0 < p.margin <= p.gap and p.oracle != p.other for p in other.partings)
    assert other.correct - same.correct == other.wrong_to_right - other.right_to_wrong
    assert found["variants"][1]["completions_that_differ"] == len(parted)


def test_rates_are_shares_of_what_could_have_differed() -> None:
    parting = Parting(prompt=1, position=2, oracle=5, other=6, margin=0.5, gap=0.5)
    found = Agreement("hf:float32:2", 10, 50, [parting], right_to_wrong=2, wrong_to_right=1, correct=4)
    assert found.token_flip_rate == 0.02
    assert found.verdict_flip_rate == 0.3
    row = found.row()
    assert (row["completion_flip_rate"], row["margin_median"], row["margin_largest"]) == (0.1, 0.5, 0.5)
    assert row["partings"] == [{"prompt": 1, "position": 2, "oracle": 5, "other": 6, "margin": 0.5, "gap": 0.5}]


def test_completions_part_at_their_first_difference() -> None:
    assert first_difference([1, 2, 3], [1, 2, 3]) is None
    assert first_difference([1, 2, 3], [1, 9]) == 1
    assert first_difference([4], [5, 6]) == 0


@pytest.mark.parametrize(
    "text", ["hf", "hf:float32", "hf:float16:2", "tpu:float32:2", "hf:float32:0", "hf:float32:2:up"]
)
def test_what_is_no_variant_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is no variant: ENGINE:DTYPE:BATCH"):
        Variant.parse(text)


def test_variants_are_written_as_they_are_read() -> None:
    for text in ("hf:float32:1", "vllm:bfloat16:64:shuffled"):
        assert str(Variant.parse(text)) == text


def test_what_is_missing_is_named(locked: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no run"):
        audit_engines(tmp_path, "mathematics")
    with pytest.raises(UserError, match="has no domain 'text_to_sql'"):
        audit_engines(locked, "text_to_sql")
    with pytest.raises(UserError, match="no policy 'coded' yet: finish it"):
        audit_engines(locked, "mathematics", variants=[])
