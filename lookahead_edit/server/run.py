"""Runs the server until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from prometheus_client import disable_created_metrics

from lookahead_edit.config import ServerConfig
from lookahead_edit.editor import Editor
from lookahead_edit.server.app import create_app
from lookahead_edit.server.http_protocol import MAX_HEADER_BYTES, protocol_of
from lookahead_edit.server.middleware import is_loopback
from lookahead_edit.server.worker import Worker
from lookahead_edit.types import InvalidInput, LookaheadEditError, ModelUnavailable

# What a client may take to read the last bytes of an answer that is ready.
FLUSH_SECONDS = 5


def serve(load_editor: Callable[[], Editor], config: ServerConfig) -> None:
    """Serves until SIGTERM or SIGINT, then finishes the work at hand for at most `config.grace_seconds`.

    A second signal ends the grace. Standard error tells the address, and once more as soon as requests are taken.

    Raises:
        InvalidInput: the port can't be had.
        LookaheadEditError: the model can't be loaded; whatever else `load_editor` raises becomes ModelUnavailable.
    """
    # The time at which each series began: as many series again, that nobody asks for.
    disable_created_metrics()  # type: ignore[no-untyped-call]

    def load() -> Editor:
        try:
            return load_editor()
        except BaseException as error:
            server.give_up(error)
            raise

    app = create_app(load, config)
    listener = _listen(config)
    worker: Worker = app.state.worker
    address = _address(listener)
    server = _Server(app, worker, config, address)
    _say(f"listening on {address}, loading the model")
    if not is_loopback(config.host) and config.api_key is None:
        _say("warning: no API key is set, so whoever reaches this address can use the server")
    for line in app.state.routing.warnings():
        _say(f"warning: {line}")
    server.run(sockets=[listener])
    if isinstance(server.load_error, LookaheadEditError):
        raise server.load_error
    if server.load_error is not None:
        raise ModelUnavailable(f"can't load the model: {_reason(server.load_error)}") from server.load_error
    if worker.is_model_busy:
        # A thread inside the model can't be ended, and the interpreter would wait for it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


class _Server(uvicorn.Server):
    """Uvicorn closes its listeners at once on a signal; this one goes on answering until the work is done."""

    def __init__(self, app: Any, worker: Worker, config: ServerConfig, address: str) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol_of(config),
                h11_max_incomplete_event_size=MAX_HEADER_BYTES,
                log_level="warning",
                access_log=False,
                server_header=False,
                ws="none",
                lifespan="on",
                timeout_graceful_shutdown=FLUSH_SECONDS,
            )
        )
        self.load_error: BaseException | None = None
        self._worker = worker
        self._address = address
        self._grace_seconds = config.grace_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self._announcement: asyncio.Task[None] | None = None  # the loop itself keeps no task alive

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announcement = asyncio.get_running_loop().create_task(self._announce())

    async def _announce(self) -> None:
        """Says when requests are taken: the port is open by now, and the model is waited for."""
        await self._worker.has_loaded.wait()
        if self._draining is None:
            _say(f"ready: {self._address} serves {self._worker.require_editor().model_name}")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._begin_shutdown)

    def give_up(self, error: BaseException) -> None:
        """Ends the server because there is no model; callable from any thread."""
        self.load_error = error
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._begin_shutdown)

    def _begin_shutdown(self) -> None:
        self._worker.refuse_new_work()
        if self._draining is None:
            self._draining = asyncio.get_running_loop().create_task(self._drain())
        else:
            self._grace_seconds = 0.0

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not self._worker.is_idle and loop.time() < began + self._grace_seconds:
            await asyncio.sleep(0.02)
        self._worker.stop_all()
        # Some versions skip the application's shutdown where they are told to exit before they have started.
        while not self.started:
            await asyncio.sleep(0.02)
        self.should_exit = True


def _listen(config: ServerConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        return socket.create_server((config.host, config.port), family=family, backlog=2048)
    except (OSError, ValueError) as error:  # ValueError: a name that can't be one
        # Python adds the address, which the line has already.
        reason = (getattr(error, "strerror", None) or str(error)).partition(" (while ")[0]
        raise InvalidInput(f"can't listen on {config.host} port {config.port}: {reason}", param="port") from None


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _reason(error: BaseException) -> str:
    first_line = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
