"""Any causal language model of transformers as a target: dynamic or caller's cache, rolled back after each round.

Only public surface is used: ``forward(input_ids, position_ids, cache, use_cache, logits_to_keep)``, ``Cache.layers``,
and their ``crop``, ``is_croppable`` and ``activate_past_recording``. Layers that can't be cropped (recurrent states of
hybrid models) are copied before each block; after a rejection the copy is put back and the accepted tokens are read
again together with the next block, which costs no forward pass of its own.
"""

from __future__ import annotations

import copy
import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from transformers import Cache, DynamicCache, PreTrainedModel, StaticCache

from lookahead_edit.config import TargetConfig
from lookahead_edit.cost import CPU_CURVE, CostCurve
from lookahead_edit.types import IntArray, Row, UnsupportedModel, Verified
from lookahead_edit.verify import GreedySampler, Sampler, make_sampler

# The keyword in forward() is `cache` from transformers 5.24 on; before it depends on the model.
CACHE_KEYWORDS = ("cache", "past_key_values", "cache_params")
_reads_blocks: WeakKeyDictionary[PreTrainedModel, bool] = (
    WeakKeyDictionary()
)  # models with layers that can't be cropped


@dataclass(slots=True)
class _RowState:
    """What is kept for a live row. `num_hidden_tokens` stand in the cache before the row's first token."""

    cache: Any
    sampler: Sampler
    num_hidden_tokens: int
    num_cached_tokens: int  # of the row's own tokens
    num_tokens_at_copy: int = 0
    copied_layers: dict[int, Any] = field(default_factory=dict)  # index -> copy of a layer that can't be cropped


@dataclass(frozen=True, slots=True)
class RowCache:
    """A cache to begin with: the first `num_cached_tokens` of the row are in it, after `num_hidden_tokens` others."""

    cache: Any
    num_cached_tokens: int = 0
    num_hidden_tokens: int = 0


def require_decoder(model: PreTrainedModel) -> None:
    """Raises UnsupportedModel, with the model's name, for an encoder-decoder."""
    if getattr(model.config, "is_encoder_decoder", False):
        raise UnsupportedModel(f"expected a decoder-only model, got {type(model).__name__}, an encoder-decoder")


def require_rollback(model: PreTrainedModel, cache: object) -> None:
    """Raises UnsupportedModel for a cache that keeps more than its layers can give back, or less than it was given.

    A quantised cache rounds what it keeps by blocks, so that the text would depend on the drafts.
    """
    if type(cache) not in (DynamicCache, StaticCache):
        name, kept = type(model).__name__, type(cache).__name__
        raise UnsupportedModel(f"expected {name} to keep a DynamicCache or StaticCache, got {kept}: no exact rollback")


class HfTarget:
    """Verifies drafts with a transformers model.

    Args:
        model: a causal language model, in eval mode.
        config: how prompts are read.
        open_cache: the cache of a new row; by default an empty dynamic one.
        open_sampler: the sampler of a new row; by default what its SamplingConfig says.
        cost_curve: what a pass costs, where it was measured; by default that of a CPU on CPUs, elsewhere unknown.

    Raises:
        UnsupportedModel: encoder-decoder models, and those without a cache of transformers in forward(); in verify(),
            models that read a block otherwise than token by token.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        config: TargetConfig | None = None,
        *,
        open_cache: Callable[[Row], RowCache] | None = None,
        open_sampler: Callable[[Row], Sampler] | None = None,
        cost_curve: CostCurve | None = None,
    ) -> None:
        require_decoder(model)
        name = type(model).__name__
        parameters = inspect.signature(model.forward).parameters
        cache_keywords = [keyword for keyword in CACHE_KEYWORDS if keyword in parameters]
        if not cache_keywords:
            raise UnsupportedModel(f"{name} takes no transformers cache in forward(), so nothing can be rolled back")
        self.model = model
        self.cost_curve = cost_curve or (CPU_CURVE if model.device.type == "cpu" else None)
        self._config = config or TargetConfig()
        self._cache_keyword = cache_keywords[0]
        self._takes_positions = "position_ids" in parameters
        self._takes_logits_to_keep = "logits_to_keep" in parameters
        self._open_cache = open_cache or (lambda row: RowCache(DynamicCache(config=model.config)))
        self._open_sampler = open_sampler or (lambda row: make_sampler(row.sampling, row.num_prompt_tokens))
        self._states: dict[int, _RowState] = {}

    @property
    def max_context_tokens(self) -> int:
        return int(getattr(self.model.config.get_text_config(), "max_position_embeddings", None) or 2**31 - 1)

    @property
    def vocab_size(self) -> int:
        return int(self.model.config.get_text_config().vocab_size)

    @torch.no_grad()
    def verify(self, rows: Sequence[Row]) -> Verified:
        emitted: list[IntArray] = []
        forward_seconds = prefill_seconds = 0.0
        for row in rows:
            state = self._states.get(row.key) or self._open(row)
            started = time.perf_counter()
            self._roll_back(state, row)
            if not self._prefill(state, row):
                emitted.append(np.zeros(0, dtype=np.int32))
                continue
            prefilled = time.perf_counter()
            num_prompt_tokens = max(0, row.num_prompt_tokens - 1 - state.num_cached_tokens)
            block = np.concatenate([row.tokens[state.num_cached_tokens :], row.draft.tokens])
            logits = self._read(state, block, num_logits=len(row.draft) + 1)
            self._synchronize()
            finished = time.perf_counter()
            # A block that also reads the end of the prompt is prefill for that part of its tokens.
            decode_seconds = (finished - prefilled) * (1.0 - num_prompt_tokens / len(block))
            prefill_seconds += finished - started - decode_seconds
            forward_seconds += decode_seconds
            emitted.append(state.sampler.choose(logits, row))
        return Verified(tokens=emitted, forward_seconds=forward_seconds, prefill_seconds=prefill_seconds)

    def close(self, key: int) -> None:
        self._states.pop(key, None)

    def settle(self, row: Row) -> int:
        """Rolls the row's cache back to all tokens but the last, as `generate` leaves it; how many it holds then."""
        state = self._states[row.key]
        self._roll_back(state, row)
        for layer in state.cache.layers:
            if getattr(layer, "record_past", False):
                layer.record_past = False
        missing = row.tokens[state.num_cached_tokens : len(row.tokens) - 1]
        if len(missing):
            self._read(state, missing, num_logits=1)
        return state.num_hidden_tokens + state.num_cached_tokens

    def _open(self, row: Row) -> _RowState:
        opened = self._open_cache(row)
        require_rollback(self.model, opened.cache)
        state = _RowState(opened.cache, self._open_sampler(row), opened.num_hidden_tokens, opened.num_cached_tokens)
        if self._uncroppable(state):
            self._require_block_reading()
        self._states[row.key] = state
        return state

    def _require_block_reading(self) -> None:
        """Raises UnsupportedModel where tokens read together, after others, differ from tokens read one by one.

        The slow path of some recurrent models (Mamba, Jamba) forgets the state before a block of several tokens.
        """
        if self.model not in _reads_blocks:
            tokens = 1 + np.arange(9, dtype=np.int32) % (self.vocab_size - 1)
            together = self._probe(np.split(tokens, [6]))
            singly = self._probe(np.split(tokens, [6, 7, 8]))
            tolerance = torch.finfo(singly.dtype).eps ** 0.5 * singly.abs().max()
            _reads_blocks[self.model] = bool((together - singly).abs().max() <= tolerance)
        if not _reads_blocks[self.model]:
            name = type(self.model).__name__
            raise UnsupportedModel(
                f"{name} forgets its state where it reads several tokens at once, as drafts have to be"
            )

    def _probe(self, blocks: Sequence[IntArray]) -> Tensor:
        """float[3, vocab_size]: the last logits, where the tokens are read in these blocks."""
        state = _RowState(DynamicCache(config=self.model.config), GreedySampler(), 0, 0)
        return torch.cat([self._read(state, block, num_logits=len(block)) for block in blocks])[-3:]

    def _roll_back(self, state: _RowState, row: Row) -> None:
        """Leaves in the cache at most all of the row's tokens but the last."""
        num_removed = max(0, state.num_cached_tokens - (len(row.tokens) - 1))
        if num_removed and state.copied_layers:
            num_removed = state.num_cached_tokens - state.num_tokens_at_copy
        for index, layer in enumerate(state.cache.layers):
            if index in state.copied_layers:
                if num_removed:
                    state.cache.layers[index] = state.copied_layers[index]
            # A layer that records its past also drops what fell out of its window here, so crop(0) is no waste.
            elif num_removed or getattr(layer, "record_past", False):
                layer.crop(-num_removed)
        state.num_cached_tokens -= num_removed
        state.copied_layers = {}

    def _prefill(self, state: _RowState, row: Row) -> bool:
        """Reads what must be read before the row's block; False if cancelled meanwhile."""
        chunk = self._config.prefill_chunk_tokens
        while not row.is_cancelled():
            num_unread = len(row.tokens) - 1 - state.num_cached_tokens
            num_allowed = self._config.max_replayed_tokens if self._uncroppable(state) else chunk
            if num_unread <= (num_allowed if state.num_cached_tokens or not self._uncroppable(state) else 0):
                self._prepare_for_rejections(state)
                return True
            start = state.num_cached_tokens
            self._read(state, row.tokens[start : start + min(chunk, num_unread)], num_logits=1)
        return False

    def _uncroppable(self, state: _RowState) -> list[int]:
        return [index for index, layer in enumerate(state.cache.layers) if not _can_crop(layer, state.cache)]

    def _prepare_for_rejections(self, state: _RowState) -> None:
        uncroppable = self._uncroppable(state)
        state.copied_layers = {index: copy.deepcopy(state.cache.layers[index]) for index in uncroppable}
        state.num_tokens_at_copy = state.num_cached_tokens
        for index, layer in enumerate(state.cache.layers):
            # Only where crop() follows: until then a recording layer keeps every token's state.
            if index not in state.copied_layers and hasattr(layer, "activate_past_recording"):
                layer.activate_past_recording()

    def _read(self, state: _RowState, tokens: IntArray, *, num_logits: int) -> Tensor:
        """Feeds tokens to the model; float[num_logits, vocab_size] of the last ones."""
        device = self.model.device
        first = state.num_hidden_tokens + state.num_cached_tokens
        inputs: dict[str, Any] = {
            "input_ids": torch.from_numpy(tokens.astype(np.int64)).to(device)[None],
            self._cache_keyword: state.cache,
            "use_cache": True,
        }
        if self._takes_positions:
            inputs["position_ids"] = torch.arange(first, first + len(tokens), device=device)[None]
        if self._takes_logits_to_keep:
            inputs["logits_to_keep"] = num_logits
        logits = self.model(**inputs).logits
        state.num_cached_tokens += len(tokens)
        return cast(Tensor, logits[0, -num_logits:])

    def _synchronize(self) -> None:
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)


def _can_crop(layer: Any, cache: Cache) -> bool:
    """Whether crop() leaves the layer as it was before the removed tokens."""
    if isinstance(cache, StaticCache) and hasattr(layer, "record_past"):
        # A static cache that records its past gets no mask for a single token, which then sees the empty slots.
        return False
    # A layer that stores in a way of its own (DeepSeek-V4's) but inherits crop() claims more than it can do.
    return getattr(layer, "is_croppable", False) and _depth(layer, "crop") <= _depth(layer, "update")


def _depth(layer: Any, method: str) -> int:
    """How many classes up the layer's method is defined; past them all where it has none."""
    classes = type(layer).__mro__
    return next((depth for depth, owner in enumerate(classes) if method in vars(owner)), len(classes))
