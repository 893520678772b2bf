"""Stage `rlvr`: a LoRA adapter on the base, trained by GRPO on the verifier's reward. The teacher of what follows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from peft import LoraConfig, get_peft_model

from pacbayes.canonical import write_atomic
from progressive_rlvr.chain import Chain
from progressive_rlvr.distributed import is_first
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
    if is_first():
        model.save_pretrained(folder)
        (folder / "README.md").unlink()  # a model card with nothing in it
        _settle_config(folder / "adapter_config.json", chain.base.name)
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return {**summary, "parameters": parameters, "bits_bfloat16": 16 * parameters}


def _settle_config(path: Path, base: str) -> None:
    """`peft` writes the target modules as a set, in an order that differs from process to process, and the folder that
    the base was loaded from, which differs from machine to machine: the certificate holds this file's digest.
    """
    config = json.loads(path.read_text())
    config["target_modules"] = sorted(config["target_modules"])
    config["base_model_name_or_path"] = base
    write_atomic(path, json.dumps(config, indent=1, sort_keys=True).encode() + b"\n")
