"""The same evidence under other accountings: what whoever asks for a report computes, and a report only prints.

No bound is computed here. `prlvr` passes a function from a certificate's file to an `Accounting`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from bounds_reports.numbers import Number, fixed, percent, to_grid

KINDS = {
    "declared": "This message, declared code",
    "codebook": "This message, learned codebook",
    "bfloat16": "LoRA adapter in bfloat16",
}
_BOUNDS = {
    "hoeffding": "Hoeffding",
    "catoni": "Catoni",
    "kl": "Chernoff (kl)",
    "maurer_seeger": "Maurer-Seeger",
    "binomial": "exact binomial",
    "hypergeometric": "exact hypergeometric",
    "betting": "betting",
}
NOTE = (
    "The learned codebook is the accounting of published compression bounds (Lotfi et al., arXiv 2211.13609 and "
    "2312.17173) in its best version: only the levels that occur, 16 bits each; a histogram of their counts; symbols "
    "at their empirical entropy; 2 log2 of that length for a prefix; nothing for earlier samples, which whoever drew "
    "some must pay. Each number stands by itself: the best of a row is no statement. All are rounded down."
)


@dataclass(frozen=True)
class Charge:
    """One way to charge a policy: its bits, and the accuracy that each bound certifies from them (0: nothing)."""

    kind: str
    bits: Number
    certified: Mapping[str, Number]
    why: str = ""


@dataclass(frozen=True)
class Accounting:
    """A certificate's evidence under several accountings; `bound` is the one that its lock asks for.

    `missing` says why there is none.
    """

    bound: str
    charges: tuple[Charge, ...]
    scope: str = ""
    missing: str = ""


Account = Callable[[Path], Accounting]


def bound_name(name: str) -> str:
    """A bound's name for people."""
    return _BOUNDS.get(name, name)


def bounds_in(accountings: list[Accounting]) -> list[str]:
    """The bounds that occur, loosest first; those of locks last."""
    order = list(_BOUNDS)
    found = {name for a in accountings for charge in a.charges for name in charge.certified}
    return sorted(found, key=lambda name: (order.index(name) if name in order else len(order), name))


def promised(value: Number | None) -> str:
    """A certified accuracy in print; below the six decimals of certificates it is nothing."""
    if value is None:
        return "—"
    return percent(value, "down") if to_grid(value, 6, "down") > 0 else "nothing"


def charged(bits: Number) -> str:
    """Bits in print, rounded up: whole numbers as such, others to one decimal."""
    return fixed(bits, 0 if Fraction(bits).denominator == 1 else 1, "up")


@dataclass(frozen=True)
class AccountingRow:
    """One accounting in print: a cell for each bound, and which of them is the certificate's own number."""

    name: str
    why: str
    bits: str
    certified: tuple[str, ...]
    own: tuple[bool, ...]


@dataclass(frozen=True)
class AccountingView:
    """The table of one certificate in print, or why there is none."""

    bounds: tuple[str, ...] = ()
    rows: tuple[AccountingRow, ...] = ()
    scope: str = ""
    missing: str = ""


def accounting_view(accounting: Accounting | None) -> AccountingView | None:
    """The table of one certificate in print; None where nobody asked for it."""
    if accounting is None:
        return None
    if accounting.missing:
        return AccountingView(missing=accounting.missing)
    bounds = bounds_in([accounting])
    rows = (
        AccountingRow(
            name=KINDS[charge.kind],
            why=charge.why,
            bits=charged(charge.bits),
            certified=tuple(promised(charge.certified.get(bound)) for bound in bounds),
            own=tuple(charge.kind == "declared" and bound == accounting.bound for bound in bounds),
        )
        for charge in accounting.charges
    )
    return AccountingView(tuple(map(bound_name, bounds)), tuple(rows), accounting.scope)


def as_data(accounting: Accounting | None) -> dict[str, object] | None:
    """The same for programs, not rounded."""
    if accounting is None:
        return None
    if accounting.missing:
        return {"missing": accounting.missing}
    return {
        "bound": accounting.bound,
        "charges": [
            {
                "kind": charge.kind,
                "bits": float(charge.bits),
                "certified_accuracy": {name: float(value) for name, value in charge.certified.items()},
            }
            for charge in accounting.charges
        ],
    }
