"""Clients that come and go at random, against a real model: nothing goes on for them, and nothing is kept of them."""

from __future__ import annotations

import ctypes
import gc
import random
import re
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_harness import counter, on_socket, raw_post, raw_send, wait_until
from tiny_editors import MAX_PREFIX_CACHE_BYTES, tiny_editor

from lookahead_edit.sequence import Sequence
from lookahead_edit.server.jobs import Job
from lookahead_edit.targets.hf import HfTarget

NUM_CLIENTS = 500
MAX_OPEN = 40
TEXT = "".join(f"line_{number} = {number * 7}\n" for number in range(40))
PATHS = ("/v1/edits", "/v1/chat/completions", "/v1/completions")
# What the second half of the storm may add to the first; one request's texts and tokens are a fraction of it.
MAX_RISE_MIB = 24.0
PATIENT = (
    ("/v1/edits", {"input": TEXT, "instruction": "Do it.", "max_tokens": 60}),
    ("/v1/completions", {"prompt": TEXT, "max_tokens": 40, "temperature": 0.9, "seed": 5}),
)


def num_alive(kind: type) -> int:
    gc.collect()
    return sum(type(thing) is kind for thing in gc.get_objects())


def resident_mib() -> float | None:
    """Memory in use, after everything that can be given back was; None where it can't be known."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    if not sys.platform.startswith("linux"):
        return None
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


def body_of(generator: random.Random, path: str) -> dict[str, Any]:
    text = TEXT * generator.choice([1, 1, 3])
    body: dict[str, Any] = {"max_tokens": 400, "stream": generator.random() < 0.5}
    if generator.random() < 0.3:
        body["session"] = generator.choice(["tab", "other"])
    if generator.random() < 0.2:
        body["timeout_ms"] = generator.choice([1, 30, 200])
    if path == "/v1/edits":
        return {**body, "input": text, "instruction": "Do it."}
    if path == "/v1/completions":
        return {**body, "prompt": text}
    return {**body, "messages": [{"role": "user", "content": text}]}


def storm(client: httpx.Client, generator: random.Random, numbers: range) -> None:
    """Clients who leave before their bodies end, in the queue, while prompts are read, or in mid-answer."""
    open_connections: list[socket.socket] = []
    for number in numbers:
        path = PATHS[number % 3]
        headers = {"x_request_id": f"r{number}", "x_api_key": str(number % 5)}
        if generator.random() < 0.1:
            open_connections.append(raw_send(client, b'{"input": "', path, Content_Length="9000", **headers))
        else:
            open_connections.append(raw_post(client, body_of(generator, path), path, **headers))
        if generator.random() < 0.3:
            name = f"r{generator.randrange(max(0, number - 10), number + 1)}"
            client.post(f"/v1/requests/{name}/cancel", headers={"x-api-key": str(generator.randrange(5))})
        while len(open_connections) > generator.randrange(MAX_OPEN):
            open_connections.pop(generator.randrange(len(open_connections))).close()
        time.sleep(generator.choice([0.0, 0.0, 0.01]))
    for connection in open_connections:
        connection.close()
    wait_until(lambda: num_open(client) <= len(PATIENT), seconds=120)


def num_open(client: httpx.Client) -> float:
    return counter(client, "num_requests_running") + counter(client, "num_requests_waiting")


def answer_to(client: httpx.Client, path: str, body: dict[str, Any]) -> str:
    answer = client.post(path, json=body, headers={"x-api-key": "patient"})
    return str(answer.json()["choices"][0]["text"]) if answer.status_code == 200 else answer.text


@pytest.mark.timeout(600)
def test_clients_that_come_and_go_leave_nothing_behind_and_hurt_nobody() -> None:
    """Disconnects, cancels, superseded sessions and deadlines; the second half finds memory as the first one did."""
    editor = tiny_editor()
    assert isinstance(editor.target, HfTarget)
    generator = random.Random(7)
    wrong: list[str] = []
    num_answered = 0
    is_over = threading.Event()

    def stay(path: str, body: dict[str, Any], expected: str) -> None:
        nonlocal num_answered
        while not is_over.is_set():
            if (got := answer_to(client, path, body)) != expected:
                wrong.append(got[:300])
            num_answered += 1

    with on_socket(editor, max_batch_size=4, max_queued_requests=200) as client:
        client.timeout = 120.0
        expected = [answer_to(client, path, body) for path, body in PATIENT]
        num_jobs, num_sequences = num_alive(Job), num_alive(Sequence)
        patient = [
            threading.Thread(target=stay, args=(path, body, text))
            for (path, body), text in zip(PATIENT, expected, strict=True)
        ]
        for thread in patient:
            thread.start()
        try:
            storm(client, generator, range(NUM_CLIENTS // 2))
            level = resident_mib()
            storm(client, generator, range(NUM_CLIENTS // 2, NUM_CLIENTS))
        finally:
            is_over.set()
            for thread in patient:
                thread.join()
        assert wrong == []
        assert num_answered > len(PATIENT)
        wait_until(lambda: num_open(client) == 0)
        assert not editor.target._rows
        assert counter(client, "kept_prompt_bytes") == editor.target.prefix_cache.num_bytes <= MAX_PREFIX_CACHE_BYTES
        assert counter(client, "requests_cancelled_total") > NUM_CLIENTS / 4
        assert [answer_to(client, path, body) for path, body in PATIENT] == expected
        wait_until(lambda: num_alive(Job) <= num_jobs, seconds=30)
        wait_until(lambda: num_alive(Sequence) <= num_sequences, seconds=30)
        if level is not None:
            after = resident_mib()
            assert after is not None
            assert after <= level + MAX_RISE_MIB


def test_a_request_that_is_cancelled_while_its_prompt_is_read_writes_nothing() -> None:
    editor = tiny_editor()
    assert isinstance(editor.target, HfTarget)
    with on_socket(editor) as client:
        for number in range(3):
            body = {"prompt": TEXT * 6, "max_tokens": 50}
            with raw_post(client, body, "/v1/completions", x_request_id=f"r{number}", x_api_key=str(number)):
                wait_until(lambda: counter(client, "num_requests_running") == 1)
                cancelled = client.post(f"/v1/requests/r{number}/cancel", headers={"x-api-key": str(number)})
                assert cancelled.json() == {"cancelled": True}
            wait_until(lambda: counter(client, "num_requests_running") == 0)
        assert counter(client, "requests_cancelled_total") == 3
        assert counter(client, "emitted_tokens_total", route="completions") == 0
        assert not editor.target._rows
