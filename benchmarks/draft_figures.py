"""Which setting of a peer is best, how ours compares, and how well its estimates hold. Pure: no clock, no output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.draft_replays import NUM_BINS, ORACLE, Counts, OwnReplay, PeerCounts, Setting

OURS = "ours"
OURS_WITHOUT_CONTEXT = "ours without context"
MIN_BIN_TOKENS = 100  # in a bin; the gap of fewer is chance
CONTEXT_LIMITS = (8192, 32768)  # tokens; drafts of longer contexts are timed as well


@dataclass(frozen=True)
class Best:
    """A drafter's sums over some traces, under the setting that is best at one cost."""

    drafter: str
    setting: Setting
    index: int  # of the setting, among those replayed
    counts: Counts
    speedup: float


def total(counts: Iterable[Counts]) -> Counts:
    """Field by field."""
    return Counts(*map(sum, zip(*counts, strict=True)))


def best_settings(replayed: Sequence[PeerCounts], traces: Sequence[int], cost: float) -> dict[str, Best]:
    """By peer, the setting with the greatest modelled speed-up over these traces; the first of equal ones.

    The oracle has no best setting: both are given, under names with their limit.
    """
    best: dict[str, Best] = {}
    for index, (peer, setting, counts) in enumerate(replayed):
        name = f"{peer} {setting['max_draft_tokens']:g}" if peer == ORACLE else peer
        summed = total(counts[trace] for trace in traces)
        candidate = Best(name, setting, index, summed, summed.speedup(cost))
        if name not in best or candidate.speedup > best[name].speedup:
            best[name] = candidate
    return best


def best_peer(best: Mapping[str, Best]) -> Best:
    """Of all peers, the oracle not being one."""
    return max((each for each in best.values() if not is_oracle(each.drafter)), key=lambda each: each.speedup)


def is_oracle(name: str) -> bool:
    """Whether it's a row of the oracle."""
    return name.startswith(ORACLE)


@dataclass(frozen=True)
class Part:
    """A set or a part of it, and all that was replayed there, by cost."""

    name: str
    traces: list[int]  # indices in the set
    peers: dict[float, dict[str, Best]]
    ours: dict[float, Best]  # empty where only peers are replayed
    ours_without_context: dict[float, Best]  # empty where there is no context

    @property
    def costs(self) -> list[float]:
        return list(self.peers)

    def ratio(self, cost: float) -> float | None:
        """Ours over the best peer, in speed-ups; None where ours isn't replayed."""
        return self.ours[cost].speedup / best_peer(self.peers[cost]).speedup if self.ours else None

    def context_gain(self, cost: float) -> float | None:
        """Ours with context over ours without, in speed-ups."""
        if not self.ours_without_context:
            return None
        return self.ours[cost].speedup / self.ours_without_context[cost].speedup

    def drafters(self) -> dict[str, dict[float, Best]]:
        """Ours, then peers, then the oracle, each by cost."""
        rows: dict[str, dict[float, Best]] = {}
        if self.ours:
            rows[OURS] = self.ours
        if self.ours_without_context:
            rows[OURS_WITHOUT_CONTEXT] = self.ours_without_context
        for cost, best in self.peers.items():
            for name, each in best.items():
                rows.setdefault(name, {})[cost] = each
        return rows


def make_part(
    name: str,
    traces: list[int],
    peers: Sequence[PeerCounts],
    costs: Sequence[float],
    ours: Mapping[float, Sequence[OwnReplay]],
    ours_without_context: Mapping[float, Sequence[OwnReplay]],
) -> Part:
    """The figures of some traces of a set; the replays are those of the whole set."""
    return Part(
        name,
        traces,
        {cost: best_settings(peers, traces, cost) for cost in costs},
        _own_best(OURS, ours, traces),
        _own_best(OURS_WITHOUT_CONTEXT, ours_without_context, traces),
    )


def _own_best(name: str, replayed: Mapping[float, Sequence[OwnReplay]], traces: Sequence[int]) -> dict[float, Best]:
    best = {}
    for cost, own in replayed.items():
        summed = total(own[trace].counts for trace in traces)
        best[cost] = Best(name, {}, 0, summed, summed.speedup(cost))
    return best


@dataclass(frozen=True)
class ReliabilityBin:
    """Verified tokens whose predicted acceptance was alike."""

    num_tokens: int
    predicted: float  # on average
    observed: float  # share that was accepted

    @property
    def gap(self) -> float:
        return abs(self.predicted - self.observed)


@dataclass(frozen=True)
class Reliability:
    """Predicted against observed acceptance: `NUM_BINS` equal bins of the prediction, None where no token fell."""

    bins: tuple[ReliabilityBin | None, ...]

    @classmethod
    def of(cls, sums: NDArray[np.float64]) -> Reliability:
        """From float64[3, NUM_BINS] as from `draft_replays.bins_of`, summed over traces."""
        columns = sums.T.tolist()
        assert len(columns) == NUM_BINS
        return cls(tuple(ReliabilityBin(int(n), p / n, a / n) if n else None for n, p, a in columns))

    @property
    def largest_gap(self) -> float | None:
        """Of the bins with at least `MIN_BIN_TOKENS` tokens; None if there is no such bin."""
        gaps = [each.gap for each in self.bins if each is not None and each.num_tokens >= MIN_BIN_TOKENS]
        return max(gaps, default=None)


@dataclass(frozen=True)
class DraftTimes:
    """What drafting took, in the rounds of contexts up to a limit and above the one before."""

    max_context_tokens: int | None  # None: no limit
    num_rounds: int
    p50_us: float
    p95_us: float


def draft_times(replayed: Sequence[OwnReplay]) -> list[DraftTimes]:
    """By context at the round; what no round fell into is left out."""
    if not replayed:
        return []
    lengths = np.concatenate([each.context_lengths for each in replayed])
    seconds = np.concatenate([each.draft_seconds for each in replayed])
    bucket = np.searchsorted(CONTEXT_LIMITS, lengths)
    times = []
    for index, limit in enumerate((*CONTEXT_LIMITS, None)):
        own = 1e6 * seconds[bucket == index]
        if len(own):
            p50, p95 = np.percentile(own, (50, 95)).tolist()
            times.append(DraftTimes(limit, len(own), p50, p95))
    return times


@dataclass(frozen=True)
class IndexFigures:
    """What ours keeps and does besides drafting."""

    bytes_per_token: float  # of prompt and output, at the greatest
    build_us_per_prompt_token: float
    commit_us_per_round: float


def index_figures(replayed: Sequence[OwnReplay]) -> IndexFigures:
    """Sums over the traces."""
    num_prompt_tokens = sum(each.num_prompt_tokens for each in replayed)
    summed = total(each.counts for each in replayed)
    return IndexFigures(
        sum(each.num_index_bytes for each in replayed) / (num_prompt_tokens + summed.num_tokens),
        1e6 * sum(each.index_build_seconds for each in replayed) / num_prompt_tokens,
        1e6 * sum(each.commit_seconds for each in replayed) / summed.num_rounds,
    )


@dataclass(frozen=True)
class Loss:
    """A trace that the set's best peer decodes at a lower cost than ours."""

    trace: int  # index in the set
    own: Counts
    peer: Counts
    cost: float

    @property
    def ratio(self) -> float:
        """Cost of ours over that of the peer."""
        return self.own.cost(self.cost) / self.peer.cost(self.cost)


def worst_losses(own: Sequence[OwnReplay], peer: Sequence[Counts], cost: float, num_losses: int) -> list[Loss]:
    """The traces where ours loses most, by ratio; fewer where it loses on fewer."""
    pairs = zip(own, peer, strict=True)
    losses = [Loss(index, mine.counts, theirs, cost) for index, (mine, theirs) in enumerate(pairs)]
    losing = sorted((loss for loss in losses if loss.ratio > 1.0), key=lambda loss: -loss.ratio)
    return losing[:num_losses]


def part_document(part: Part, floor: float | None) -> dict[str, Any]:
    """Plain values of everything the tables show."""
    return {
        "name": part.name,
        "num_traces": len(part.traces),
        "floor": floor,
        "costs": [
            {
                "cost": cost,
                "best_peer": best_peer(part.peers[cost]).drafter,
                "ratio": part.ratio(cost),
                "context_gain": part.context_gain(cost),
                "drafters": {name: _best_document(best[cost]) for name, best in part.drafters().items()},
            }
            for cost in part.costs
        ],
    }


def _best_document(best: Best) -> dict[str, Any]:
    counts = best.counts
    return {
        "setting": dict(best.setting),
        "tokens_per_round": counts.num_tokens / counts.num_rounds,
        "acceptance_rate": counts.num_accepted_tokens / counts.num_draft_tokens if counts.num_draft_tokens else None,
        "modelled_speedup": best.speedup,
    }
