"""Priors over integer vectors that can score, encode and decode: the K of a certificate and the bytes that prove it.

A code is declared before the sample is drawn, as JSON; `parse_code` turns the declaration into an object. It predicts
the coordinates of a vector one after another: before each it states integer frequencies of the values, which may depend
on the values already seen. The probability of a vector is the product of the frequencies' ratios; over all vectors of a
dimension it sums to one by construction, and the arithmetic coder reaches -log2 of it within two bits.

    fixed      all integers from low to high alike
    laplace    two-sided geometric, frequency of k about ratio^|k|
    gaussian   frequency of k about ratio^(k^2)
    adaptive   learns the frequencies from the values already sent: no codebook, no histogram in the message
    sparse     whether a coordinate is zero (learned), then its value
    mixture    several codes at declared probabilities: at most log2(1/probability) bits more than the best

All of it is integer arithmetic, so that encoder and decoder agree on every platform.

References: Krichevsky and Trofimov, IEEE Trans. Inf. Theory 27 (1981), for the adaptive code; Willems, Shtarkov and
Tjalkens, IEEE Trans. Inf. Theory 41 (1995), for mixtures coded one symbol after another.
"""

from abc import abstractmethod
from collections.abc import Generator, Iterable, Mapping
from fractions import Fraction
from functools import cached_property
from math import lcm, log2
from operator import index
from typing import Annotated, Any, Literal, Self, SupportsIndex

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from pacbayes.codes.arithmetic_coding import (
    Bits,
    CodeError,
    Decoder,
    Encoder,
    Frequencies,
    MessageError,
    log2_floor,
)

# Frequencies of the parametric codes are multiples of 2^-48 of the largest: fine enough to cost no bits, small enough
# that a thousand coordinates stay a number of 50,000 bits.
_TABLE_BITS = 48
_POSTERIOR_BITS = 64
_LARGEST_NUMBER = 2**20


def _proper_fraction(text: str) -> str:
    try:
        fraction = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"expected a fraction such as '1/8', got {text!r}") from None
    if not 0 < fraction <= 1:
        raise ValueError(f"expected a fraction in (0, 1], got {text!r}")
    if str(fraction) != text:
        raise ValueError(f"expected a fraction in lowest terms, {str(fraction)!r} and not {text!r}")
    return text


# A probability as text, in lowest terms, so that a declaration has one spelling and one digest.
Probability = Annotated[str, AfterValidator(_proper_fraction)]
_Bound = Annotated[int, Field(strict=True, ge=1, le=4095)]


class Code(BaseModel):
    """A probability for every integer vector of every dimension."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abstractmethod
    def predict(self) -> Generator[Frequencies, int, None]:
        """Yields the frequencies of the next coordinate's values and is sent its value, for ever."""

    @property
    def spec(self) -> dict[str, Any]:
        """The declaration, as JSON; `parse_code` gives back an equal code."""
        return self.model_dump(mode="json")

    def log2_probability(self, q: Iterable[SupportsIndex]) -> float:
        """log2 P(q), rounded down to a multiple of 2^-32.

        Raises:
            SupportError: a value has probability zero.
        """
        encoder = Encoder()
        self.write(encoder, q)
        return log2_floor(encoder.width, encoder.scale)

    def encode(self, q: Iterable[SupportsIndex]) -> Bits:
        """The bit string of q, of length below -log2 P(q) + 2.

        Raises:
            SupportError: a value has probability zero.
        """
        encoder = Encoder()
        self.write(encoder, q)
        return encoder.bits()

    def decode(self, bits: Bits, dimension: int) -> tuple[int, ...]:
        """The vector whose encoding these bits are.

        Raises:
            MessageError: they are not the encoding of any vector of this dimension.
        """
        q = self.read(Decoder(bits), dimension)
        expected = self.encode(q)
        if bits != expected:
            raise MessageError(
                f"these {bits.length} bits are not the {expected.length} bits of the vector that they decode to"
            )
        return q

    def write(self, encoder: Encoder, q: Iterable[SupportsIndex]) -> None:
        """Append the coordinates of q to a message."""
        prediction = self.predict()
        frequencies = next(prediction)
        for value in map(index, q):
            encoder.add(value, frequencies)
            frequencies = prediction.send(value)

    def read(self, decoder: Decoder, dimension: int) -> tuple[int, ...]:
        """Read the coordinates of a vector from a message."""
        prediction = self.predict()
        frequencies = next(prediction)
        q = []
        for _ in range(dimension):
            q.append(decoder.next(frequencies))
            frequencies = prediction.send(q[-1])
        return tuple(q)


class FixedCode(Code):
    """Every integer from low to high with the same probability."""

    kind: Literal["fixed"] = "fixed"
    low: Annotated[int, Field(strict=True, ge=-4095, le=4095)]
    high: Annotated[int, Field(strict=True, ge=-4095, le=4095)]

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"expected low <= high, got {self.low} and {self.high}")
        return self

    @cached_property
    def _table(self) -> Frequencies:
        return Frequencies(self.low, [1] * (self.high - self.low + 1))

    def predict(self) -> Generator[Frequencies, int, None]:
        while True:
            yield self._table


class _ParametricCode(Code):
    """Frequencies that fall with the distance from zero: the larger of 1 and floor(2^48 ratio^exponent)."""

    ratio: Probability
    bound: _Bound

    @model_validator(mode="after")
    def _small_enough(self) -> Self:
        """Refuse a declaration whose frequencies take numbers of more than a million bits to compute."""
        ratio = Fraction(self.ratio)
        if ratio < 1:
            # Where the frequency has fallen to the least one, the table is complete.
            last = (_TABLE_BITS + 1) / (log2(ratio.denominator) - log2(ratio.numerator) or 2.0**-52)
            largest = min(self._exponent(self.bound), last) * ratio.denominator.bit_length()
            if largest > _LARGEST_NUMBER:
                raise ValueError(f"a ratio this close to 1, or with this many digits, takes {largest:.0f} bits")
        return self

    @staticmethod
    @abstractmethod
    def _exponent(distance: int) -> int: ...

    @cached_property
    def _table(self) -> Frequencies:
        ratio = Fraction(self.ratio)
        tail: list[int] = []
        for distance in range(self.bound + 1):
            exponent = self._exponent(distance)
            weight = (ratio.numerator**exponent << _TABLE_BITS) // ratio.denominator**exponent
            if weight <= 1:
                # From here on every frequency is the least one, so that whatever is within the bound can be sent.
                tail += [1] * (self.bound + 1 - distance)
                break
            tail.append(weight)
        return Frequencies(-self.bound, [*reversed(tail[1:]), *tail])

    def predict(self) -> Generator[Frequencies, int, None]:
        while True:
            yield self._table


class LaplaceCode(_ParametricCode):
    """Two-sided geometric on -bound, …, bound: each step from zero multiplies the frequency by ratio."""

    kind: Literal["laplace"] = "laplace"

    @staticmethod
    def _exponent(distance: int) -> int:
        return distance


class GaussianCode(_ParametricCode):
    """Discretised Gaussian on -bound, …, bound: frequency of k about ratio^(k^2), a variance of 1 / (2 ln(1/ratio))."""

    kind: Literal["gaussian"] = "gaussian"

    @staticmethod
    def _exponent(distance: int) -> int:
        return distance * distance


class AdaptiveCode(Code):
    """Krichevsky-Trofimov estimator on -bound, …, bound: frequency 2c + 1 for a value seen c times.

    The same probability as the mixture of all memoryless codes under the Dirichlet(1/2) prior; it is within
    (alphabet - 1)/2 log2(dimension) + O(1) bits of the best of them in hindsight.
    """

    kind: Literal["adaptive"] = "adaptive"
    bound: _Bound

    def predict(self) -> Generator[Frequencies, int, None]:
        weights = [1] * (2 * self.bound + 1)
        while True:
            value = yield Frequencies(-self.bound, weights)
            weights[value + self.bound] += 2


class SparseCode(Code):
    """Whether a coordinate is zero, by the Krichevsky-Trofimov estimator; a coordinate that is not, by another code."""

    kind: Literal["sparse"] = "sparse"
    values: "AnyCode"

    @model_validator(mode="after")
    def _some_value(self) -> Self:
        if set(next(self.values.predict()).alphabet) <= {0}:
            raise ValueError("expected a code of the values that covers an integer other than zero")
        return self

    def predict(self) -> Generator[Frequencies, int, None]:
        prediction = self.values.predict()
        frequencies = next(prediction)
        zeros, others = 1, 1
        while True:
            alphabet = frequencies.alphabet
            nonzero = frequencies.total - frequencies.weight(0)
            first, last = min(0, alphabet.start), max(0, alphabet.stop - 1)
            value = yield Frequencies(
                first,
                [others * frequencies.weight(v) if v else zeros * nonzero for v in range(first, last + 1)],
            )
            if value == 0:
                zeros += 2
            else:
                others += 2
                frequencies = prediction.send(value)


class MixturePart(BaseModel):
    """One code of a mixture and its probability."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    probability: Probability
    code: "AnyCode"


class MixtureCode(Code):
    """Bayesian mixture: each part predicts with the weight that its past predictions earned.

    The weights are kept as integers of 64 bits, rounded down but never to zero. So the code is exactly normalised, and
    its probability is that of the mixture to within one part in 10^17 a coordinate.
    """

    kind: Literal["mixture"] = "mixture"
    parts: Annotated[tuple[MixturePart, ...], Field(min_length=1, max_length=256)]

    @model_validator(mode="after")
    def _normalised(self) -> Self:
        total = sum((Fraction(part.probability) for part in self.parts), Fraction())
        if total != 1:
            raise ValueError(f"expected probabilities of the parts that sum to 1, got {total}")
        return self

    def predict(self) -> Generator[Frequencies, int, None]:
        predictions = [part.code.predict() for part in self.parts]
        tables = [next(prediction) for prediction in predictions]
        posterior = [max(1, int(Fraction(part.probability) * 2**_POSTERIOR_BITS)) for part in self.parts]
        while True:
            common = lcm(*(table.total for table in tables))
            factors = [weight * (common // table.total) for weight, table in zip(posterior, tables, strict=True)]
            first = min(table.first for table in tables)
            mixed = [0] * (max(table.alphabet.stop for table in tables) - first)
            for factor, table in zip(factors, tables, strict=True):
                for i, weight in enumerate(table.weights, table.first - first):
                    mixed[i] += factor * weight
            value = yield Frequencies(first, mixed)
            earned = [factor * table.weight(value) for factor, table in zip(factors, tables, strict=True)]
            surplus = max(0, max(earned).bit_length() - _POSTERIOR_BITS)
            posterior = [max(1, weight >> surplus) for weight in earned]
            # A part that gave the value no chance cannot be told about it; it goes on predicting from what it knows.
            tables = [
                prediction.send(value) if value in table.alphabet else table
                for prediction, table in zip(predictions, tables, strict=True)
            ]


AnyCode = Annotated[
    FixedCode | LaplaceCode | GaussianCode | AdaptiveCode | SparseCode | MixtureCode, Field(discriminator="kind")
]
for _model in (SparseCode, MixturePart, MixtureCode):
    _model.model_rebuild()
_ANY_CODE: TypeAdapter[Code] = TypeAdapter(AnyCode)


def parse_code(spec: Mapping[str, Any]) -> Code:
    """The code of a declaration such as {"kind": "laplace", "ratio": "1/2", "bound": 31}.

    Raises:
        CodeError: the kind is not known, a key is missing or not known, or a value is out of range.
    """
    try:
        return _ANY_CODE.validate_python(dict(spec))
    except ValidationError as error:
        details = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'code'}: {e['msg']}" for e in error.errors())
        raise CodeError(f"not a code: {details}") from None
