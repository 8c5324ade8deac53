"""What the server does with one connection besides answering: reads a bounded body, notices that the client left."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lookahead_edit.config import ServerConfig
from lookahead_edit.server.errors import HttpError
from lookahead_edit.server.jobs import Job
from lookahead_edit.types import DeadlineExceeded, QueueFull, RequestCancelled

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"


class BodyRoom:
    """How many bytes of bodies are held at once, all of them together: connections cost nothing, memory does.

    Args:
        max_bytes: of everybody's bodies that are being read or prepared; one client holds at most half of it.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.held = Counter[str]()  # bytes by client

    def take(self, client: str, num_bytes: int) -> None:
        """Raises QueueFull where there is no room for so much more."""
        if self.held.total() + num_bytes > self.max_bytes or self.held[client] + num_bytes > self.max_bytes // 2:
            raise QueueFull(f"expected at most {self.max_bytes} bytes of requests at once, try again soon")
        self.held[client] += num_bytes

    def give_back(self, client: str, num_bytes: int) -> None:
        """What was taken before."""
        self.held[client] -= num_bytes
        if not self.held[client]:
            del self.held[client]


async def read_json_body(request: Request, config: ServerConfig, room: BodyRoom) -> bytes:
    """The body's bytes, unparsed; who gets them gives their room back.

    Raises HttpError for a body that isn't JSON by its headers, or that is too large by its headers or in fact;
    RequestCancelled where the client leaves meanwhile, DeadlineExceeded where it takes too long, QueueFull.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # A page of another origin can send any other type, or none, without asking first.
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise HttpError(
            f"expected Content-Type: application/json, got {media_type or 'none'}", code="unsupported_media_type"
        )
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise HttpError(f"expected an uncompressed body, got {encoding}", code="unsupported_media_type")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:18]) > config.max_body_bytes:
        raise _too_large(config.max_body_bytes, f"{declared[:18]} bytes")
    body = bytearray()
    client: str = request.state.client
    try:
        await asyncio.wait_for(_read(request, body, config.max_body_bytes, room, client), config.body_seconds)
    except BaseException as error:
        room.give_back(client, len(body))
        if isinstance(error, asyncio.TimeoutError):
            got = f"{len(body)} bytes"
            raise DeadlineExceeded(f"expected a whole body within {config.body_seconds:g} s, got {got}") from None
        raise
    return bytes(body)


async def _read(request: Request, body: bytearray, max_body_bytes: int, room: BodyRoom, client: str) -> None:
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise RequestCancelled("the client left before the request was complete")
        piece = message.get("body", b"")
        if len(body) + len(piece) > max_body_bytes:
            raise _too_large(max_body_bytes, "more")
        room.take(client, len(piece))
        body += piece
        if not message.get("more_body", False):
            return


def _too_large(max_body_bytes: int, got: str) -> HttpError:
    return HttpError(f"expected a body of at most {max_body_bytes} bytes, got {got}", code="request_too_large")


@asynccontextmanager
async def stopped_with_connection(receive: Receive, job: Job) -> AsyncIterator[None]:
    """Within this block the job is stopped as soon as the client leaves; leaving it by an error stops it, too.

    The body must have been read before: what arrives here is dropped.
    """

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        job.stop(RequestCancelled("the client left"))

    watcher = asyncio.create_task(watch())
    try:
        yield
    except BaseException:
        job.stop(RequestCancelled("the request was given up"))
        raise
    finally:
        watcher.cancel()


def event_frame(event: Mapping[str, object]) -> bytes:
    """One data-only event. ASCII, since some clients split lines at U+2028 and U+0085, too."""
    return b"data: " + json.dumps(event, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n\n"


class EventStream(Response):
    """Sends frames as they come, and stops the job when the client leaves, also between two frames.

    sse-starlette would end streams at once at SIGTERM, for the whole process, where we give them time to finish.
    """

    media_type = "text/event-stream"

    def __init__(self, frames: AsyncGenerator[bytes, None], job: Job) -> None:
        self.frames = frames
        self.job = job
        self.status_code = 200
        self.background = None
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with stopped_with_connection(receive, self.job), aclosing(self.frames) as frames:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for frame in frames:
                await send({"type": "http.response.body", "body": frame, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
