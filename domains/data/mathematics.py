"""GSM8K, SVAMP, MATH-500 and any reasoning-gym generator.

Question: Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. ...
Reason step by step and end with a line "#### answer".
Answer:
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from domains.base import Item, Population
from domains.data.pool import Entry, Loaded, Pool, fingerprints
from domains.data.rows import DataError, Row, Source, read_rows

TEMPLATE = 'Question: {question}\nReason step by step and end with a line "#### answer".\nAnswer:'
_GSM8K = {
    "train": Source("math/gsm8k_train", "openai/gsm8k", "main", "train"),
    "test": Source("math/gsm8k_test", "openai/gsm8k", "main", "test"),
}
_STOP = "\nQuestion:"  # where a base model goes on with another one
_SVAMP = Source("math/svamp", "ChilleD/SVAMP", None, "train")
_MATH500 = Source("math/math500", "HuggingFaceH4/MATH-500", None, "test")


def populations(data_dir: Path | None) -> dict[str, Population]:
    """The datasets by name; nothing is read before it is drawn from."""
    return {
        "gsm8k_train": Pool(
            "gsm8k_train",
            "GSM8K, training split",
            partial(_load, _GSM8K["train"], data_dir, _GSM8K["test"]),
            stop=_STOP,
        ),
        "gsm8k_test": Pool("gsm8k_test", "GSM8K, test split", partial(_load, _GSM8K["test"], data_dir), stop=_STOP),
        "svamp": Pool("svamp", "SVAMP", partial(_load, _SVAMP, data_dir), stop=_STOP),
        "math500": Pool("math500", "MATH-500, LaTeX answers", partial(_load, _MATH500, data_dir), 512, stop=_STOP),
    }


def _load(source: Source, data_dir: Path | None, test: Source | None = None) -> Loaded:
    rows = read_rows(source, data_dir)
    reserved = fingerprints(_question(row) for row in read_rows(test, data_dir)) if test else frozenset()
    return Loaded([_entry(row, source, place) for place, row in enumerate(rows)], reserved)


def _entry(row: Row, source: Source, place: int) -> Entry:
    question = _question(row)
    name = str(row.get("id") or row.get("ID") or row.get("unique_id") or f"{source.path.rpartition('/')[2]}-{place}")
    return Entry(Item(TEMPLATE.format(question=question), _answer(row), id=name), question)


def _question(row: Row) -> str:
    if "Body" in row:
        return f"{row['Body'].strip().rstrip('.')}. {row['Question'].strip()}"
    return str(row.get("question") or row.get("problem")).strip()


def _answer(row: Row) -> str:
    answer = row.get("answer", row.get("Answer"))
    text = str(answer)
    if "####" in text:
        text = text.rpartition("####")[2].strip().replace(",", "")
    elif isinstance(answer, float) or "Body" in row:
        text = str(int(float(text))) if float(text).is_integer() else text
    return text


class WithGym(dict[str, Population]):
    """Populations by name, and every generator of reasoning-gym as "gym/<generator>", made when asked for."""

    @property
    def more(self) -> list[str]:
        """What stands for the names that iteration leaves out."""
        return ["gym/GENERATOR (any of reasoning-gym)"] if generators() else []

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (str(name).startswith("gym/") and str(name)[4:] in generators())

    def __missing__(self, name: str) -> Population:
        if not name.startswith("gym/"):
            raise KeyError(name)
        return GymPopulation(name[4:])


def generators() -> list[str]:
    """The generators of reasoning-gym, if it is installed."""
    if importlib.util.find_spec("reasoning_gym") is None:
        return []
    from reasoning_gym.factory import DATASETS

    return sorted(DATASETS)


class GymPopulation:
    """Fresh independent problems of one reasoning-gym generator, scored by its own scorer at full credit."""

    design: Literal["iid"] = "iid"
    max_new_tokens = 256
    stop: str | None = _STOP

    def __init__(self, generator: str) -> None:
        if generator not in generators():
            raise DataError(
                f"no generator {generator!r} in reasoning-gym, if it is installed (pip install 'progressive-rlvr[gym]')"
            )
        self.generator = generator
        self.name = f"gym/{generator}"
        self.description = f"reasoning-gym {generator}, default configuration"

    def draw(self, seed: str, n: int) -> list[Item]:
        from reasoning_gym import create_dataset

        make: Callable[..., Any] = create_dataset
        items = []
        for place in range(n):
            number = int.from_bytes(hashlib.sha256(f"{self.name}/{seed}/{place}".encode()).digest()[:4], "big") >> 1
            entry = make(self.generator, seed=number, size=1)[0]
            scorer = json.dumps(
                {"generator": self.generator, "seed": number}, sort_keys=True
            )  # makes the problem again
            prompt = TEMPLATE.format(question=entry["question"].strip())
            items.append(Item(prompt, str(entry["answer"]), tests=scorer, id=f"{self.name}-{number}"))
        return items

    def write(self, item: Item) -> str:
        """The right answer as a careful completion gives it; many of them have several lines."""
        return f"<answer>{item.gold}</answer>"
