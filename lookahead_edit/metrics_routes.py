"""What the requests of each route did, summed up, with the last ones and the drift. Pure: no clock, no output."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, fields

from lookahead_edit.config import DriftConfig
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.metrics_drift import DriftDetector, DriftEvent, DriftState

MAX_RECENT_REQUESTS = 60

# What adds up over requests; the others are of one request, or lists that nobody asks for by route.
_SUMS = tuple(
    field.name
    for field in fields(SpeculationMetrics)
    if field.type in ("int", "float") and field.name != "max_index_bytes"
)
_COUNTERS = ("num_drafted_by_source", "num_accepted_by_source")


@dataclass(frozen=True, slots=True)
class RequestFigures:
    """One request, as small as a chart needs it. Ratios are None where nothing was measured."""

    num_emitted_tokens: int
    acceptance_rate: float | None
    tokens_per_round: float | None
    tokens_per_second: float | None

    @classmethod
    def of(cls, metrics: SpeculationMetrics) -> RequestFigures:
        """Those of a request that is over."""
        return cls(
            metrics.num_emitted_tokens, metrics.acceptance_rate, metrics.tokens_per_round, metrics.tokens_per_second
        )


class RouteMetrics:
    """One route's requests; memory doesn't grow with their number.

    `totals` has sums over all of them, so its ratios weigh a request by its length, and its tokens a second are those
    that a request sees, not what the machine does for several at once.
    """

    def __init__(self, drift: DriftConfig | None = None) -> None:
        self.num_requests = 0
        self.totals = SpeculationMetrics()
        self.recent: deque[RequestFigures] = deque(maxlen=MAX_RECENT_REQUESTS)
        self._detector = DriftDetector(drift)

    @property
    def drift(self) -> DriftState:
        """Whether acceptance is what it was."""
        return self._detector.state

    def add(self, metrics: SpeculationMetrics) -> DriftEvent | None:
        """Counts a request that is over, however it ended, and tells what it has changed about the drift."""
        self.num_requests += 1
        for name in _SUMS:
            setattr(self.totals, name, getattr(self.totals, name) + getattr(metrics, name))
        for name in _COUNTERS:
            getattr(self.totals, name).update(getattr(metrics, name))
        if metrics.num_emitted_tokens:
            self.recent.append(RequestFigures.of(metrics))
        return self._detector.add(metrics.num_draft_tokens, metrics.num_accepted_tokens)
