"""Steps many live requests in one engine: they join and leave between rounds, and none can end another.

Knows no threads, no queue outside the batch and no HTTP; whoever steps it passes on what happened.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from lookahead_edit.drafters.guarded import GuardedDrafter
from lookahead_edit.engine import Engine
from lookahead_edit.failures import describe_failure, is_out_of_memory
from lookahead_edit.live import LiveRequest
from lookahead_edit.tasks import EditResult, GenerateResult, Progress
from lookahead_edit.types import RequestCancelled

logger = logging.getLogger(__name__)

# After so many rounds without a failure one more row is tried again, where memory had run out.
ROUNDS_BEFORE_GROWTH = 512

Name = TypeVar("Name")
AnyLiveRequest: TypeAlias = "LiveRequest[EditResult] | LiveRequest[GenerateResult]"
# Progress goes on. The last that happens to a request is an error, or that it is finished: its result is made of the
# whole text, which takes its time, so it is for whoever hears of it to ask for.
Event: TypeAlias = "Progress | AnyLiveRequest | Exception"


@dataclass(slots=True, eq=False)
class _Entry(Generic[Name]):
    name: Name
    live: AnyLiveRequest


class Scheduler(Generic[Name]):
    """The batch of one engine, and who waits for a place in it. Not thread-safe.

    A request ends in its own error only: an exception from its drafter takes its drafts away, one from its text ends
    it, and where a whole pass fails its rows are tried again one by one, so that only those end that fail alone. Where
    memory ran out, what the target kept of finished requests is given up, the newest half of the batch waits until
    there is room, and the batch stays smaller for a while.

    Args:
        engine: its policy hears of all rows.
        max_batch_size: rows stepped together at most.

    Example::

        scheduler = Scheduler[str](Engine(target, policy), max_batch_size=8)
        scheduler.add("a", editor.open(EditRequest(text, instruction="Rename total to price.")))
        while not scheduler.is_idle:
            scheduler.join()
            for name, event in scheduler.step():
                if isinstance(event, LiveRequest):
                    print(name, event.result().text)
    """

    def __init__(self, engine: Engine, max_batch_size: int) -> None:
        self._engine = engine
        self._max_batch_size = max_batch_size
        self._limit = max_batch_size  # lower where memory ran out
        self._num_good_rounds = 0
        self._waiting: deque[_Entry[Name]] = deque()
        self._rows: list[_Entry[Name]] = []
        # Rows of a pass that failed, until each has emitted something in a pass of its own; the others go on meanwhile.
        self._on_trial: deque[_Entry[Name]] = deque()

    @property
    def num_live(self) -> int:
        """Requests with a place in the batch."""
        return len(self._rows) + len(self._on_trial)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to step."""
        return not (self._rows or self._on_trial or self._waiting)

    def add(self, name: Name, live: AnyLiveRequest) -> None:
        """Takes a request in; it joins the batch when there is a place."""

        def report(error: Exception) -> None:
            logger.error("a drafter failed, its request goes on without drafts: %s", describe_failure(error))

        live.sequence.drafter = GuardedDrafter(live.sequence.drafter, report)
        self._waiting.append(_Entry(name, live))

    def join(self) -> list[Name]:
        """Fills free places with those who wait, in the order of their arrival; the names of the new ones."""
        joined = []
        while self._waiting and self.num_live < self._limit:
            entry = self._waiting.popleft()
            self._rows.append(entry)
            joined.append(entry.name)
        return joined

    def step(self) -> list[tuple[Name, Event]]:
        """One round for every row of the batch, and for one of those on trial; what happened, in order."""
        events = self._drop_cancelled()
        if self._on_trial:
            self._on_trial.rotate(-1)
            events += self._run([self._on_trial[-1]])
        if self._rows:
            events += self._run(list(self._rows))
        return events

    def _run(self, rows: list[_Entry[Name]]) -> list[tuple[Name, Event]]:
        try:
            rounds = self._engine.step([entry.live.sequence for entry in rows])
        except Exception as error:
            return self._after_failure(rows, error)
        self._grow()
        events: list[tuple[Name, Event]] = []
        for entry, finished in zip(rows, rounds, strict=True):
            if len(finished.tokens) and entry in self._on_trial:
                self._on_trial.remove(entry)
                self._rows.append(entry)
            try:
                events.append((entry.name, entry.live.take(finished)))
                if entry.live.sequence.is_finished:
                    events.append(self._end(entry, entry.live))
            except Exception as error:
                events.append(self._end(entry, error))
        return events

    def end_all(self, error: Exception) -> list[tuple[Name, Event]]:
        """Ends every request with the same error."""
        return [self._end(entry, error) for entry in [*self._on_trial, *self._rows, *self._waiting]]

    def _drop_cancelled(self) -> list[tuple[Name, Event]]:
        entries = [*self._on_trial, *self._rows, *self._waiting]
        return [
            self._end(entry, RequestCancelled("the request was cancelled"))
            for entry in entries
            if entry.live.sequence.is_cancelled()
        ]

    def _end(self, entry: _Entry[Name], event: AnyLiveRequest | Exception) -> tuple[Name, Event]:
        for entries in (self._rows, self._on_trial, self._waiting):
            if entry in entries:
                entries.remove(entry)
        self._close(entry)
        return entry.name, event

    def _close(self, entry: _Entry[Name]) -> None:
        try:
            self._engine.target.close(entry.live.sequence.key)
        except Exception as error:
            logger.error("closing a request's cache failed: %s", describe_failure(error))

    def _after_failure(self, rows: list[_Entry[Name]], error: Exception) -> list[tuple[Name, Event]]:
        """What the target kept of the rows is lost: they are read again, or end."""
        self._num_good_rounds = 0
        for entry in rows:
            self._close(entry)
        has_freed = is_out_of_memory(error) and self._free_memory()
        if len(rows) == 1:
            return [] if has_freed else [self._end(rows[0], error)]
        if is_out_of_memory(error):
            self._limit = len(rows) // 2
            logger.warning(
                "memory ran out in a batch of %d requests: at most %d run together from now on", len(rows), self._limit
            )
            self._waiting.extendleft(reversed(rows[self._limit :]))
            del self._rows[self._limit :]
        else:
            logger.error(
                "a pass over %d requests failed, trying them one by one: %s", len(rows), describe_failure(error)
            )
            self._on_trial.extend(rows)
            self._rows.clear()
        return []

    def _free_memory(self) -> bool:
        """Whether the target kept something of finished requests, which is gone now."""
        kept = getattr(self._engine.target, "prefix_cache", None)
        if kept is None or not kept.num_bytes:
            return False
        kept.clear()
        return True

    def _grow(self) -> None:
        if self._limit == self._max_batch_size:
            return
        self._num_good_rounds += 1
        if self._num_good_rounds == ROUNDS_BEFORE_GROWTH:
            self._num_good_rounds = 0
            self._limit += 1
            logger.info("%d requests may run together again", self._limit)
