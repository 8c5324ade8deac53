"""Prometheus counters, under vLLM's names with our prefix. Reads `metrics` and rounds, measures nothing itself."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Sequence
from time import monotonic

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.server.errors import error_code
from lookahead_edit.server.jobs import Job
from lookahead_edit.types import RequestStopped, Round, SourceKind

# A label per position is a series per position: behind this many they share one.
MAX_POSITION_LABELS = 64

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 120.0, 300.0)


class Telemetry:
    """The counters of one server, in a registry of their own.

    Ratios are for the reader to form. The acceptance rate, for instance::

        rate(lookahead:spec_decode_num_accepted_tokens_total[5m])
          / rate(lookahead:spec_decode_num_draft_tokens_total[5m])
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"lookahead:{name}", text, labels, registry=self.registry)

        by_source = ("route", "source")
        self._drafts = counter("spec_decode_num_drafts", "Drafts verified, by their first token's source.", *by_source)
        self._draft_tokens = counter("spec_decode_num_draft_tokens", "Draft tokens verified.", *by_source)
        self._accepted_tokens = counter("spec_decode_num_accepted_tokens", "Draft tokens accepted.", *by_source)
        self._accepted_per_position = counter(
            "spec_decode_num_accepted_tokens_per_pos",
            "Draft tokens accepted, by place in the draft.",
            *by_source,
            "position",
        )
        self._prompt_tokens = counter("prompt_tokens", "Prompt tokens of answered requests.")
        self._generation_tokens = counter("generation_tokens", "Tokens emitted for answered requests.")
        self._success = counter("request_success", "Requests answered whole.", "finished_reason")
        self._cancelled = counter("requests_cancelled", "Requests cancelled, superseded or out of time.")
        self._rejected = counter("requests_rejected", "Requests answered with an error.", "code")
        self._first_token = Histogram(
            "lookahead:time_to_first_token_seconds",
            "From a request's arrival to its first token.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._latency = Histogram(
            "lookahead:e2e_request_latency_seconds",
            "From a request's arrival to its answer.",
            buckets=_SECONDS,
            registry=self.registry,
        )

    def watch_queue(self, num_running: Callable[[], float], num_waiting: Callable[[], float]) -> None:
        """Asks the two functions whenever the counters are read."""
        running = Gauge("lookahead:num_requests_running", "Requests in the model.", registry=self.registry)
        running.set_function(num_running)
        waiting = Gauge("lookahead:num_requests_waiting", "Requests in the queue.", registry=self.registry)
        waiting.set_function(num_waiting)

    def count_error(self, error: Exception) -> None:
        """Counts a request that ends in an error."""
        if isinstance(error, RequestStopped):
            self._cancelled.inc()
        else:
            self._rejected.labels(error_code(error)).inc()

    def count_rounds(self, route: str, rounds: Sequence[Round]) -> None:
        """Counts what a request's rounds drafted, also where the request didn't reach its end."""
        drafts: Tally[str] = Tally()
        drafted: Tally[str] = Tally()
        accepted: Tally[tuple[str, int]] = Tally()
        for finished in rounds:
            labels = [SourceKind(kind).label for kind in finished.draft.sources.tolist()]
            drafts.update(labels[:1])
            drafted.update(labels)
            accepted.update(
                (label, min(position, MAX_POSITION_LABELS))
                for position, label in enumerate(labels[: finished.num_accepted_tokens])
            )
        for source, number in drafts.items():
            self._drafts.labels(route, source).inc(number)
        for source, number in drafted.items():
            self._draft_tokens.labels(route, source).inc(number)
        for (source, position), number in accepted.items():
            shown = str(position) if position < MAX_POSITION_LABELS else f"{MAX_POSITION_LABELS}+"
            self._accepted_tokens.labels(route, source).inc(number)
            self._accepted_per_position.labels(route, source, shown).inc(number)

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
