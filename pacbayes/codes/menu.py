"""The menu: every policy that a message can name, with probabilities fixed before the sample was drawn.

A message is one arithmetic-coded bit string for (entry of the menu, integer vector); the policy it names is the base
model with the adapter v = step * q in the entry's structure. Only declared choices can be sent, and each is paid for.
"""

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cached_property
from math import lcm
from operator import index
from typing import Annotated, Any, Self, SupportsIndex

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from pacbayes.codes.arithmetic_coding import (
    Bits,
    CodeError,
    Decoder,
    Encoder,
    Frequencies,
    MessageError,
    SupportError,
    log2_floor,
)
from pacbayes.codes.priors import AnyCode, Probability

_FINEST, _COARSEST = Decimal("1e-30"), Decimal("1e30")


def _positive_decimal(text: str) -> str:
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"expected a decimal number such as '0.4', got {text!r}") from None
    if not value.is_finite() or value <= 0:
        raise ValueError(f"expected a positive decimal number, got {text!r}")
    # As an exact fraction 1e-999999999 would keep a verifier busy for ever.
    if len(text) > 50 or not _FINEST <= value <= _COARSEST:
        raise ValueError(f"expected a step from {_FINEST} to {_COARSEST} in at most 50 characters, got {text[:60]!r}")
    return text


class MenuEntry(BaseModel):
    """One way to turn integers into a policy.

    Args:
        name: unique within the menu.
        probability: of choosing the entry, a fraction in lowest terms.
        dimension: number of integers.
        step: the grid; the adapter's parameters are step times the integers, in float64. Decimal text, exact.
        code: the prior over the integers.
        structure: what the decoder must know of the adapter (kind, rank, tying, …); compared, never interpreted here.
        prior_artifact: SHA-256 of the adapter's fixed tensors, in hexadecimal.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(min_length=1)]
    probability: Probability
    dimension: Annotated[int, Field(strict=True, ge=1)]
    step: Annotated[str, AfterValidator(_positive_decimal)]
    code: AnyCode
    structure: dict[str, Any]
    prior_artifact: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

    def rescaled(self, q: tuple[int, ...], step: str) -> tuple[int, ...] | None:
        """The integers that give, on this entry's grid, the parameters step * q; None if they are not on the grid.

        Decoders multiply in float64, where 3 * 0.1 is not 1 * 0.3: what differs in the last bit is another policy.
        """
        ratio = Fraction(step) / Fraction(self.step)
        scaled = [ratio * value for value in q]
        if any(value.denominator != 1 or abs(value) > 2**53 for value in scaled):
            return None
        integers = tuple(value.numerator for value in scaled)
        mine, theirs = float(self.step), float(step)
        same = all(mine * own == theirs * value for own, value in zip(integers, q, strict=True))
        return integers if same else None


class Menu(BaseModel):
    """Entries whose probabilities sum to at most one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    entries: Annotated[tuple[MenuEntry, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _is_a_prior(self) -> Self:
        names = [entry.name for entry in self.entries]
        if len(set(names)) < len(names):
            raise ValueError(f"expected names that differ, got {', '.join(names)}")
        total = sum((Fraction(entry.probability) for entry in self.entries), Fraction())
        if total > 1:
            raise ValueError(f"expected probabilities of the entries that sum to at most 1, got {total}")
        return self

    @cached_property
    def _choice(self) -> Frequencies:
        """Frequencies of the entries; what they leave of one belongs to a symbol after the last that is never sent."""
        probabilities = [Fraction(entry.probability) for entry in self.entries]
        common = lcm(*(probability.denominator for probability in probabilities))
        weights = [int(probability * common) for probability in probabilities]
        return Frequencies(0, [*weights, common - sum(weights)])

    def bits(self, i: int, q: Iterable[SupportsIndex]) -> float:
        """-log2 of P(entry i) P(q | entry i), rounded up to a multiple of 2^-32.

        Raises:
            CodeError: i or the length of q is wrong, or (SupportError) a value has probability zero.
        """
        encoder = self._write(i, q)
        return -log2_floor(encoder.width, encoder.scale)

    def entry_bits(self, i: int) -> float:
        """-log2 P(entry i), rounded up: the part of `bits` that the choice of the entry costs."""
        probability = Fraction(self._entry(i).probability)
        return -log2_floor(probability.numerator, probability.denominator)

    def mixture_bits(self, i: int, q: Iterable[SupportsIndex]) -> float:
        """-log2 of the whole probability of the policy that (i, q) decodes to, rounded up; at most `bits(i, q)`.

        Entries with the same structure and prior artifact whose grids both hold the parameters, to the last bit of
        float64, decode to the same policy, and their probabilities add up.

        Raises:
            CodeError: as `bits`.
        """
        integers = tuple(map(index, q))
        own = self._write(i, integers)
        total, entry = Fraction(own.width, own.scale), self.entries[i]
        for j, other in enumerate(self.entries):
            same = (other.structure, other.prior_artifact) == (entry.structure, entry.prior_artifact)
            rescaled = other.rescaled(integers, entry.step)
            if j == i or not same or other.dimension != entry.dimension or rescaled is None:
                continue
            try:
                encoder = self._write(j, rescaled)
            except SupportError:
                continue
            total += Fraction(encoder.width, encoder.scale)
        return -log2_floor(total.numerator, total.denominator)

    def bit_string(self, i: int, q: Iterable[SupportsIndex]) -> Bits:
        """The message as bits: fewer than `bits(i, q)` + 2 of them. Raises as `bits`."""
        return self._write(i, q).bits()

    def encode(self, i: int, q: Iterable[SupportsIndex]) -> bytes:
        """The message as bytes: `bit_string`, padded with zeros to whole bytes. Raises as `bits`."""
        return self.bit_string(i, q).to_bytes()

    def decode(self, data: bytes) -> tuple[int, tuple[int, ...]]:
        """The entry and the integers that a message names.

        No message is the beginning of another, so whatever is truncated or extended is refused for certain. Bytes of
        another menu can happen to be a message of this one; the digests around it are what tells them apart.

        Raises:
            MessageError: the bytes are not exactly what `encode` makes of the message they decode to.
        """
        decoder = Decoder(Bits.from_bytes(data))
        i = decoder.next(self._choice)
        if i == len(self.entries):
            raise MessageError("the message does not name an entry of this menu")
        q = self.entries[i].code.read(decoder, self.entries[i].dimension)
        expected = self.encode(i, q)
        if data == expected:
            return i, q
        got, wanted = len(data), len(expected)
        if got < wanted:
            raise MessageError(f"the message is truncated: {got} bytes, where what they begin takes {wanted}")
        if data.startswith(expected):
            raise MessageError(f"the message is extended: {got - wanted} bytes follow its {wanted}")
        at = next(k for k in range(wanted) if data[k] != expected[k])
        raise MessageError(
            f"the message is not a canonical encoding: byte {at} is {data[at]:#04x}, and what it decodes to has"
            f" {expected[at]:#04x} there"
        )

    def _entry(self, i: int) -> MenuEntry:
        if not 0 <= i < len(self.entries):
            raise CodeError(f"expected an entry from 0 to {len(self.entries) - 1}, got {i}")
        return self.entries[i]

    def _write(self, i: int, q: Iterable[SupportsIndex]) -> Encoder:
        entry, integers = self._entry(i), tuple(map(index, q))
        if len(integers) != entry.dimension:
            raise CodeError(f"entry {entry.name!r} takes {entry.dimension} integers, got {len(integers)}")
        encoder = Encoder()
        encoder.add(i, self._choice)
        entry.code.write(encoder, integers)
        return encoder
