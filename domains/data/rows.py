"""Rows of a dataset, from the Hugging Face hub or from a folder.

    rows = read_rows(Source("math/gsm8k_train", "openai/gsm8k", "main", "train"), data_dir=None)

A folder holds `<path>.jsonl` or `<path>.jsonl.gz` (UTF-8, one object a line) in the same place.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

Row = dict[str, Any]


class DataError(ValueError):
    """A dataset that cannot be had, with what to do about it."""


class Source(NamedTuple):
    path: str  # below the data directory, without its ending
    hub: str = ""  # "" where the hub does not have it
    config: str | None = None
    split: str = "train"


def read_rows(source: Source, data_dir: Path | None) -> list[Row]:
    if data_dir is not None:
        return list(_from_folder(source, data_dir))
    if not source.hub:
        raise DataError(f"{source.path} is not on the hub: give a data directory that holds {source.path}.jsonl")
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise DataError("loading from the hub needs the package `datasets`; or give a data directory") from error
    try:
        return [dict(row) for row in load_dataset(source.hub, source.config, split=source.split)]
    except Exception as error:
        raise DataError(f"{source.hub} could not be loaded from the hub ({error}); or give a data directory") from error


def _from_folder(source: Source, data_dir: Path) -> Iterator[Row]:
    plain, packed = data_dir / f"{source.path}.jsonl", data_dir / f"{source.path}.jsonl.gz"
    if not plain.exists() and not packed.exists():
        raise DataError(f"{data_dir} holds neither {source.path}.jsonl nor {source.path}.jsonl.gz")
    with open(plain, encoding="utf-8") if plain.exists() else gzip.open(packed, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise DataError(f"{lines.name}, line {number}: not JSON") from error
