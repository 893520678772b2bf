"""A dataset as a finite pool, from its lock to the certificate, on the real pocket model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from small_runs import install, prlvr, write_config

from domains.pocket.world import POPULATION
from pacbayes.bounds import certified_pool_accuracy
from pacbayes.certificate import read_certificate
from pacbayes.pool import draw_from_pool
from pacbayes.sample import sample_seed
from progressive_rlvr.accounting import POOL, account

SIZE, N, HELDOUT = 300, 120, 30
SOURCE = """
from domains.data.pool import Entry, Loaded, Pool
from domains.pocket.world import POPULATION

ITEMS = list({item.prompt: item for item in POPULATION.draw("a small pool", 400)}.values())[:%d]
SMALL = Pool("small", "some questions about the pocket world", lambda: Loaded([Entry(i, i.prompt) for i in ITEMS]), 4)
"""


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugins")
    install(folder, "small_pool", SOURCE % SIZE, "[prlvr.populations]\nknowledge.small = small_pool:SMALL\n")
    return folder


@pytest.fixture(scope="module")
def finished(plugins: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    prlvr("run", config(folder), "--runs", folder / "runs", plugins=plugins)
    return folder / "runs" / "small"


def config(folder: Path, **changes: object) -> Path:
    sample = {"n": N, "heldout": HELDOUT, **changes.pop("sample", {})}  # type: ignore[dict-item]
    return write_config(folder, domains={"knowledge": {"population": "small"}}, sample=sample, **changes)


def digests(run: Path, split: str) -> list[str]:
    lock = json.loads((run / "knowledge" / "sample.lock.json").read_text())
    return [item["prompt_digest"] for item in lock[split]]


def test_the_certificate_is_about_the_prompts_that_were_not_drawn(finished: Path) -> None:
    c = read_certificate(finished / "certificates" / "knowledge.json")
    assert (c.design, c.n, c.bound.name) == ("finite_pool", N, "hypergeometric")
    assert c.pool is not None
    assert c.pool.size == SIZE
    expected = certified_pool_accuracy(N - c.coded.correct, N, SIZE, bits=c.bits.total, delta=0.05)
    assert c.bound.certified_accuracy <= expected < c.bound.certified_accuracy + 1e-5
    assert f"{SIZE - N} knowledge prompts (small) of the pool that were not drawn" in c.statement
    assert "pool of 300" in " ".join(c.assumptions)


def test_other_accountings_keep_the_lock_s_bound_and_say_what_theirs_are_about(finished: Path) -> None:
    c = read_certificate(finished / "certificates" / "knowledge.json")
    found = account(finished / "certificates" / "knowledge.json")
    assert (found.missing, found.bound, found.scope) == ("", "hypergeometric", POOL)
    own, learned, lora = found.charges
    assert float(own.certified["hypergeometric"]) == c.bound.certified_accuracy
    again = certified_pool_accuracy(N - c.coded.correct, N, SIZE, bits=float(learned.bits), delta=0.05)
    assert float(learned.certified["hypergeometric"]) == again
    assert set(own.certified) == {"hoeffding", "catoni", "kl", "hypergeometric"}
    assert float(lora.certified["kl"]) < 1e-6


def test_sample_and_held_out_prompts_are_one_draw_without_replacement(finished: Path) -> None:
    pool = [i["prompt_digest"] for i in json.loads((finished / "knowledge" / "pool.json").read_text())["items"]]
    sample, heldout = digests(finished, "items"), digests(finished, "heldout")
    assert len(pool) == SIZE
    assert len({*sample, *heldout}) == N + HELDOUT
    assert {*sample, *heldout} < set(pool)
    c = read_certificate(finished / "certificates" / "knowledge.json")
    seed = sample_seed(c.digests.method_lock, None)
    assert [pool[i] for i in draw_from_pool(seed, SIZE, N + HELDOUT)] == [*sample, *heldout]
    drawn = {item.prompt_digest for item in POPULATION.draw("a small pool", 400)}
    assert set(pool) <= drawn


def test_it_verifies_and_another_pool_does_not(finished: Path, tmp_path: Path) -> None:
    assert "FAIL" not in prlvr("verify", finished / "certificates" / "knowledge.json").stdout
    shutil.copytree(finished, tmp_path / "small")
    path = tmp_path / "small" / "knowledge" / "pool.json"
    pool = json.loads(path.read_text())
    pool["items"][0], pool["items"][1] = pool["items"][1], pool["items"][0]
    path.write_text(json.dumps(pool, separators=(",", ":"), sort_keys=True))
    said = prlvr("verify", tmp_path / "small" / "certificates" / "knowledge.json", code=1).stdout
    assert "another pool" in said
    path.unlink()
    assert (
        "pool.json is missing" in prlvr("verify", tmp_path / "small" / "certificates" / "knowledge.json", code=1).stdout
    )


def test_its_verdicts_are_checked_where_the_pool_is_at_hand(finished: Path, plugins: Path) -> None:
    certificate = finished / "certificates" / "knowledge.json"
    said = prlvr("verify", certificate, "--level", "1", plugins=plugins).stdout
    assert f"V1 prompts: the locked seed draws the {N} sample and {HELDOUT} held-out prompts" in said
    assert "FAIL" not in said
    said = prlvr("verify", certificate, "--level", "1", code=2)
    assert "has no population 'small'" in said.stderr
    assert "V1 was not carried out" in said.stdout


def test_the_same_command_again_changes_nothing(finished: Path, plugins: Path) -> None:
    certificate = finished / "certificates" / "knowledge.json"
    before = certificate.read_bytes()
    prlvr("run", config(finished.parents[1]), "--runs", finished.parent, plugins=plugins)
    assert certificate.read_bytes() == before


def test_a_message_is_bounded_under_the_same_pool(finished: Path, plugins: Path) -> None:
    message = finished / "knowledge" / "message.bin"
    said = json.loads(prlvr("bound", message, "--run", finished, "--domain", "knowledge", plugins=plugins).stdout)
    c = read_certificate(finished / "certificates" / "knowledge.json")
    assert said["certified_accuracy"] == c.bound.certified_accuracy
    assert "FAIL" not in prlvr("verify", said["certificate"]).stdout


def test_expected_accuracy_on_the_whole_pool_is_another_method(finished: Path, plugins: Path, tmp_path: Path) -> None:
    prlvr("lock", config(tmp_path, sample={"pool_claim": "expected"}), "--runs", tmp_path / "runs", plugins=plugins)
    lock = json.loads((tmp_path / "runs" / "small" / "knowledge" / "method.lock.json").read_text())
    assert lock["bound"] == "binomial"
    assert lock["design"]["pool_size"] == SIZE
    assert digests(tmp_path / "runs" / "small", "items") != digests(finished, "items")


def test_a_sample_that_does_not_fit_and_a_pool_that_changed_are_refused(
    finished: Path, plugins: Path, tmp_path: Path
) -> None:
    large = config(tmp_path, sample={"n": SIZE, "heldout": 1})
    said = prlvr("lock", large, "--runs", tmp_path / "runs", plugins=plugins, code=2).stderr
    assert "population small has 300 prompts; the sample and the held-out prompts together are 301" in said
    shutil.copytree(finished.parent, tmp_path / "again")
    install(tmp_path, "small_pool", SOURCE % (SIZE - 1), "[prlvr.populations]\nknowledge.small = small_pool:SMALL\n")
    said = prlvr("run", config(tmp_path), "--runs", tmp_path / "again", plugins=tmp_path, code=2).stderr
    assert "pool.json was locked before with another content" in said


def write_dataset(folder: Path, rows: int) -> Path:
    (folder / "knowledge").mkdir(parents=True)
    for split, first in (("train", 0), ("test", 1000)):
        lines = [
            {
                "id": f"{split}-{i}",
                "question": f"Which is number {first + i}?",
                "choices": ["ant", "bee", "cow"],
                "label": i % 3,
            }
            for i in range(rows)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "knowledge" / f"openbookqa_{split}.jsonl").write_text(text)
    return folder


def test_a_dataset_in_a_folder_may_move_but_not_change(tmp_path: Path) -> None:
    file = write_config(
        tmp_path, domains={"knowledge": {"population": "openbookqa_train"}}, sample={"n": 50, "heldout": 10}
    )
    runs = ("--runs", tmp_path / "runs")
    said = prlvr("lock", file, *runs, "--data-dir", write_dataset(tmp_path / "here", 80)).stdout
    (tmp_path / "here").rename(tmp_path / "there")
    assert prlvr("lock", file, *runs, "--data-dir", tmp_path / "there").stdout == said
    design = json.loads((tmp_path / "runs" / "small" / "knowledge" / "method.lock.json").read_text())["design"]
    assert (design["kind"], design["pool_size"]) == ("finite_pool", 80)
    other = write_dataset(tmp_path / "other", 81)
    assert "was locked before" in prlvr("lock", file, *runs, "--data-dir", other, code=2).stderr


def test_a_pool_with_a_gold_that_cannot_be_checked_is_refused_before_it_is_locked(tmp_path: Path) -> None:
    source = SOURCE % SIZE + "ITEMS[-1] = type(ITEMS[-1])(ITEMS[-1].prompt, ' ')\n"
    install(tmp_path, "small_pool", source, "[prlvr.populations]\nknowledge.small = small_pool:SMALL\n")
    said = prlvr("lock", config(tmp_path), "--runs", tmp_path / "runs", plugins=tmp_path, code=2).stderr
    assert "fails its self-test" in said
    assert "has no gold" in said
    assert not (tmp_path / "runs" / "small" / "knowledge" / "pool.json").exists()


def test_statements_are_refused_where_the_pipeline_does_not_make_them(plugins: Path, tmp_path: Path) -> None:
    file = config(tmp_path, statements={"holdout": "0.01"})
    result = prlvr("lock", file, "--runs", tmp_path / "runs", code=2, plugins=plugins)
    assert "small is a finite pool" in result.stderr + result.stdout
    assert "leave them out" in result.stderr + result.stdout
