"""Evidence: complete against the lock, doubt against the policy, the first evaluation binding."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lookup import MODEL, Chain, boosts, method_lock

from pacbayes.canonical import digest, file_digest
from pacbayes.evidence import Evidence, EvidenceError, Outcome, collect, parse_evidence, read_evidence, write_evidence

POLICIES = {"coded": digest(b"message"), "base": MODEL.weights}


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    return Chain.draw(method_lock(prompts=60, heldout=10), tmp_path_factory.mktemp("log") / "log", population=40)


@pytest.fixture(scope="module")
def rows(chain: Chain) -> list[Outcome]:
    return chain.outcomes("coded", boosts(chain.method, 0, [4, 4, 4, 4])) + chain.outcomes("base", np.zeros(4))


def evidence(chain: Chain, rows: list[Outcome]) -> Evidence:
    return collect(chain.sample.digest, POLICIES, rows)


def write(path: Path, chain: Chain, rows: list[Outcome], **policies: str) -> str:
    return write_evidence(path, rows, sample_lock=chain.sample.digest, policies=POLICIES | policies)


def test_repeats_are_in_this_sample(chain: Chain) -> None:
    assert max(item.occurrence for item in chain.sample.items) >= 2


def test_it_reads_back_in_one_order_and_one_form(tmp_path: Path, chain: Chain, rows: list[Outcome]) -> None:
    first = write(tmp_path / "a.parquet", chain, rows)
    second = write(tmp_path / "b.parquet", chain, rows[::-1])
    assert first == second == file_digest(tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    read = read_evidence(tmp_path / "a.parquet")
    assert read == evidence(chain, rows)
    assert list(read.outcomes) == sorted(read.outcomes)


def test_counts(chain: Chain, rows: list[Outcome]) -> None:
    for policy in ("coded", "base"):
        count = evidence(chain, rows).count(policy, "sample", chain.sample)
        right = sum(row.correct for row in rows if (row.policy, row.split) == (policy, "sample"))
        assert (count.correct, count.losses, count.n, count.missing) == (right, 60 - right, 60, 0)
        assert count.accuracy == right / 60
        assert evidence(chain, rows).count(policy, "heldout", chain.sample).n == 10


def test_n_never_shrinks_and_what_is_missing_is_lost(chain: Chain, rows: list[Outcome]) -> None:
    """Harnesses that leave failed samples out of the mean would count 60 of 60 here."""
    right = [row for row in rows if row.policy == "coded" and row.correct]
    count = evidence(chain, right).count("coded", "sample", chain.sample)
    full = evidence(chain, rows).count("coded", "sample", chain.sample)
    assert (count.correct, count.n, count.losses) == (full.correct, 60, full.losses)
    assert count.missing == full.losses > 0


def test_doubt_goes_the_other_way_where_losses_would_flatter(chain: Chain, rows: list[Outcome]) -> None:
    base = [row for row in rows if (row.policy, row.split) == ("base", "sample")]
    wrong = [row for row in base if not row.correct]
    timeout = dataclasses.replace(wrong[0], reason="timeout")
    unparseable = dataclasses.replace(wrong[1], reason="unparseable")
    present = [row for row in base if row not in wrong[:3]] + [timeout, unparseable]  # and wrong[2] is missing
    found = evidence(chain, present)
    right = sum(row.correct for row in base)
    assert found.count("base", "sample", chain.sample).correct == right
    assert found.count("base", "sample", chain.sample, doubt="for").correct == right + 2


def test_several_draws_are_averaged_per_prompt(chain: Chain, rows: list[Outcome]) -> None:
    one = [row for row in rows if (row.policy, row.split) == ("coded", "sample")]
    two = one + [dataclasses.replace(row, draw=1, correct=not row.correct) for row in one]
    found = evidence(chain, two)
    assert found.correct_per_prompt("coded", "sample", chain.sample, draws=2) == [1] * 60
    count = found.count("coded", "sample", chain.sample, draws=2)
    assert (count.n, count.correct, count.losses, count.accuracy) == (60, 60, 60, 0.5)
    with pytest.raises(EvidenceError, match=r"draw 1: the lock has 60 prompts and 1 draws"):
        found.count("coded", "sample", chain.sample)


def test_rows_that_are_not_the_lock_s_are_errors(tmp_path: Path, chain: Chain, rows: list[Outcome]) -> None:
    for changes, message in [
        ({"index": 60}, "the lock has 60 prompts"),
        ({"prompt_digest": digest(b"an easier prompt")}, "not the prompt"),
        ({"occurrence": 9}, "not the prompt or occurrence"),
    ]:
        found = evidence(chain, [*rows[1:], dataclasses.replace(rows[0], **changes)])  # type: ignore[arg-type]
        with pytest.raises(EvidenceError, match=message):
            found.count("coded", "sample", chain.sample)
    other = Chain.draw(method_lock(prompts=60, heldout=10, verifier="2"), tmp_path / "log")
    with pytest.raises(EvidenceError, match="belongs to sample lock"):
        evidence(chain, rows).count("coded", "sample", other.sample)
    with pytest.raises(EvidenceError, match="no policy 'lora'"):
        evidence(chain, rows).count("lora", "sample", chain.sample)


def test_rows_that_contradict_each_other_are_errors(chain: Chain, rows: list[Outcome]) -> None:
    assert evidence(chain, [*rows, rows[0]]) == evidence(chain, rows)
    with pytest.raises(EvidenceError, match="coded, sample prompt 0, draw 0: two rows that differ"):
        evidence(chain, [*rows, dataclasses.replace(rows[0], correct=not rows[0].correct)])
    for changes in ({"index": -1}, {"draw": -1}, {"split": "training"}, {"policy": "unknown"}):
        with pytest.raises(EvidenceError):
            evidence(chain, [dataclasses.replace(rows[0], **changes)])  # type: ignore[arg-type]


def test_the_first_evaluation_binds(tmp_path: Path, chain: Chain, rows: list[Outcome]) -> None:
    path = tmp_path / "evidence.parquet"
    write(path, chain, rows)
    flipped = [dataclasses.replace(row, correct=not row.correct, completion="again") for row in rows]
    write(path, chain, flipped)
    read = read_evidence(path)
    assert read.count("coded", "sample", chain.sample).correct == 0
    before = {row.key: row for row in rows}
    for key, row in read.outcomes.items():
        assert row.completion == ("again" if before[key].correct else before[key].completion)
    write(path, chain, rows)
    assert read_evidence(path) == read


def test_rows_can_be_added_and_another_message_is_another_policy(
    tmp_path: Path, chain: Chain, rows: list[Outcome]
) -> None:
    path = tmp_path / "evidence.parquet"
    coded, base = [[row for row in rows if row.policy == name] for name in ("coded", "base")]
    write(path, chain, base)
    write(path, chain, coded)
    assert read_evidence(path) == evidence(chain, rows)
    other = [dataclasses.replace(row, correct=True) for row in coded]
    write(path, chain, other, coded=digest(b"another message"))
    read = read_evidence(path)
    assert read.policies["coded"] == digest(b"another message")
    assert read.count("coded", "sample", chain.sample).correct == 60
    assert read.count("base", "sample", chain.sample) == evidence(chain, rows).count("base", "sample", chain.sample)


def test_evidence_of_another_lock_is_not_overwritten(tmp_path: Path, chain: Chain, rows: list[Outcome]) -> None:
    path = tmp_path / "evidence.parquet"
    write(path, chain, rows)
    before = path.read_bytes()
    with pytest.raises(EvidenceError, match="another sample lock"):
        write_evidence(path, rows, sample_lock=digest(b"other"), policies=POLICIES)
    assert path.read_bytes() == before


def test_values_of_the_wrong_type_are_not_written(tmp_path: Path, chain: Chain, rows: list[Outcome]) -> None:
    for changes in ({"completion": 7}, {"tokens": 2**70}, {"correct": None}, {"completion": "\ud800"}):
        with pytest.raises(EvidenceError, match="wrong type"):
            write(tmp_path / "evidence.parquet", chain, [dataclasses.replace(rows[0], **changes)])  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@given(completion=st.text(), tokens=st.integers(0, 2**62), correct=st.booleans())
@settings(max_examples=40)
def test_any_completion_is_kept_as_it_is(
    chain: Chain, rows: list[Outcome], completion: str, tokens: int, correct: bool
) -> None:
    from pacbayes.evidence import _to_parquet

    row = dataclasses.replace(rows[0], completion=completion, tokens=tokens, correct=correct)
    assert parse_evidence(_to_parquet(evidence(chain, [row])), name="x").outcomes[row.key] == row


# --- files of any origin -----------------------------------------------------------------------------------


def _parquet(change: Callable[[pa.Table], pa.Table], data: bytes) -> bytes:
    sink = io.BytesIO()
    pq.write_table(change(pq.read_table(io.BytesIO(data))), sink)
    return sink.getvalue()


def _set(table: pa.Table, name: str, array: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, array).replace_schema_metadata(table.schema.metadata)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop_columns(["correct"]), "columns"),
        (lambda t: _set(t, "correct", pa.array([1.0] * len(t))), "columns"),
        (lambda t: _set(t, "correct", pa.array([None] * len(t), pa.bool_())), "columns"),
        (lambda t: t.append_column("extra", pa.array([0] * len(t))), "columns"),
        (lambda t: t.replace_schema_metadata(None), "no header"),
        (lambda t: t.replace_schema_metadata({"prlvr": "{"}), "damaged header"),
        (lambda t: t.replace_schema_metadata({"prlvr": '{"schema":"x","sample_lock":"","policies":{}}'}), "schema 'x'"),
        (lambda t: t.replace_schema_metadata({"prlvr": '{"schema":1}'}), "no header"),
        (
            lambda t: t.replace_schema_metadata(
                {"prlvr": '{"schema":"prlvr/evidence/1","sample_lock":"0","policies":{}}'}
            ),
            "digests",
        ),
    ],
)
def test_other_tables_are_refused(
    tmp_path: Path, chain: Chain, rows: list[Outcome], change: Callable[[pa.Table], pa.Table], message: str
) -> None:
    write(tmp_path / "evidence.parquet", chain, rows)
    data = _parquet(change, (tmp_path / "evidence.parquet").read_bytes())
    with pytest.raises(EvidenceError, match=message) as caught:
        parse_evidence(data, name="evidence.parquet")
    assert "\n" not in str(caught.value)


def test_truncated_and_foreign_bytes_are_refused(tmp_path: Path, chain: Chain, rows: list[Outcome]) -> None:
    write(tmp_path / "evidence.parquet", chain, rows)
    data = (tmp_path / "evidence.parquet").read_bytes()
    for bad in (b"", b"PAR1", b"PAR1" * 3, data[:-1], data[: len(data) // 2], data[4:], b"\0" * 1000):
        with pytest.raises(EvidenceError, match="no readable Parquet"):
            parse_evidence(bad, name="evidence.parquet")
    with pytest.raises(EvidenceError, match="No such file"):
        read_evidence(tmp_path / "missing.parquet")


def test_flipped_bytes_never_end_in_a_traceback(tmp_path: Path, chain: Chain, rows: list[Outcome]) -> None:
    write(tmp_path / "evidence.parquet", chain, rows)
    data = bytearray((tmp_path / "evidence.parquet").read_bytes())
    generator = np.random.default_rng(0)
    for place in generator.integers(0, len(data), 300):
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(generator.integers(8))
        with contextlib.suppress(EvidenceError):
            parse_evidence(bytes(damaged), name="x").count("coded", "sample", chain.sample)


def test_a_file_that_unpacks_to_too_much_is_not_unpacked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chain: Chain, rows: list[Outcome]
) -> None:
    write(tmp_path / "evidence.parquet", chain, rows)
    monkeypatch.setattr("pacbayes.evidence._MAXIMUM_ROWS", 100)
    with pytest.raises(EvidenceError, match="unpacks to 140 rows"):
        read_evidence(tmp_path / "evidence.parquet")
