"""Stage `rlvr`: a LoRA adapter on the base, trained by GRPO on the verifier's reward. The teacher of what follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peft import LoraConfig, get_peft_model

from progressive_rlvr.chain import Chain
from progressive_rlvr.stages.training import train_grpo


def run(chain: Chain, previous: Path | None, folder: Path) -> dict[str, Any]:
    """Write `adapter_config.json` and `adapter_model.safetensors`, an ordinary PEFT adapter."""
    settings = chain.config.stages.rlvr
    assert settings is not None
    lora = LoraConfig(
        r=settings.rank,
        lora_alpha=2 * settings.rank,
        target_modules=list(chain.config.student.targets),
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(chain.training_model(), lora)
    summary = train_grpo(chain, model, settings, "rlvr", folder)
    model.save_pretrained(folder)
    (folder / "README.md").unlink()  # a model card with nothing in it
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return {**summary, "parameters": parameters, "bits_bfloat16": 16 * parameters}
