"""The hook for transformers: ``model.generate(**inputs, custom_generate=LookaheadEdit(tokenizer))``.

`generate` prepares configuration, logits processors, stopping criteria and the cache as always; this module turns its
rows into sequences of the one decode loop. What `generate` never hands to a callable (streamer, tokenizer) is bound to
the object.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as SequenceOf
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.generation import GenerateDecoderOnlyOutput

from lookahead_edit.config import SamplingConfig, SpeculationConfig, TargetConfig
from lookahead_edit.engine import Engine
from lookahead_edit.hook_inputs import num_padding, refuse_unsupported, row_caches
from lookahead_edit.hook_rows import HookRow, SharedEnd, processors_of_row
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.prompt_sources import with_file
from lookahead_edit.sequence import Sequence
from lookahead_edit.speculation import NO_DRAFTER_MAKERS, DrafterMakers, make_drafter, make_policy
from lookahead_edit.targets.calibration import stored_curve
from lookahead_edit.targets.hf import HfTarget, RowCache, require_decoder
from lookahead_edit.targets.making import make_target
from lookahead_edit.targets.static import StaticTarget
from lookahead_edit.tasks import briefly
from lookahead_edit.tokenizer import HfTokenizer
from lookahead_edit.types import Draft, IntArray, InvalidInput, Row, Source, SourceKind
from lookahead_edit.verify import Sampler

# The output's field is `cache` from transformers 5.24, `past_key_values` before.
_CACHE_OUTPUT = "cache" if "cache" in GenerateDecoderOnlyOutput.__dataclass_fields__ else "past_key_values"


class LookaheadEdit:
    """Speculative decoding for `generate`, same tokens as without.

    Greedy and sampled, any logits processors and stopping criteria, left-padded batches, a cache brought along,
    dynamic or static. Processors and criteria are called with one row at a time, shape (1, n), once for every
    committed token. With `do_sample`, the noise is keyed by seed and position, so the text does not depend on the
    drafts; the seed comes from torch's generator unless given.

    `generate` hands no tokenizer to a callable, so it refuses `stop_strings`: pass
    ``StopStringCriteria(tokenizer, ["END"])`` in `stopping_criteria`.

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
        drafters: makers of drafters beside the usual ones, by the name in `speculation`. With `do_sample`, those that
            sample (a draft model) keep the text's distribution, not its tokens for a seed.

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
        drafters: DrafterMakers = NO_DRAFTER_MAKERS,
    ) -> None:
        self.tokenizer = tokenizer
        self.streamer = streamer
        self.speculation = speculation or SpeculationConfig()
        self._tokens = None if tokenizer is None else HfTokenizer(tokenizer)
        self.drafters = drafters
        make_drafter(self.speculation, self._tokens, makers=drafters)  # compiles its kernels
        make_policy(self.speculation)  # refuses what it doesn't know, and may have kernels of its own
        self.seed = None if seed is None else operator.index(seed)
        self.target = target or TargetConfig()
        self._static_target: HfTarget | None = None
        self._rows: dict[int, HookRow] = {}  # of the call in hand, by the key of their sequence
        self.metrics = SpeculationMetrics()
        self.row_metrics: list[SpeculationMetrics] = []
        if isinstance(context, str):
            raise InvalidInput("expected context to be a sequence of texts, got a single one", param="context")
        if not isinstance(context, Iterable) or isinstance(context, (bytes, Mapping)):
            raise InvalidInput(
                f"expected context to be a sequence of texts, got a {type(context).__name__}", param="context"
            )
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
        if not len(input_ids):
            raise InvalidInput("expected a row or more, got a batch of none", param="input_ids")
        refuse_unsupported(generation_config, logits_processor, model_kwargs, len(input_ids), self.streamer)
        padding = num_padding(input_ids, model_kwargs)
        max_tokens = int(generation_config.max_length) - input_ids.shape[1]
        caches = row_caches(model, input_ids, model_kwargs, max_tokens, padding)
        is_sampled = bool(generation_config.do_sample)
        seed = self._seed() if is_sampled else 0
        rows: list[HookRow] = []
        has_end_token = any(hasattr(criterion, "eos_token_id") for criterion in stopping_criteria or ())
        end = None if has_end_token or len(input_ids) == 1 else SharedEnd(len(input_ids))
        for index, (ids, num_padding_tokens) in enumerate(zip(input_ids, padding, strict=True)):
            started = time.perf_counter()
            prompt = ids[num_padding_tokens:].cpu().numpy().astype(np.int32)
            # The temperature and its like are among the processors, which a draft model is not shown to.
            sampling = SamplingConfig(temperature=1.0 if is_sampled else 0.0, seed=(seed + index) % 2**64)
            sequence = Sequence(
                prompt,
                drafter=make_drafter(self.speculation, self._tokens, sampling, self.drafters),
                sampling=sampling,
                max_tokens=max_tokens,
                max_context_tokens=2**31 - 1,  # as far as plain decoding would go
                sources=with_file(prompt, self._tokens, self._sources),
            )
            row = HookRow(
                ids,
                num_padding_tokens,
                processors_of_row(logits_processor, index, len(input_ids)),
                stopping_criteria,
                generation_config,
                sequence,
                index=index,
                end=end,
            )
            row.metrics.count_index_build(time.perf_counter() - started)
            rows.append(row)
        self._rows = {row.sequence.key: row for row in rows}
        target = self._make_target(model, dict(zip(self._rows, caches, strict=True)))
        engine = Engine(target, make_policy(self.speculation, target.cost_curve))
        try:
            self._decode(engine, rows, input_ids)
            return self._answer(target, rows, caches, generation_config, input_ids, end)
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

    def _decode(self, engine: Engine, rows: list[HookRow], input_ids: Tensor) -> None:
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
        self,
        target: HfTarget,
        rows: list[HookRow],
        caches: list[RowCache],
        config: Any,
        input_ids: Tensor,
        end: SharedEnd | None,
    ) -> Any:
        if len(rows) == 1:
            num_tokens = target.settle(rows[0].sequence.row(Draft()))
            if isinstance(target, StaticTarget):
                target.copy_to(caches[0].cache, rows[0].sequence.key, num_tokens)
        for row in rows:
            target.close(row.sequence.key)
        outputs = [row.sequence.output[: None if end is None else end.num_output_tokens] for row in rows]
        pad = config._pad_token_tensor
        output = torch.full((len(rows), max(map(len, outputs))), 0 if pad is None else int(pad), dtype=torch.long)
        for index, tokens in enumerate(outputs):
            output[index, : len(tokens)] = torch.from_numpy(tokens.astype(np.int64))
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
            return Source(kind, _token_ids(text, kind.label))
        if self._tokens is None:
            raise InvalidInput("expected a tokenizer for a prediction or context given as text", param="tokenizer")
        return Source(kind, self._tokens.encode(text, parse_special=False))

    def _seed(self) -> int:
        return int(torch.randint(0, 2**63 - 1, (1,))) if self.seed is None else self.seed


def _token_ids(given: Any, name: str) -> IntArray:
    """int32[num_tokens]; raises InvalidInput for what is no sequence of token ids."""
    expected = f"expected {name} as text or as token ids"
    try:
        ids = torch.as_tensor(given).cpu().numpy()
    except (TypeError, ValueError, RuntimeError, OverflowError):
        ids = None
    if ids is None or ids.ndim == 0 or isinstance(given, (bytes, bytearray)):
        raise InvalidInput(f"{expected}, got {briefly(given)}", param=name)
    if ids.size and (ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= 2**31):
        raise InvalidInput(f"{expected}, got {ids.dtype} values from {ids.min()} to {ids.max()}", param=name)
    return ids.reshape(-1).astype(np.int32)
