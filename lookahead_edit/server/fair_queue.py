"""Who is next: routes of higher priority first, clients in turn, each client's requests in order. Pure; no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from lookahead_edit.editor import EditRequest, GenerateRequest
from lookahead_edit.server.jobs import Job

# One turn in so many ignores priorities, so that a busy route can't starve the others.
TURNS_PER_EXCEPTION = 4
# Behind a full queue this share of it is kept for clients who have nothing waiting.
RESERVED_SHARE = 0.25


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A job and what it wants."""

    job: Job
    request: EditRequest | GenerateRequest


class FairQueue:
    """Requests that wait for a place.

    A client is whoever `Job.client` says. Next is, among the routes of the highest priority that wait, the client with
    the fewest requests running, then the one whose last turn is longest ago, then whose request arrived first: with one
    client that is the order of arrival, and one who sends a hundred requests delays another's single one by one turn.
    """

    def __init__(self) -> None:
        self._waiting: list[Waiting] = []
        self._num_turns = 0
        self._last_turns: dict[str, int] = {}  # of clients who have requests waiting or running

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, waiting: Waiting) -> None:
        self._waiting.append(waiting)

    def remove(self, job: Job) -> None:
        """Forgets a job that is over; one that doesn't wait is no error."""
        self._waiting = [waiting for waiting in self._waiting if waiting.job is not job]

    def has(self, client: str) -> bool:
        """Whether the client has a request waiting."""
        return any(waiting.job.client == client for waiting in self._waiting)

    def take(self, running: Iterable[Job]) -> Waiting:
        """Removes and returns the next one; `running` are those that have a place. The queue must not be empty."""
        num_running = Counter(job.client for job in running)
        known = {waiting.job.client for waiting in self._waiting} | num_running.keys()
        self._last_turns = {client: turn for client, turn in self._last_turns.items() if client in known}
        self._num_turns += 1
        ignores_priority = self._num_turns % TURNS_PER_EXCEPTION == 0

        def rank(waiting: Waiting) -> tuple[int, int, int, int]:
            job = waiting.job
            priority = 0 if ignores_priority else -job.priority
            return priority, num_running[job.client], self._last_turns.get(job.client, 0), job.arrival

        chosen = min(self._waiting, key=rank)
        self._waiting.remove(chosen)
        self._last_turns[chosen.job.client] = self._num_turns
        return chosen
