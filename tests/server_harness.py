"""Runs the application for the server tests: in process, or on a loopback socket of its own."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn
from starlette.testclient import TestClient

from lookahead_edit.config import ServerConfig
from lookahead_edit.editor import Editor
from lookahead_edit.server import create_app
from lookahead_edit.server.http_protocol import protocol_of

BASE_URL = "http://127.0.0.1:8000"
# Limits for what never comes; what comes late, on a busy machine, is no failure.
PATIENCE_SECONDS = 60.0
LOADING_SECONDS = 240.0


@contextmanager
def in_process(editor: Editor, **options: Any) -> Iterator[TestClient]:
    """A client of the application, with the editor loaded."""
    app = create_app(lambda: editor, ServerConfig(**options))
    with TestClient(app, base_url=BASE_URL, raise_server_exceptions=False) as client:
        wait_until(lambda: client.get("/health").status_code == 200, seconds=LOADING_SECONDS)
        yield client


@contextmanager
def on_socket(editor: Editor, **options: Any) -> Iterator[httpx.Client]:
    """A client of the application behind uvicorn, on an ephemeral port."""
    config = ServerConfig(**options)
    app = create_app(lambda: editor, config)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    http = protocol_of(config)
    server = uvicorn.Server(
        uvicorn.Config(app, http=http, log_level="critical", lifespan="on", timeout_graceful_shutdown=5)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="server")
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS, trust_env=False) as client:
            wait_until(lambda: client.get("/health").status_code == 200, seconds=LOADING_SECONDS)
            yield client
    finally:
        server.should_exit = True
        thread.join(PATIENCE_SECONDS)
        listener.close()
        assert not thread.is_alive()
        assert app.state.worker.num_waiting == 0


def wait_until(condition: Any, seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def events(stream: str) -> list[Any]:
    """The data of each event of a whole stream; ``[DONE]`` must be the last and is left out."""
    frames = [frame for frame in stream.split("\n\n") if frame and not frame.startswith(":")]
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames)
    *data, done = [frame.removeprefix("data: ") for frame in frames]
    assert done == "[DONE]"
    return [json.loads(item) for item in data]


def counter(client: Any, name: str, **labels: str) -> float:
    """The value of one series of /metrics; 0 where there is none yet."""
    shown = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    series = f"lookahead:{name}" + (f"{{{shown}}}" if labels else "")
    for line in client.get("/metrics").text.splitlines():
        if line.startswith(f"{series} "):
            return float(line.rpartition(" ")[2])
    return 0.0


def raw_post(client: httpx.Client, body: dict[str, Any], path: str = "/v1/edits", **headers: str) -> socket.socket:
    """Sends a POST and leaves the connection to the test."""
    payload = json.dumps(body).encode()
    return raw_send(client, payload, path, **{"Content-Length": str(len(payload)), **headers})


def raw_send(client: httpx.Client, payload: bytes, path: str = "/v1/edits", **headers: str) -> socket.socket:
    """The same with a body, whole or not, and headers of one's own; ``_`` in their names stands for ``-``."""
    host, port = client.base_url.host, client.base_url.port
    headers = {"Host": f"{host}:{port}", "Content-Type": "application/json", **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    connection = socket.create_connection((host, port), timeout=PATIENCE_SECONDS)
    connection.sendall("\r\n".join([f"POST {path} HTTP/1.1", *lines, "", ""]).encode() + payload)
    return connection
