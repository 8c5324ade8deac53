"""What the server does with one connection besides answering: reads a bounded body, notices that the client left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lookahead_edit.server.errors import HttpError
from lookahead_edit.server.jobs import Job
from lookahead_edit.types import RequestCancelled

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"


async def read_json_body(request: Request, max_body_bytes: int) -> bytes:
    """The body's bytes, unparsed.

    Raises HttpError for a body that isn't JSON by its headers, or that is too large by its headers or in fact;
    RequestCancelled where the client leaves meanwhile.
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
    if declared.isdecimal() and int(declared[:18]) > max_body_bytes:
        raise _too_large(max_body_bytes, f"{declared[:18]} bytes")
    body = bytearray()
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise RequestCancelled("the client left before the request was complete")
        body += message.get("body", b"")
        if len(body) > max_body_bytes:
            raise _too_large(max_body_bytes, "more")
        if not message.get("more_body", False):
            return bytes(body)


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
