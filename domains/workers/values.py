"""Plain values as JSON, so that what crosses the wall between a program and its judge is data and never behaviour.

    pack((1, 2.5), keep) == ["t", 1, 2.5]          unpack(["t", 1, 2.5], refer) == (1, 2.5)

Only exact built-in types travel by value. Anything else (a function, an instance whose class defines `__eq__`) stays
where it is: `keep` files it and gives a number, and `refer` makes what stands for it on the other side.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

Keep = Callable[[Any], int]
Refer = Callable[[int, str], Any]

_PLAIN = (type(None), bool, str)
_BIG = 10**4000  # Python refuses to print longer integers in decimal
_SEQUENCES: dict[type, str] = {list: "l", tuple: "t", set: "s", frozenset: "z", deque: "q"}
_MAPPINGS = (dict, OrderedDict, defaultdict, Counter)
_MAKE: dict[str, Callable[[list[Any]], Any]] = {"l": list, "t": tuple, "s": set, "z": frozenset, "q": deque}
# (module, type): how to write it and how to read it again. Looked up by name: importing them all would slow every fork.
_AS_TEXT: dict[tuple[str, str], tuple[Callable[[Any], Any], str]] = {
    ("decimal", "Decimal"): (str, ""),
    ("fractions", "Fraction"): (str, ""),
    ("datetime", "date"): (lambda value: value.isoformat(), "fromisoformat"),
    ("datetime", "datetime"): (lambda value: value.isoformat(), "fromisoformat"),
    ("datetime", "time"): (lambda value: value.isoformat(), "fromisoformat"),
}


def pack(value: Any, keep: Keep) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        return value if -_BIG < value < _BIG else ["i", hex(value)]
    if kind is float:
        return value  # nan and the infinities included: Python's JSON knows them
    if kind in _SEQUENCES:
        return [_SEQUENCES[kind], *[pack(v, keep) for v in value]]
    if kind in _MAPPINGS:
        return ["d", *[[pack(k, keep), pack(v, keep)] for k, v in value.items()]]
    if kind in (bytes, bytearray):
        return ["b" if kind is bytes else "B", value.hex()]
    if kind is complex:
        return ["c", value.real, value.imag]
    if kind is range:
        return ["r", value.start, value.stop, value.step]
    where = (kind.__module__, kind.__name__)
    if where in _AS_TEXT and kind is getattr(sys.modules.get(where[0]), where[1], None):
        return ["x", *where, _AS_TEXT[where][0](value)]
    if "numpy" in sys.modules:
        numpy = sys.modules["numpy"]
        if isinstance(value, numpy.generic) and value.dtype.kind in "biufcUS":
            return ["n", value.dtype.str, pack(value.item(), keep)]
        if kind is numpy.ndarray and value.dtype.kind in "biufcUS":
            return ["a", value.dtype.str, list(value.shape), pack(value.ravel().tolist(), keep)]
    if isinstance(value, tuple) and hasattr(kind, "_fields"):  # a namedtuple is compared as the tuple it is
        return ["t", *[pack(v, keep) for v in tuple.__iter__(value)]]
    if isinstance(value, type) and getattr(builtins, kind_name := value.__name__, None) is value:
        return ["k", kind_name]
    return ["o", keep(value), kind.__name__]


def unpack(message: Any, refer: Refer) -> Any:
    """The value of a message. Raises some Exception for what no `pack` wrote; it cannot run code of the sender's."""
    if not isinstance(message, list):
        if isinstance(message, dict):
            raise ValueError("not a packed value")
        return message
    tag, *rest = message
    if tag in _MAKE:
        return _MAKE[tag]([unpack(v, refer) for v in rest])
    if tag == "d":
        return {unpack(k, refer): unpack(v, refer) for k, v in rest}
    if tag == "i":
        return int(rest[0], 16)
    if tag in ("b", "B"):
        return bytes.fromhex(rest[0]) if tag == "b" else bytearray.fromhex(rest[0])
    if tag == "c":
        return complex(float(rest[0]), float(rest[1]))
    if tag == "r":
        return range(*rest)
    if tag == "x":
        module, name, text = rest
        reader = _AS_TEXT[module, name][1]  # a KeyError for any other type
        kind = getattr(importlib.import_module(module), name)
        return getattr(kind, reader)(text) if reader else kind(text)
    if tag in ("n", "a"):
        return _array(tag, rest, refer)
    if tag == "k":  # the name of a built-in type
        built_in = getattr(builtins, rest[0])
        if isinstance(built_in, type):
            return built_in
    if tag == "o":
        number, name = rest
        return refer(int(number), str(name))
    raise ValueError("not a packed value")


def _array(tag: str, rest: list[Any], refer: Refer) -> Any:
    import numpy

    kind = numpy.dtype(rest[0])
    if kind.kind not in "biufcUS":
        raise ValueError("not a packed array")
    if tag == "n":
        return kind.type(unpack(rest[1], refer))
    return numpy.array(unpack(rest[2], refer), dtype=kind).reshape(rest[1])
