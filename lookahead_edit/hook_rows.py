"""The rows of a hook's batch: each has processors and criteria of its own, and knows when `generate` would stop it."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence as SequenceOf
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessorList
from transformers.generation import (
    EncoderNoRepeatNGramLogitsProcessor,
    EncoderRepetitionPenaltyLogitsProcessor,
    EosTokenCriteria,
    MaxLengthCriteria,
    RepetitionPenaltyLogitsProcessor,
)

from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.sequence import Sequence
from lookahead_edit.types import IntArray
from lookahead_edit.verify import GreedySampler, OrderedSampler, Sampler

# Processors that hold something for each row of the prompt, and where.
_ROW_FIELDS = {
    RepetitionPenaltyLogitsProcessor: "prompt_ignore_length",  # int64[num_rows], each row's padding
    EncoderRepetitionPenaltyLogitsProcessor: "encoder_input_ids",  # int64[num_rows, num_tokens]
    EncoderNoRepeatNGramLogitsProcessor: "generated_ngrams",  # a dictionary a row
}


def processors_of_row(processors: SequenceOf[Any] | None, row: int, num_rows: int) -> Any:
    """The processors of `generate` as they would be for a batch of this row alone.

    A prompt's row may stand for several rows of the batch (`num_return_sequences`), which lie side by side then.
    """
    if not processors or num_rows == 1:
        return processors
    return LogitsProcessorList([_of_row(processor, row, num_rows) for processor in processors])


def _of_row(processor: Any, row: int, num_rows: int) -> Any:
    for kind, field in _ROW_FIELDS.items():
        held = getattr(processor, field, None) if isinstance(processor, kind) else None
        if held is None or isinstance(held, int):
            continue
        index = row * len(held) // num_rows
        alone = copy.copy(processor)
        setattr(alone, field, held[index : index + 1])
        if isinstance(processor, EncoderNoRepeatNGramLogitsProcessor):
            alone.batch_size = 1
        return alone
    return processor


class UsualCriteria:
    """The criteria of `generate` itself, end tokens and lengths, as a first look that needs no tensor.

    Asking them takes about 50 µs a token, and a round may emit a hundred tokens. Of other criteria nothing is known.

    Example:
        >>> usual = UsualCriteria([EosTokenCriteria(2), MaxLengthCriteria(9)])
        >>> usual.may_stop(7, 8), usual.may_stop(2, 8), usual.may_stop(7, 9), UsualCriteria([print]).may_stop(7, 8)
        (False, True, True, True)
    """

    def __init__(self, criteria: SequenceOf[Any]) -> None:
        self._are_known = all(type(criterion) in (EosTokenCriteria, MaxLengthCriteria) for criterion in criteria)
        self._end_token_ids: set[int] = set()
        self._max_length = sys.maxsize
        for criterion in criteria if self._are_known else ():
            if type(criterion) is EosTokenCriteria:
                self._end_token_ids.update(criterion.eos_token_id.flatten().tolist())
            else:  # beyond the model's own length it has something to say
                lengths = (criterion.max_length, (criterion.max_position_embeddings or sys.maxsize - 1) + 1)
                self._max_length = min(self._max_length, *lengths)

    def may_stop(self, token: int, num_tokens: int) -> bool:
        """False where they would not stop a row of so many tokens that ends in this one."""
        return not self._are_known or token in self._end_token_ids or num_tokens >= self._max_length


class SharedEnd:
    """Where a batch ends whose criteria know no end token: `generate` lets every row go on until each was stopped once.

    With an end token, a row that was stopped is padded instead. Rows of one engine reach the end at different times;
    what they have beyond it is cut off.

    Example:
        >>> end = SharedEnd(2)
        >>> end.is_reached(0, 5, is_stopped=True), end.is_reached(1, 7, is_stopped=True), end.is_reached(0, 6, False)
        (False, True, False)
        >>> end.num_output_tokens
        7
    """

    def __init__(self, num_rows: int) -> None:
        self._stops: list[int | None] = [None] * num_rows

    @property
    def num_output_tokens(self) -> int | None:
        """Of every row; None until each was stopped."""
        stops = [stop for stop in self._stops if stop is not None]
        return max(stops) if len(stops) == len(self._stops) else None

    def is_reached(self, row: int, num_output_tokens: int, is_stopped: bool) -> bool:
        """Whether the row, of so many tokens, has all that `generate` would give it."""
        if is_stopped and self._stops[row] is None:
            self._stops[row] = num_output_tokens
        end = self.num_output_tokens
        return end is not None and num_output_tokens >= end


class HookRow:
    """One row of the batch: calls processors and criteria with its ids as `generate` knows them, padding included.

    Args:
        ids: int64[num_tokens], the prompt with its padding.
        num_padding_tokens: how much of it is padding.
        processors, criteria, config: what `generate` prepared; see `processors_of_row`.
        sequence: the row's own; gets the criteria as its stop rule.
        index: its place in the batch.
        end: where there is one, it decides when the row is over.
    """

    def __init__(
        self,
        ids: Tensor,
        num_padding_tokens: int,
        processors: Any,
        criteria: Any,
        config: Any,
        sequence: Sequence,
        *,
        index: int = 0,
        end: SharedEnd | None = None,
    ) -> None:
        self.sequence = sequence
        self.metrics = SpeculationMetrics(num_prompt_tokens=sequence.num_prompt_tokens)
        self.scores: list[Tensor] = []  # float32[1, vocab_size] for each committed token, if asked for
        self.logits: list[Tensor] = []
        self._padding_ids = ids[None, :num_padding_tokens]
        self._processors = processors
        self._criteria = criteria
        self._usual = UsualCriteria(criteria or ())
        self._config = config
        self._index = index
        self._end = end
        if criteria:
            sequence.stop_rules = (self,)

    def should_stop(self, tokens: IntArray, num_prompt_tokens: int) -> bool:
        """Asks the criteria about the token that was just committed."""
        is_stopped = self._usual.may_stop(int(tokens[-1]), self._padding_ids.shape[1] + len(tokens))
        if is_stopped:
            scores = tuple(self.scores) if self._keeps("output_scores") else None
            is_stopped = bool(self._criteria(self._ids(tokens), scores)[0])
        if self._end is None:
            return is_stopped
        return self._end.is_reached(self._index, len(tokens) - num_prompt_tokens, is_stopped)

    def sampler(self) -> Sampler:
        """What chooses the row's tokens from their scores."""
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
