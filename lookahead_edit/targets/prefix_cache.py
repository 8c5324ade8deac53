"""Keys and values of rows that are finished, for new rows that begin with the same tokens. Bounded in bytes."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from lookahead_edit.targets.growing_cache import open_cache
from lookahead_edit.types import IntArray, num_agreeing


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    group: str
    tokens: IntArray  # int32[num_tokens]
    layers: dict[int, tuple[Tensor, Tensor]]  # index -> keys and values, float[1, num_heads, num_tokens, head_size]
    num_bytes: int


class PrefixCache:
    """Caches of finished rows, least recently used first to go.

    Nothing is ever found outside its group, so a group is as wide as texts may be known: whoever shares one can tell
    from the time an answer takes whether a beginning was seen before.

    What is put and found is copied, so an entry holds no more memory than its tokens need, serves any number of rows,
    and they share nothing. Copying is a move of memory, far cheaper than reading: 1,000 tokens of SmolLM2, 46 kB each,
    took 65 ms on a loaded CPU.

    Args:
        max_bytes: of keys and values together; what is larger by itself is not kept, and 0 keeps nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._entries: OrderedDict[int, _Entry] = OrderedDict()  # by number, least recently used first
        self._num_put = 0
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        """Memory held by the entries' keys and values."""
        return self._num_bytes

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, group: str, tokens: IntArray, model: PreTrainedModel) -> tuple[DynamicCache, int] | None:
        """The longest beginning of `tokens`, int32[num_tokens], that the group has: a cache of it, and its length."""
        lengths = {
            number: num_agreeing(tokens, entry.tokens)
            for number, entry in self._entries.items()
            if entry.group == group
        }
        number = max(lengths, key=lengths.__getitem__, default=None)
        if number is None or lengths[number] == 0:
            return None
        self._entries.move_to_end(number)
        cache = open_cache(model)
        for index, (keys, values) in self._entries[number].layers.items():
            cache.update(keys[..., : lengths[number], :], values[..., : lengths[number], :], index)
        return cache, lengths[number]

    def put(self, group: str, tokens: IntArray, cache: DynamicCache) -> None:
        """Keeps the first tokens of a row's cache, which are these, and may be followed by others.

        Entries of the group that it begins with are dropped, and those that went unused longest until it fits.
        """
        layers = {
            index: (layer.keys[..., : len(tokens), :], layer.values[..., : len(tokens), :])
            for index, layer in enumerate(cache.layers)
            if layer.is_initialized
        }
        num_bytes = sum(tensor.nbytes for kept in layers.values() for tensor in kept)
        if num_bytes > self.max_bytes or not len(tokens):
            return
        for number, entry in list(self._entries.items()):
            num_common_tokens = num_agreeing(tokens, entry.tokens) if entry.group == group else -1
            if num_common_tokens == len(tokens):
                self._entries.move_to_end(number)
                return
            if num_common_tokens == len(entry.tokens):
                self._drop(number)
        while self._num_bytes + num_bytes > self.max_bytes:
            self._drop(next(iter(self._entries)))
        self._num_put += 1
        copied = {index: (keys.clone(), values.clone()) for index, (keys, values) in layers.items()}
        self._entries[self._num_put] = _Entry(group, tokens, copied, num_bytes)
        self._num_bytes += num_bytes

    def clear(self) -> None:
        """Gives all the memory back."""
        self._entries.clear()
        self._num_bytes = 0

    def _drop(self, number: int) -> None:
        self._num_bytes -= self._entries.pop(number).num_bytes
