"""The same tokens as :func:`pacbayes.gumbel.sample_tokens`, compiled: the integers of all tokens, logarithms for a few.

Importing this module needs numba; :func:`pacbayes.gumbel.sample_tokens` works without it.

A token whose logit lies d below the best score so far can only win if g > d, that is if its integer x exceeds a
threshold X(d). Nearly all tokens fail that comparison of two integers, so the two logarithms are taken for the
survivors only. All integers are still drawn: at T = 1 most of a vocabulary lies within the 26 nats that g can bridge.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np
import numpy.typing as npt

from pacbayes.gumbel import (
    PHILOX_MULTIPLIERS,
    PHILOX_ROUNDS,
    PHILOX_WEYL,
    UInt32Array,
    check_sampling,
    key_words,
    position_words,
)

_CELLS_PER_NAT = 16
_LOWEST = -4.0  # every g lies above -3.2
_HIGHEST = 23.5  # and below 22.9
_CHUNK = 2048  # tokens whose integers are drawn at once; they stay in the first-level cache


def _thresholds() -> UInt32Array:
    """For each cell of d, an x below which g(x) < d for every d in the cell.

    The entry is the exact threshold of the cell *before*, so that 1/16 nat is left for every rounding: of d (for which
    logits are multiplied by 1/T instead of divided by T), of g and of the sum, as long as logits / T stay below 2^46.
    """
    edges = _LOWEST + (np.arange(int((_HIGHEST - _LOWEST) * _CELLS_PER_NAT) + 2) - 1) / _CELLS_PER_NAT
    return np.floor(np.exp(-np.exp(-edges)) * 2.0**32).clip(0, 2**32 - 1).astype(np.uint32)


_THRESHOLDS = _thresholds()
_M0, _M1 = (np.uint64(m) for m in PHILOX_MULTIPLIERS)
_W0, _W1 = (np.uint32(w) for w in PHILOX_WEYL)
_INFINITY = np.int32(0x7F800000)
_MINUS_INFINITY = np.int32(-0x7F800001)  # with its lower bits flipped
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _draw_integers(first_block, position, words, out):  # type: ignore[no-untyped-def]
    """Philox4x32-10 of consecutive blocks, lanes apart: out[lane, i] belongs to token 4 (first_block + i) + lane."""
    for i in range(out.shape[1]):
        c0, c1, c2, c3 = np.uint32(first_block + i), position, words[2], words[3]
        k0, k1 = words[0], words[1]
        for _ in range(PHILOX_ROUNDS):
            p0, p1 = np.uint64(c0) * _M0, np.uint64(c2) * _M1
            n0 = np.uint32(p1 >> _HALF) ^ c1 ^ k0
            n2 = np.uint32(p0 >> _HALF) ^ c3 ^ k1
            c0, c1, c2, c3 = n0, np.uint32(p1 & _LOW), n2, np.uint32(p0 & _LOW)
            k0, k1 = np.uint32(k0 + _W0), np.uint32(k1 + _W1)
        out[0, i], out[1, i], out[2, i], out[3, i] = c0, c1, c2, c3


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _can_be_sampled(bits):  # type: ignore[no-untyped-def]
    """Whether single-precision numbers, given as int32, hold no NaN, no +inf and something finite.

    Flipping the lower 31 bits of negative numbers makes the order of the integers that of the numbers, with NaN beyond
    both infinities; a compiler vectorises extremes of integers.
    """
    lowest, highest = np.int32(2147483647), np.int32(-2147483648)
    for i in range(bits.shape[0]):
        ordered = bits[i] ^ ((bits[i] >> np.int32(31)) & np.int32(2147483647))
        lowest, highest = min(lowest, ordered), max(highest, ordered)
    return lowest >= _MINUS_INFINITY and _MINUS_INFINITY < highest < _INFINITY


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _sample(logits, bits, words, positions, temperature, thresholds, tokens):  # type: ignore[no-untyped-def]
    """Fill ``tokens``; returns the index of the first row that cannot be sampled, or -1. bits: the logits as int32."""
    rows, vocabulary = logits.shape
    x = np.empty((4, _CHUNK // 4), np.uint32)
    inverse = 1 / temperature
    for row in range(rows):
        line = logits[row]
        if not _can_be_sampled(bits[row]):
            return row
        best, winner = -np.inf, -1
        for start in range(0, vocabulary, _CHUNK):
            _draw_integers(start // 4, positions[row], words[row], x)
            for offset in range(min(_CHUNK, vocabulary - start)):
                token = start + offset
                gap = best - np.float64(line[token]) * inverse
                if gap >= _HIGHEST:
                    continue
                integer = x[offset & 3, offset >> 2]
                if gap > _LOWEST and integer < thresholds[np.int64((gap - _LOWEST) * _CELLS_PER_NAT)]:
                    continue
                score = np.float64(line[token]) / temperature - np.log(-np.log((np.float64(integer) + 0.5) * 2.0**-32))
                if score > best:
                    best, winner = score, token
        tokens[row] = winner
    return -1


def sample_tokens(
    logits: npt.NDArray[np.floating],
    keys: Sequence[bytes] | UInt32Array,
    positions: int | npt.ArrayLike,
    temperature: float = 1.0,
) -> npt.NDArray[np.int64]:
    """As :func:`pacbayes.gumbel.sample_tokens`, with the same arguments, result and errors."""
    if logits.ndim != 2 or logits.shape[1] == 0:
        raise ValueError(f"expected logits of shape (rows, vocabulary), got {logits.shape}")
    words = key_words(keys)
    check_sampling(len(logits), len(words), temperature)
    tokens = np.empty(len(logits), np.int64)
    single = np.ascontiguousarray(logits, dtype=np.float32)
    bits = single.view(np.int32)
    failed = _sample(
        single, bits, words, position_words(positions, len(words)), float(temperature), _THRESHOLDS, tokens
    )
    if failed >= 0:
        raise ValueError(f"row {failed} of the logits has a NaN, a +inf, or no finite value")
    return tokens
