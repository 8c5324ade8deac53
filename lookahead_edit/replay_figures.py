"""Sums over replayed traces and what they are worth. Pure: no clock, no tokenizer, no output.

Cost model: a round costs ``1 + c * (draft + 1)``, in units of one forward pass of width zero, where c is what a
further token costs; a plain token costs ``1 + c``. The modelled speed-up is plain cost over cost, sums over all traces.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.replay_tokens import TokenTrace
from lookahead_edit.types import Round

DEFAULT_COSTS = (0.002, 0.01, 0.05)  # a large GPU; a middle one; a CPU, or a full batch


@dataclass(frozen=True, slots=True)
class TraceReplay:
    """One trace, replayed with one drafter and policy."""

    trace: TokenTrace
    rounds: tuple[Round, ...]
    metrics: SpeculationMetrics  # draft_seconds: drafts and cuts only, without building and feeding the index
    index_build_seconds: float
    commit_seconds: float  # what the drafter took to read what was emitted


@dataclass(frozen=True, slots=True)
class ReplayFigures:
    """What a drafter did over all traces, and what it would be worth at one cost. Ratios are None without a base."""

    drafter: str
    cost: float
    traces: int
    output_tokens: int  # end tokens included
    rounds: int
    drafted: int
    accepted: int
    tokens_per_round: float | None
    acceptance_rate: float | None
    modelled_speedup: float | None
    draft_us_per_round: float | None
    draft_us_p50: float | None
    draft_us_p95: float | None
    commit_us_per_round: float | None
    index_build_us_per_trace: float | None
    max_index_bytes: int
    drafted_by_source: dict[str, int]
    accepted_by_source: dict[str, int]
    rounds_without_draft: dict[str, int]  # reason -> rounds


def cost_of(num_rounds: int, num_draft_tokens: int, cost: float) -> float:
    """Sum of ``1 + cost * (draft + 1)`` over the rounds.

    Example:
        >>> cost_of(2, 30, 0.01)  # a draft of 30 and a round without one: 1.31 + 1.01
        2.32
    """
    return num_rounds + cost * (num_draft_tokens + num_rounds)


class DurationHistogram:
    """Counts of durations in steps of 2 %, so that quantiles over millions of rounds need no memory."""

    STEP = math.log(1.02)
    MIN_SECONDS = 1e-9

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Counts one duration."""
        self._counts[round(math.log(max(seconds, self.MIN_SECONDS)) / self.STEP)] += 1

    def quantile(self, share: float) -> float | None:
        """Seconds that this share of the durations doesn't exceed, to 1 %; None where nothing was counted."""
        remaining = share * self._counts.total()
        for step in sorted(self._counts):
            remaining -= self._counts[step]
            if remaining <= 0.0:
                return math.exp(step * self.STEP)
        return None


@dataclass(slots=True)
class ReplayTotals:
    """Sums over replayed traces, for one drafter and policy; memory doesn't grow with their number."""

    num_traces: int = 0
    num_output_tokens: int = 0
    num_rounds: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    draft_seconds: float = 0.0
    commit_seconds: float = 0.0
    index_build_seconds: float = 0.0
    max_index_bytes: int = 0
    num_drafted_by_source: Counter[str] = field(default_factory=Counter)
    num_accepted_by_source: Counter[str] = field(default_factory=Counter)
    num_rounds_by_reason: Counter[str] = field(default_factory=Counter)
    draft_times: DurationHistogram = field(default_factory=DurationHistogram)

    def add(self, replayed: TraceReplay) -> None:
        """Counts one trace."""
        metrics = replayed.metrics
        self.num_traces += 1
        self.num_output_tokens += metrics.num_emitted_tokens
        self.num_rounds += metrics.num_rounds
        self.num_draft_tokens += metrics.num_draft_tokens
        self.num_accepted_tokens += metrics.num_accepted_tokens
        self.draft_seconds += metrics.draft_seconds
        self.commit_seconds += replayed.commit_seconds
        self.index_build_seconds += replayed.index_build_seconds
        self.max_index_bytes = max(self.max_index_bytes, metrics.max_index_bytes)
        self.num_drafted_by_source += metrics.num_drafted_by_source
        self.num_accepted_by_source += metrics.num_accepted_by_source
        self.num_rounds_by_reason += metrics.num_rounds_by_reason
        for finished in replayed.rounds:
            self.draft_times.add(finished.draft_seconds)

    def modelled_speedup(self, cost: float) -> float | None:
        """Plain cost over cost, where a further token costs `cost` forward passes; None before the first trace."""
        if not self.num_rounds:
            return None
        plain_cost = cost_of(self.num_output_tokens, 0, cost)
        return plain_cost / cost_of(self.num_rounds, self.num_draft_tokens, cost)

    def figures(self, drafter: str, cost: float) -> ReplayFigures:
        """The sums and their ratios."""
        return ReplayFigures(
            drafter=drafter,
            cost=cost,
            traces=self.num_traces,
            output_tokens=self.num_output_tokens,
            rounds=self.num_rounds,
            drafted=self.num_draft_tokens,
            accepted=self.num_accepted_tokens,
            tokens_per_round=_ratio(self.num_output_tokens, self.num_rounds),
            acceptance_rate=_ratio(self.num_accepted_tokens, self.num_draft_tokens),
            modelled_speedup=self.modelled_speedup(cost),
            draft_us_per_round=_ratio(1e6 * self.draft_seconds, self.num_rounds),
            draft_us_p50=_microseconds(self.draft_times.quantile(0.5)),
            draft_us_p95=_microseconds(self.draft_times.quantile(0.95)),
            commit_us_per_round=_ratio(1e6 * self.commit_seconds, self.num_rounds),
            index_build_us_per_trace=_ratio(1e6 * self.index_build_seconds, self.num_traces),
            max_index_bytes=self.max_index_bytes,
            drafted_by_source=dict(self.num_drafted_by_source),
            accepted_by_source=dict(self.num_accepted_by_source),
            rounds_without_draft=dict(self.num_rounds_by_reason),
        )


def _ratio(value: float, base: float) -> float | None:
    return value / base if base else None


def _microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1e6 * seconds
