"""The hook for transformers: ``model.generate(**inputs, custom_generate=LookaheadEdit(tokenizer))``.

`generate` prepares configuration, logits processors, stopping criteria and the cache as always; this module turns its
rows into sequences of the one decode loop. What `generate` never hands to a callable (streamer, tokenizer) is bound to
the object.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Sequence as SequenceOf
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import Cache, DynamicCache, StaticCache
from transformers.generation import (
    GenerateDecoderOnlyOutput,
    PrefixConstrainedLogitsProcessor,
    SynthIDTextWatermarkLogitsProcessor,
    UnbatchedClassifierFreeGuidanceLogitsProcessor,
)

from lookahead_edit.config import SamplingConfig, SpeculationConfig, TargetConfig
from lookahead_edit.engine import Engine
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.prompt_sources import with_file
from lookahead_edit.sequence import Sequence
from lookahead_edit.speculation import make_drafter, make_policy
from lookahead_edit.targets.calibration import stored_curve
from lookahead_edit.targets.hf import CACHE_KEYWORDS, HfTarget, RowCache, require_decoder, require_rollback
from lookahead_edit.targets.making import make_target
from lookahead_edit.targets.static import StaticTarget
from lookahead_edit.tokenizer import HfTokenizer
from lookahead_edit.types import Draft, IntArray, InvalidInput, Row, Source, SourceKind, UnsupportedModel
from lookahead_edit.verify import GreedySampler, OrderedSampler, Sampler

# The output's field is `cache` from transformers 5.24, `past_key_values` before.
_CACHE_OUTPUT = "cache" if "cache" in GenerateDecoderOnlyOutput.__dataclass_fields__ else "past_key_values"
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


class LookaheadEdit:
    """Speculative decoding for `generate`, same tokens as without.

    Greedy and sampled, any logits processors and stopping criteria, left-padded batches, a cache brought along,
    dynamic or static. Processors and criteria are called with one row at a time, shape (1, n), once for every
    committed token. With `do_sample`, the noise is keyed by seed and position, so the text does not depend on the
    drafts; the seed comes from torch's generator unless given.

    Args:
        tokenizer: needed for a `prediction` or `context` given as text. With it, drafts know words and lines, and the
            prompt's last long code block is taken for the file that is edited.
        streamer: gets the prompt, each round's tokens and `end()`, as from `generate`; one row only.
        prediction: text or 1-D token ids likely to be in the answer; more is drafted from it.
        context: other texts that may be copied from, without entering the prompt.
        speculation: what drafts and how far.
        seed: for `do_sample`.
        target: how the model is run; with `TargetConfig(kind="deterministic")` the drafts don't change a bit. A target
            that is not dynamic keeps buffers, and on a GPU recorded passes, for the next call with the same model.

    Attributes:
        metrics: counters of the latest call, summed over rows; seconds are those of the call.
        row_metrics: the same, a row each.

    Raises:
        InvalidInput: options that can't be verified exactly (beams, attentions, embeddings as input, …), by name.
        UnsupportedModel: a model or cache that can't be rolled back exactly.

    Example::

        decoder = LookaheadEdit(tokenizer, streamer=TextStreamer(tokenizer))
        model.generate(**inputs, max_new_tokens=512, custom_generate=decoder)
        print(decoder.metrics.tokens_per_round)
    """

    def __init__(
        self,
        tokenizer: Any = None,
        streamer: Any = None,
        *,
        prediction: str | SequenceOf[int] | Tensor | None = None,
        context: SequenceOf[str] = (),
        speculation: SpeculationConfig | None = None,
        seed: int | None = None,
        target: TargetConfig | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.streamer = streamer
        self.speculation = speculation or SpeculationConfig()
        self._tokens = None if tokenizer is None else HfTokenizer(tokenizer)
        make_drafter(self.speculation, self._tokens)  # compiles its kernels
        make_policy(self.speculation)  # refuses what it doesn't know, and may have kernels of its own
        self.seed = None if seed is None else operator.index(seed)
        self.target = target or TargetConfig()
        self._static_target: HfTarget | None = None
        self._rows: dict[int, _HookRow] = {}  # of the call in hand, by the key of their sequence
        self.metrics = SpeculationMetrics()
        self.row_metrics: list[SpeculationMetrics] = []
        if isinstance(context, str):
            raise InvalidInput("expected context to be a sequence of texts, got a single one", param="context")
        self._sources = [self._source(SourceKind.CONTEXT, text) for text in context]
        if prediction is not None:
            self._sources.insert(0, self._source(SourceKind.PREDICTION, prediction))

    def __call__(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **model_kwargs: Any,
    ) -> Any:
        """What `generate` calls; int64[num_rows, num_tokens] in and out, or a GenerateDecoderOnlyOutput."""
        require_decoder(model)
        _refuse_unsupported(generation_config, logits_processor, model_kwargs, len(input_ids), self.streamer)
        padding = _num_padding(input_ids, model_kwargs)
        max_tokens = int(generation_config.max_length) - input_ids.shape[1]
        caches = _row_caches(model, input_ids, model_kwargs, max_tokens, padding)
        is_sampled = bool(generation_config.do_sample)
        seed = self._seed() if is_sampled else 0
        rows = []
        for index, (ids, num_padding_tokens) in enumerate(zip(input_ids, padding, strict=True)):
            started = time.perf_counter()
            prompt = ids[num_padding_tokens:].cpu().numpy().astype(np.int32)
            sequence = Sequence(
                prompt,
                drafter=make_drafter(self.speculation, self._tokens),
                sampling=SamplingConfig(temperature=1.0 if is_sampled else 0.0, seed=(seed + index) % 2**64),
                max_tokens=max_tokens,
                max_context_tokens=2**31 - 1,  # as far as plain decoding would go
                sources=with_file(prompt, self._tokens, self._sources),
            )
            row = _HookRow(ids, num_padding_tokens, logits_processor, stopping_criteria, generation_config, sequence)
            row.metrics.count_index_build(time.perf_counter() - started)
            rows.append(row)
        self._rows = {row.sequence.key: row for row in rows}
        target = self._make_target(model, dict(zip(self._rows, caches, strict=True)))
        engine = Engine(target, make_policy(self.speculation, target.cost_curve))
        try:
            self._decode(engine, rows, input_ids)
            return self._answer(target, rows, caches, generation_config, input_ids)
        finally:
            self._rows = {}
            for row in rows:  # a cycle of references would keep scores and logits alive
                row.sequence.stop_rules = ()
                target.close(row.sequence.key)

    def _make_target(self, model: Any, caches: dict[int, RowCache]) -> HfTarget:
        if self.target.kind == "dynamic":
            return HfTarget(
                model,
                self.target,
                open_cache=lambda opened: caches[opened.key],
                open_sampler=self._open_sampler,
                cost_curve=stored_curve(model) if self.speculation.policy == "cost" else None,
            )
        if any(cache.num_cached_tokens or cache.num_hidden_tokens for cache in caches.values()):
            raise InvalidInput(f"expected an empty cache with a {self.target.kind} target", param="past_key_values")
        if self._static_target is None or self._static_target.model is not model:
            self._static_target = make_target(model, self.target, open_sampler=self._open_sampler)
        return self._static_target

    def _open_sampler(self, opened: Row) -> Sampler:
        return self._rows[opened.key].sampler()

    def _decode(self, engine: Engine, rows: list[_HookRow], input_ids: Tensor) -> None:
        self.row_metrics = [row.metrics for row in rows]
        self.metrics = SpeculationMetrics(
            num_prompt_tokens=sum(metrics.num_prompt_tokens for metrics in self.row_metrics)
        )
        self.metrics.count_index_build(sum(metrics.draft_seconds for metrics in self.row_metrics))
        for metrics in (self.metrics, *self.row_metrics):
            metrics.disabled_reason = None if self.speculation.enabled else "speculation is off for this hook"
        if self.streamer is not None:
            self.streamer.put(input_ids.cpu())
        while live := [row for row in rows if not row.sequence.is_finished]:
            rounds = engine.step([row.sequence for row in live])
            self.metrics.add_step(rounds)
            for row, finished in zip(live, rounds, strict=True):
                row.metrics.add(finished)
                row.metrics.max_index_bytes = row.sequence.drafter.num_index_bytes
                if self.streamer is not None and len(finished.tokens):
                    self.streamer.put(torch.from_numpy(finished.tokens.astype(np.int64)))
        self.metrics.max_index_bytes = sum(metrics.max_index_bytes for metrics in self.row_metrics)
        if self.streamer is not None:
            self.streamer.end()

    def _answer(
        self, target: HfTarget, rows: list[_HookRow], caches: list[RowCache], config: Any, input_ids: Tensor
    ) -> Any:
        if len(rows) == 1:
            num_tokens = target.settle(rows[0].sequence.row(Draft()))
            if isinstance(target, StaticTarget):
                target.copy_to(caches[0].cache, rows[0].sequence.key, num_tokens)
        for row in rows:
            target.close(row.sequence.key)
        length = max(len(row.sequence.output) for row in rows)
        pad = config._pad_token_tensor
        output = torch.full((len(rows), length), 0 if pad is None else int(pad), dtype=torch.long)
        for index, row in enumerate(rows):
            output[index, : len(row.sequence.output)] = torch.from_numpy(row.sequence.output.astype(np.int64))
        sequences = torch.cat([input_ids, output.to(input_ids.device)], dim=1)
        if not config.return_dict_in_generate:
            return sequences
        return GenerateDecoderOnlyOutput(
            sequences=sequences,
            scores=tuple(rows[0].scores) if config.output_scores else None,
            logits=tuple(rows[0].logits) if config.output_logits else None,
            **({_CACHE_OUTPUT: caches[0].cache} if len(rows) == 1 else {}),
        )

    def _source(self, kind: SourceKind, text: str | SequenceOf[int] | Tensor) -> Source:
        if not isinstance(text, str):
            ids = torch.as_tensor(text).reshape(-1).cpu().numpy()
            if len(ids) and (ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= 2**31):
                got = f"{ids.dtype} values from {ids.min()} to {ids.max()}"
                raise InvalidInput(f"expected {kind.label} as text or as token ids, got {got}", param=kind.label)
            return Source(kind, ids.astype(np.int32))
        if self._tokens is None:
            raise InvalidInput("expected a tokenizer for a prediction or context given as text", param="tokenizer")
        return Source(kind, self._tokens.encode(text, parse_special=False))

    def _seed(self) -> int:
        return int(torch.randint(0, 2**63 - 1, (1,))) if self.seed is None else self.seed


class _HookRow:
    """One row of the batch: calls processors and criteria with its ids as `generate` knows them, padding included."""

    def __init__(
        self, ids: Tensor, num_padding_tokens: int, processors: Any, criteria: Any, config: Any, sequence: Sequence
    ) -> None:
        self.sequence = sequence
        self.metrics = SpeculationMetrics(num_prompt_tokens=sequence.num_prompt_tokens)
        self.scores: list[Tensor] = []  # float32[1, vocab_size] for each committed token, if asked for
        self.logits: list[Tensor] = []
        self._padding_ids = ids[None, :num_padding_tokens]
        self._processors = processors
        self._criteria = criteria
        self._config = config
        if criteria:
            sequence.stop_rules = (self,)

    def should_stop(self, tokens: IntArray, num_prompt_tokens: int) -> bool:
        scores = tuple(self.scores) if self._keeps("output_scores") else None
        return bool(self._criteria(self._ids(tokens), scores)[0])

    def sampler(self) -> Sampler:
        if not self._processors and not self._config.do_sample and not self._keeps("output_scores", "output_logits"):
            return GreedySampler()
        sampling = self.sequence.sampling
        return OrderedSampler(self._process, is_greedy=sampling.is_greedy, seed=sampling.seed)

    def _process(self, logits: Tensor, tokens: IntArray) -> Tensor:
        if self._keeps("output_logits"):
            self.logits.append(logits[None].clone())
        scores: Tensor = logits[None].clone()
        if self._processors:
            scores = self._processors(self._ids(tokens), scores)
        if self._keeps("output_scores"):
            self.scores.append(scores)
        return scores[0]

    def _keeps(self, *names: str) -> bool:
        return bool(self._config.return_dict_in_generate) and any(getattr(self._config, name) for name in names)

    def _ids(self, tokens: IntArray) -> Tensor:
        own = torch.from_numpy(tokens.astype(np.int64)).to(self._padding_ids.device)[None]
        return torch.cat([self._padding_ids, own], dim=1)


def _refuse_unsupported(
    config: Any, processors: Any, model_kwargs: dict[str, Any], num_rows: int, streamer: Any
) -> None:
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


def _num_padding(input_ids: Tensor, model_kwargs: dict[str, Any]) -> list[int]:
    """Left-padding tokens of each row."""
    mask = model_kwargs.get("attention_mask")
    if mask is None:
        return [0] * len(input_ids)
    num_padding = (mask == 0).sum(dim=1).tolist()
    for row, count in enumerate(num_padding):
        if bool((mask[row, count:] == 0).any()):
            raise InvalidInput(
                f"expected padding on the left only, got attention_mask row {row} with zeros after a one",
                param="attention_mask",
            )
        if count == mask.shape[1]:
            raise InvalidInput(
                f"expected a token in every row, got attention_mask row {row} of zeros alone", param="attention_mask"
            )
    return [int(count) for count in num_padding]


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


def _row_caches(
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
