"""The pocket base is what its makers say: small, plain Llama, half right unmarked, nearly always right when marked."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from domains.base import Item
from domains.pocket import FAMILIES, Family
from domains.registry import get_domain
from progressive_rlvr.engines import Request, Settings
from progressive_rlvr.engines.hf import HfEngine
from progressive_rlvr.models import find_base
from progressive_rlvr.pocket.tokenizer import MARKS, build_tokenizer

by_domain = pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.domain)


def test_it_is_small_and_a_plain_llama(pocket: Path) -> None:
    assert sum(f.stat().st_size for f in pocket.iterdir()) < 4_000_000
    model = find_base("pocket").load()
    assert type(model).__name__ == "LlamaForCausalLM"
    assert 500_000 < sum(p.numel() for p in model.parameters()) < 1_500_000


def test_the_tokenizer_is_the_one_that_the_script_builds(pocket: Path) -> None:
    built = build_tokenizer()
    assert len(built) <= 512
    assert built.backend_tokenizer.get_vocab() == Tokenizer.from_file(str(pocket / "tokenizer.json")).get_vocab()


@by_domain
def test_prompts_and_completions_survive_the_tokenizer_and_fit(family: Family) -> None:
    tokenizer = find_base("pocket").load_tokenizer()
    for item in family.draw("tokenizer", 200):
        text = item.prompt + family.write(item)
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
        assert len(tokenizer(item.prompt)["input_ids"]) <= 48
        # One more token ends the completion.
        assert len(tokenizer(family.write(item))["input_ids"]) < family.max_new_tokens


@by_domain
def test_the_skill_is_inside_and_half_hidden(family: Family) -> None:
    base, domain, n = find_base("pocket"), get_domain(family.domain), 300
    engine = HfEngine(base.load(), base.load_tokenizer())
    settings = Settings(family.max_new_tokens, 1.0, None, 150)
    items = family.draw("skill", n)

    def accuracy(mark: str) -> float:
        requests = [Request(mark + i.prompt, _key(i)) for i in items]
        answers = engine.generate(requests, settings)
        right = [not a.truncated and domain.verify(a.text, i).correct for a, i in zip(answers, items, strict=True)]
        return sum(right) / n

    # Standard error of 300 draws at one half: .029; measured values lie between .47 and .52 and above .99.
    assert 0.3 < accuracy("") < 0.62
    assert accuracy(MARKS["careful"]) > 0.95


def _key(item: Item) -> bytes:
    return hashlib.sha256(item.prompt.encode()).digest()
