"""What generates while TRL trains: vLLM on a GPU if asked, and a refusal elsewhere."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import torch
from trl import GRPOConfig

from progressive_rlvr.errors import UserError
from progressive_rlvr.stages import training


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_vllm_rollouts_without_a_gpu_are_refused() -> None:
    with pytest.raises(UserError, match=r"stages.rollouts is vllm, which needs a CUDA GPU, and there is none here"):
        training.rollouts("vllm", [1, 7])


def test_trl_is_asked_for_vllm_with_our_stop_rule(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """TRL's configuration takes the arguments; that vLLM then generates was not seen, for want of a GPU."""
    assert training.rollouts("hf", [1, 7]) == {}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(training, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="installed beside TRL"):
        training.rollouts("vllm", [1, 7])
    monkeypatch.setattr(training, "find_spec", lambda name: ModuleSpec(name, None))
    arguments = training.rollouts("vllm", [1, 7])
    monkeypatch.undo()
    config = GRPOConfig(output_dir=str(tmp_path), use_cpu=not torch.cuda.is_available(), bf16=False, **arguments)
    assert config.use_vllm
    assert config.generation_kwargs == {"stop_token_ids": [1, 7]}
