"""Attention for passes of a fixed width over buffers of a fixed length, of which a mask says what counts.

Heads that share keys and values are attended to as one wider block, so that keys and values are read once. On a GPU a
narrow block over a long context would keep a few of its processors busy: there, values are summed split by split, all
splits at once, and then the splits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface

from lookahead_edit.targets.packing import score_changes

ATTENTION = "lookahead_edit_static"
# Wider blocks (prompts) are attended to head by head: scores of all heads at once would take too much memory.
MAX_GROUPED_QUERIES = 2048


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """float[1, num_heads, width, key_size] and the cache's keys and values -> float[1, width, num_heads, value_size].

    `attention_mask` is added to the scores: float[1, 1, num_queries, num_attended], where a row is a query of a group
    of heads (all of the first head, then of the second ...) or, for wide blocks, of every head. None where a text is
    read from its first token on and attends to itself alone.
    """
    changes = score_changes(kwargs)
    _, num_heads, width, _ = query.shape
    is_whole_text = attention_mask is None and width == key.shape[2] and value.shape[0] == 1
    if changes or (attention_mask is None and not is_whole_text) or is_causal is False:
        raise NotImplementedError(f"expected attention under the given mask alone, got {changes or 'no causal mask'}")
    num_key_heads = key.shape[1]
    if attention_mask is None:
        attended = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=True)
        return attended.transpose(1, 2), None
    num_groups = num_heads // num_key_heads
    if not is_grouped(num_groups * width):
        values = value.transpose(0, 1).flatten(1, 2)[None]
        keys, values = (states.repeat_interleave(num_groups, dim=1) for states in (key, values))
        attended = scaled_dot_product_attention(query, keys, values, attn_mask=attention_mask, scale=scaling)
        return attended.transpose(1, 2), None
    if attention_mask.shape[2] != num_groups * width:  # a layer with other groups than the rest
        attention_mask = attention_mask[:, :, :width].repeat(1, 1, num_groups, 1)
    grouped = query.reshape(1, num_key_heads, num_groups * width, -1)
    if value.shape[0] == 1:
        attended = scaled_dot_product_attention(grouped, key, value, attn_mask=attention_mask, scale=scaling)
    else:
        factor = query.shape[-1] ** -0.5 if scaling is None else scaling
        attended = attend_in_splits(grouped[0], key[0], value, attention_mask[0], factor)[None]
    return attended.reshape(1, num_heads, width, -1).transpose(1, 2), None


def attend_in_splits(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float) -> Tensor:
    """float[num_key_heads, num_queries, key_size] -> float[num_key_heads, num_queries, value_size].

    Weights are float32, and so are the sums over splits; products are those of the dtype.

    Args:
        query: grouped.
        key: float[num_key_heads, num_attended, key_size].
        value: float[num_splits, num_key_heads, split_size, value_size], contiguous.
        mask: float[1, num_queries, num_attended].
        scaling: of the scores.
    """
    num_splits, num_key_heads, split_size, value_size = value.shape
    num_queries = query.shape[1]
    scores = torch.bmm(query, key.transpose(1, 2)).float() * scaling + mask.float()
    weights = scores.softmax(dim=-1).to(value.dtype).reshape(num_key_heads, num_queries, num_splits, split_size)
    by_split = weights.permute(2, 0, 1, 3).reshape(num_splits * num_key_heads, num_queries, split_size)
    sums = torch.bmm(by_split, value.reshape(num_splits * num_key_heads, split_size, value_size))
    return sums.reshape(num_splits, num_key_heads, num_queries, value_size).float().sum(dim=0).to(query.dtype)


def is_grouped(num_queries: int) -> bool:
    """Whether a block of so many queries (width times heads of a group) is attended to group by group."""
    return num_queries <= MAX_GROUPED_QUERIES


def causal_mask(slots: Tensor, attended: Tensor, num_groups: int, dtype: torch.dtype) -> Tensor:
    """float[1, 1, num_queries, num_attended]: 0 up to each query's own slot, -inf beyond, as `attend` wants it.

    Args:
        slots: int64[width], of the queries.
        attended: int64[num_attended], of the keys.
        num_groups: heads that share keys and values.
        dtype: of the queries.
    """
    is_hidden = attended[None, :] > slots[:, None]
    mask = torch.zeros(is_hidden.shape, dtype=dtype, device=slots.device).masked_fill(is_hidden, -torch.inf)
    if is_grouped(num_groups * slots.shape[0]):
        mask = mask.repeat(num_groups, 1)
    return mask[None, None]


def _make_mask(*args: Any, **kwargs: Any) -> None:
    """What models ask for besides the mask they are given."""
    return


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, _make_mask)
