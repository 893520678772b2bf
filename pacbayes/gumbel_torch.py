"""The keyed noise for PyTorch tensors, on any device: the same integers and tokens as :mod:`pacbayes.gumbel`.

Logits on the CPU go to the compiled kernel, or without numba to the NumPy reference, which is faster than tensor
operations there; logits elsewhere are sampled by tensor operations on their device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module

import numpy as np
import numpy.typing as npt
import torch

from pacbayes import gumbel as gumbel_reference
from pacbayes.gumbel import (
    PHILOX_MULTIPLIERS,
    PHILOX_ROUNDS,
    PHILOX_WEYL,
    UInt32Array,
    check_sampling,
    key_words,
    position_words,
)

_LOW = 0xFFFFFFFF


def gumbel_integers(
    keys: Sequence[bytes] | UInt32Array,
    positions: int | Sequence[int] | torch.Tensor,
    vocabulary: int,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """The integers x of all tokens as (rows, vocabulary) int64 in [0, 2^32); arguments as in :mod:`pacbayes.gumbel`."""
    words = key_words(keys)
    rows, blocks = len(words), -(-vocabulary // 4)
    key = torch.from_numpy(words.astype(np.int64)).to(device)
    c0 = torch.arange(blocks, device=device).expand(rows, blocks)
    c1 = torch.from_numpy(position_words(_on_cpu(positions), rows).astype(np.int64)).to(device)[:, None]
    k0, k1, c2, c3 = (key[:, i, None] for i in range(4))
    m0, m1 = PHILOX_MULTIPLIERS
    for _ in range(PHILOX_ROUNDS):
        # Products reach 2^64 and wrap in int64; their low words are right all the same, and so are the high ones once
        # masked.
        p0, p1 = c0 * m0, c2 * m1
        c0, c1, c2, c3 = ((p1 >> 32) & _LOW) ^ c1 ^ k0, p1 & _LOW, ((p0 >> 32) & _LOW) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + PHILOX_WEYL[0]) & _LOW, (k1 + PHILOX_WEYL[1]) & _LOW
    return torch.stack((c0, c1, c2, c3), dim=-1).reshape(rows, 4 * blocks)[:, :vocabulary]


def gumbel(x: torch.Tensor) -> torch.Tensor:
    """Standard Gumbel values of the integers, float64 (devices without float64 cannot run the specification)."""
    return -torch.log(-torch.log((x.to(torch.float64) + 0.5) * 2.0**-32))


@torch.no_grad()
def sample_tokens(
    logits: torch.Tensor,
    keys: Sequence[bytes] | UInt32Array,
    positions: int | Sequence[int] | torch.Tensor,
    temperature: float = 1.0,
) -> torch.Tensor:
    """One token per row: (rows,) int64 on the logits' device;
    arguments and errors as in :func:`pacbayes.gumbel.sample_tokens`.
    """
    if logits.device.type == "cpu":
        array = logits.detach().to(torch.float32).numpy()
        return torch.from_numpy(_cpu_sampler()(array, keys, _on_cpu(positions), temperature))
    return _sample_with_tensors(logits, keys, positions, temperature)


@cache
def _cpu_sampler() -> Callable[..., npt.NDArray[np.int64]]:
    try:
        return import_module("pacbayes.gumbel_numba").sample_tokens  # type: ignore[no-any-return]
    except ImportError:  # not installed, or not for this version of NumPy
        return gumbel_reference.sample_tokens


def _sample_with_tensors(
    logits: torch.Tensor,
    keys: Sequence[bytes] | UInt32Array,
    positions: int | Sequence[int] | torch.Tensor,
    temperature: float,
) -> torch.Tensor:
    if logits.ndim != 2 or logits.shape[1] == 0:
        raise ValueError(f"expected logits of shape (rows, vocabulary), got {tuple(logits.shape)}")
    words = key_words(keys)
    check_sampling(len(logits), len(words), temperature)
    # A tensor as divisor: for a Python number CUDA multiplies by its rounded reciprocal.
    divisor = torch.full((), temperature, dtype=torch.float64, device=logits.device)
    scaled = logits.to(torch.float32).to(torch.float64) / divisor
    finite = torch.isfinite(scaled.amax(dim=1))
    if not bool(finite.all()):
        row = int(finite.to(torch.int8).argmin())
        raise ValueError(f"row {row} of the logits has a NaN, a +inf, or no finite value")
    return torch.argmax(scaled + gumbel(gumbel_integers(words, positions, logits.shape[1], logits.device)), dim=1)


def _on_cpu(positions: int | Sequence[int] | torch.Tensor) -> npt.ArrayLike:
    return positions.cpu().numpy() if isinstance(positions, torch.Tensor) else positions
