"""`metrics.jsonl` survives kills: a torn line is dropped, a step that is done again appears once."""

from __future__ import annotations

from pathlib import Path

from progressive_rlvr.metrics import Metrics


def test_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "m.jsonl")
    metrics.append("rlvr", 1, 3, reward=0.5)
    with open(metrics.path, "a") as file:
        file.write('{"stage": "rlvr", "ste')
    assert metrics.last() == {"stage": "rlvr", "step": 1, "steps": 3, "reward": 0.5}
    assert len(metrics.read()) == 1


def test_forgetting_keeps_other_stages_and_earlier_steps(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "m.jsonl")
    for step in (1, 2, 3):
        metrics.append("rlvr", step, 3)
        metrics.append("distill", step, 3)
    metrics.forget("rlvr", after=1)
    assert [(r["stage"], r["step"]) for r in metrics.read()] == [
        ("rlvr", 1),
        ("distill", 1),
        ("distill", 2),
        ("distill", 3),
    ]


def test_nothing_there_is_nothing(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "none.jsonl")
    metrics.forget("rlvr")
    assert metrics.last() is None
    assert metrics.read() == []
