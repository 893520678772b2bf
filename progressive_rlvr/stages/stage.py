"""Running a stage once: inputs, outputs, `done.json`."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import set_seed

from pacbayes.canonical import canonical_json, digest, file_digest, write_atomic
from progressive_rlvr.chain import Chain
from progressive_rlvr.config import STAGES, StageName
from progressive_rlvr.distributed import is_first, process_count, wait_for_all
from progressive_rlvr.errors import UserError

CHECKPOINTS = "checkpoints"
BEGUN = "begun.json"
# A stage's module has `run(chain, previous, folder) -> summary` and writes the files of its result into `folder`.
Runner = Callable[[Chain, Path | None, Path], dict[str, Any]]


@dataclass(frozen=True)
class StageResult:
    """A complete stage: its kind, its folder, and what it says of itself (accuracies as fractions)."""

    kind: StageName
    folder: Path
    summary: dict[str, Any]

    @property
    def digest(self) -> str:
        """Digest (hex) of inputs and outputs."""
        return file_digest(self.folder / "done.json")


def stage_folders(chain: Chain) -> dict[StageName, Path]:
    """The stages of this configuration in order, with their folders."""
    kinds = [kind for kind in STAGES if getattr(chain.config.stages, kind) is not None]
    return {kind: chain.folder / "stages" / f"{number}-{kind}" for number, kind in enumerate(kinds, start=1)}


def run_stage(chain: Chain, kind: StageName, previous: StageResult | None) -> StageResult:
    """Run a stage, or take its result if it is there. Of several processes that train together the first one writes.

    Raises:
        UserError: the folder holds the result of other inputs, or a damaged one.
    """
    folder = stage_folders(chain)[kind]
    inputs = {
        "method": chain.method.digest,
        "sample": chain.sample.digest,
        "settings": getattr(chain.config.stages, kind).model_dump(mode="json"),
        "training": {
            "seed": chain.config.seed,
            "dtype": chain.config.base.training_dtype,
            "threads": chain.config.threads,
        },
        "previous": previous.digest if previous else None,
    }
    done = folder / "done.json"
    if done.exists():
        return StageResult(kind, folder, check_stage(folder, inputs)["summary"])
    if is_first():
        _begin(folder, inputs)
    wait_for_all()
    set_seed(chain.config.seed)  # before the stage makes its model: adapters start from random numbers
    runner: Runner = importlib.import_module(f"progressive_rlvr.stages.{kind}").run
    summary = runner(chain, previous.folder if previous else None, folder)
    if process_count() > 1:
        summary["processes"] = process_count()
    wait_for_all()
    if is_first():
        outputs = {str(f.relative_to(folder)): file_digest(f) for f in sorted(_outputs(folder))}
        record = {"kind": kind, "inputs": inputs, "outputs": outputs, "summary": summary}
        write_atomic(done, canonical_json(record))
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
        (folder / BEGUN).unlink()
    wait_for_all()
    # As a resumed run will read it: canonical JSON has no 1.0, only 1.
    return StageResult(kind, folder, check_stage(folder, inputs)["summary"])


def check_stage(folder: Path, inputs: dict[str, Any] | None = None) -> dict[str, Any]:
    """Read a stage's `done.json` and hold its files (and `inputs`, where given) against it.

    Raises:
        UserError: it is unreadable, a file is missing or changed, or it was made from other inputs.
    """
    redo = f"remove {folder} to run the stage again"
    try:
        record = json.loads((folder / "done.json").read_text(encoding="utf-8"))
        recorded, outputs = record["inputs"], record["outputs"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"the stage in {folder} has an unreadable done.json ({error}); {redo}") from error
    for name, expected in outputs.items():
        path = folder / name
        if not path.is_file():
            raise UserError(f"the stage in {folder} lacks its file {name}; {redo}")
        if file_digest(path) != expected:
            raise UserError(f"the stage in {folder} is corrupt: {name} is not the file that done.json names; {redo}")
    if inputs is not None and digest(recorded) != digest(inputs):
        changed = sorted(k for k in inputs if recorded.get(k) != inputs[k])
        raise UserError(
            f"the stage in {folder} was made with another {', '.join(changed)}; use another run name, or {redo}"
        )
    return record


def _outputs(folder: Path) -> list[Path]:
    return [
        f
        for f in folder.rglob("*")
        if f.is_file() and f.name != BEGUN and CHECKPOINTS not in f.relative_to(folder).parts
    ]


def _begin(folder: Path, inputs: dict[str, Any]) -> None:
    """Remove what a killed run left, but for checkpoints of a training with the very same inputs."""
    folder.mkdir(parents=True, exist_ok=True)
    begun = folder / BEGUN
    data = canonical_json(inputs)
    kept = {BEGUN, CHECKPOINTS} if begun.exists() and begun.read_bytes() == data else set()
    for entry in folder.iterdir():
        if entry.name not in kept:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    write_atomic(begun, data)
