"""What a configuration declares beside the accuracy, as a method lock holds it: shares of δ, a transfer, a joint."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal, InvalidOperation

import pydantic

from pacbayes.declarations import (
    ACCURACY_SHARE,
    DISAGREEMENT_SHARE,
    GAIN_SHARES,
    HOLDOUT_SHARE,
    DeltaShare,
    DomainShare,
    Joint,
    Transfer,
)
from pacbayes.schema import one_line
from progressive_rlvr.config import RunConfig, Statements
from progressive_rlvr.errors import UserError

_UNIT = Decimal("1e-12")  # what a lock's decimals resolve


@dataclass(frozen=True)
class Declared:
    """The δ of a domain, its shares, and the statements that are not an accuracy."""

    delta: str
    shares: tuple[DeltaShare, ...]
    transfer: Transfer | None
    joint: Joint | None


def declare(config: RunConfig) -> Declared:
    """The declarations of a configuration; every domain of a run has the same.

    Raises:
        UserError: a share is no decimal such as "0.01", nothing is left for the accuracy, or one domain is to be joint.
    """
    wanted = config.statements or Statements()
    try:
        return _declare(config, wanted)
    except pydantic.ValidationError as error:
        raise UserError(f"the statements of the configuration: {one_line(error)}") from error


def _declare(config: RunConfig, wanted: Statements) -> Declared:
    delta, joint = Decimal(str(config.delta)), None
    if wanted.joint is not None:
        delta = (_decimal(wanted.joint) / len(config.domains)).quantize(_UNIT, rounding=ROUND_FLOOR).normalize()
        shares = tuple(DomainShare(domain=name, delta=format(delta, "f")) for name in config.domains)
        joint = Joint(delta=wanted.joint, shares=shares)
    others: list[tuple[str, str]] = []
    if wanted.gain is not None:
        others += zip(GAIN_SHARES, (wanted.gain.base, wanted.gain.paired), strict=True)
    if wanted.holdout is not None:
        others.append((HOLDOUT_SHARE, wanted.holdout))
    transfer = None
    if (choice := wanted.transfer) is not None:
        others.append((DISAGREEMENT_SHARE, choice.delta))
        transfer = Transfer(policy=choice.policy, teachers=choice.teachers, prompts=choice.prompts, drawn="population")
    left = delta - sum((_decimal(value) for _, value in others), Decimal(0))
    if left <= 0:
        raise UserError(f"the other statements take all of delta = {delta}; nothing is left for the accuracy")
    return Declared(
        delta=format(delta, "f"),
        shares=tuple(
            DeltaShare(name=n, value=v) for n, v in [(ACCURACY_SHARE, format(left.normalize(), "f")), *others]
        ),
        transfer=transfer,
        joint=joint,
    )


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise UserError(f"a share of delta is a decimal such as '0.01', not {text!r}") from None
