"""One request's way through the worker. Knows no HTTP and no queue."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

from lookahead_edit.editor import EditResult, GenerateResult, Progress
from lookahead_edit.metrics import SpeculationMetrics

Outcome: TypeAlias = "Progress | EditResult | GenerateResult"

_arrivals = itertools.count()


class Job:
    """A request from its arrival to its result or its error, whichever comes first; that one is final.

    Lives on the event loop. Only `is_stopped`, `note_start` and `note_round` are for the model's thread.

    Args:
        id_prefix: its id is this, a dash and something unique.
        request_id: the client's or a made-up name, echoed as `x-request-id`.
        client: who asks, as far as can be told: jobs of one client share sessions, turns and caches.
    """

    def __init__(self, id_prefix: str, request_id: str, *, client: str = "") -> None:
        self.id = f"{id_prefix}-{uuid.uuid4().hex}"
        self.request_id = request_id
        self.client = client
        self.route = ""  # label of its counters
        self.priority = 0  # higher ones leave the queue first
        self.num_body_bytes = 0  # of the request as it came
        self.cache_group: str | None = None  # whose prompts its own may be read from
        self.arrival = next(_arrivals)  # orders jobs: a larger number came later
        self.created = int(time.time())
        self.arrived = time.monotonic()
        self.started: float | None = None  # when the model began with it
        self.first_token: float | None = None
        self.last_token: float | None = None
        self.metrics: SpeculationMetrics | None = None  # live, once it has had a round
        self.session: str | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.on_over: Callable[[Job], None] = lambda job: None
        self._outcomes: deque[Outcome] = deque()
        self._has_news = asyncio.Event()
        self._error: Exception | None = None
        self._is_over = False

    # 1) For the model's thread

    def is_stopped(self) -> bool:
        """Whether nobody waits for it any more; a plain read, asked between prefill chunks and rounds."""
        return self._error is not None

    def note_start(self) -> None:
        """Takes the time at which it got its place among the running ones."""
        self.started = self.started or time.monotonic()

    def note_round(self, progress: Progress) -> None:
        """Takes the time of a round."""
        self.metrics = progress.metrics
        if len(progress.round.tokens):
            self.last_token = time.monotonic()
            self.first_token = self.first_token or self.last_token

    # 2) For the event loop

    @property
    def is_over(self) -> bool:
        return self._is_over

    def deliver(self, outcome: Outcome) -> None:
        """Hands on what the model made; after a result or an error nothing more is taken."""
        if self._is_over:
            return
        self._outcomes.append(outcome)
        self._has_news.set()
        if not isinstance(outcome, Progress):
            self._end()

    def stop(self, error: Exception) -> bool:
        """Ends the job with an error, at once, also while it runs; False where it is over already."""
        if self._is_over:
            return False
        self._error = error
        self._has_news.set()
        self._end()
        return True

    def raise_if_stopped(self) -> None:
        if self._error is not None:
            raise self._error

    async def outcomes(self, idle_seconds: float | None = None) -> AsyncIterator[Outcome | None]:
        """Everything delivered, up to the result; None whenever `idle_seconds` pass without any text.

        Rounds that only read the prompt, or whose text is held back, give none. Raises the error that the job was
        stopped with.
        """
        told = time.monotonic()
        while True:
            self._has_news.clear()
            self.raise_if_stopped()
            while self._outcomes:
                outcome = self._outcomes.popleft()
                yield outcome
                if not isinstance(outcome, Progress):
                    return
                if outcome.delta:
                    told = time.monotonic()
                self.raise_if_stopped()
            seconds_left = None if idle_seconds is None else told + idle_seconds - time.monotonic()
            try:
                await asyncio.wait_for(self._has_news.wait(), None if seconds_left is None else max(0.0, seconds_left))
            except asyncio.TimeoutError:
                yield None
                told = time.monotonic()

    async def result(self) -> EditResult | GenerateResult:
        """The last outcome."""
        async for outcome in self.outcomes():
            if isinstance(outcome, (EditResult, GenerateResult)):
                return outcome
        raise AssertionError("outcomes end in a result or raise")

    def _end(self) -> None:
        self._is_over = True
        if self.timer is not None:
            self.timer.cancel()
        self.on_over(self)
