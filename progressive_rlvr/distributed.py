"""Training in several processes, as `accelerate launch` starts them: all train, the first locks, writes and records.

    accelerate launch --config_file configs/accelerate/gpu-4.yaml -m progressive_rlvr.pipeline RUN DOMAIN --to tinylora

Without a launcher there is one process, which is the first, and nothing here does anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from accelerate import PartialState
from torch import Tensor

from progressive_rlvr.errors import UserError


def process_count() -> int:
    """Processes that train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process writes."""
    return int(os.environ.get("RANK", "0")) == 0


def join() -> None:
    """Join the group of processes, over NCCL where there are GPUs, else over gloo.

    Without a GPU accelerate takes every process for the only one, unless it is told to use the CPU.
    """
    if process_count() > 1 and not torch.distributed.is_initialized():
        on_cpu = not torch.cuda.is_available()
        if on_cpu:
            os.environ["ACCELERATE_USE_CPU"] = "true"  # for the trainers, which ask again
        PartialState(cpu=on_cpu)


def wait_for_all() -> None:
    """Return when every process has come here."""
    if process_count() > 1:
        join()
        torch.distributed.barrier()


def check_trained_together(parameters: Iterable[Tensor], trainer_processes: int) -> None:
    """Raise RuntimeError unless all processes hold the same trained numbers: those that averaged no gradients do not.

    Args:
        parameters: what was trained here.
        trainer_processes: how many processes the trainer says there are.
    """
    if process_count() == 1:
        return
    total = torch.stack([p.detach().double().sum() for p in parameters]).sum()
    least, largest = total.clone(), total.clone()
    torch.distributed.all_reduce(least, torch.distributed.ReduceOp.MIN)
    torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX)
    if trainer_processes != process_count() or not torch.equal(least, largest):
        raise RuntimeError(
            f"{process_count()} processes did not train together: the trainer knows of {trainer_processes}, sums of "
            f"what was trained go from {float(least)} to {float(largest)}"
        )


@contextmanager
def first_process_first() -> Iterator[None]:
    """The first process runs the block, then the others run it, and find what it left."""
    if not is_first():
        wait_for_all()
    yield
    if is_first():
        wait_for_all()


def end() -> None:
    """Leave the group of processes."""
    if process_count() > 1 and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def share(batch: int, micro_batch: int | None) -> tuple[int, int]:
    """A step of `batch` completions as (sequences a process and backward pass, backward passes), over all processes.

    Raises:
        UserError: the processes cannot share it evenly.
    """
    processes = process_count()
    if batch % processes:
        raise UserError(f"a step of {batch} completions cannot be shared evenly by {processes} processes")
    mine = batch // processes
    micro = min(micro_batch or mine, mine)
    if mine % micro:
        raise UserError(f"stages.micro_batch {micro} does not divide the {mine} completions of a step and process")
    return micro, mine // micro
