"""Any causal language model of transformers as a target.

One round for all rows is one forward pass where the model allows it (`packing`), else one for each row; a prompt is
read a chunk a round, beside the other rows (`prompt_budget`). Every row has a cache of its own, dynamic or the
caller's, which is rolled back to what was accepted (`rollback`) and kept for rows that begin alike (`prefix_cache`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from lookahead_edit.config import TargetConfig
from lookahead_edit.cost import CPU_CURVE, CostCurve
from lookahead_edit.targets.growing_cache import open_cache as open_growing_cache
from lookahead_edit.targets.packing import can_pack_cache
from lookahead_edit.targets.pass_watch import PassWatch
from lookahead_edit.targets.prefix_cache import PrefixCache
from lookahead_edit.targets.prompt_budget import share_budget
from lookahead_edit.targets.reading import CACHE_KEYWORDS, Block, BlockReader, Reader
from lookahead_edit.targets.rollback import (
    RowCache,
    RowState,
    require_decoder,
    require_rollback,
    uncroppable_layers,
)
from lookahead_edit.types import NO_TOKENS, IntArray, Row, UnsupportedModel, Verified, num_agreeing
from lookahead_edit.verify import Sampler, make_sampler

__all__ = ["CACHE_KEYWORDS", "HfTarget", "RowCache", "require_decoder", "require_rollback"]

# Whether models with layers that can't be cropped read several tokens at once as they would one by one.
_reads_blocks: WeakKeyDictionary[PreTrainedModel, bool] = WeakKeyDictionary()


@dataclass(slots=True)
class _LiveRow(RowState):
    """A row between its first round and close()."""

    sampler: Sampler = field(kw_only=True)
    is_croppable: bool = field(kw_only=True)
    cache_group: str | None = None  # None: its cache is not kept
    has_emitted: bool = False
    # What the cache is of when the row is closed; the tokens of its latest block that were rejected are left out.
    tokens: IntArray = field(default_factory=lambda: NO_TOKENS)  # int32[num_tokens]
    is_whole: bool = True  # not during a pass: if that fails, some layers have its tokens and others don't

    def note(self, row: Row, emitted: IntArray) -> None:
        """Hears what came of a round, before the row's tokens are told to anybody."""
        num_accepted_tokens = num_agreeing(row.draft.tokens, emitted)
        known = np.concatenate([row.tokens, row.draft.tokens[:num_accepted_tokens]])
        self.tokens = known[: self.num_cached_tokens]
        self.has_emitted = self.has_emitted or len(emitted) > 0


@dataclass(slots=True)
class _Turn:
    """What one row does in one round."""

    row: Row
    state: _LiveRow
    num_read_tokens: int  # of what stands before the row's last token
    block: IntArray = field(default_factory=lambda: NO_TOKENS)  # int32[num_tokens], read in one pass
    num_logits: int = 0  # wanted of the block's last tokens: one more than drafted ones, or none
    num_passed_tokens: int = 0  # through the model


class HfTarget:
    """Verifies drafts with a transformers model.

    The rows' texts don't depend on each other, on chunks or on what was found in a cache, but for rounding: matrices of
    another shape are multiplied in another order, so logits differ in their last bits, and where two tokens are as
    likely as each other to that many digits, another one may be chosen. Measured with SmolLM2 in float32 on two edits:
    rows packed and read in other chunks differ by up to 7e-5 of 36, as much as a block and its tokens one by one do,
    and the best token was never nearer than 1 to the next.

    Rows are verified in one pass where `packs_rows`; with other models, and in a static cache, one after the other.

    Args:
        model: a causal language model, in eval mode.
        config: how prompts are read, and what is kept.
        open_cache: the cache of a new row, which is the caller's and not kept; by default an empty dynamic one.
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
        self.model = model
        self._config = config or TargetConfig()
        self.prefix_cache = PrefixCache(self._config.max_prefix_cache_bytes)
        self._reader: Reader = BlockReader(model, self._config.max_pass_tokens)
        if cost_curve is None and model.device.type == "cpu":
            cost_curve = replace(CPU_CURVE, shares_passes=self._reader.may_pack_rows)
        self.cost_curve = cost_curve
        self._open_cache = open_cache
        self._open_sampler = open_sampler or (lambda row: make_sampler(row.sampling, row.num_prompt_tokens))
        self._rows: dict[int, _LiveRow] = {}

    @property
    def max_context_tokens(self) -> int:
        return int(getattr(self.model.config.get_text_config(), "max_position_embeddings", None) or 2**31 - 1)

    @property
    def num_kept_prompt_bytes(self) -> int:
        """Memory of finished rows' keys and values, kept for rows that begin alike."""
        return self.prefix_cache.num_bytes

    @property
    def config(self) -> TargetConfig:
        """What it was made with."""
        return self._config

    @property
    def widths(self) -> tuple[int, ...] | None:
        """Of the passes that verify drafts, rising; None where passes are as wide as what they read."""
        return None

    @property
    def vocab_size(self) -> int:
        return int(self.model.config.get_text_config().vocab_size)

    @property
    def packs_rows(self) -> bool:
        """Whether rows are verified in one pass; tried out where it was never asked before."""
        return self._reader.packs_rows

    @torch.no_grad()
    def verify(self, rows: Sequence[Row]) -> Verified:
        # 1) a row's cache holds what was accepted so far; a new row's, what was found for it
        num_cached_tokens = [0 if row.key in self._rows else self._open(row) for row in rows]
        live = [(row, self._rows[row.key]) for row in rows if not row.is_cancelled()]
        for row, state in live:
            state.roll_back(len(row.tokens) - 1)

        # 2) what each row reads: all rows together only so much of their prompts, and who has read it, its draft
        watch = PassWatch(self.model.device)
        shares = self._share_reading(live)
        turns = [_Turn(row, state, share) for (row, state), share in zip(live, shares, strict=True)]
        for turn in turns:
            self._plan(turn)

        # 3) the model reads it, in one pass where it can
        reading = [turn for turn in turns if len(turn.block)]
        logits = self._read(reading)
        watch.stop()

        # 4) each row's sampler accepts a prefix of the draft and adds a token
        emitted = {
            turn.row.key: turn.state.sampler.choose(row_logits, turn.row)
            for turn, row_logits in zip(reading, logits, strict=True)
            if turn.num_logits
        }
        for turn in turns:
            turn.state.note(turn.row, emitted.get(turn.row.key, NO_TOKENS))
        seconds = watch.seconds()
        num_read_tokens = {turn.row.key: turn.num_read_tokens for turn in turns}
        num_passed_tokens = sum(turn.num_passed_tokens for turn in turns)
        # A pass that reads prompts too is prefill for that part of its tokens.
        prefill_seconds = seconds * sum(num_read_tokens.values()) / max(1, num_passed_tokens)
        return Verified(
            tokens=[emitted.get(row.key, NO_TOKENS) for row in rows],
            forward_seconds=seconds - prefill_seconds,
            prefill_seconds=prefill_seconds,
            num_read_tokens=[num_read_tokens.get(row.key, 0) for row in rows],
            num_cached_tokens=num_cached_tokens,
        )

    def close(self, key: int) -> None:
        """Frees the row; its cache is kept where other rows may find it."""
        state = self._rows.pop(key, None)
        if state is None or state.cache_group is None or not state.is_whole:
            return
        self.prefix_cache.put(state.cache_group, state.tokens, state.cache)

    def settle(self, row: Row) -> int:
        """Rolls the row's cache back to all tokens but the last, as `generate` leaves it; how many it holds then."""
        state = self._rows[row.key]
        state.roll_back(len(row.tokens) - 1)
        state.stop_recording()
        missing = row.tokens[state.num_cached_tokens : len(row.tokens) - 1]
        if len(missing):
            self._read([_Turn(row, state, 0, missing)])
        return state.num_tokens

    # A new row.

    def _open(self, row: Row) -> int:
        """How many of its tokens need not be read."""
        opened = self._find_cache(row) if self._open_cache is None else self._open_cache(row)
        require_rollback(self.model, opened.cache)
        state = _LiveRow(
            opened.cache,
            opened.num_hidden_tokens,
            opened.num_cached_tokens,
            sampler=self._open_sampler(row),
            is_croppable=not uncroppable_layers(opened.cache),
        )
        if not state.is_croppable:
            self._require_block_reading()
        if self._open_cache is None and can_pack_cache(opened.cache):  # such a cache can be cut anywhere
            state.cache_group = row.cache_group
        self._rows[row.key] = state
        return opened.num_cached_tokens

    def _find_cache(self, row: Row) -> RowCache:
        """With what the row's group has of its beginning; the last token is read in any case, for its logits."""
        found = None
        if row.cache_group is not None:
            found = self.prefix_cache.find(row.cache_group, row.tokens[:-1], self.model)
        return RowCache(*found) if found is not None else RowCache(open_growing_cache(self.model))

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
        cache, num_read_tokens = DynamicCache(config=self.model.config), 0
        logits = []
        for block in blocks:
            logits += self._reader.read([Block(block, cache, num_read_tokens, len(block))])
            num_read_tokens += len(block)
        return torch.cat(logits)[-3:]

    # One round.

    def _share_reading(self, live: Sequence[tuple[Row, _LiveRow]]) -> list[int]:
        """How many tokens before its last one each row reads in this round."""
        num_unread = [len(row.tokens) - 1 - state.num_cached_tokens for row, state in live]
        is_decoding = [state.has_emitted for _, state in live]
        shares = self._share_prompts(
            [0 if decodes else unread for unread, decodes in zip(num_unread, is_decoding, strict=True)],
            is_alone=not any(is_decoding),
        )
        # What is read again after a rejection is no prompt: it can't wait.
        return [
            unread if decodes else share for unread, decodes, share in zip(num_unread, is_decoding, shares, strict=True)
        ]

    def _share_prompts(self, num_unread: Sequence[int], *, is_alone: bool) -> list[int]:
        """The same for prompts, with the numbers of their unread tokens, and whether nobody decodes meanwhile."""
        config = self._config
        return share_budget(num_unread, config.prefill_chunk_tokens if is_alone else config.shared_prefill_chunk_tokens)

    def _plan(self, turn: _Turn) -> None:
        """Sets the turn's block; reads by itself what layers that can't be cropped must not read in a block."""
        row, state, last = turn.row, turn.state, len(turn.row.tokens) - 1
        start, end = state.num_cached_tokens, state.num_cached_tokens + turn.num_read_tokens
        num_free = self._config.max_replayed_tokens if start else 0
        if not state.is_croppable and turn.num_read_tokens and last - start > num_free:
            self._read([_Turn(row, state, 0, row.tokens[start:end])])
            turn.num_passed_tokens = end - start
            start = end
        if end < last:
            turn.block = row.tokens[start:end]
            return
        state.prepare_for_rejections()
        turn.block = np.concatenate([row.tokens[start:], row.draft.tokens])
        turn.num_logits = len(row.draft) + 1

    def _read(self, turns: Sequence[_Turn]) -> list[Tensor]:
        """float[num_logits, vocab_size] for each turn, whose blocks the caches then hold."""
        for turn in turns:
            turn.state.is_whole = False
        logits = self._reader.read(
            [Block(turn.block, turn.state.cache, turn.state.num_tokens, turn.num_logits) for turn in turns]
        )
        for turn in turns:
            turn.state.is_whole = True
            turn.state.num_cached_tokens += len(turn.block)
            turn.num_passed_tokens += len(turn.block)
        return logits
