"""Measures what passes over several rows cost, through the packed pass itself, and completes a curve of single rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from lookahead_edit.config import SamplingConfig
from lookahead_edit.cost import CostCurve
from lookahead_edit.types import Draft, IntArray, Row, Target, never

BATCH_SIZES = (4, 16, 8, 2)  # most telling first: slow machines get no further than their time allows
BATCH_WIDTHS = (1, 8)
NUM_BATCH_CONTEXT_TOKENS = 256  # of each row; 16 of them are 200 MB for SmolLM2
MAX_BATCH_SECONDS = 10.0
NUM_BATCH_SAMPLES = 3  # beside the one that warms up; the cheapest counts, as others were disturbed
FIRST_KEY = -2  # no sequence has it, nor any below
CACHE_GROUP = "calibration"


def with_batches(
    target: Target, curve: CostCurve, clock: Callable[[], float], *, max_seconds: float = MAX_BATCH_SECONDS
) -> CostCurve:
    """The curve, of one row until now, with rows for the batch sizes that there was time for; shares_passes is set.

    Every batch size is measured at two widths. What they cost more than as many tokens in a single row is what each
    further row costs by itself, and is added at the other widths.

    Args:
        target: packs its rows; if it keeps caches by group, the rows' common context is read once. Rows are closed.
        curve: costs in seconds of `clock`, by width, of one row.
        clock: seconds.
        max_seconds: of the clock; the last pass may end a little later.
    """
    probe = _Probe(target, clock)
    measured: dict[int, dict[int, float]] = {}
    try:
        for batch_size in BATCH_SIZES:
            expected = [float(curve.values(1, batch_size * width)[-1]) for width in BATCH_WIDTHS]
            if probe.elapsed() + (1 + NUM_BATCH_SAMPLES) * sum(expected) > max_seconds:
                continue
            measured[batch_size] = probe.pass_seconds(batch_size, BATCH_WIDTHS)
    finally:
        probe.close()
    costs = {1: curve.costs[0]}
    for batch_size, seconds in sorted(measured.items()):
        costs[batch_size] = _completed(curve, batch_size, seconds)
    return replace(curve, batch_sizes=tuple(costs), costs=tuple(costs.values()), shares_passes=True)


def _completed(curve: CostCurve, batch_size: int, seconds: dict[int, float]) -> tuple[float, ...]:
    """A cost for each of the curve's widths; never more than what the rows cost one after the other."""
    as_one_row = curve.values(1, batch_size * curve.widths[-1])
    extra = np.mean([cost - as_one_row[batch_size * width - 1] for width, cost in seconds.items()])
    costs = []
    for width, alone in zip(curve.widths, curve.costs[0], strict=True):
        cost = seconds.get(width, as_one_row[batch_size * width - 1] + max(0.0, float(extra)))
        costs.append(float(min(cost, batch_size * alone)))
    return tuple(np.maximum.accumulate(costs).tolist())


class _Probe:
    """Rows that all have the same random context, and random drafts, which are as good as always rejected."""

    def __init__(self, target: Target, clock: Callable[[], float]) -> None:
        self._target = target
        self._clock = clock
        self._started = clock()
        self._keys: set[int] = set()
        generator = np.random.default_rng(0)
        num_context_tokens = min(NUM_BATCH_CONTEXT_TOKENS, target.max_context_tokens - max(BATCH_WIDTHS))
        self._context: IntArray = generator.integers(0, target.vocab_size, num_context_tokens).astype(np.int32)
        self._drafted: IntArray = generator.integers(0, target.vocab_size, max(BATCH_WIDTHS)).astype(np.int32)
        self._verify(1, 1)
        self.close()  # which leaves the context in the target's cache

    def elapsed(self) -> float:
        return self._clock() - self._started

    def pass_seconds(self, batch_size: int, widths: Sequence[int]) -> dict[int, float]:
        """Width to seconds; the widths take turns, so that a slow moment of the machine hits them alike."""
        samples: dict[int, list[float]] = {width: [] for width in widths}
        for _ in range(1 + NUM_BATCH_SAMPLES):
            for width in widths:
                started = self._clock()
                self._verify(batch_size, width)
                samples[width].append(self._clock() - started)
        return {width: min(taken[1:]) for width, taken in samples.items()}

    def close(self) -> None:
        for key in self._keys:
            self._target.close(key)
        self._keys.clear()

    def _verify(self, batch_size: int, width: int) -> None:
        rows = [self._row(FIRST_KEY - index, width) for index in range(batch_size)]
        self._keys.update(row.key for row in rows)
        emitted = self._target.verify(rows).tokens
        while not all(map(len, emitted)):  # a context that takes several rounds to be read
            emitted = self._target.verify(rows).tokens

    def _row(self, key: int, width: int) -> Row:
        drafted = self._drafted[: width - 1]
        return Row(
            key=key,
            tokens=self._context,
            num_prompt_tokens=len(self._context),
            draft=Draft(tokens=drafted, sources=np.zeros(len(drafted), dtype=np.int8)),
            sampling=SamplingConfig(),
            should_stop=lambda tokens: False,
            is_cancelled=never,
            cache_group=CACHE_GROUP,
        )
