"""Training in several processes, as `accelerate launch` starts them: all train, the first locks, writes and records.

    accelerate launch --config_file configs/accelerate/gpu-4.yaml -m progressive_rlvr.pipeline RUN DOMAIN --to tinylora

Without a launcher there is one process, which is the first, and nothing here does anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from progressive_rlvr.errors import UserError


def process_count() -> int:
    """Processes that train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process writes."""
    return int(os.environ.get("RANK", "0")) == 0


def wait_for_all() -> None:
    """Return when every process has come here."""
    if process_count() > 1:
        from accelerate import PartialState

        PartialState().wait_for_everyone()


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
    if process_count() > 1:
        from accelerate import PartialState

        PartialState().destroy_process_group()


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
