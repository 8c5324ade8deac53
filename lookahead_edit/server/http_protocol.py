"""The connection below HTTP: what uvicorn leaves without a limit has one here. Knows no routes."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from lookahead_edit.config import ServerConfig
from lookahead_edit.server.errors import HttpError, error_response
from lookahead_edit.types import DeadlineExceeded

MAX_HEADER_BYTES = 16 * 1024

# Longer than clients keep idle connections. With uvicorn's 5 seconds, which are also those of httpx and so of OpenAI's
# client, both ends give up at once, and now and then a request is sent into a connection that is being closed.
KEEP_ALIVE_SECONDS = 75


def protocol_of(config: ServerConfig) -> type[asyncio.Protocol]:
    """What `uvicorn.Config(http=…)` takes: h11's protocol with the limits of a configuration.

    h11's also where httptools is installed, which reads headers of any size.
    """

    class Configured(BoundedProtocol):
        header_seconds = config.header_seconds
        stalled_seconds = config.stalled_seconds

    return Configured


class BoundedProtocol(H11Protocol):
    """One connection, which ends where the client keeps it waiting.

    - A request's headers must be whole `header_seconds` after the connection was made, or, on one that is kept, after
      the request's first byte. A part of them is answered like a body that comes too slowly, nothing with nothing.
    - A connection that is kept ends after `KEEP_ALIVE_SECONDS` without a request.
    - What is to be sent must be taken: a client who reads nothing for `stalled_seconds` while the buffer is full is
      left, and its request is stopped.
    - What isn't HTTP is refused in JSON, as everything else is.
    """

    header_seconds = ServerConfig.header_seconds
    stalled_seconds = ServerConfig.stalled_seconds

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.timeout_keep_alive = KEEP_ALIVE_SECONDS
        self._header_timer: asyncio.TimerHandle | None = None
        self._stalled_timer: asyncio.TimerHandle | None = None
        self._has_begun = False  # with the headers that are waited for

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        is_new = not self._is_answering
        self._has_begun = True
        super().data_received(data)
        if self._is_answering:
            self._expect_nothing()
        elif is_new and self._header_timer is None and not self.transport.is_closing():
            self._expect_headers()

    def on_response_complete(self) -> None:
        self._has_begun = False
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        self._end_stall()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled_timer = self.loop.call_later(self.stalled_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._end_stall()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        limit = f"headers of at most {MAX_HEADER_BYTES} bytes"
        self._refuse(
            HttpError(f"expected a request in HTTP/1.1 with {limit}, got something else", code="invalid_value")
        )

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_headers(self) -> None:
        self._header_timer = self.loop.call_later(self.header_seconds, self._end_waiting)

    def _expect_nothing(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _end_stall(self) -> None:
        if self._stalled_timer is not None:
            self._stalled_timer.cancel()
            self._stalled_timer = None

    def _end_waiting(self) -> None:
        self._header_timer = None
        if self.transport.is_closing() or self._is_answering:
            return
        if not self._has_begun:
            self.transport.close()
            return
        self._refuse(DeadlineExceeded(f"expected whole headers within {self.header_seconds:g} s, got a part"))

    def _refuse(self, error: Exception) -> None:
        """Answers where there is no request yet that could be answered, and closes the connection."""
        answer = error_response(error, "")
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            head = f"HTTP/1.1 {answer.status_code} {HTTPStatus(answer.status_code).phrase}"
            headers = [f"{name.decode()}: {value.decode()}" for name, value in answer.raw_headers]
            text = "\r\n".join([head, *headers, "connection: close", "", ""])
            self.transport.write(text.encode("latin-1") + bytes(answer.body))
        self.transport.close()
