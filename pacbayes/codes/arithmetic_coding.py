"""Exact arithmetic coding with rational numbers: from a probability to a bit string, and back.

A message is a sequence of symbols, each coded with a table of integer frequencies that may depend on the symbols
before it. The sequence owns an interval [low, low + P) of [0, 1), where P is the product of its symbols'
probabilities; it is sent as the shortest bit string b_1 … b_L whose dyadic interval [0.b, 0.b + 2^-L) lies inside.
Hence

    -log2 P <= L < -log2 P + 2,

and no message's string is a prefix of another's. Everything is integer arithmetic, so that the bits are the same on
every platform; nothing is scaled or truncated, so there is no rate lost to finite registers.

References: J. Rissanen, IBM J. Res. Dev. 20 (1976); Cover and Thomas, "Elements of Information Theory", section 13.3.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

# Fraction bits of a logarithm: enough for 1e-9 bits, and a float64 holds sums below 2^21 bits exactly.
_FRACTION_BITS = 32
_WORKING_BITS = 128


class CodeError(ValueError):
    """A code was declared wrongly, or used for something that it cannot say."""


class SupportError(CodeError):
    """A value has probability zero under the code, so no number of bits describes it."""


class MessageError(CodeError):
    """Bytes that are not the one encoding of the message they decode to."""


class Frequencies:
    """Integer frequencies of the consecutive integers first, first + 1, …; probability = frequency / sum.

    Args:
        first: the smallest integer of the alphabet.
        weights: one non-negative integer each; at least one positive.
    """

    def __init__(self, first: int, weights: Iterable[int]) -> None:
        self.first = first
        self.weights = tuple(weights)
        self.total = sum(self.weights)

    @cached_property
    def cumulative(self) -> tuple[int, ...]:
        """Sums of the frequencies before each integer, and the total: one more than there are integers."""
        return (0, *accumulate(self.weights))

    @property
    def alphabet(self) -> range:
        """The integers that have a frequency."""
        return range(self.first, self.first + len(self.weights))

    def weight(self, value: int) -> int:
        """Frequency of an integer; 0 outside the alphabet."""
        return self.weights[value - self.first] if value in self.alphabet else 0


@dataclass(frozen=True)
class Bits:
    """A bit string: the `length` binary digits of `value`, first bit most significant."""

    value: int
    length: int

    def __len__(self) -> int:
        return self.length

    def __str__(self) -> str:
        return format(self.value, f"0{self.length}b") if self.length else ""

    def to_bytes(self) -> bytes:
        """The bits from the most significant bit of the first byte on, padded with zeros to whole bytes."""
        size = -(-self.length // 8)
        return (self.value << (8 * size - self.length)).to_bytes(size, "big")

    @classmethod
    def from_bytes(cls, data: bytes) -> "Bits":
        """All bits of the bytes, padding included."""
        return cls(int.from_bytes(data, "big"), 8 * len(data))


class Encoder:
    """Narrows an interval symbol by symbol; [low, low + width) / scale with integers."""

    def __init__(self) -> None:
        self._low, self.width, self.scale = 0, 1, 1

    def add(self, value: int, frequencies: Frequencies) -> None:
        """Append a symbol.

        Raises:
            SupportError: its frequency is zero.
        """
        weight = frequencies.weight(value)
        if weight == 0:
            alphabet = frequencies.alphabet
            raise SupportError(
                f"{value} has probability zero here; the code covers {alphabet.start} to {alphabet.stop - 1}"
            )
        below = frequencies.cumulative[value - frequencies.first]
        self._low = self._low * frequencies.total + self.width * below
        self.width *= weight
        self.scale *= frequencies.total

    def bits(self) -> Bits:
        """The shortest bit string, and the smallest of that length, whose dyadic interval lies in the message's."""
        # 2^-length <= width/scale is necessary and one more bit always suffices.
        length = max(0, self.scale.bit_length() - self.width.bit_length() - 1)
        while True:
            value = -((-self._low << length) // self.scale)  # ceil(low 2^length)
            if (value + 1) * self.scale <= (self._low + self.width) << length:
                return Bits(value, length)
            length += 1


class Decoder:
    """Reads symbols from bits, followed by as many zeros as it takes."""

    def __init__(self, bits: Bits) -> None:
        self._point, self._width = bits.value, 1 << bits.length

    def next(self, frequencies: Frequencies) -> int:
        """The next symbol."""
        scaled = self._point * frequencies.total
        i = bisect_right(frequencies.cumulative, scaled // self._width) - 1
        below, above = frequencies.cumulative[i], frequencies.cumulative[i + 1]
        self._point = scaled - below * self._width
        self._width *= above - below
        return frequencies.first + i


def log2_floor(numerator: int, denominator: int) -> float:
    """log2(numerator / denominator) in (-2^21, 0], rounded down to a multiple of 2^-32, by integer arithmetic only.

    Exact for powers of two. The same on every platform, which a library's log2 need not be.

    Raises:
        ValueError: not 0 < numerator <= denominator.
    """
    if not 0 < numerator <= denominator:
        raise ValueError("expected a probability in (0, 1] as a ratio of positive integers")
    exponent = numerator.bit_length() - denominator.bit_length()
    if numerator << -exponent < denominator:
        exponent -= 1
    # mantissa = numerator / (denominator 2^exponent) in [1, 2), as a fixed-point number rounded down.
    mantissa = (numerator << (_WORKING_BITS - exponent)) // denominator
    fraction = 0
    for _ in range(_FRACTION_BITS):
        mantissa = mantissa * mantissa >> _WORKING_BITS
        doubled = mantissa >> (_WORKING_BITS + 1)
        mantissa >>= doubled
        fraction = 2 * fraction + doubled
    return exponent + fraction / float(1 << _FRACTION_BITS)
