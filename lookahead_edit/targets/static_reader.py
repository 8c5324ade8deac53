"""Feeds blocks to a model, each over a row's own static cache; where passes are compiled, in few fixed widths.

A block is padded to the next width. Padding stands behind the tokens it pads, so no query that counts sees it; what it
writes to the cache is overwritten before it could be seen. How many slots are attended is rounded up, so that passes
have few shapes: on a GPU each shape is recorded once.

In deterministic mode the shape of every pass follows from the position alone: one width; prompts in chunks that begin
at multiples of the chunk length; and where a block would cross a rounded length it is read in two passes, so that a
position attends to the same number of slots whatever block it is in. Whether rows of a block are then computed alike
wherever they stand in it is up to the matrix kernels, and is tried out on the model before it is promised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from lookahead_edit.failures import is_out_of_memory
from lookahead_edit.targets.default_model import one_line
from lookahead_edit.targets.packing import reason_against_packing
from lookahead_edit.targets.reading import CACHE_KEYWORDS, Block, takes
from lookahead_edit.targets.static_cache import LayerShape, StaticRowCache, rounded_length
from lookahead_edit.targets.static_passes import PassRunner, PassShape, Recorder
from lookahead_edit.types import IntArray, UnsupportedModel

logger = logging.getLogger(__name__)

MIN_ATTENDED_STEP = 512  # the CPU's attention kernel takes keys in blocks of 512
MAX_IDLE_CACHES = 4  # of closed rows, with what was recorded over them
# A router sends the tokens of a block to experts together: what a token is multiplied with depends on the others.
EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Part:
    """Tokens `start` to `end` of a block, read in one pass."""

    start: int
    end: int
    width: int
    num_attended: int


class StaticReader:
    """Reads blocks, each in passes of its own.

    Args:
        model: a causal language model with full attention, in eval mode.
        widths: of compiled and recorded passes, rising; one only where `is_deterministic`. Eager ones need no padding.
        is_deterministic: the shapes of passes don't depend on what is drafted.
        compiles: whether passes are compiled.
        recorder: records passes where given.
        has_splits: attention as on a GPU.
        backend: of torch.compile.

    Raises:
        UnsupportedModel: sliding windows, recurrent states, an attention of its own; in deterministic mode experts too.
    """

    packs_rows = False

    def __init__(
        self,
        model: PreTrainedModel,
        widths: Sequence[int],
        *,
        is_deterministic: bool = False,
        compiles: bool = False,
        recorder: Recorder | None = None,
        has_splits: bool = False,
        backend: str = "inductor",
    ) -> None:
        self.model = model
        self.widths = tuple(widths)
        self.is_deterministic = is_deterministic
        self._has_splits = has_splits
        self._max_tokens = max_context_tokens(model)
        self._idle: list[StaticRowCache] = []
        reason = reason_against_static(model, is_deterministic=is_deterministic)
        if reason is not None:
            raise UnsupportedModel(f"{type(model).__name__} can't be read with a static cache: {reason}")
        self._layers = _layer_shapes(model)
        num_heads = int(model.config.get_text_config().num_attention_heads)
        shape = PassShape(
            cache_keyword=_cache_keyword(model),
            num_groups=num_heads // self._layers[0].num_key_heads,
            max_positions=self._max_tokens,
            takes_logits_to_keep=takes(model, "logits_to_keep"),
        )
        self._runner = PassRunner(model, shape, compiles=compiles, recorder=recorder, backend=backend)
        reason = self._reason_by_trial()
        if reason is not None:
            raise UnsupportedModel(f"{type(model).__name__} can't be read with a static cache: {reason}")

    @property
    def pads_blocks(self) -> bool:
        """Whether passes have fixed widths."""
        return self.is_deterministic or self.is_compiled or self.is_recorded

    @property
    def is_compiled(self) -> bool:
        """Whether passes are compiled; no longer where that has failed."""
        return self._runner.is_compiled

    @property
    def is_recorded(self) -> bool:
        """Whether passes are recorded; no longer where that has failed."""
        return self._runner.is_recorded

    @property
    def num_idle_bytes(self) -> int:
        """Memory of caches that wait for the next row."""
        return sum(cache.num_bytes for cache in self._idle)

    def open_cache(self, num_tokens: int) -> StaticRowCache:
        """An empty cache, with room for twice as many tokens; one that was used before, where passes are recorded."""
        if self._idle:
            cache = max(self._idle, key=lambda idle: idle.capacity)
            self._idle.remove(cache)
            cache.clear()
            return cache
        num_wanted = min(2 * num_tokens, self._max_tokens) + self.widths[-1] + MIN_ATTENDED_STEP
        model = self.model
        return self._with_memory(
            num_wanted,
            lambda: StaticRowCache(
                self._layers, num_wanted, dtype=model.dtype, device=model.device, has_splits=self._has_splits
            ),
        )

    def close_cache(self, cache: StaticRowCache) -> None:
        """Keeps the cache for the next row where that saves recording again."""
        if self.is_recorded and len(self._idle) < MAX_IDLE_CACHES:
            self._idle.append(cache)

    def read(self, blocks: Sequence[Block]) -> list[Tensor]:
        """float[num_logits, vocab_size] for each block, in order."""
        return [self._read(block) for block in blocks]

    def warm_up(self, num_tokens: int) -> None:
        """Compiles and records passes of every width, as after so many tokens; nothing where passes are eager."""
        if not (self.is_compiled or self.is_recorded):
            return
        cache = self.open_cache(num_tokens)
        tokens = np.ones(self.widths[-1], dtype=np.int32)
        with torch.no_grad():
            for width in self.widths:
                self._verify(cache, tokens[:width], min(num_tokens, self._max_tokens - 1))
        self.close_cache(cache)

    def _read(self, block: Block) -> Tensor:
        cache, start = cast(StaticRowCache, block.cache), block.num_cached_tokens
        num_read_tokens = len(block.tokens) - block.num_logits
        # The end of a prompt and the first draft are read in one pass.
        is_joined = num_read_tokens and not self.is_deterministic
        if is_joined or not self.pads_blocks or not block.num_logits:
            return self._read_eagerly(cache, block.tokens, start, block.num_logits)
        if num_read_tokens:
            self._read_eagerly(cache, block.tokens[:num_read_tokens], start, 0)
        return self._verify(cache, block.tokens[num_read_tokens:], start + num_read_tokens)

    def _read_eagerly(self, cache: StaticRowCache, tokens: IntArray, start: int, num_logits: int) -> Tensor:
        end = start + len(tokens)
        num_attended = rounded_length(end, MIN_ATTENDED_STEP) if self._has_splits else end
        self._grow(cache, num_attended)
        has_mask = self.is_deterministic or self._has_splits or start > 0
        try:
            return self._runner.read(cache, tokens, start, num_attended, num_logits, has_mask=has_mask)
        except RuntimeError as error:
            half = (len(tokens) - num_logits) // 2
            if not is_out_of_memory(error) or self.is_deterministic or not half:
                raise
            logger.warning("memory ran out, %d tokens are read in two passes: %s", len(tokens), one_line(error))
            self._idle.clear()
        self._read_eagerly(cache, tokens[:half], start, 0)
        return self._read_eagerly(cache, tokens[half:], start + half, num_logits)

    def _verify(self, cache: StaticRowCache, tokens: IntArray, start: int) -> Tensor:
        """float[num_tokens, vocab_size], of at least one token."""
        while True:
            try:
                logits = [self._pass(cache, tokens, start, part) for part in self._parts(start, len(tokens))]
            except RuntimeError as error:
                if not is_out_of_memory(error) or len(self.widths) == 1:
                    raise
                logger.warning(
                    "memory ran out, no pass is %d tokens wide any more: %s", self.widths[-1], one_line(error)
                )
                self.widths = self.widths[:-1]
                self._idle.clear()
            else:
                return torch.cat(logits) if len(logits) > 1 else logits[0]

    def _pass(self, cache: StaticRowCache, tokens: IntArray, start: int, part: _Part) -> Tensor:
        num_tokens = part.end - part.start
        padded = np.full(part.width, tokens[part.end - 1], dtype=np.int32)
        padded[:num_tokens] = tokens[part.start : part.end]
        # More than is attended, so that compiled passes need not tell one from the other.
        self._grow(cache, max(part.num_attended + MIN_ATTENDED_STEP, start + part.start + part.width))
        return self._runner.run(cache, padded, start + part.start, part.num_attended)[:num_tokens].clone()

    def _parts(self, start: int, num_tokens: int) -> Iterator[_Part]:
        first = 0
        while first < num_tokens:
            slot = start + first
            end = min(num_tokens, first + self.widths[-1])
            width = next(width for width in self.widths if width >= end - first)
            num_attended = rounded_length(slot + width, MIN_ATTENDED_STEP)
            if self.is_deterministic:
                num_attended = rounded_length(slot + 1, MIN_ATTENDED_STEP)
                end = min(end, num_attended - start)
            yield _Part(first, end, width, num_attended)
            first = end

    def _grow(self, cache: StaticRowCache, num_tokens: int) -> None:
        if num_tokens > cache.capacity:
            self._with_memory(num_tokens, lambda: cache.grow(num_tokens))

    def _with_memory(self, num_tokens: int, allocate: Callable[[], Result]) -> Result:
        """Gives idle caches up where there is no room for another one."""
        try:
            return allocate()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if not self._idle:
                # Not torch's error: a narrower pass would need the cache as well.
                raise MemoryError(f"no memory for a cache of {num_tokens} tokens: {one_line(error)}") from None
        logger.warning("memory ran out, caches that were kept for later rows are given up")
        self._idle.clear()
        return self._with_memory(num_tokens, allocate)

    # What a model must be like.

    def _reason_by_trial(self) -> str | None:
        """What is wrong with the logits of a short text; None where nothing is."""
        tokens = 1 + np.arange(24, dtype=np.int32) * 7 % (int(self.model.config.get_text_config().vocab_size) - 1)
        try:
            with torch.no_grad():
                expected, got = self._read_plainly(tokens), self._read_in_blocks(tokens, (4, 9, 4))
                others = self._read_in_blocks(tokens, (1, 3, 2, 8, 3)) if self.is_deterministic else got
        except UnsupportedModel:
            raise
        except Exception as error:  # whatever a model does not expect: it can't be read so
            return f"{type(error).__name__}: {error}"
        tolerance = torch.finfo(expected.dtype).eps ** 0.5 * expected.abs().max()
        if not bool((expected - got).abs().max() <= tolerance):
            return "its logits are other ones"
        return None if torch.equal(got, others) else "its logits depend on the other tokens of a block"

    def _read_plainly(self, tokens: IntArray) -> Tensor:
        """float[17, vocab_size] of the last tokens."""
        ids = torch.from_numpy(tokens.astype(np.int64)).to(self.model.device)[None]
        return cast(Tensor, self.model(input_ids=ids).logits[0, -17:])

    def _read_in_blocks(self, tokens: IntArray, lengths: Sequence[int]) -> Tensor:
        """The same after a prompt of 7 tokens, each block with a wrong token behind it, as after a rejection."""
        cache, start, logits = self.open_cache(len(tokens)), 7, []
        self.read([Block(tokens[:start], cache, 0, 0)])
        for length in lengths:
            block = np.append(tokens[start : start + length], tokens[start - 1])
            for index in range(0, len(block), self.widths[-1]):
                part = block[index : index + self.widths[-1]]
                logits.append(self.read([Block(part, cache, start + index, len(part))])[0][: length - index])
            start += length
        self.close_cache(cache)
        return torch.cat(logits)


def max_context_tokens(model: PreTrainedModel) -> int:
    """Positions of a model are below this."""
    return int(getattr(model.config.get_text_config(), "max_position_embeddings", None) or 2**31 - 1)


def reason_against_static(model: PreTrainedModel, *, is_deterministic: bool) -> str | None:
    """What about the model forbids a static cache, as far as its configuration and class tell; None: nothing."""
    if not takes(model, "position_ids") or not any(takes(model, keyword) for keyword in CACHE_KEYWORDS):
        return "forward() takes no position_ids or no cache of transformers"
    config: Any = model.config.get_text_config()
    if is_deterministic and any((getattr(config, name, None) or 0) > 1 for name in EXPERT_COUNTS):
        return "tokens of a block share its experts, so their logits depend on each other"
    return reason_against_packing(model)


def _cache_keyword(model: PreTrainedModel) -> str:
    return next(keyword for keyword in CACHE_KEYWORDS if takes(model, keyword))


def _layer_shapes(model: PreTrainedModel) -> list[LayerShape]:
    """As a dynamic cache finds them."""
    cache = DynamicCache(config=model.config)
    ids = torch.ones(1, 2, dtype=torch.int64, device=model.device)
    with torch.no_grad():
        model(input_ids=ids, use_cache=True, **{_cache_keyword(model): cache})
    return [LayerShape(layer.keys.shape[1], layer.keys.shape[-1], layer.values.shape[-1]) for layer in cache.layers]
