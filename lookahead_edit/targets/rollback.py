"""Rolling a row's cache back to what was accepted, whatever kinds of layers it has.

Layers that can't be cropped (recurrent states of hybrid models) are copied before each block; after a rejection the
copy is put back and the accepted tokens are read again together with the next block, which costs no forward pass of its
own. Only ``Cache.layers`` and their ``crop``, ``is_croppable`` and ``activate_past_recording`` are used.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from transformers import Cache, DynamicCache, PreTrainedModel, StaticCache

from lookahead_edit.targets.static_cache import StaticRowCache
from lookahead_edit.types import UnsupportedModel


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
    if type(cache) not in (DynamicCache, StaticCache, StaticRowCache):
        name, kept = type(model).__name__, type(cache).__name__
        raise UnsupportedModel(f"expected {name} to keep a DynamicCache or StaticCache, got {kept}: no exact rollback")


@dataclass(slots=True)
class RowState:
    """What a live row has in its cache: `num_hidden_tokens` before the row's first token, then the row's own."""

    cache: Any
    num_hidden_tokens: int = 0
    num_cached_tokens: int = 0  # of the row's own
    num_tokens_at_copy: int = 0
    copied_layers: dict[int, Any] = field(default_factory=dict)  # index -> copy of a layer that can't be cropped

    @property
    def num_tokens(self) -> int:
        """All that the cache holds."""
        return self.num_hidden_tokens + self.num_cached_tokens

    def roll_back(self, num_tokens: int) -> None:
        """Leaves at most that many of the row's tokens: exactly so many, or all before the latest copy."""
        num_removed = max(0, self.num_cached_tokens - num_tokens)
        if num_removed and self.copied_layers:
            num_removed = self.num_cached_tokens - self.num_tokens_at_copy
        for index, layer in enumerate(self.cache.layers):
            if index in self.copied_layers:
                if num_removed:
                    self.cache.layers[index] = self.copied_layers[index]
            # A layer that records its past also drops what fell out of its window here, so crop(0) is no waste.
            elif num_removed or getattr(layer, "record_past", False):
                layer.crop(-num_removed)
        self.num_cached_tokens -= num_removed
        self.copied_layers = {}

    def prepare_for_rejections(self) -> None:
        """Before a block of which a part may be taken back."""
        self.copied_layers = {
            index: copy.deepcopy(self.cache.layers[index]) for index in uncroppable_layers(self.cache)
        }
        self.num_tokens_at_copy = self.num_cached_tokens
        for index, layer in enumerate(self.cache.layers):
            # Only where crop() follows: until then a recording layer keeps every token's state.
            if index not in self.copied_layers and hasattr(layer, "activate_past_recording"):
                layer.activate_past_recording()

    def stop_recording(self) -> None:
        """After the last roll-back: layers keep again what they need, and no more."""
        for layer in self.cache.layers:
            if getattr(layer, "record_past", False):
                layer.record_past = False


def uncroppable_layers(cache: Any) -> list[int]:
    """Indices of the layers that have to be copied before a block."""
    return [index for index, layer in enumerate(cache.layers) if not _can_crop(layer, cache)]


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
