"""Whether acceptance has changed: a change-point test on requests, for one route. Pure: no clock, no output.

Acceptance differs much from request to request, and requests that follow one another resemble each other (one person
works on one file), so a threshold on the rate, or a test that takes requests for independent, raises an alarm all the
time. Hence three steps, each with the route's own noise taken from its first requests, the *reference*:

1. A request's acceptance becomes a normal score: the standard normal quantile of its rank among the reference's (van
   der Waerden, "Order tests for the two-sample problem and their power", 1952). Whatever the distribution, scores have
   mean 0 and variance 1 as long as nothing changes, and no outlier is more than a rank away.
2. Two cumulative sums, one for drops and one for rises, take the scores less a `slack` and never fall below 0 (Page,
   "Continuous inspection schemes", 1954, section 3).
3. The limit is `threshold` times the scores' long-run variance: 1 for independent requests, more where neighbours
   resemble each other. It is estimated with Bartlett weights (Newey, West, "A simple, positive semi-definite,
   heteroskedasticity and autocorrelation consistent covariance matrix", 1987).

How slack and threshold were chosen, false alarms and delays: docs/metrics.md, by ``python -m benchmarks.bench_drift``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import NormalDist, fmean
from typing import Literal

from lookahead_edit.config import DriftConfig

Direction = Literal["drop", "rise"]
Change = Literal["drop", "rise", "recovered", "adopted"]

NUM_AVERAGED_REQUESTS = 50


@dataclass(frozen=True, slots=True)
class DriftEvent:
    """What has just changed.

    ``drop`` and ``rise`` raise an alarm. It ends with ``recovered``, or with ``adopted`` where it has lasted so long
    that the last requests become the reference.
    """

    change: Change
    reference_rate: float
    acceptance_rate: float  # since the change began; once recovered, of the last few requests
    num_requests: int  # since the change began; once recovered or adopted, since the alarm


@dataclass(frozen=True, slots=True)
class DriftState:
    """Where a route stands. Rates are means over requests, None before there is one."""

    direction: Direction | None
    num_reference_requests: int  # learned so far
    reference_rate: float | None  # None while the reference is being learned
    acceptance_rate: float | None  # since the drift began; None without one


class DriftDetector:
    """Hears each request's drafts and tells when their acceptance has changed for good.

    Small requests are put together until they have drafted `config.min_draft_tokens`, and then count as one; requests
    without a draft say nothing. Memory is bounded: the reference, and as many requests since.

    Example::

        detector = DriftDetector()
        for request in traffic:  # 300 of them are the reference
            event = detector.add(request.num_draft_tokens, request.num_accepted_tokens)
            if event is not None:
                print(event.change, event.reference_rate, event.acceptance_rate)
    """

    def __init__(self, config: DriftConfig | None = None) -> None:
        self.config = config or DriftConfig()
        self._reference: Reference | None = None
        self._recent: deque[float] = deque(maxlen=self.config.num_reference_requests)
        self._num_pooled_draft_tokens = 0
        self._num_pooled_accepted_tokens = 0
        self._direction: Direction | None = None
        self._num_drifting_requests = 0
        self._sums = {"drop": _Sum(), "rise": _Sum()}

    @property
    def state(self) -> DriftState:
        """Where it stands now."""
        drifting = self._sums[self._direction] if self._direction is not None else None
        return DriftState(
            direction=self._direction,
            num_reference_requests=len(self._recent) if self._reference is None else len(self._reference),
            reference_rate=None if self._reference is None else self._reference.mean,
            acceptance_rate=None if drifting is None else drifting.mean,
        )

    def add(self, num_draft_tokens: int, num_accepted_tokens: int) -> DriftEvent | None:
        """Counts a request, and tells what it has changed, if anything."""
        assert 0 <= num_accepted_tokens <= num_draft_tokens
        self._num_pooled_draft_tokens += num_draft_tokens
        self._num_pooled_accepted_tokens += num_accepted_tokens
        if self._num_pooled_draft_tokens < self.config.min_draft_tokens:
            return None
        rate = self._num_pooled_accepted_tokens / self._num_pooled_draft_tokens
        self._num_pooled_draft_tokens = self._num_pooled_accepted_tokens = 0
        self._recent.append(rate)
        if self._reference is None:
            if len(self._recent) == self.config.num_reference_requests:
                self._reference = Reference(self._recent, self.config.max_lag_requests)
            return None
        return self._test(rate, self._reference)

    def _test(self, rate: float, reference: Reference) -> DriftEvent | None:
        score = reference.score(rate)
        limit = self.config.threshold * reference.variance_ratio
        self._sums["drop"].add(-score - self.config.slack, rate, limit)
        self._sums["rise"].add(score - self.config.slack, rate, limit)
        if self._direction is None:
            return self._alarm(reference, limit)
        drifting = self._sums[self._direction]
        self._num_drifting_requests += 1
        if drifting.value == 0.0:
            self._direction = None
            latest = list(self._recent)[-self.config.max_lag_requests :]
            return DriftEvent("recovered", reference.mean, fmean(latest), self._num_drifting_requests)
        if self._num_drifting_requests < self.config.num_adopting_requests:
            return None
        adopted = DriftEvent("adopted", reference.mean, drifting.mean, self._num_drifting_requests)
        self._reference = Reference(self._recent, self.config.max_lag_requests)
        self._direction = None
        self._sums = {"drop": _Sum(), "rise": _Sum()}
        return adopted

    def _alarm(self, reference: Reference, limit: float) -> DriftEvent | None:
        directions: tuple[Direction, Direction] = ("drop", "rise")
        for direction in directions:
            drifting = self._sums[direction]
            # A route whose acceptance never varies shows the smallest change; one that nobody would act on is none.
            if drifting.value >= limit and abs(drifting.mean - reference.mean) >= self.config.min_change:
                self._direction = direction
                self._num_drifting_requests = 0
                return DriftEvent(direction, reference.mean, drifting.mean, drifting.num_requests)
        return None


class Reference:
    """The acceptance of a stretch of requests, in their order, as the measure for later ones.

    Args:
        rates: of each request, from 0 to 1.
        max_lag: how many requests apart two may be and still resemble each other.
    """

    def __init__(self, rates: Sequence[float] | deque[float], max_lag: int) -> None:
        self.mean = fmean(rates)
        self._sorted = sorted(rates)
        size, normal = len(self._sorted), NormalDist()
        ranked = [normal.inv_cdf((rank + 1.0) / (size + 1.0)) for rank in range(size)]
        self._sums = [0.0, *accumulate(ranked)]
        self._between = [normal.inv_cdf((place + 0.5) / (size + 1.0)) for place in range(size + 1)]
        self.variance_ratio = long_run_variance_ratio([self.score(rate) for rate in rates], max_lag)

    def __len__(self) -> int:
        return len(self._sorted)

    def score(self, rate: float) -> float:
        """The normal score of a rate, about -3 to 3: the mean score of its equals in the reference.

        >>> [round(Reference([0.5, 0.6, 0.7], 1).score(rate), 2) for rate in (0.1, 0.6, 0.65, 1.0)]
        [-1.15, 0.0, 0.32, 1.15]
        """
        first, last = bisect_left(self._sorted, rate), bisect_right(self._sorted, rate)
        return self._between[first] if first == last else (self._sums[last] - self._sums[first]) / (last - first)


def long_run_variance_ratio(values: Sequence[float], max_lag: int) -> float:
    """Variance of a long sum over what it would be for independent values; at least 1.

    The autocovariance at lag i has the weight ``1 - i / (max_lag + 1)``.

    >>> long_run_variance_ratio([1.0, -1.0, 1.0, -1.0], 1), long_run_variance_ratio([1.0, 1.0, -1.0, -1.0], 1)
    (1.0, 1.25)
    """
    mean = fmean(values)
    centered = [value - mean for value in values]
    variance = sum(value * value for value in centered)
    if variance == 0.0:
        return 1.0
    total = variance
    for lag in range(1, min(max_lag, len(centered) - 1) + 1):
        covariance = sum(a * b for a, b in zip(centered, centered[lag:], strict=False))
        total += 2.0 * (1.0 - lag / (max_lag + 1.0)) * covariance
    return max(1.0, total / variance)


@dataclass(slots=True)
class _Sum:
    """A one-sided cumulative sum, and the mean rate since it was last 0: since a change, if there is one."""

    value: float = 0.0
    num_requests: int = 0
    mean: float = 0.0  # of about the last NUM_AVERAGED_REQUESTS, where there are more

    def add(self, step: float, rate: float, limit: float) -> None:
        # Not above the limit: after a long drift, the way back is as long as after a short one.
        self.value = min(max(0.0, self.value + step), limit)
        self.num_requests = self.num_requests + 1 if self.value > 0.0 else 0
        self.mean += (rate - self.mean) / min(max(self.num_requests, 1), NUM_AVERAGED_REQUESTS)
