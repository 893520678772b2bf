"""Keys and values of many sequences in place: one slot a sequence, one column a token.

`transformers` grows a cache by copying all of it at every token. Here each layer has one buffer of shape (slots, heads,
columns, width) that is allocated once. A token's column is its position in its sequence, whatever the slot held
before, so a sequence that ends makes room for another one while the rest goes on.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import Cache, PretrainedConfig

from progressive_rlvr.errors import UserError

ATTENTION = {"full_attention", "sliding_attention"}


class SlotCache(Cache):
    """A cache for `slots` sequences of up to `columns` tokens. What the next forward pass reads and writes is said
    before it, by `aim`.
    """

    def __init__(self, slots: int, columns: int) -> None:
        super().__init__(layers=[])
        self.slots, self.columns = slots, columns
        self._buffers: list[tuple[Tensor, Tensor]] = []

    def aim(self, slots: slice, columns: slice | Tensor, seen: int) -> None:
        """The next pass is about the sequences in `slots`: it writes to `columns` (the same slice for all of them, or
        one column each) and reads the first `seen` columns.
        """
        self._slots, self._columns, self._seen = slots, columns, seen

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store (sequences, heads, tokens, width) of one layer; returns what its attention reads."""
        if layer_idx == len(self._buffers):
            _, heads, _, width = key_states.shape
            # Zeros: what no sequence has written yet is masked, but must be finite.
            keys = key_states.new_zeros(self.slots, heads, self.columns, width)
            values = value_states.new_zeros(self.slots, heads, self.columns, value_states.shape[-1])
            self._buffers.append((keys, values))
        keys, values = self._buffers[layer_idx]
        for buffer, new in ((keys, key_states), (values, value_states)):
            if isinstance(self._columns, slice):
                buffer[self._slots, :, self._columns] = new
            else:
                rows = torch.arange(self._slots.start, self._slots.stop, device=new.device)
                buffer[rows, :, self._columns] = new[:, :, 0]
        return keys[self._slots, :, : self._seen], values[self._slots, :, : self._seen]

    def spread(self, columns: int) -> None:
        """Copy the first `columns` columns of slot 0 into every slot."""
        for buffers in self._buffers:
            for buffer in buffers:
                buffer[1:, :, :columns] = buffer[:1, :, :columns]

    def move(self, source: Tensor, target: Tensor, columns: int) -> None:
        """Copy the first `columns` columns of the slots `source` to the slots `target`."""
        for buffers in self._buffers:
            for buffer in buffers:
                buffer[target, :, :columns] = buffer[source, :, :columns]


def masks(config: PretrainedConfig, positions: Tensor, seen: int, dtype: torch.dtype) -> Tensor | dict[str, Tensor]:
    """What a token at a position may look at: itself and what came before, added to the scores as 0 or the lowest
    number.

    Args:
        positions: (sequences, tokens).

    Returns: (sequences, 1, tokens, seen), or one such mask for each kind of layer, as the model takes it.

    Raises:
        UserError: the model has layers that are no attention over a cache.
    """
    kinds = set(getattr(config, "layer_types", None) or ())
    if kinds - ATTENTION:
        raise UserError(f"the engine hf cannot run layers of the kind {', '.join(sorted(kinds - ATTENTION))}")
    distance = positions[:, None, :, None] - torch.arange(seen, device=positions.device)
    zeros = torch.zeros((), dtype=dtype, device=positions.device)
    full = torch.where(distance >= 0, zeros, torch.finfo(dtype).min)
    window = getattr(config, "sliding_window", None)
    if window is None or kinds == {"full_attention"}:
        return full
    sliding = torch.where(distance < window, full, torch.finfo(dtype).min)
    return {"full_attention": full, "sliding_attention": sliding} if kinds else sliding
