"""One request's way through the worker. Knows no HTTP and no queue."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeAlias

from lookahead_edit.editor import Editor, EditResult, Progress
from lookahead_edit.types import Round

Outcome: TypeAlias = "Progress | EditResult"
Run: TypeAlias = Callable[[Editor, Callable[[], bool]], Iterator[Outcome]]

_arrivals = itertools.count()


class Job:
    """A request from its arrival to its result or its error, whichever comes first; that one is final.

    Lives on the event loop. Only `is_stopped` and `note_round` are for the model's thread.

    Args:
        id_prefix: its id is this, a dash and something unique.
        route: label of its counters.
        request_id: the client's or a made-up name, echoed as `x-request-id`.
    """

    def __init__(self, id_prefix: str, route: str, request_id: str) -> None:
        self.id = f"{id_prefix}-{uuid.uuid4().hex}"
        self.route = route
        self.request_id = request_id
        self.arrival = next(_arrivals)  # orders jobs: a larger number came later
        self.created = int(time.time())
        self.arrived = time.monotonic()
        self.started: float | None = None  # when the model began with it
        self.first_token: float | None = None
        self.last_token: float | None = None
        self.rounds: list[Round] = []
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

    def note_round(self, progress: Progress) -> None:
        """Takes the time of a round."""
        self.rounds.append(progress.round)
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
        """Everything delivered, up to the result; None whenever `idle_seconds` pass without news.

        Raises the error that the job was stopped with.
        """
        while True:
            self._has_news.clear()
            self.raise_if_stopped()
            while self._outcomes:
                outcome = self._outcomes.popleft()
                yield outcome
                if not isinstance(outcome, Progress):
                    return
                self.raise_if_stopped()
            try:
                await asyncio.wait_for(self._has_news.wait(), idle_seconds)
            except asyncio.TimeoutError:
                yield None

    async def result(self) -> EditResult:
        """The last outcome."""
        async for outcome in self.outcomes():
            if isinstance(outcome, EditResult):
                return outcome
        raise AssertionError("outcomes end in a result or raise")

    def _end(self) -> None:
        self._is_over = True
        if self.timer is not None:
            self.timer.cancel()
        self.on_over(self)
