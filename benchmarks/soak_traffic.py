"""What the clients of a soak do: edits, chats and completions of all forms, and everything that clients do wrong.

Each visit is one thing that a client does, and ends in the statuses that came of it. Knows neither the server's process
nor its memory.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.edit_set import chosen_edits

EDITS = ("words-number", "orders-number", "orders-quotes", "words-rename", "retry-number", "cart", "theme", "settings")
NUM_VERSIONS = 40  # of each edit's file, so that prompts are new more often than not
NUM_TENANTS = 5
TOO_LONG = "word " * 60_000  # no model here has such a context
LEFT = "left"  # in place of a status: the client didn't wait for one
STOPPED = ("request_cancelled", "request_superseded", "deadline_exceeded")


@dataclass(frozen=True)
class Answer:
    """What came back to one request: its status, and the code of its error, also of one within a stream."""

    kind: str
    status: str
    code: str | None = None
    is_expected: bool = True


@dataclass(frozen=True)
class Wrong:
    """A request that must be refused, and how."""

    body: bytes
    status: int
    code: str
    path: str = "/v1/edits"
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


def _edit(**fields: Any) -> bytes:
    return json.dumps({"input": "x = 1\n", "instruction": "Set x to 2.", **fields}).encode()


WRONG = (
    Wrong(b'{"input": ', 400, "invalid_json"),
    Wrong(b'{"input": "\xff"}', 400, "invalid_json"),
    Wrong(b"[" * 200_000, 400, "invalid_json"),
    Wrong(b'{"input": "x = 1\\n"}', 400, "missing_field"),
    Wrong(_edit(temperature=float("nan")), 400, "invalid_json"),
    Wrong(_edit(max_tokens=-1), 400, "invalid_value"),
    Wrong(_edit(input=["x"]), 400, "invalid_type"),
    Wrong(_edit(input="\ud800"), 400, "invalid_value"),
    Wrong(_edit(stop=["x"] * 10_000), 400, "invalid_value"),
    Wrong(_edit(n=2), 400, "unsupported_parameter"),
    Wrong(
        _edit(range={"start": {"line": 9, "character": 0}, "end": {"line": 9, "character": 1}}), 400, "invalid_range"
    ),
    Wrong(_edit(input=TOO_LONG), 400, "context_length_exceeded"),
    Wrong(_edit(model="another"), 404, "model_not_found"),
    Wrong(_edit(), 404, "unknown_url", path="/v1/images"),
    Wrong(_edit(), 405, "method_not_allowed", path="/v1/models"),
    Wrong(_edit(), 415, "unsupported_media_type", headers={"content-type": "text/plain"}),
    Wrong(
        _edit(),
        415,
        "unsupported_media_type",
        headers={"content-type": "application/json", "content-encoding": "gzip"},
    ),
    Wrong(b'{"messages": []}', 400, "invalid_value", path="/v1/chat/completions"),
    Wrong(b'{"prompt": ""}', 400, "invalid_value", path="/v1/completions"),
)


class Traffic:
    """The visits, drawn at random.

    Args:
        http: a client whose base address is the server's.
        seed: of what is drawn.
        retry_seconds: that a client waits after a refusal, about.
        limits: drawn from for `max_tokens`; of an edit, None is the server's own.
    """

    def __init__(self, http: httpx.AsyncClient, seed: int, retry_seconds: float, limits: Sequence[int | None]) -> None:
        self.answers: list[Answer] = []
        self.unequal: list[str] = []  # what was asked twice and answered in two ways
        self._http = http
        self._random = random.Random(seed)
        self._retry_seconds = retry_seconds
        self._limits = limits
        self._edits = chosen_edits(EDITS)
        self._texts: dict[str, str] = {}  # by what was asked
        self._num_sent = 0
        self._visits: dict[str, tuple[int, Callable[[str], Awaitable[None]]]] = {
            "edit": (6, self._plain),
            "edit streamed": (6, self._plain),
            "edit ranged": (3, self._plain),
            "edit update": (1, self._plain),
            "chat": (3, self._plain),
            "chat streamed": (3, self._plain),
            "completion": (3, self._plain),
            "session": (3, self._superseded),
            "cancel": (3, self._cancelled),
            "deadline": (2, self._late),
            "disconnect": (5, self._left),
            "half a body": (1, self._left),
            "bad input": (4, self._wrong),
            "figures": (1, self._figures),
        }

    async def visit(self) -> None:
        """One of them, with its answers noted."""
        weights = [weight for weight, _ in self._visits.values()]
        (kind,) = self._random.choices(list(self._visits), weights)
        num_answers = len(self.answers)
        try:
            await self._visits[kind][1](kind)
        except httpx.HTTPError as error:
            self._note(kind, type(error).__name__, None)
        if any(answer.status not in ("200", LEFT) for answer in self.answers[num_answers:]):
            await asyncio.sleep(self._retry_seconds * (0.5 + self._random.random()))

    # What is asked.

    def _body(self, kind: str) -> tuple[str, dict[str, Any]]:
        """An address and a request for it."""
        edit = self._random.choice(self._edits)
        text = f"# version {self._random.randrange(NUM_VERSIONS)}\n{edit.before}"
        body: dict[str, Any] = {"stream": "streamed" in kind or (kind in ("disconnect", "cancel") and self._flip())}
        limit = self._random.choice(self._limits)
        if kind.startswith("chat"):
            body |= {
                "messages": [{"role": "user", "content": f"{edit.instruction}\n{text}"}],
                "max_tokens": limit or 64,
            }
            body |= {"prediction": text} if self._flip() else {"include": ["provenance"]}
            return "/v1/chat/completions", body
        if kind == "completion":
            sampling = {"temperature": 0.8, "seed": self._random.randrange(4)} if self._flip() else {}
            return "/v1/completions", {**body, **sampling, "prompt": text, "max_tokens": limit or 64}
        body |= {"input": text, "instruction": edit.instruction, "path": edit.path, "max_tokens": limit}
        if kind == "edit ranged":
            line = self._random.randrange(text.count("\n") - 2)
            ends = {"start": {"line": line, "character": 0}, "end": {"line": line + 2, "character": 0}}
            body |= {"range": ends, "output": ["text", "edits", "diff"]}
        elif kind == "edit update":
            body |= {"update": f"{text[:60]}\n# ... existing code ...\n", "instruction": None}
        elif self._flip():
            other = self._random.choice(self._edits)
            body |= {"context": [{"path": other.path, "text": other.before}], "include": ["provenance", "sources"]}
        return "/v1/edits", body

    def _flip(self) -> bool:
        return self._random.random() < 0.5

    def _headers(self) -> dict[str, str]:
        self._num_sent += 1
        return {"x-request-id": f"soak-{self._num_sent}", "x-api-key": f"tenant {self._num_sent % NUM_TENANTS}"}

    # What clients do.

    async def _plain(self, kind: str) -> None:
        path, body = self._body(kind)
        await self._ask(kind, path, body, self._headers())

    async def _superseded(self, kind: str) -> None:
        """Two requests of one session; the second takes the place of the first, wherever that is."""
        headers, session = self._headers(), f"tab {self._random.randrange(6)}"

        async def ask(seconds: float) -> None:
            await asyncio.sleep(seconds)
            path, body = self._body("edit")
            await self._ask(kind, path, body | {"session": session}, headers, codes=STOPPED)

        await asyncio.gather(ask(0.0), ask(self._random.random() * 2 * self._retry_seconds))

    async def _cancelled(self, kind: str) -> None:
        headers = self._headers()
        path, body = self._body(kind)
        asked = asyncio.create_task(self._ask(kind, path, body, headers, codes=STOPPED))
        await asyncio.sleep(self._random.random() * 6 * self._retry_seconds)
        await self._http.post(f"/v1/requests/{headers['x-request-id']}/cancel", headers=headers)
        await asked

    async def _late(self, kind: str) -> None:
        path, body = self._body(kind)
        body["timeout_ms"] = self._random.choice([1, 100, 2000])
        await self._ask(kind, path, body, self._headers(), codes=STOPPED)

    async def _left(self, kind: str) -> None:
        """Goes without waiting for the answer, or for the end of what it sends."""
        path, body = self._body(kind)
        payload = json.dumps(body).encode()
        url = self._http.base_url
        lines = [f"POST {path} HTTP/1.1", f"Host: {url.host}:{url.port}", "Content-Type: application/json"]
        lines += [f"Content-Length: {len(payload)}", *(f"{name}: {value}" for name, value in self._headers().items())]
        _, writer = await asyncio.open_connection(url.host, url.port)
        sent = payload[: len(payload) // 2] if kind == "half a body" else payload
        writer.write("\r\n".join([*lines, "", ""]).encode() + sent)
        await asyncio.sleep(self._random.random() * 6 * self._retry_seconds)
        writer.close()
        self._note(kind, LEFT, None)

    async def _wrong(self, kind: str) -> None:
        wrong = self._random.choice(WRONG)
        response = await self._http.post(wrong.path, content=wrong.body, headers=wrong.headers | self._headers())
        code = response.json()["error"]["code"]
        is_expected = (response.status_code, code) == (wrong.status, wrong.code) or code == "queue_full"
        self.answers.append(Answer(kind, str(response.status_code), code, is_expected))

    async def _figures(self, kind: str) -> None:
        for path in ("/metrics", "/v1/stats", "/health", "/v1/models", "/"):
            response = await self._http.get(path)
            self._note(kind, str(response.status_code), None)

    async def _ask(
        self, kind: str, path: str, body: dict[str, Any], headers: dict[str, str], codes: tuple[str, ...] = ()
    ) -> None:
        response = await self._http.post(path, json=body, headers=headers)
        status = str(response.status_code)
        if response.status_code != 200:
            self._note(kind, status, response.json()["error"]["code"], codes)
            return
        if not body["stream"]:
            self._compare(path, body, response.json()["choices"][0])
            self._note(kind, status, None)
            return
        frames = [frame.removeprefix("data: ") for frame in response.text.split("\n\n") if frame.startswith("data: ")]
        events = [json.loads(frame) for frame in frames if frame != "[DONE]"]
        error = next((event["error"] for event in events if "error" in event), None)
        if error is None and path == "/v1/edits":
            self._compare(path, body, events[-1]["choices"][0])
        self._note(kind, status, error and error["code"], codes)

    def _compare(self, path: str, body: dict[str, Any], choice: dict[str, Any]) -> None:
        left_out = ("stream", "session", "timeout_ms", "context", "include", "prediction")
        asked = json.dumps([path, {name: value for name, value in body.items() if name not in left_out}])
        text = json.dumps([choice.get("text") or choice.get("message"), choice["finish_reason"]])
        if self._texts.setdefault(asked, text) != text:
            self.unequal.append(asked)

    def _note(self, kind: str, status: str, code: str | None, codes: tuple[str, ...] = ()) -> None:
        is_expected = status in ("200", "429", LEFT) if code is None else code in ("queue_full", *codes)
        self.answers.append(Answer(kind, status, code, is_expected))
