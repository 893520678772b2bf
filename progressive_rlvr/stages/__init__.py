"""The four stages: RLVR with LoRA, on-policy distillation, RLVR in TinyLoRA space, quantization.

Each reads the folder of the one before it and nothing else, and writes its own. A stage is complete when its
`done.json` names the inputs that it would be given now and the digests of the files that stand there.
"""

from progressive_rlvr.stages.stage import StageResult, run_stage, stage_folders

__all__ = ["StageResult", "run_stage", "stage_folders"]
