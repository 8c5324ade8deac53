"""What every route that generates does first: read the body, check it, queue it. Knows no answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from starlette.requests import Request

from lookahead_edit.config import RouteConfig, ServerConfig
from lookahead_edit.editor import Editor, EditRequest, GenerateRequest
from lookahead_edit.server.connection import BodyRoom, read_json_body, stopped_with_connection
from lookahead_edit.server.jobs import Job
from lookahead_edit.server.routing import Entry, Routing
from lookahead_edit.server.worker import Worker

# So many bodies of the largest size are held at once, or more smaller ones.
NUM_LARGEST_BODIES = 16


class Call(Protocol):
    """A checked request, as far as it matters here."""

    @property
    def request(self) -> EditRequest | GenerateRequest:
        """What the editor gets."""

    @property
    def route(self) -> RouteConfig:
        """Which limits and counters it has."""

    @property
    def session(self) -> str | None:
        """Whose older request it takes the place of."""

    @property
    def timeout_seconds(self) -> float | None:
        """From its arrival to the whole answer."""


AnyCall = TypeVar("AnyCall", bound=Call)
Parse = Callable[[bytes, Editor, Routing, Entry, Callable[[], bool]], AnyCall]


class Intake:
    """Takes requests in for one worker.

    Args:
        worker: who runs them.
        config: how large bodies may be, and how long they may take.
        routing: which route each takes.
    """

    def __init__(self, worker: Worker, config: ServerConfig, routing: Routing) -> None:
        self._worker = worker
        self._config = config
        self._routing = routing
        self._room = BodyRoom(NUM_LARGEST_BODIES * config.max_body_bytes)

    @asynccontextmanager
    async def queued(self, request: Request, job: Job, editor: Editor, parse: Parse[AnyCall]) -> AsyncIterator[AnyCall]:
        """The request of a body, checked and in the queue; within this block the job is stopped if the client leaves.

        Raises whatever refuses it: see `errors`.
        """
        body = await read_json_body(request, self._config, self._room)
        num_bytes = job.num_body_bytes = len(body)
        async with stopped_with_connection(request.receive, job):
            self._worker.open(job)
            try:
                entry = Entry.of(request)
                call = await self._worker.prepare(job, parse, body, editor, self._routing, entry, job.is_stopped)
            finally:
                del body  # megabytes that a queued request need not keep
                self._room.give_back(job.client, num_bytes)
            self._worker.submit(
                job, call.request, call.route, session=call.session, timeout_seconds=call.timeout_seconds
            )
            yield call
