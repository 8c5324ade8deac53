"""What `generate` hands to the hook: what can't be verified exactly is refused by name, the rest put in order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, StaticCache
from transformers.generation import (
    PrefixConstrainedLogitsProcessor,
    SynthIDTextWatermarkLogitsProcessor,
    UnbatchedClassifierFreeGuidanceLogitsProcessor,
)

from lookahead_edit.targets.hf import CACHE_KEYWORDS, RowCache, require_rollback
from lookahead_edit.types import InvalidInput, UnsupportedModel

# What is asked for in vain, as nothing would return it; in the output it is refused.
_EXTRA_OUTPUTS = ("output_attentions", "output_hidden_states")
KNOWN_MODEL_KWARGS = {
    *("attention_mask", "position_ids", "use_cache", "logits_to_keep"),
    *CACHE_KEYWORDS,
    *_EXTRA_OUTPUTS,
}
# Processors that tell rows apart by their place in the batch, or keep states for the batch, and what makes them.
WHOLE_BATCH_PROCESSORS = {
    PrefixConstrainedLogitsProcessor: "prefix_allowed_tokens_fn",
    UnbatchedClassifierFreeGuidanceLogitsProcessor: "guidance_scale",
    SynthIDTextWatermarkLogitsProcessor: "watermarking_config",
}


def refuse_unsupported(
    config: Any, processors: Any, model_kwargs: dict[str, Any], num_rows: int, streamer: Any
) -> None:
    """Raises InvalidInput for what the hook would have to ignore, or could not verify exactly; `param` names it."""
    plain_values = {"num_beams": 1} | dict.fromkeys(("penalty_alpha", "dola_layers", "constraints", "force_words_ids"))
    for name, plain in plain_values.items():
        value = getattr(config, name, None)
        if value not in (plain, None):
            raise InvalidInput(f"expected {name}={plain} with LookaheadEdit, got {value!r}", param=name)
    for name in _EXTRA_OUTPUTS:
        if config.return_dict_in_generate and getattr(config, name):
            raise InvalidInput(
                f"expected {name}=False with LookaheadEdit: a block has them in another shape", param=name
            )
    for name in sorted(set(model_kwargs) - KNOWN_MODEL_KWARGS):
        if model_kwargs[name] is not None and model_kwargs[name] is not False:
            raise InvalidInput(f"expected token ids as the only model input with LookaheadEdit, got {name}", param=name)
    if num_rows > 1 and streamer is not None:
        raise InvalidInput(f"expected one row with a streamer, got {num_rows}", param="streamer")
    for kind, name in WHOLE_BATCH_PROCESSORS.items():
        if num_rows > 1 and any(isinstance(processor, kind) for processor in processors or ()):
            raise InvalidInput(f"expected one row with {name}, got {num_rows}", param=name)
    if num_rows > 1 and config.return_dict_in_generate and (config.output_scores or config.output_logits):
        raise InvalidInput(
            f"expected one row with output_scores or output_logits, got {num_rows}", param="output_scores"
        )


def num_padding(input_ids: Tensor, model_kwargs: dict[str, Any]) -> list[int]:
    """Left-padding tokens of each row."""
    mask = model_kwargs.get("attention_mask")
    if mask is None:
        return [0] * len(input_ids)
    counts = (mask == 0).sum(dim=1).tolist()
    for row, count in enumerate(counts):
        if bool((mask[row, count:] == 0).any()):
            raise InvalidInput(
                f"expected padding on the left only, got attention_mask row {row} with zeros after a one",
                param="attention_mask",
            )
        if count == mask.shape[1]:
            raise InvalidInput(
                f"expected a token in every row, got attention_mask row {row} of zeros alone", param="attention_mask"
            )
    return [int(count) for count in counts]


def _check_positions(positions: Tensor | None, padding: list[int], num_past: int) -> None:
    """Refuses positions that don't count all tokens, or all after the cached ones: blocks are counted on from there."""
    if positions is None:
        return
    for index, row in enumerate(positions.flatten(0, -2).cpu()):
        given = row[padding[index % len(padding)] :]
        counted = torch.arange(len(given))
        if not torch.equal(given, counted) and not torch.equal(given, counted + num_past):
            raise InvalidInput(
                "expected position_ids to count the tokens with LookaheadEdit, got other ones", param="position_ids"
            )


def row_caches(
    model: Any, input_ids: Tensor, model_kwargs: dict[str, Any], max_tokens: int, padding: list[int]
) -> list[RowCache]:
    """The cache that `generate` prepared or the caller brought, for one row; fresh ones of its kind for several."""
    positions = model_kwargs.get("position_ids")
    cache = next((model_kwargs[keyword] for keyword in CACHE_KEYWORDS if keyword in model_kwargs), None)
    if cache is None:
        if model_kwargs.get("use_cache"):
            raise UnsupportedModel(f"{type(model).__name__} makes a cache of its own, which can't be rolled back")
        _check_positions(positions, padding, 0)
        return [RowCache(DynamicCache(config=model.config)) for _ in input_ids]
    require_rollback(model, cache)
    num_past = 0 if all(cache.is_linear) else int(cache.get_seq_length())
    _check_positions(positions, padding, num_past)
    if num_past and (len(input_ids) > 1 or any(padding)):
        raise InvalidInput("expected an empty cache for several or padded rows", param="past_key_values")
    num_capacity = _capacity(cache)
    num_needed = input_ids.shape[1] + max_tokens - 1
    if num_capacity is not None and num_capacity < num_needed:
        raise InvalidInput(
            f"expected a static cache of at least {num_needed} tokens, got {num_capacity}", param="past_key_values"
        )
    if len(input_ids) > 1:
        if isinstance(cache, StaticCache):
            return [
                RowCache(StaticCache(config=model.config, max_cache_len=num_capacity or num_needed)) for _ in input_ids
            ]
        return [RowCache(DynamicCache(config=model.config)) for _ in input_ids]
    if not num_past:
        return [RowCache(cache)]
    # `generate` takes the whole text or only what follows the cache; the positions tell which of the two it is.
    num_total = input_ids.shape[1] if positions is None else int(positions.max()) + 1
    if num_total == input_ids.shape[1] + num_past:
        return [RowCache(cache, num_hidden_tokens=num_past)]
    if num_past > input_ids.shape[1]:
        raise InvalidInput(
            f"expected a cache of at most {input_ids.shape[1]} tokens (the prompt), got {num_past}",
            param="past_key_values",
        )
    return [RowCache(cache, num_cached_tokens=num_past)]


def _capacity(cache: Cache) -> int | None:
    """Tokens a static cache holds; None where it grows."""
    if not isinstance(cache, StaticCache):
        return None
    layers = zip(cache.layers, cache.is_sliding, strict=True)
    lengths = [
        layer.max_cache_len for layer, is_sliding in layers if not is_sliding and hasattr(layer, "max_cache_len")
    ]
    return int(min(lengths)) if lengths else None
