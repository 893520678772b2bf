"""Canonical JSON, digests, strict parsing and atomic writes."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacbayes import canonical
from pacbayes.canonical import CanonicalError, canonical_json, digest, file_digest, parse_json, write_atomic

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e15, 1e15) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_the_example_of_rfc_8785() -> None:
    value = json.loads(
        '{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],'
        '"string": "\\u20ac$\\u000F\\u000aA\'\\u0042\\u0022\\u005c\\\\\\"\\/", "literals": [null, true, false]}'
    )
    assert canonical_json(value).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_digest_of_known_bytes() -> None:
    assert digest(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert digest({"b": 1, "a": [2]}) == digest(b'{"a":[2],"b":1}')


@given(values)
def test_one_value_has_one_form(value: object) -> None:
    data = canonical_json(value)
    assert canonical_json(parse_json(data)) == data


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53, {1: 2}, b"x", "\ud800", {"x": {1, 2}}, object()])
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(CanonicalError, match="canonical JSON"):
        canonical_json(value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1, "a": 2}', "'a' appears twice"),
        (b"[NaN]", "NaN is not a JSON number"),
        (b"[-Infinity]", "-Infinity"),
        (b"[9007199254740992]", "larger than"),
        (b"[" + b"9" * 1_000_000 + b"]", "larger than"),
        (b"[1e400]", "too large"),
        (b'{"a": 1', "not JSON"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply|not JSON"),
    ],
)
def test_json_that_readers_could_read_differently_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(CanonicalError, match=message) as caught:
        parse_json(data)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_write_replaces_and_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "file"
    write_atomic(target, b"old")
    write_atomic(target, b"new")
    assert target.read_bytes() == b"new"
    assert file_digest(target) == digest(b"new")
    assert os.listdir(tmp_path) == ["file"]
    assert target.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    target = tmp_path / "file"
    write_atomic(target, b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(canonical.os, step, full)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(target, b"new")
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_missing_directory_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "missing" / "file", b"")
