"""A domain and a population that somebody else wrote, in one file each, found by their entry points."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_runs import install, prlvr

RHYMES = '''"""A word that rhymes.

night -> light
"""

from domains import Item, Reason, Verdict

RHYME = {"night": "light", "tree": "sea", "day": "way", "hill": "mill"}


class Words:
    name, description, design, max_new_tokens, stop = "words", "four words, drawn uniformly", "iid", 4, None

    def draw(self, seed, n):
        words = [sorted(RHYME)[hash_of(seed, i) % 4] for i in range(n)]
        return [Item(f"{word} rhymes with", RHYME[word]) for word in words]


def hash_of(seed, i):
    import hashlib

    return hashlib.sha256(f"{seed}/{i}".encode()).digest()[0]


class Rhymes:
    name, version = "rhymes", "rhymes/1"

    def populations(self):
        return {"words": Words()}

    def verify(self, completion, item):
        right = completion.strip() == item.gold
        return Verdict.right() if right else Verdict.loss(Reason.WRONG)

    def close(self):
        pass
'''


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugins")
    install(folder, "rhymes", RHYMES, "[prlvr.domains]\nrhymes = rhymes:Rhymes\n")
    return folder


def test_a_third_party_domain_is_listed_shown_and_validated(plugins: Path) -> None:
    listed = prlvr("domains", "ls", plugins=plugins).stdout
    assert "rhymes         rhymes/1         populations: words" in listed
    assert "rhymes" not in prlvr("domains", "ls").stdout
    assert "rhymes with" in prlvr("domains", "show", "rhymes", "--count", "1", plugins=plugins).stdout
    assert "rhymes / words: passed" in prlvr("domains", "validate", "rhymes", plugins=plugins).stdout


def test_its_completions_are_checked_from_a_file(plugins: Path, tmp_path: Path) -> None:
    cases = [
        {"domain": "rhymes", "id": c, "question": "night", "gold": "light", "completion": c} for c in ("light", "dog")
    ]
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    said = prlvr("domains", "check", tmp_path / "cases.jsonl", "--json", plugins=plugins).stdout.splitlines()
    assert [json.loads(line)["correct"] for line in said] == [True, False]


def test_a_verifier_that_can_be_fooled_fails_its_validation(tmp_path: Path) -> None:
    fooled = RHYMES.replace("completion.strip() == item.gold", "item.gold.startswith(completion.strip())")
    install(tmp_path, "rhymes", fooled, "[prlvr.domains]\nrhymes = rhymes:Rhymes\n")
    said = prlvr("domains", "validate", "rhymes", plugins=tmp_path, code=1).stdout
    assert "FAILED" in said
    assert ": empty" in said
