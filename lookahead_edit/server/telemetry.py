"""Prometheus counters, under vLLM's names with our prefix, and each route's figures. Measures nothing itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from time import monotonic

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from lookahead_edit.config import DriftConfig
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.metrics_drift import DriftEvent
from lookahead_edit.metrics_routes import RouteMetrics
from lookahead_edit.server.errors import error_code
from lookahead_edit.server.jobs import Job
from lookahead_edit.types import RequestStopped, Round, SourceArray, SourceKind

logger = logging.getLogger(__name__)

# A label per position is a series per position: behind this many they share one.
MAX_POSITION_LABELS = 64

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 120.0, 300.0)
_DRIFT_VALUES = {None: 0.0, "drop": -1.0, "rise": 1.0}
_DRIFT_LINES = {
    "drop": "acceptance on route %s has fallen: %.2f in the last %d requests, %.2f before",
    "rise": "acceptance on route %s has risen: %.2f in the last %d requests, %.2f before",
    "recovered": "acceptance on route %s is back: %.2f, after %d requests, %.2f at first",
    "adopted": "acceptance on route %s stays at %.2f, which is the reference after %d requests; it was %.2f before",
}


class Telemetry:
    """The counters of one server, in a registry of their own. Callable from any thread.

    Ratios are for the reader to form; docs/metrics.md has the expressions. The acceptance rate, for instance::

        sum by (route) (rate(lookahead:spec_decode_num_accepted_tokens_total[5m]))
          / sum by (route) (rate(lookahead:spec_decode_num_draft_tokens_total[5m]))

    Args:
        route_names: of the configured routes, which have their series from the beginning.
        drift: when acceptance counts as changed.
    """

    def __init__(self, route_names: Iterable[str] = (), drift: DriftConfig | None = None) -> None:
        self.registry = CollectorRegistry()
        self._drift = drift
        self._lock = Lock()
        self._routes: dict[str, RouteMetrics] = {}

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"lookahead:{name}", text, labels, registry=self.registry)

        by_source = ("route", "source")
        by_position = (*by_source, "position")
        self._drafts = counter("spec_decode_num_drafts", "Drafts verified, by their first token's source.", *by_source)
        self._draft_tokens = counter("spec_decode_num_draft_tokens", "Draft tokens verified.", *by_source)
        self._accepted_tokens = counter("spec_decode_num_accepted_tokens", "Draft tokens accepted.", *by_source)
        self._draft_tokens_by_position = counter(
            "spec_decode_num_draft_tokens_per_pos", "Draft tokens verified, by place in the draft.", *by_position
        )
        self._accepted_tokens_by_position = counter(
            "spec_decode_num_accepted_tokens_per_pos", "Draft tokens accepted, by place in the draft.", *by_position
        )
        self._rounds = counter("rounds", "Rounds that emitted tokens, also those without a draft.", "route")
        self._emitted_tokens = counter("emitted_tokens", "Tokens emitted in rounds.", "route")
        self._decode_seconds = counter(
            "decode_seconds", "Rounds, reading prompts left out, summed by request.", "route"
        )
        self._draft_seconds = counter("draft_seconds", "The part of the rounds spent on drafting.", "route")
        self._requests = counter("requests", "Requests that the model has worked on, however they ended.", "route")
        self._prompt_tokens = counter("prompt_tokens", "Prompt tokens of answered requests.")
        self._generation_tokens = counter("generation_tokens", "Tokens emitted for answered requests.")
        self._success = counter("request_success", "Requests answered whole.", "finished_reason")
        self._cancelled = counter("requests_cancelled", "Requests cancelled, superseded or out of time.")
        self._rejected = counter("requests_rejected", "Requests answered with an error.", "code")
        self._acceptance_drift = Gauge(
            "lookahead:acceptance_drift",
            "Whether acceptance has changed: -1 fallen, 1 risen, 0 neither.",
            ["route"],
            registry=self.registry,
        )
        self._drifts = counter("acceptance_drifts", "Times that acceptance has changed.", "route", "direction")
        self._first_token = self._histogram(
            "time_to_first_token_seconds", "From a request's arrival to its first token."
        )
        self._latency = self._histogram("e2e_request_latency_seconds", "From a request's arrival to its answer.")
        for name in route_names:
            self._open_route(name)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"lookahead:{name}", text, buckets=_SECONDS, registry=self.registry)

    def watch_queue(self, num_running: Callable[[], float], num_waiting: Callable[[], float]) -> None:
        """Asks the two functions whenever the counters are read."""
        running = Gauge("lookahead:num_requests_running", "Requests in the model.", registry=self.registry)
        running.set_function(num_running)
        waiting = Gauge("lookahead:num_requests_waiting", "Requests in the queue.", registry=self.registry)
        waiting.set_function(num_waiting)

    def watch_kept_prompts(self, num_bytes: Callable[[], float]) -> None:
        """Asks the function whenever the counters are read."""
        kept = Gauge(
            "lookahead:kept_prompt_bytes",
            "Memory of finished requests' prompts, kept for others that begin alike.",
            registry=self.registry,
        )
        kept.set_function(num_bytes)

    def count_error(self, error: Exception) -> None:
        """Counts a request that ends in an error."""
        if isinstance(error, RequestStopped):
            self._cancelled.inc()
        else:
            self._rejected.labels(error_code(error)).inc()

    def count_rounds(self, route: str, rounds: Sequence[Round]) -> None:
        """Counts what rounds emitted and drafted; those that only read a prompt don't count."""
        for finished in rounds:
            if len(finished.tokens):
                self._count_round(route, finished)

    def _count_round(self, route: str, finished: Round) -> None:
        self._rounds.labels(route).inc()
        self._emitted_tokens.labels(route).inc(len(finished.tokens))
        seconds = finished.draft_seconds + finished.verify_seconds - finished.prefill_seconds
        self._decode_seconds.labels(route).inc(max(0.0, seconds))
        self._draft_seconds.labels(route).inc(finished.draft_seconds)
        sources = finished.draft.sources
        if not len(sources):
            return
        self._drafts.labels(route, SourceKind(int(sources[0])).label).inc()
        _count_tokens(sources, self._draft_tokens, self._draft_tokens_by_position, route)
        accepted = sources[: finished.num_accepted_tokens]
        _count_tokens(accepted, self._accepted_tokens, self._accepted_tokens_by_position, route)

    def count_request(self, route: str, metrics: SpeculationMetrics) -> None:
        """Counts a request that has left the model, however it ended, and tells the log where acceptance changed."""
        with self._lock:
            event = self._open_route(route).add(metrics)
            drift = self._routes[route].drift
        self._requests.labels(route).inc()
        self._acceptance_drift.labels(route).set(_DRIFT_VALUES[drift.direction])
        if event is not None:
            self._tell_drift(route, event)

    def count_answer(self, job: Job, finish_reason: str, metrics: SpeculationMetrics) -> None:
        """Counts a request that was answered."""
        self._success.labels(finish_reason).inc()
        self._prompt_tokens.inc(metrics.num_prompt_tokens)
        self._generation_tokens.inc(metrics.num_emitted_tokens)
        self._latency.observe(monotonic() - job.arrived)
        if job.first_token is not None:
            self._first_token.observe(job.first_token - job.arrived)

    def render(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)

    def routes(self) -> dict[str, RouteMetrics]:
        """Each route's figures so far, by name; read them at once."""
        with self._lock:
            return dict(self._routes)

    def _open_route(self, name: str) -> RouteMetrics:
        if name not in self._routes:
            self._routes[name] = RouteMetrics(self._drift)
            self._acceptance_drift.labels(name).set(0.0)
            for by_route in (
                self._rounds,
                self._emitted_tokens,
                self._decode_seconds,
                self._draft_seconds,
                self._requests,
            ):
                by_route.labels(name)
        return self._routes[name]

    def _tell_drift(self, route: str, event: DriftEvent) -> None:
        if event.change in ("drop", "rise"):
            self._drifts.labels(route, event.change).inc()
        level = logging.WARNING if event.change == "drop" else logging.INFO
        line = _DRIFT_LINES[event.change]
        logger.log(level, line, route, event.acceptance_rate, event.num_requests, event.reference_rate)


def _count_tokens(sources: SourceArray, tokens: Counter, tokens_by_position: Counter, route: str) -> None:
    for kind, number in zip(*np.unique(sources, return_counts=True), strict=True):
        tokens.labels(route, SourceKind(int(kind)).label).inc(int(number))
    for position, kind in enumerate(sources[:MAX_POSITION_LABELS].tolist()):
        tokens_by_position.labels(route, SourceKind(kind).label, str(position)).inc()
    for kind, number in zip(*np.unique(sources[MAX_POSITION_LABELS:], return_counts=True), strict=True):
        shown = f"{MAX_POSITION_LABELS}+"
        tokens_by_position.labels(route, SourceKind(int(kind)).label, shown).inc(int(number))
