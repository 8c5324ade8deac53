"""Blocks of several rows in one forward pass: packed one behind the other as a single long row, without any padding.

Everything in a decoder but attention treats each token by itself, so the tokens of all rows go through it together.
Attention alone is done row by row, each against the row's own cache: there is no padding, no mask over holes, nothing
to merge when a row joins or to compact when one leaves, and each row attends with the very shapes it has alone. What
a pass costs depends on the tokens in it, not on the widest row.

transformers has the seam for it: a registered attention function (`AttentionInterface`), which the model is switched
to for the pass. It is called with the queries, keys and values of the whole pack, takes each row's share, appends that
row's keys and values to its cache and attends. Outside such a pass it is transformers' own "sdpa".
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from lookahead_edit.targets.growing_cache import GrowingLayer

ATTENTION = "lookahead_edit_packed"
PLAIN_ATTENTION = "sdpa"
# These choose frequencies by the largest position in the pass, so that one row would change another's text.
DYNAMIC_ROTATIONS = ("dynamic", "longrope")
# Keywords of attention functions that change no score here; others must be off.
HARMLESS_KEYWORDS = {"position_ids", "cache_position", "use_cache"}
_attention_functions = AttentionInterface()
_mask_functions = AttentionMaskInterface()


class _Pass(threading.local):
    """The packed pass that this thread is in."""

    rows: Sequence[PackedRow] | None = None


_current = _Pass()


@dataclass(slots=True)
class PackedRow:
    """Tokens `start` to `end` of the pack are one row's, and go on after what `cache` holds."""

    start: int
    end: int
    cache: Cache
    num_cached_tokens: int
    # By device and heads a group, made where first needed: float[1, 1, num_groups * width, num_keys].
    masks: dict[tuple[torch.device, int], Tensor] = field(default_factory=dict)

    @property
    def width(self) -> int:
        return self.end - self.start


def can_pack_cache(cache: Any) -> bool:
    """Whether the row may be packed: a dynamic cache of full attention only, of layers whose ways are known."""
    return type(cache) is DynamicCache and all(type(layer) in (DynamicLayer, GrowingLayer) for layer in cache.layers)


def reason_against_packing(model: PreTrainedModel) -> str | None:
    """What about the model forbids packing, as far as its configuration and class tell; None where nothing does."""
    config = model.config.get_text_config()
    if getattr(config, "_attn_implementation", None) != PLAIN_ATTENTION:
        return f"its attention is {getattr(config, '_attn_implementation', None)!r}, not {PLAIN_ATTENTION!r}"
    for rotation in _rotations(getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)):
        if rotation in DYNAMIC_ROTATIONS:
            return f"its positions are rotated by the longest row ({rotation})"
    if not can_pack_cache(DynamicCache(config=model.config)):
        return "its cache is not one of full attention alone"
    return None


@contextmanager
def attending_by(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Within, passes of `model` attend by the function that is registered under the name.

    Raises NotImplementedError for a model that takes none.
    """
    implementation = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        if model.config.get_text_config()._attn_implementation != name:
            raise NotImplementedError(f"expected {type(model).__name__} to take another attention function")
        yield
    finally:
        model.set_attn_implementation(implementation)


@contextmanager
def packed_attention(model: PreTrainedModel, rows: Sequence[PackedRow]) -> Iterator[None]:
    """Within, a forward pass of `model` in this thread without a cache reads the rows, and adds to their caches."""
    with attending_by(model, ATTENTION):
        _current.rows = rows
        try:
            yield
        finally:
            _current.rows = None


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """float[1, num_heads, num_tokens, head_size] and key-value heads alike -> float[1, num_tokens, num_heads, size]."""
    rows = _current.rows
    if rows is None:
        plain = _attention_functions[PLAIN_ATTENTION]
        output: tuple[Tensor, None] = plain(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
        return output
    _require_plain(attention_mask, kwargs)
    _, num_heads, num_tokens, _ = query.shape
    attended = value.new_empty(1, num_tokens, num_heads, value.shape[-1])
    for row in rows:
        block = slice(row.start, row.end)
        keys, values = row.cache.update(key[:, :, block], value[:, :, block], module.layer_idx)
        attended[:, block] = _attend_row(row, query[:, :, block], keys, values, scaling).transpose(1, 2)
    return attended, None


def _require_plain(attention_mask: Tensor | None, keywords: dict[str, Any]) -> None:
    """Raises NotImplementedError for scores that are more than scaled products under a causal mask."""
    is_plain = attention_mask is None and keywords.pop("is_causal", None) in (None, True)
    changes = score_changes(keywords)
    if not is_plain or changes:
        raise NotImplementedError(f"expected causal attention without more in a packed pass, got {changes or 'a mask'}")


def score_changes(keywords: Mapping[str, Any]) -> list[str]:
    """Keywords of an attention function by which scores would be more than scaled products under a mask."""
    return [name for name in sorted(set(keywords) - HARMLESS_KEYWORDS) if not _is_off(keywords[name])]


def _is_off(value: Any) -> bool:
    return value is None or (isinstance(value, bool | float) and not value)


def _attend_row(row: PackedRow, query: Tensor, keys: Tensor, values: Tensor, scaling: float | None) -> Tensor:
    """float[1, num_heads, width, head_size]; heads that share keys and values are attended to as one wider block.

    That spares repeating keys and values for each of them: half to a sixth of the time with 3 heads a group.
    """
    if row.num_cached_tokens == 0:
        return scaled_dot_product_attention(query, keys, values, is_causal=True, scale=scaling, enable_gqa=True)
    num_heads, num_key_heads = query.shape[1], keys.shape[1]
    num_groups = num_heads // num_key_heads
    grouped = query.reshape(1, num_key_heads, num_groups * row.width, -1)
    mask = _causal_mask(row, num_groups, query) if row.width > 1 else None
    attended = scaled_dot_product_attention(grouped, keys, values, attn_mask=mask, scale=scaling)
    return attended.reshape(1, num_heads, row.width, -1)


def _causal_mask(row: PackedRow, num_groups: int, query: Tensor) -> Tensor:
    key = (query.device, num_groups)
    if key not in row.masks:
        num_keys = row.num_cached_tokens + row.width
        mask = query.new_full((row.width, num_keys), -torch.inf).triu(diagonal=row.num_cached_tokens + 1)
        row.masks[key] = mask.repeat(num_groups, 1)[None, None]
    return row.masks[key]


def _make_mask(*args: Any, **kwargs: Any) -> Tensor | None:
    return None if _current.rows is not None else _mask_functions[PLAIN_ATTENTION](*args, **kwargs)


def _rotations(parameters: Any) -> Iterator[str]:
    """Every rope_type in the configuration, also where layers have their own."""
    if isinstance(parameters, dict):
        yield str(parameters.get("rope_type", parameters.get("type", "default")))
        for nested in parameters.values():
            yield from _rotations(nested)


AttentionInterface.register(ATTENTION, _attend)
AttentionMaskInterface.register(ATTENTION, _make_mask)
