"""ARC, OpenBookQA, CommonsenseQA and MMLU.

Which statement best explains why photosynthesis is the foundation of most food webs?
A) Sunlight is the source of energy for nearly all ecosystems.
B) Most ecosystems are found on land instead of in water.
Answer with one letter.
Answer:
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

from domains.base import Item, Population
from domains.data.pool import Entry, Loaded, Pool, fingerprints
from domains.data.rows import Row, Source, read_rows
from domains.knowledge import LETTERS

# name: (description, splits, the split that training must not touch)
_SETS: dict[str, tuple[str, dict[str, Source], str]] = {
    "arc_easy": (
        "ARC easy",
        {
            "train": Source("knowledge/arc_easy_train", "allenai/ai2_arc", "ARC-Easy", "train"),
            "val": Source("knowledge/arc_easy_val", "allenai/ai2_arc", "ARC-Easy", "validation"),
            "test": Source("knowledge/arc_easy_test", "allenai/ai2_arc", "ARC-Easy", "test"),
        },
        "test",
    ),
    "arc_challenge": (
        "ARC challenge",
        {
            "train": Source("knowledge/arc_challenge_train", "allenai/ai2_arc", "ARC-Challenge", "train"),
            "val": Source("knowledge/arc_challenge_val", "allenai/ai2_arc", "ARC-Challenge", "validation"),
            "test": Source("knowledge/arc_challenge_test", "allenai/ai2_arc", "ARC-Challenge", "test"),
        },
        "test",
    ),
    "openbookqa": (
        "OpenBookQA",
        {
            "train": Source("knowledge/openbookqa_train", "allenai/openbookqa", "main", "train"),
            "val": Source("knowledge/openbookqa_val", "allenai/openbookqa", "main", "validation"),
            "test": Source("knowledge/openbookqa_test", "allenai/openbookqa", "main", "test"),
        },
        "test",
    ),
    "commonsenseqa": (
        "CommonsenseQA",
        {
            "train": Source("knowledge/commonsenseqa_train", "tau/commonsense_qa", None, "train"),
            "val": Source("knowledge/commonsenseqa_val", "tau/commonsense_qa", None, "validation"),
        },
        "val",  # its test labels are not public
    ),
    "mmlu": (
        "MMLU, all subjects",
        {
            "val": Source("knowledge/mmlu_val", "cais/mmlu", "all", "validation"),
            "test": Source("knowledge/mmlu_test", "cais/mmlu", "all", "test"),
        },
        "test",
    ),
}


def populations(data_dir: Path | None) -> dict[str, Population]:
    """Every split by name, once with the options as they stand and once shuffled by a key of the question."""
    found: dict[str, Population] = {}
    for name, (title, splits, test) in _SETS.items():
        for split, source in splits.items():
            reserved = splits[test] if split != test else None
            for suffix, shuffle in (("", False), ("+shuffled", True)):
                found[f"{name}_{split}{suffix}"] = Pool(
                    f"{name}_{split}{suffix}",
                    f"{title}, {split} split" + (", options in an order drawn per question" if shuffle else ""),
                    partial(_load, source, data_dir, reserved, shuffle),
                    max_new_tokens=16,
                    stop="\n",
                )
    return found


def _load(source: Source, data_dir: Path | None, test: Source | None, shuffle: bool) -> Loaded:
    rows = read_rows(source, data_dir)
    reserved = fingerprints(_question(row) for row in read_rows(test, data_dir)) if test else frozenset()
    entries = [_entry(row, f"{source.path.rpartition('/')[2]}-{place}", shuffle) for place, row in enumerate(rows)]
    return Loaded(entries, reserved)


def _entry(row: Row, name: str, shuffle: bool) -> Entry:
    question, choices, label = _question(row), _choices(row), _label(row)
    order = list(range(len(choices)))
    if shuffle:  # by a key of what is asked, so that the order tells nothing of the answer and never changes
        order.sort(key=lambda i: hashlib.sha256(f"{question}\0{choices[i]}".encode()).digest())
    options = "\n".join(f"{LETTERS[place]}) {choices[i]}" for place, i in enumerate(order))
    prompt = f"{question}\n{options}\nAnswer with one letter.\nAnswer:"
    return Entry(Item(prompt, LETTERS[order.index(label)], id=str(row.get("id") or name)), question)


def _question(row: Row) -> str:
    return str(row.get("question") or row.get("question_stem")).strip()


def _choices(row: Row) -> list[str]:
    choices = row["choices"]
    return [str(text).strip() for text in (choices["text"] if isinstance(choices, dict) else choices)]


def _label(row: Row) -> int:
    if "label" in row:
        return int(row["label"])
    if "answerKey" in row:  # letters, or numbers in some of ARC
        return [str(label) for label in row["choices"]["label"]].index(str(row["answerKey"]))
    return int(row["answer"])
