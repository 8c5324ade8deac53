"""Who is next: routes of higher priority first, clients in turn, each client's requests in order. Pure; no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lookahead_edit.server.jobs import Job

# One turn in so many ignores priorities, so that a busy route can't starve the others.
TURNS_PER_EXCEPTION = 4
# Behind a full queue this share of it is kept for clients who have nothing waiting.
RESERVED_SHARE = 0.25


Request = TypeVar("Request")


@dataclass(frozen=True, slots=True, eq=False)
class Waiting(Generic[Request]):
    """A job and what it wants."""

    job: Job
    request: Request


def _anyone(waiting: Waiting[Any]) -> bool:
    return True


class FairQueue(Generic[Request]):
    """Requests that wait for a place.

    A client is whoever `Job.client` says. Next is, among the routes of the highest priority that wait, the client with
    the fewest requests running, then the one whose last turn is longest ago, then whose request arrived first: with one
    client that is the order of arrival, and one who sends a hundred requests delays another's single one by one turn.
    """

    def __init__(self) -> None:
        self._waiting: list[Waiting[Request]] = []
        self._num_turns = 0
        self._last_turns: dict[str, int] = {}  # of clients who have requests waiting or running

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, waiting: Waiting[Request]) -> None:
        self._waiting.append(waiting)

    def remove(self, job: Job) -> list[Waiting[Request]]:
        """Forgets a job that is over, and returns what it waited for; one that doesn't wait is no error."""
        removed = [waiting for waiting in self._waiting if waiting.job is job]
        self._waiting = [waiting for waiting in self._waiting if waiting.job is not job]
        return removed

    def has(self, client: str) -> bool:
        """Whether the client has a request waiting."""
        return any(waiting.job.client == client for waiting in self._waiting)

    def take(
        self, running: Iterable[Job], may_go: Callable[[Waiting[Request]], bool] = _anyone
    ) -> Waiting[Request] | None:
        """Removes and returns the next one, of those that may go; None where there is none.

        `running` are the jobs that have a place, as often as they have one.
        """
        candidates = [waiting for waiting in self._waiting if may_go(waiting)]
        if not candidates:
            return None
        num_running = Counter(job.client for job in running)
        known = {waiting.job.client for waiting in self._waiting} | num_running.keys()
        self._last_turns = {client: turn for client, turn in self._last_turns.items() if client in known}
        self._num_turns += 1
        ignores_priority = self._num_turns % TURNS_PER_EXCEPTION == 0

        def rank(waiting: Waiting[Request]) -> tuple[int, int, int, int]:
            job = waiting.job
            priority = 0 if ignores_priority else -job.priority
            return priority, num_running[job.client], self._last_turns.get(job.client, 0), job.arrival

        chosen = min(candidates, key=rank)
        self._waiting.remove(chosen)
        self._last_turns[chosen.job.client] = self._num_turns
        return chosen
