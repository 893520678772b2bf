"""Stage `distill`: the LoRA teacher into a TinyLoRA student, by reverse KL on the student's own samples.

The student starts at v = 0, which is the base; it is injected into the base, never into weights merged with the
teacher.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peft import PeftModel
from trl import DistillationConfig, DistillationTrainer

from progressive_rlvr.chain import Chain
from progressive_rlvr.decoder import get_vector, inject
from progressive_rlvr.distributed import is_first
from progressive_rlvr.policies import write_vector
from progressive_rlvr.stages.training import Recorder, arguments, end_tokens, optimizer, prompts, train


def run(chain: Chain, previous: Path | None, folder: Path) -> dict[str, Any]:
    """Write the student's vector."""
    settings = chain.config.stages.distill
    assert settings is not None
    assert previous is not None
    teacher = PeftModel.from_pretrained(chain.training_model(), previous).eval()
    student = inject(chain.training_model(), chain.config.student, chain.prior)
    end_tokens(chain, student)
    trainer = DistillationTrainer(
        model=student,
        teacher_model=teacher,
        args=DistillationConfig(
            **arguments(chain, folder, steps=settings.steps, batch=settings.prompts),
            beta=1.0,
        ),
        train_dataset=prompts(chain),
        processing_class=chain.tokenizer,
        callbacks=[Recorder(chain, "distill")],
        optimizers=(optimizer(student, settings), None),
    )
    train(trainer, folder)
    v = get_vector(student)
    if is_first():
        write_vector(folder, v)
    return {"steps": settings.steps, "completions": settings.steps * settings.prompts, "parameters": len(v)}
