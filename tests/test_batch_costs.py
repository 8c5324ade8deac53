"""What passes over several rows cost is measured in bounded time, on a clock of the target's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lookahead_edit.config import TargetConfig
from lookahead_edit.cost import CPU_CURVE, CostCurve
from lookahead_edit.targets.batch_costs import BATCH_WIDTHS, MAX_BATCH_SECONDS, with_batches
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.types import Row, Verified


class SlowBatchTarget:
    """A pass costs what its tokens cost by the curve, and `row_seconds` for each row beyond the first.

    A row's context is read in chunks of 100 tokens, and once for each group if `keeps_caches`.
    """

    max_context_tokens = 2048
    vocab_size = 1000

    def __init__(self, curve: CostCurve, row_seconds: float = 0.0, *, keeps_caches: bool = True) -> None:
        self.time = 0.0
        self.passes: list[tuple[int, int]] = []  # rows and width
        self.num_read_tokens = 0
        self.live: dict[int, int] = {}
        self._kept: dict[str | None, int] = {}
        self._keeps_caches = keeps_caches
        self._costs = curve.values(1, 16 * 64)
        self._row_seconds = row_seconds

    def verify(self, rows: Sequence[Row]) -> Verified:
        for row in rows:
            self.live.setdefault(row.key, self._kept.get(row.cache_group, 0))
        unread = [min(100, len(row.tokens) - 1 - self.live[row.key]) for row in rows]
        if any(unread):
            self.num_read_tokens += sum(unread)
            self.time += 0.003 * sum(unread)
            for row, num_tokens in zip(rows, unread, strict=True):
                self.live[row.key] += num_tokens
            return Verified(tokens=[np.zeros(0, dtype=np.int32)] * len(rows))
        num_tokens = sum(len(row.draft) + 1 for row in rows)
        self.passes.append((len(rows), len(rows[0].draft) + 1))
        self.time += float(self._costs[num_tokens - 1]) + self._row_seconds * (len(rows) - 1)
        return Verified(tokens=[np.zeros(1, dtype=np.int32)] * len(rows))

    def close(self, key: int) -> None:
        num_tokens = self.live.pop(key)
        if self._keeps_caches:
            self._kept["calibration"] = num_tokens

    def clock(self) -> float:
        return self.time


FAST_CURVE = replace(CPU_CURVE, costs=(tuple(0.1 * cost for cost in CPU_CURVE.costs[0]),))


def test_rows_are_measured_together_and_the_other_widths_follow() -> None:
    target = SlowBatchTarget(FAST_CURVE, row_seconds=0.001)
    curve = with_batches(target, FAST_CURVE, target.clock)
    assert curve.shares_passes
    assert curve.widths == FAST_CURVE.widths
    assert curve.batch_sizes == (1, 2, 4, 8, 16)
    assert curve.costs[0] == FAST_CURVE.costs[0]
    for batch_size in (2, 4, 8, 16):
        as_one_row = FAST_CURVE.values(1, 64 * batch_size)[batch_size - 1 :: batch_size]
        expected = np.minimum(as_one_row + 0.001 * (batch_size - 1), batch_size * FAST_CURVE.values(1, 64))
        assert curve.values(batch_size, 64)[[0, 1, 7, 63]] == pytest.approx(expected[[0, 1, 7, 63]])
    assert not target.live


def test_the_common_context_is_read_once() -> None:
    target = SlowBatchTarget(FAST_CURVE)
    with_batches(target, FAST_CURVE, target.clock)
    assert target.num_read_tokens == 255
    assert {rows for rows, _ in target.passes} == {1, 2, 4, 8, 16}


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0, 30.0])
def test_a_slow_target_is_measured_at_fewer_sizes_and_in_time(factor: float) -> None:
    slow = replace(CPU_CURVE, costs=(tuple(factor * cost for cost in CPU_CURVE.costs[0]),))
    target = SlowBatchTarget(slow)
    curve = with_batches(target, slow, target.clock)
    assert target.time < MAX_BATCH_SECONDS + 2.0 * factor
    assert curve.batch_sizes[0] == 1
    assert len(curve.batch_sizes) >= (2 if factor <= 3.0 else 1)
    assert curve.shares_passes


def test_a_batch_is_never_dearer_than_its_rows_one_by_one() -> None:
    target = SlowBatchTarget(FAST_CURVE, row_seconds=1.0)
    curve = with_batches(target, FAST_CURVE, target.clock)
    for index, batch_size in enumerate(curve.batch_sizes):
        most = batch_size * np.asarray(FAST_CURVE.costs[0])
        assert (np.asarray(curve.costs[index]) <= most + 1e-12).all()


def test_a_failing_pass_leaves_no_row_behind() -> None:
    class Failing(SlowBatchTarget):
        def verify(self, rows: Sequence[Row]) -> Verified:
            verified = super().verify(rows)
            if len(rows) > 1:
                raise RuntimeError("out of memory")
            return verified

    target = Failing(FAST_CURVE)
    with pytest.raises(RuntimeError, match="out of memory"):
        with_batches(target, FAST_CURVE, target.clock)
    assert not target.live


def test_the_real_target_reads_its_rows_in_packed_passes(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    target = HfTarget(model, TargetConfig(prefill_chunk_tokens=100))
    assert target.packs_rows
    widths: list[int] = []
    forward = model.forward

    def counted(*args: Any, **kwargs: Any) -> Any:
        widths.append(kwargs["input_ids"].shape[1])
        return forward(*args, **kwargs)

    monkeypatch.setattr(model, "forward", counted)
    ticks = iter(range(10**9))
    curve = with_batches(target, FAST_CURVE, lambda: next(ticks) / 1000)
    assert curve.batch_sizes == (1, 2, 4, 8, 16)
    assert widths[:3] == [100, 100, 56]
    assert set(widths[3:]) == {rows * width for rows in (2, 4, 8, 16) for width in BATCH_WIDTHS}
    assert not target._rows
