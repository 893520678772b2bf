"""What the training stages share: arguments, data, reward, metrics and checkpoints, around TRL's trainers."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from datasets import Dataset
from transformers import (
    PreTrainedModel,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl import GRPOConfig, GRPOTrainer

from progressive_rlvr.chain import Chain
from progressive_rlvr.config import Distill, Rlvr, StageName, TinyLora
from progressive_rlvr.distributed import check_trained_together, is_first, share
from progressive_rlvr.engines.base import cut
from progressive_rlvr.engines.hf import stop_tokens
from progressive_rlvr.errors import UserError
from progressive_rlvr.stages.stage import CHECKPOINTS

Reward = Callable[..., list[float]]


class Recorder(TrainerCallback):
    """Writes a trainer's logs into the chain's `metrics.jsonl`."""

    NAMES: ClassVar = {
        "reward": "reward",
        "loss": "loss",
        "frac_reward_zero_std": "groups_without_signal",
        "completions/mean_length": "tokens",
    }

    def __init__(self, chain: Chain, kind: StageName) -> None:
        self.chain, self.kind, self.started = chain, kind, time.monotonic()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Steps after the checkpoint that training goes on from are done again."""
        if not is_first():
            return
        self.chain.metrics.forget(self.kind, after=state.global_step)
        self.chain.metrics.append(self.kind, state.global_step, state.max_steps)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: object,
    ) -> None:
        """One line per logged step."""
        values = {short: float(logs[name]) for name, short in self.NAMES.items() if logs and name in logs}
        if values and is_first():
            seconds = round(time.monotonic() - self.started, 1)
            self.chain.metrics.append(self.kind, state.global_step, state.max_steps, seconds=seconds, **values)


def arguments(chain: Chain, folder: Path, *, steps: int, batch: int) -> dict[str, Any]:
    """Arguments that `GRPOConfig` and `DistillationConfig` share: `steps` updates of `batch` completions each."""
    stages = chain.config.stages
    micro, passes = share(batch, stages.micro_batch)
    every = stages.checkpoint_every
    return {
        "output_dir": str(folder / CHECKPOINTS),
        "max_steps": steps,
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": passes,
        # Adam's steps have the same size in directions that do not matter: wandering there costs bits.
        "lr_scheduler_type": "linear",
        "temperature": chain.settings.temperature,
        "max_completion_length": chain.settings.max_new_tokens,
        "seed": chain.config.seed,
        "bf16": False,  # the model already has its dtype; autocast would change it again
        "gradient_checkpointing": False,
        "save_strategy": "steps" if every else "no",
        "save_steps": every or steps,
        "save_total_limit": 2,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }


def prompts(chain: Chain) -> Dataset:
    """Every prompt of the sample, with its index."""
    return Dataset.from_list([{"prompt": item.prompt, "index": i} for i, item in enumerate(chain.items["sample"])])


def end_tokens(chain: Chain, model: PreTrainedModel) -> list[int]:
    """Make a model's `generate` stop by the locked rule; returns the ids of the ending tokens."""
    ids = stop_tokens(chain.tokenizer, chain.settings.stop)
    model.generation_config.eos_token_id = ids
    model.generation_config.pad_token_id = chain.tokenizer.pad_token_id
    return ids


def reward(chain: Chain, ends: list[int]) -> Reward:
    """The verifier as a TRL reward function: 1 or 0, by the rule that certification uses."""

    def verifier(completions: list[str], completion_ids: list[list[int]], index: list[int], **_: object) -> list[float]:
        return [
            float(
                chain.judge(
                    cut(text, chain.settings.stop),
                    truncated=not ids or ids[-1] not in ends,
                    item=chain.items["sample"][i],
                ).correct
            )
            for text, ids, i in zip(completions, completion_ids, index, strict=True)
        ]

    return verifier


def rollouts(engine: Literal["hf", "vllm"], ends: list[int]) -> dict[str, Any]:
    """Arguments of `GRPOConfig` for what generates; `ends`: ids of the ending tokens. vLLM was not seen to run here.

    Raises:
        UserError: vLLM is asked for where there is no GPU, or in an environment without it.
    """
    if engine == "hf":
        return {}
    if not torch.cuda.is_available():
        raise UserError("stages.rollouts is vllm, which needs a CUDA GPU, and there is none here: set it to hf")
    if find_spec("vllm") is None:
        raise UserError("stages.rollouts is vllm, which has to be installed beside TRL: install it, or set it to hf")
    # TRL takes the ending tokens from the model for its own generation only.
    return {"use_vllm": True, "vllm_mode": "colocate", "generation_kwargs": {"stop_token_ids": ends}}


def train_grpo(
    chain: Chain, model: PreTrainedModel, settings: Rlvr | TinyLora, kind: StageName, folder: Path
) -> dict[str, Any]:
    """GRPO on the model's trainable parameters; returns a summary."""
    batch = settings.prompts * settings.samples
    ends = end_tokens(chain, model)
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=reward(chain, ends),
        args=GRPOConfig(
            **arguments(chain, folder, steps=settings.steps, batch=batch),
            **rollouts(chain.config.stages.rollouts, ends),
            num_generations=settings.samples,
        ),
        train_dataset=prompts(chain),
        processing_class=chain.tokenizer,
        callbacks=[Recorder(chain, kind)],
        optimizers=(optimizer(model, settings), None),
    )
    train(trainer, folder)
    return {"steps": settings.steps, "completions": settings.steps * batch}


def optimizer(model: PreTrainedModel, settings: Rlvr | Distill | TinyLora) -> torch.optim.Optimizer:
    """AdamW on what is trainable. (`Trainer` makes its own leave parameters out of weight decay by their names.)"""
    trainable = [p for p in model.parameters() if p.requires_grad]
    shrinkage = 0.0 if isinstance(settings, Rlvr) else settings.shrinkage
    return Shrinking(trainable, settings.learning_rate, settings.weight_decay, shrinkage)


class Shrinking(torch.optim.AdamW):
    """AdamW, and after every step a soft threshold of `shrinkage` times the learning rate on every parameter.

    Under a Laplace code a value costs bits in proportion to its distance from zero. The threshold is the proximal step
    for such a price, apart from Adam's scaling as weight decay is in AdamW (Loshchilov and Hutter, ICLR 2019): what
    does not earn its bits ends at zero exactly.
    """

    def __init__(self, parameters: list[torch.nn.Parameter], lr: float, weight_decay: float, shrinkage: float) -> None:
        super().__init__(parameters, lr=lr, weight_decay=weight_decay)
        self.shrinkage = shrinkage

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step."""
        loss = super().step(closure)
        if self.shrinkage:
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.copy_(torch.nn.functional.softshrink(parameter, float(group["lr"]) * self.shrinkage))
        return loss


def train(trainer: Trainer, folder: Path) -> None:
    """Train from the newest complete checkpoint, or from the beginning."""
    trainer.remove_callback(PrinterCallback)  # the recorder keeps what it would print
    for parameter in trainer.model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()  # TRL rounds adapters of quantized bases to bfloat16
    trainer.train(resume_from_checkpoint=newest_checkpoint(folder / CHECKPOINTS))
    trained = (p for p in trainer.model.parameters() if p.requires_grad)
    check_trained_together(trained, trainer.accelerator.num_processes)


def newest_checkpoint(folder: Path) -> str | None:
    """The last checkpoint that was written to its end: the trainer's state is what is written last."""
    complete = [c for c in folder.glob("checkpoint-*") if (c / "trainer_state.json").is_file()]
    return str(max(complete, key=lambda c: int(c.name.rsplit("-", 1)[1]))) if complete else None
