"""Feeds tokens to a model: the blocks of all rows in one packed pass where that is exact, else a pass for each row."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from lookahead_edit.targets.packing import PackedRow, can_pack_cache, packed_attention, reason_against_packing
from lookahead_edit.types import IntArray, UnsupportedModel

logger = logging.getLogger(__name__)

# The keyword in forward() is `cache` from transformers 5.24 on; before it depends on the model.
CACHE_KEYWORDS = ("cache", "past_key_values", "cache_params")
_packs: WeakKeyDictionary[PreTrainedModel, bool] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Block:
    """Tokens of one row to be read at once: they go on after the `num_cached_tokens` that its cache holds."""

    tokens: IntArray  # int32[num_tokens], at least one
    cache: Any
    num_cached_tokens: int
    num_logits: int  # wanted of the last ones; 0 where only the cache is to grow


def takes(model: PreTrainedModel, keyword: str) -> bool:
    """Whether forward() has a parameter of that name."""
    return keyword in inspect.signature(model.forward).parameters


class Reader(Protocol):
    """Feeds tokens to a model and leaves their keys and values in the rows' caches."""

    @property
    def packs_rows(self) -> bool:
        """Whether the blocks of several rows are read in one pass."""

    def read(self, blocks: Sequence[Block]) -> list[Tensor]:
        """float[num_logits, vocab_size] for each block, in order."""


class BlockReader:
    """Reads blocks with a transformers model and leaves their keys and values in the rows' caches.

    Args:
        model: a causal language model, in eval mode.
        max_pass_tokens: the most that is packed into one pass; a single block may be longer.

    Raises:
        UnsupportedModel: forward() takes no cache of transformers.
    """

    def __init__(self, model: PreTrainedModel, max_pass_tokens: int) -> None:
        parameters = inspect.signature(model.forward).parameters
        keywords = [keyword for keyword in CACHE_KEYWORDS if keyword in parameters]
        if not keywords:
            name = type(model).__name__
            raise UnsupportedModel(f"{name} takes no transformers cache in forward(), so nothing can be rolled back")
        self.model = model
        self._max_pass_tokens = max_pass_tokens
        self._cache_keyword = keywords[0]
        self._takes_positions = "position_ids" in parameters
        self._takes_logits_to_keep = "logits_to_keep" in parameters

    @property
    def packs_rows(self) -> bool:
        """Whether rows are read together; found out once for each model, with four short passes.

        Not for models with sliding windows, recurrent states, positions that depend on the longest row, or an attention
        of their own; nor for any whose logits, packed, are not those of the rows alone.
        """
        if self.model not in _packs:
            reason = self._reason_against_packing()
            if reason is not None:
                name = type(self.model).__name__
                logger.info("rows of a batch are verified one after the other with %s: %s", name, reason)
            _packs[self.model] = reason is None
        return _packs[self.model]

    @property
    def may_pack_rows(self) -> bool:
        """The same, as far as it can be told without a pass."""
        return _packs.get(self.model, self._known_reason_against_packing() is None)

    def read(self, blocks: Sequence[Block]) -> list[Tensor]:
        """float[num_logits, vocab_size] for each block, in order."""
        packable = [index for index, block in enumerate(blocks) if can_pack_cache(block.cache)]
        if len(packable) < 2 or not self.packs_rows:
            return [self._read_alone(block) for block in blocks]
        logits: dict[int, Tensor] = {}
        for indices in self._packs_of(blocks, packable):
            logits.update(zip(indices, self._read_packed([blocks[index] for index in indices]), strict=True))
        return [logits[index] if index in logits else self._read_alone(block) for index, block in enumerate(blocks)]

    def _packs_of(self, blocks: Sequence[Block], indices: Sequence[int]) -> Iterator[list[int]]:
        pack: list[int] = []
        num_tokens = 0
        for index in indices:
            if pack and num_tokens + len(blocks[index].tokens) > self._max_pass_tokens:
                yield pack
                pack, num_tokens = [], 0
            pack.append(index)
            num_tokens += len(blocks[index].tokens)
        yield pack

    def _read_alone(self, block: Block) -> Tensor:
        first, num_tokens = block.num_cached_tokens, len(block.tokens)
        inputs = {self._cache_keyword: block.cache, "use_cache": True}
        if self._takes_logits_to_keep:
            inputs["logits_to_keep"] = max(1, block.num_logits)
        logits = self._forward(block.tokens, np.arange(first, first + num_tokens), **inputs)
        return logits[logits.shape[0] - block.num_logits :]

    def _read_packed(self, blocks: Sequence[Block]) -> list[Tensor]:
        ends = np.cumsum([len(block.tokens) for block in blocks])
        rows = [
            PackedRow(int(end) - len(block.tokens), int(end), block.cache, block.num_cached_tokens)
            for block, end in zip(blocks, ends, strict=True)
        ]
        positions = np.concatenate([np.arange(len(block.tokens)) + block.num_cached_tokens for block in blocks])
        wanted = np.concatenate(
            [np.arange(row.end - block.num_logits, row.end) for block, row in zip(blocks, rows, strict=True)]
        )
        inputs: dict[str, Any] = {"use_cache": False}
        if self._takes_logits_to_keep:
            inputs["logits_to_keep"] = torch.from_numpy(wanted).to(self.model.device)
        with packed_attention(self.model, rows):
            logits = self._forward(np.concatenate([block.tokens for block in blocks]), positions, **inputs)
        if not self._takes_logits_to_keep:
            logits = logits[torch.from_numpy(wanted).to(logits.device)]
        return list(torch.split(logits, [block.num_logits for block in blocks]))

    def _forward(self, tokens: IntArray, positions: np.ndarray[Any, np.dtype[np.int64]], **inputs: Any) -> Tensor:
        """float[num_logits, vocab_size]."""
        device = self.model.device
        inputs["input_ids"] = torch.from_numpy(tokens.astype(np.int64)).to(device)[None]
        if self._takes_positions:
            inputs["position_ids"] = torch.from_numpy(positions).to(device)[None]
        return cast(Tensor, self.model(**inputs).logits[0])

    def _reason_against_packing(self) -> str | None:
        reason = self._known_reason_against_packing()
        if reason is not None:
            return reason
        try:
            alone, packed = self._probe(is_packed=False), self._probe(is_packed=True)
        except Exception as error:  # whatever a model does not expect: it is read as it always was
            return f"{type(error).__name__}: {error}"
        tolerance = torch.finfo(alone.dtype).eps ** 0.5 * alone.abs().max()
        return None if bool((alone - packed).abs().max() <= tolerance) else "packed, its logits are other ones"

    def _known_reason_against_packing(self) -> str | None:
        if not self._takes_positions:
            return "forward() takes no position_ids"
        return reason_against_packing(self.model)

    def _probe(self, *, is_packed: bool) -> Tensor:
        """float[9, vocab_size]: two rows, read in two blocks each."""
        vocab_size = int(self.model.config.get_text_config().vocab_size)
        tokens = 1 + np.arange(24, dtype=np.int32) * 7 % (vocab_size - 1)
        caches = [DynamicCache(config=self.model.config) for _ in range(2)]
        logits: list[Tensor] = []
        for (start, end), (other_start, other_end) in (((0, 7), (12, 15)), ((7, 11), (15, 16))):
            blocks = [
                Block(tokens[start:end], caches[0], start, min(4, end - start)),
                Block(tokens[other_start:other_end], caches[1], other_start - 12, 1),
            ]
            logits += self._read_packed(blocks) if is_packed else [self._read_alone(block) for block in blocks]
        if {layer.get_seq_length() for cache in caches for layer in cache.layers} != {4, 11}:
            raise NotImplementedError("expected every layer to attend by the registered function")
        return torch.cat(logits)
