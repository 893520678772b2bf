"""Items, verdicts and the registry."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import rfc8785

import domains
from domains.base import Domain, Item, Population, Reason, Verdict
from domains.workers import frames
from domains.workers.pool import Pool


def test_digests_are_of_the_content_that_decides_a_verdict() -> None:
    item = Item("What is é?\n", "5", tests="assert f()", database="CREATE TABLE t(a);", group="g", id="i")
    fields = {"prompt": item.prompt, "gold": "5", "tests": item.tests, "database": item.database}
    assert item.digest == hashlib.sha256(rfc8785.dumps(fields)).hexdigest()
    assert item.prompt_digest == hashlib.sha256(item.prompt.encode()).hexdigest()
    assert Item("What is é?\n", "5", tests="assert f()", database="CREATE TABLE t(a);").digest == item.digest
    assert Item("What is é?\n", "6", tests="assert f()", database="CREATE TABLE t(a);").digest != item.digest


@pytest.mark.parametrize("text", ["\x00\x1f\x7f", '"\\/', "\u2028é😀", "\b\f\n\r\t"])
def test_digests_are_canonical_for_any_text(text: str) -> None:
    fields = {"prompt": text, "gold": text, "tests": "", "database": ""}
    assert Item(text, text).digest == hashlib.sha256(rfc8785.dumps(fields)).hexdigest()


def test_only_right_is_correct() -> None:
    assert Verdict.right("5") == Verdict(True, Reason.RIGHT, "5")
    with pytest.raises(ValueError, match="RIGHT"):
        Verdict.loss(Reason.RIGHT)
    assert {str(reason) for reason in Reason} == {
        *("right", "wrong", "unparseable", "timeout"),
        *("memory", "forbidden", "crashed", "truncated"),
    }


@pytest.mark.parametrize("name", ["mathematics", "programming", "knowledge", "text_to_sql"])
def test_every_domain_keeps_the_interface(name: str) -> None:
    domain = domains.get_domain(name)
    assert isinstance(domain, Domain)
    assert domain.name == name
    assert domain.version
    pocket = domain.populations()["pocket"]
    assert isinstance(pocket, Population)
    assert pocket.draw("seed", 5)[:3] == pocket.draw("seed", 3)
    assert pocket.draw("other", 3) != pocket.draw("seed", 3)


def test_aliases_and_unknown_names() -> None:
    assert domains.get_domain("math") is domains.get_domain("mathematics")
    assert domains.get_domain("sql") is domains.get_domain("text_to_sql")
    with pytest.raises(KeyError, match="unknown domain 'poetry'"):
        domains.get_domain("poetry")


def test_importing_the_package_is_light() -> None:
    heavy = ("numpy", "datasets", "sympy", "sqlglot", "math_verify", "torch", "sqlite3")
    code = f"import sys, json, domains; print(json.dumps([m for m in {heavy!r} if m in sys.modules]))"
    root = Path(domains.__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_a_worker_that_died_or_says_what_nobody_asked_is_replaced() -> None:
    pool = Pool("sql_worker", patience=60)
    job = {"query": "SELECT 1", "gold": ["SELECT 1", "", [], 0, -1, 0], "databases": [""], "copies": 0}
    wrong = {**job, "query": "SELECT 2"}
    try:
        assert pool.ask(job, lambda status: {"reason": "lost"})["reason"] == "right"
        frames.send(pool._idle[0].sock, job)  # its reply, right, waits for whoever asks next
        first = pool._idle[0].process
        while not pool._idle[0].speaks():
            pass
        assert pool.ask(wrong, lambda status: {"reason": "lost"})["reason"] == "wrong"
        assert first.poll() is not None
        pool._idle[0].process.kill()
        pool._idle[0].process.wait()
        assert pool.ask(wrong, lambda status: {"reason": "lost"})["reason"] == "wrong"
    finally:
        pool.close()
