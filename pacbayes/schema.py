"""What locks, ledgers and certificates have in common: strict, frozen pydantic models and their field types."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import pydantic
from pydantic import AfterValidator, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from pacbayes.canonical import canonical_json

# Control and format characters (the latter can reverse the direction of reading), separators of lines, surrogates.
_UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})
_JOINERS = "\u200c\u200d"  # format characters that words of some languages are spelt with


def _readable(text: str) -> str:
    """Refuse what is not seen or turns what is seen around: a claim must read as it is."""
    for character in text:
        if unicodedata.category(character) in _UNSEEN and character not in "\n\t" + _JOINERS:
            raise ValueError(f"the character U+{ord(character):04X} cannot be seen")
    return text


def _one_line(text: str) -> str:
    if "\n" in text or "\t" in text:
        raise ValueError("expected one line")
    return _readable(text)


HexDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""SHA-256 as 64 lower-case hex digits."""
Text = Annotated[str, Field(min_length=1, max_length=20_000), AfterValidator(_readable)]
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_one_line)]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
"""A name that is also the name of a folder, such as a domain's."""
DecimalFraction = Annotated[str, Field(pattern=r"^0\.[0-9]{1,12}$")]
"""A number in [0, 1) as a decimal text such as "0.05": what people write down is what is added up."""


class Frozen(pydantic.BaseModel):
    """Base of everything that is locked or certified: immutable, nothing unknown, nothing converted, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=True)

    def to_json(self) -> dict[str, Any]:
        """The JSON object, absent optional values as null."""
        return self.model_dump(mode="json", by_alias=True)

    def to_bytes(self) -> bytes:
        """The canonical JSON (RFC 8785) of :meth:`to_json`."""
        return canonical_json(self.to_json())


class Extended(Frozen):
    """A model to which fields were added after files of it were written.

    An added field that is absent is left out of the JSON, so that the digests of older files stand.
    """

    added: ClassVar[frozenset[str]]

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in handler(self).items() if value is not None or key not in self.added}


def one_line(error: pydantic.ValidationError) -> str:
    """The first complaint of pydantic, as one line with its place."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{place + ': ' if place else ''}{' '.join(first['msg'].split())[:300]}{more}"


def first_difference(old: Any, new: Any, *, was: str = "was", now: str = "and now is", path: str = "") -> str | None:
    """The first place where two JSON values differ, as "place was old and now is new"; None if they are equal."""
    pairs: list[tuple[str, Any, Any]]
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        pairs = [(f"{path}.{key}" if path else str(key), old.get(key), new.get(key)) for key in {**old, **new}]
    elif _is_list(old) and _is_list(new) and len(old) == len(new):
        pairs = [(f"{path}[{index}]", a, b) for index, (a, b) in enumerate(zip(old, new, strict=True))]
    elif type(old) is type(new) and old == new:
        return None
    else:
        return f"{path or 'the value'} {was} {_short(old)} {now} {_short(new)}"
    found = (first_difference(a, b, was=was, now=now, path=place) for place, a, b in pairs)
    return next((difference for difference in found if difference), None)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _short(value: Any) -> str:
    if isinstance(value, Mapping) or _is_list(value):
        return f"{'an object' if isinstance(value, Mapping) else 'a list'} of {len(value)}"
    text = "absent" if value is None else repr(value)
    return text if len(text) <= 100 else text[:97] + "…"
