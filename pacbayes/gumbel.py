"""The keyed noise: every token of every completion is chosen by numbers that a hash of the lock has fixed beforehand.

Gumbel-max (Gumbel 1954; Maddison, Tarlow, Minka 2014): ``argmax_v [logit_v / T + g_v]`` with independent standard
Gumbel g is an exact draw from softmax(logit / T). With g written down before training, the policy is a deterministic
function of (prompt, g), the pair (prompt, g) is one draw from a fixed distribution, and a bound for deterministic
predictors holds for the sampled policy.

The specification, which the golden values in the tests fix:

1. d = SHA-256(root ‖ prompt digest ‖ occurrence ‖ draw): the two digests as their 32 raw bytes, the two counts as 8
   bytes, little-endian.
2. Philox4x32-10 (Salmon et al., SC'11) with key (d[0:4], d[4:8]) and counter (token >> 2, position, d[8:12], d[12:16]),
   words of d little-endian; lane token & 3 of its output is the 32-bit integer x(token).
3. u = (x + 1/2) / 2^32 and g = -ln(-ln u) in float64, so that -3.14 < g < 22.88; u is never 0 nor 1.
4. logits → float32 → float64, divided by T, plus g, argmax; equal scores go to the lowest token id.

x depends on (root, prompt, occurrence, draw, position, token) and on nothing else: not on the batch, its order or the
engine. This module is the reference in NumPy; :mod:`pacbayes.gumbel_numba` and :mod:`pacbayes.gumbel_torch` give the
same integers and tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

SPECIFICATION = (
    "prlvr/gumbel/1: d = SHA-256(root, prompt digest, occurrence u64le, draw u64le); "
    "x = Philox4x32-10(key d[0:8], counter (token >> 2, position, d[8:12], d[12:16]))[token & 3]; "
    "u = (x + 1/2) / 2^32; g = -ln(-ln u); float32 logits / T + g in float64; argmax, ties to the lowest id"
)

UInt32Array = npt.NDArray[np.uint32]

PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)
PHILOX_ROUNDS = 10


def prompt_key(root: str, prompt_digest: str, occurrence: int, draw: int) -> bytes:
    """The 32 bytes that key all the noise of one completion.

    Args:
        root: the noise root of the locks, 64 hex digits.
        prompt_digest: SHA-256 of the prompt, 64 hex digits.
        occurrence: how many earlier items of the sample have the same prompt; ≥ 0.
        draw: which of the M completions of this prompt; ≥ 0.

    Raises:
        ValueError: a digest is not 32 bytes of hex, or a count is negative or ≥ 2^64.
    """
    raw_root, raw_prompt = bytes.fromhex(root), bytes.fromhex(prompt_digest)
    if len(raw_root) != 32 or len(raw_prompt) != 32:
        raise ValueError(f"expected two digests of 32 bytes, got {len(raw_root)} and {len(raw_prompt)} bytes")
    if not (0 <= occurrence < 2**64 and 0 <= draw < 2**64):
        raise ValueError(f"occurrence and draw count from 0, got {occurrence} and {draw}")
    counts = occurrence.to_bytes(8, "little") + draw.to_bytes(8, "little")
    return hashlib.sha256(raw_root + raw_prompt + counts).digest()


def key_words(keys: Sequence[bytes] | UInt32Array) -> UInt32Array:
    """The words that Philox needs of each key: (rows, 4) uint32. Arrays of that shape pass through.

    Engines call this once per batch and hand the array to every step.
    """
    if isinstance(keys, np.ndarray):
        if keys.dtype != np.uint32 or keys.ndim != 2 or keys.shape[1] != 4:
            raise ValueError(f"expected key words of shape (rows, 4) and type uint32, got {keys.shape} {keys.dtype}")
        return keys
    if any(len(key) != 32 for key in keys):
        raise ValueError("expected keys of 32 bytes, as prompt_key makes them")
    return np.frombuffer(b"".join(key[:16] for key in keys), dtype="<u4").reshape(-1, 4).astype(np.uint32)


def position_words(positions: int | npt.ArrayLike, rows: int) -> UInt32Array:
    """Positions (index of the new token, from 0) as (rows,) uint32; one number stands for all rows."""
    array = np.asarray(positions)
    if array.dtype.kind not in "iu" or array.ndim > 1 or (array.ndim == 1 and len(array) != rows):
        raise ValueError(f"expected one integer position or one per row ({rows}), got {array.dtype} {array.shape}")
    if rows and array.size and (int(array.min()) < 0 or int(array.max()) >= 2**32):
        raise ValueError("positions lie in [0, 2^32)")
    return np.ascontiguousarray(np.broadcast_to(array.astype(np.uint32), (rows,)))


def philox4x32(counter: UInt32Array, key: UInt32Array) -> UInt32Array:
    """Philox4x32-10, ten rounds (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC'11).

    Args:
        counter: (..., 4) uint32. key: (..., 2) uint32; leading shapes broadcast.

    Returns: (..., 4) uint32.
    """
    c0, c1, c2, c3 = (counter[..., i].astype(np.uint64) for i in range(4))
    k0, k1 = (key[..., i].astype(np.uint64) for i in range(2))
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    m0, m1 = (np.uint64(m) for m in PHILOX_MULTIPLIERS)
    w0, w1 = (np.uint64(w) for w in PHILOX_WEYL)
    for _ in range(PHILOX_ROUNDS):
        p0, p1 = c0 * m0, c2 * m1
        c0, c1, c2, c3 = (p1 >> half) ^ c1 ^ k0, p1 & low, (p0 >> half) ^ c3 ^ k1, p0 & low
        k0, k1 = (k0 + w0) & low, (k1 + w1) & low
    return np.stack(np.broadcast_arrays(c0, c1, c2, c3), axis=-1).astype(np.uint32)


def gumbel_integers(
    keys: Sequence[bytes] | UInt32Array, positions: int | npt.ArrayLike, vocabulary: int
) -> UInt32Array:
    """The integers x of all tokens.

    Args:
        keys: one per row, from :func:`prompt_key` or :func:`key_words`.
        positions: index of the token within the completion, from 0; one for all rows or one per row.
        vocabulary: number of tokens, in [1, 2^32].

    Returns: (rows, vocabulary) uint32.
    """
    words = key_words(keys)
    rows = len(words)
    blocks = -(-vocabulary // 4)
    counter = np.empty((rows, blocks, 4), np.uint32)
    counter[..., 0] = np.arange(blocks, dtype=np.uint32)
    counter[..., 1] = position_words(positions, rows)[:, None]
    counter[..., 2:] = words[:, None, 2:]
    return philox4x32(counter, words[:, None, :2]).reshape(rows, 4 * blocks)[:, :vocabulary]


def gumbel(x: UInt32Array) -> npt.NDArray[np.float64]:
    """Standard Gumbel values of the integers: g = -ln(-ln((x + 1/2) / 2^32)), float64, finite, increasing in x."""
    # In float32 the largest u, 1 - 2^-33, would round to 1 and g to infinity; 24-bit uniforms would cut the tail at
    # 16.6.
    uniform = (x.astype(np.float64) + 0.5) * 2.0**-32
    result: npt.NDArray[np.float64] = -np.log(-np.log(uniform))
    return result


def check_sampling(rows: int, keys: int, temperature: float) -> None:
    """Raise ValueError unless there is one key per row of logits and the temperature is positive and finite."""
    if rows != keys:
        raise ValueError(f"expected one key per row of logits, got {keys} keys for {rows} rows")
    if not 0.0 < temperature < float("inf"):
        raise ValueError(f"the temperature must be positive and finite, got {temperature}")


def sample_tokens(
    logits: npt.NDArray[np.floating],
    keys: Sequence[bytes] | UInt32Array,
    positions: int | npt.ArrayLike,
    temperature: float = 1.0,
) -> npt.NDArray[np.int64]:
    """One token per row, an exact draw from softmax(logits / temperature) that (key, position) determine.

    Args:
        logits: (rows, vocabulary) floating; -inf masks a token (top-k and top-p are masks).
        keys: one per row, from :func:`prompt_key` or :func:`key_words`.
        positions: index of the token within the completion, from 0; one for all rows or one per row.
        temperature: T > 0.

    Returns: (rows,) int64.

    Raises:
        ValueError: shapes disagree, T is not positive, or a row has a NaN, a +inf, or no finite logit.
    """
    if logits.ndim != 2 or logits.shape[1] == 0:
        raise ValueError(f"expected logits of shape (rows, vocabulary), got {logits.shape}")
    words = key_words(keys)
    check_sampling(len(logits), len(words), temperature)
    scaled = logits.astype(np.float32).astype(np.float64) / temperature
    highest = scaled.max(axis=1) if len(scaled) else np.zeros(0)
    if not np.isfinite(highest).all():  # max is NaN if any is
        raise ValueError(
            f"row {int(np.argmin(np.isfinite(highest)))} of the logits has a NaN, a +inf, or no finite value"
        )
    # argmax takes the first of equal values
    tokens: npt.NDArray[np.int64] = np.argmax(
        scaled + gumbel(gumbel_integers(words, positions, logits.shape[1])), axis=1
    )
    return tokens
