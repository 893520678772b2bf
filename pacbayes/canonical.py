"""One byte string for one value: canonical JSON (RFC 8785), SHA-256 digests, and writes that are never half done.

Everything that is locked, chained or compared in this package is compared through these functions, so that two people
who hold the same content hold the same digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import rfc8785

HEX_DIGEST = re.compile(r"[0-9a-f]{64}")
_MAXIMUM_EXACT_INTEGER = 2**53 - 1


class CanonicalError(ValueError):
    """A value has no canonical form, or a text is not the JSON that it should be; the message says what was found."""


def canonical_json(obj: object) -> bytes:
    """The RFC 8785 form of a JSON value: sorted keys, no white space, shortest numbers, UTF-8.

    Args:
        obj: None, bool, int (|i| < 2^53), finite float, str, or lists, tuples and dicts (string keys) of these.

    Raises:
        CanonicalError: the value has no such form (NaN, a large integer, bytes, a lone surrogate, …).
    """
    try:
        return rfc8785.dumps(obj)  # type: ignore[arg-type]
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        raise CanonicalError(f"no canonical JSON for this value: {error}") from error


def digest(obj: object) -> str:
    """SHA-256 as 64 lower-case hex digits: of bytes as they are, of anything else through :func:`canonical_json`."""
    data = bytes(obj) if isinstance(obj, bytes | bytearray | memoryview) else canonical_json(obj)
    return hashlib.sha256(data).hexdigest()


def file_digest(path: str | os.PathLike[str]) -> str:
    """SHA-256 (hex) of a file's bytes, read in pieces. Raises OSError as reading does."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_digest(text: str) -> bool:
    """Whether a text is 64 lower-case hex digits."""
    return HEX_DIGEST.fullmatch(text) is not None


def parse_json(data: bytes) -> Any:
    """Parse JSON in which every reader sees the same value.

    A repeated key (readers differ in which one they keep), NaN and infinities, and numbers written as integers that a
    double cannot hold exactly are refused.

    Raises:
        CanonicalError: with one line that says what is wrong.
    """
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_constant=_refuse_constant,
            parse_int=_exact_integer,
            parse_float=_finite_float,
        )
    except UnicodeDecodeError as error:
        raise CanonicalError(f"not UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise CanonicalError(f"not JSON: {error}") from error
    except RecursionError as error:
        raise CanonicalError("not JSON: nested too deeply") from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise CanonicalError(f"the key {key!r} appears twice in one object")
        result[key] = value
    return result


def _refuse_constant(text: str) -> NoReturn:
    raise CanonicalError(f"{text} is not a JSON number")


def _exact_integer(text: str) -> int:
    # The length is looked at first: turning a million digits into an int takes quadratic time.
    if len(text) > 17 or abs(int(text)) > _MAXIMUM_EXACT_INTEGER:
        raise CanonicalError(f"the integer {text[:20]}{'…' if len(text) > 20 else ''} is larger than 2^53 - 1")
    return int(text)


def _finite_float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise CanonicalError(f"the number {text[:20]} is too large")
    return value


def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that readers see the old content or the new one, never a part, whatever is killed or full.

    The bytes go to a temporary file in the same directory, are forced to the disk, and take the name by ``os.replace``.

    Raises:
        OSError: the directory is missing or not writable, or the disk is full; the file at ``path`` is then as it was.
    """
    path = Path(path)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes files that only their owner may read
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """Force the new name to the disk as well, where the system can (Windows cannot open directories)."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
