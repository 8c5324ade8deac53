"""A small HTTP server in place of vLLM's."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from lookahead_edit.types import IntArray


class FakeServer(ThreadingHTTPServer):
    """The addresses of vLLM that are used; `mode` says how it behaves.

    Args:
        answer: tokens that every request gets, five a chunk.
    """

    daemon_threads = True

    def __init__(self, answer: IntArray) -> None:
        self.tokens = answer
        self.mode = "well"
        self.card: dict[str, Any] = {"id": "served", "root": "default", "max_model_len": 2048}
        self.counters = "vllm:spec_decode_num_drafts"
        self.bodies: list[Any] = []
        self.num_cut_off = 0
        self.gate = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class Handler(BaseHTTPRequestHandler):
    server: FakeServer

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(503 if self.server.mode == "dead" else 200, {})
        elif self.path == "/metrics":
            self.answer(200, {"metrics": f"vllm:num_requests {self.server.counters}"})
        else:
            self.answer(200, {"data": [self.server.card] if self.server.mode != "other" else [{"id": "x"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        if (
            self.server.mode == "refuses"
            or body["max_tokens"] + len(body["prompt"]) > self.server.card["max_model_len"]
        ):
            self.answer(400, {"error": {"message": "no such thing\nat all", "type": "BadRequestError"}})
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for start in range(0, len(self.server.tokens), 5):
            tokens = self.server.tokens[start : start + 5].tolist()
            try:
                self.send({"choices": [{"index": 0, "text": "", "token_ids": tokens}]})
            except OSError:
                self.server.num_cut_off += 1
                return
            if self.server.mode == "dies" and start == 10:
                self.connection.close()
                return
            if self.server.mode == "fails" and start == 10:
                self.send({"error": {"message": "out of memory", "code": 500}})
                return
            if self.server.mode == "hangs" and start == 10:
                self.server.gate.wait(20.0)
        self.wfile.write(b"data: [DONE]\n\n")

    def send(self, event: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.flush()

    def answer(self, status: int, document: Any) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        pass
