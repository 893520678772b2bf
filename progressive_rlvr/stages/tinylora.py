"""Stage `tinylora`: GRPO in TinyLoRA space, from the distilled vector, or from v = 0 where nothing was distilled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from progressive_rlvr.chain import Chain
from progressive_rlvr.decoder import get_vector, inject, set_vector
from progressive_rlvr.distributed import is_first
from progressive_rlvr.policies import VECTOR_FILE, read_vector, write_vector
from progressive_rlvr.stages.training import train_grpo


def run(chain: Chain, previous: Path | None, folder: Path) -> dict[str, Any]:
    """Write the student's vector."""
    settings = chain.config.stages.tinylora
    assert settings is not None
    student = inject(chain.training_model(), chain.config.student, chain.prior)
    if previous is not None and (previous / VECTOR_FILE).exists():
        set_vector(student, read_vector(previous))
    summary = train_grpo(chain, student, settings, "tinylora", folder)
    v = get_vector(student)
    if is_first():
        write_vector(folder, v)
    return {**summary, "parameters": len(v)}
