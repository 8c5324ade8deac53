"""Keys and values of one row in buffers that stay where they are, whatever is written, rolled back or written again.

A row's length is counted outside (`rollback.RowState`): slots beyond it hold what was rejected, or padding, until they
are written again, and the mask keeps every query from them. Buffers begin as zeros and are never left uninitialised,
for a masked key has weight 0, and 0 times a NaN would still be one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

# With values in splits, so many tokens are one split: their products are summed by themselves, side by side on a GPU.
SPLIT_TOKENS = 256
MIN_CAPACITY_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What a layer keeps of a token."""

    num_key_heads: int
    key_size: int
    value_size: int

    @property
    def num_numbers(self) -> int:
        return self.num_key_heads * (self.key_size + self.value_size)


class StaticRowCache(Cache):  # type: ignore[misc]
    """What `model.forward` writes to and attends to: `slots` of the pass in hand, and the first `num_attended` ones.

    Args:
        shapes: of the layers.
        num_tokens: room for that many, rounded up.
        dtype: of keys and values.
        device: where they lie.
        has_splits: values are kept as float[num_splits, num_key_heads, 256, value_size], as attention on a GPU wants
            them, else like keys: float[1, num_key_heads, capacity, size].
    """

    def __init__(
        self,
        shapes: Sequence[LayerShape],
        num_tokens: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
        has_splits: bool = False,
    ) -> None:
        super().__init__(layers=[])
        self._shapes = tuple(shapes)
        self._options: dict[str, Any] = {"dtype": dtype, "device": device}
        self.has_splits = has_splits
        self.recordings: dict[tuple[int, int], Any] = {}  # of passes over these very buffers, by width and attended
        self.slots = torch.zeros(0, dtype=torch.int64, device=device)
        self.attended = self.slots
        self.keys, self.values = self._new_buffers(rounded_capacity(num_tokens))

    @property
    def capacity(self) -> int:
        """Tokens there is room for."""
        return self.keys[0].shape[2]

    @property
    def num_bytes(self) -> int:
        """Memory held, in bytes."""
        return sum(buffer.nbytes for buffer in (*self.keys, *self.values))

    def grow(self, num_tokens: int) -> None:
        """Makes room for that many tokens where there is less: half as much again at least, and everything copied."""
        if num_tokens <= self.capacity:
            return
        keys, values = self._new_buffers(rounded_capacity(max(num_tokens, self.capacity * 3 // 2)))
        for index, (old_keys, old_values) in enumerate(zip(self.keys, self.values, strict=True)):
            keys[index][:, :, : self.capacity] = old_keys
            if self.has_splits:
                values[index][: len(old_values)] = old_values
            else:
                values[index][:, :, : self.capacity] = old_values
        self.recordings.clear()
        self.keys, self.values = keys, values

    def clear(self) -> None:
        """Forgets all tokens; the buffers, and what was recorded over them, stay."""
        for buffer in (*self.keys, *self.values):
            buffer.zero_()

    def begin(self, slots: Tensor, attended: Tensor) -> None:
        """Before a pass: int64[width] where its tokens are written, int64[num_attended] the slots that are read."""
        self.slots, self.attended = slots, attended

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Writes float[1, num_key_heads, width, size] to the slots; all attended keys and values."""
        keys, values = self.keys[layer_idx], self.values[layer_idx]
        num_attended = self.attended.shape[0]
        keys.index_copy_(2, self.slots, key_states)
        if not self.has_splits:
            values.index_copy_(2, self.slots, value_states)
            return keys[:, :, :num_attended], values[:, :, :num_attended]
        values[self.slots // SPLIT_TOKENS, :, self.slots % SPLIT_TOKENS] = value_states[0].transpose(0, 1)
        return keys[:, :, :num_attended], values[: num_attended // SPLIT_TOKENS]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """0: the length is nobody's business here; positions and masks are always given."""
        return 0

    def beginning(self, layer_index: int, num_tokens: int) -> tuple[Tensor, Tensor]:
        """The first tokens' keys and values, float[1, num_key_heads, num_tokens, size] each."""
        keys, values = self.keys[layer_index], self.values[layer_index]
        if self.has_splits:
            values = values.transpose(0, 1).flatten(1, 2)[None]
        return keys[:, :, :num_tokens], values[:, :, :num_tokens]

    def _new_buffers(self, capacity: int) -> tuple[list[Tensor], list[Tensor]]:
        keys = [
            torch.zeros(1, shape.num_key_heads, capacity, shape.key_size, **self._options) for shape in self._shapes
        ]
        lengths = (capacity // SPLIT_TOKENS, SPLIT_TOKENS) if self.has_splits else (1, capacity)
        values = [
            torch.zeros(lengths[0], shape.num_key_heads, lengths[1], shape.value_size, **self._options)
            for shape in self._shapes
        ]
        return keys, values


def rounded_capacity(num_tokens: int) -> int:
    """Rounded up to an eighth of a power of two, and to whole splits; at least 1024.

    Example:
        >>> rounded_capacity(700), rounded_capacity(2049), rounded_capacity(9000)
        (1024, 2304, 9216)
    """
    return max(MIN_CAPACITY_TOKENS, rounded_length(num_tokens, SPLIT_TOKENS))


def rounded_length(num_tokens: int, min_step: int) -> int:
    """Up to the next multiple of an eighth of the power of two below it, and of `min_step`, a power of two."""
    step = max(min_step, 1 << max(0, (num_tokens - 1).bit_length() - 4))
    return -(-num_tokens // step) * step
