"""The target with static caches: compiled and recorded passes of few widths on a GPU, and the deterministic mode.

Rows of a batch are verified one after the other, each in a pass of its own, and nothing is kept of finished rows for
others to reuse. Drafting is not overlapped with passes: a draft takes 0.01 to 0.2 ms, a pass of a 7B model 4 ms, and
what can be drafted depends on the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from transformers import Cache, PreTrainedModel

from lookahead_edit.config import TargetConfig
from lookahead_edit.cost import CPU_CURVE, CostCurve
from lookahead_edit.targets.block_sampling import open_block_sampler
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.targets.prompt_budget import share_whole_chunks
from lookahead_edit.targets.rollback import RowCache
from lookahead_edit.targets.static_cache import StaticRowCache
from lookahead_edit.targets.static_passes import CudaGraphRecorder
from lookahead_edit.targets.static_reader import StaticReader, max_context_tokens
from lookahead_edit.types import InvalidInput, Row, Verified
from lookahead_edit.verify import Sampler


class StaticTarget(HfTarget):
    """Verifies drafts over static caches: on a GPU one launch a pass, on a CPU eagerly.

    With ``config.kind == "deterministic"`` passes have one width and drafts are padded to it, so that the logits of a
    position are the same bits whatever was drafted, rejected or not drafted at all, in any dtype: with one seed, the
    text is the same with speculation on or off, whatever the drafter and the draft limit. It is that of this mode: in
    low precision a pass of another width or on another machine may choose otherwise where two tokens are as likely.

    Args:
        model: a causal language model with full attention, in eval mode.
        config: `kind` is "static" or "deterministic".
        open_sampler: the sampler of a new row; by default what its SamplingConfig says.
        cost_curve: what a pass costs, where it was measured.
        dynamic_cost_curve: what one of the dynamic target does, to go by on a CPU.

    Raises:
        UnsupportedModel: models with sliding windows or recurrent states; in deterministic mode also those with
            experts, and whatever model whose logits turn out to depend on the other tokens of a block.
        InvalidInput: widths that the model's context has no room for.
    """

    _reader: StaticReader

    def __init__(
        self,
        model: PreTrainedModel,
        config: TargetConfig,
        *,
        open_sampler: Callable[[Row], Sampler] | None = None,
        cost_curve: CostCurve | None = None,
        dynamic_cost_curve: CostCurve | None = None,
    ) -> None:
        assert config.kind != "dynamic"
        widest = max(config.pass_widths)
        num_fitting = max_context_tokens(model)
        if widest > num_fitting:
            raise InvalidInput(
                f"expected passes that fit the model's context of {num_fitting} tokens, got {widest} wide",
                param="widths",
            )
        is_cuda = model.device.type == "cuda"
        # One by one, positions are sampled alike however many there are; all at once, sums may be split otherwise.
        if open_sampler is None and is_cuda and config.kind == "static":
            open_sampler = open_block_sampler
        is_padded = is_cuda or bool(config.compiles) or config.kind == "deterministic"
        if cost_curve is None and model.device.type == "cpu":
            single = dynamic_cost_curve or CPU_CURVE
            single = CostCurve(single.widths, single.costs[:1], shares_passes=False)
            cost_curve = single.padded_to(config.pass_widths) if is_padded else single
        super().__init__(
            model,
            config,
            open_cache=lambda row: RowCache(self._reader.open_cache(len(row.tokens))),
            open_sampler=open_sampler,
            cost_curve=cost_curve,
        )
        self._reader = StaticReader(
            model,
            config.pass_widths,
            is_deterministic=config.kind == "deterministic",
            compiles=is_cuda if config.compiles is None else config.compiles,
            recorder=CudaGraphRecorder(model.device) if is_cuda else None,
            has_splits=is_cuda,
        )

    @property
    def widths(self) -> tuple[int, ...] | None:
        """As for every target."""
        return self._reader.widths if self._reader.pads_blocks else None

    @property
    def max_draft_tokens(self) -> int | None:
        """Longer drafts would take more than one pass; None where any length is one."""
        return None if self.widths is None else self.widths[-1] - 1

    @property
    def is_compiled(self) -> bool:
        """Whether passes that verify drafts are compiled; no longer where that has failed."""
        return self._reader.is_compiled

    @property
    def is_recorded(self) -> bool:
        """Whether they are recorded; no longer where that has failed."""
        return self._reader.is_recorded

    def warm_up(self, num_tokens: int = 1024) -> None:
        """Compiles and records passes as after so many tokens, so that no request waits for it."""
        self._reader.warm_up(num_tokens)

    def verify(self, rows: Sequence[Row]) -> Verified:
        limit = self.max_draft_tokens
        if limit is None or all(len(row.draft) <= limit for row in rows):
            return super().verify(rows)
        fitting = [replace(row, draft=row.draft.cut(limit)) for row in rows]
        return replace(super().verify(fitting), drafts=[row.draft for row in fitting])

    def copy_to(self, cache: Cache, key: int, num_tokens: int) -> None:
        """Adds the row's first tokens to a cache of transformers."""
        row_cache = cast(StaticRowCache, self._rows[key].cache)
        for index in range(len(row_cache.keys)):
            cache.update(*row_cache.beginning(index, num_tokens), index)

    def close(self, key: int) -> None:
        """Frees the row."""
        state = self._rows.get(key)
        super().close(key)
        if state is not None:
            self._reader.close_cache(state.cache)

    def _share_prompts(self, num_unread: Sequence[int], *, is_alone: bool) -> list[int]:
        if self._reader.is_deterministic:
            return share_whole_chunks(num_unread, self._config.prefill_chunk_tokens)
        return super()._share_prompts(num_unread, is_alone=is_alone)
