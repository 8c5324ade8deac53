"""Before a request is queued: long bodies, bodies that come slowly, and clients who leave take nothing from others."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from logged_editor import logged_editor
from scripted_editor import ScriptedEditor
from server_harness import counter, in_process, on_socket, raw_post, raw_send, wait_until

from lookahead_edit.editor import Editor
from lookahead_edit.server.connection import BodyRoom
from lookahead_edit.server.fair_threads import LONG_BODY_BYTES, NUM_THREADS, FairThreads
from lookahead_edit.server.jobs import Job
from lookahead_edit.server.validation import MAX_BRACKETS
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.types import IntArray, QueueFull, RequestCancelled

SMALL = {"input": "x = 1\n", "instruction": "Set x to 2."}
JSON = {"content-type": "application/json"}


class SlowTokenizer(ByteTokenizer):
    """Takes its time for a text with `z`, as long as `gate` is open: a tenth of a second a piece."""

    def __init__(self) -> None:
        self.num_calls = 0

    def encode(self, text: str, *, parse_special: bool = True) -> IntArray:
        if "z" in text:
            self.num_calls += 1
            time.sleep(0.1)
            return super().encode("z", parse_special=parse_special)  # so that no number of pieces is too many
        return super().encode(text, parse_special=parse_special)


def job_of(client: str, num_body_bytes: int = 0) -> Job:
    job = Job("edit", "request", client=client)
    job.num_body_bytes = num_body_bytes
    return job


def run(check: Callable[[FairThreads], Awaitable[None]]) -> None:
    async def run_it() -> None:
        threads = FairThreads("test")
        try:
            await check(threads)
        finally:
            threads.close()

    asyncio.run(run_it())


def test_calls_give_their_answers_and_raise_their_errors() -> None:
    async def check(threads: FairThreads) -> None:
        assert await threads.run(job_of("a"), max, 1, 2) == 2
        with pytest.raises(ZeroDivisionError):
            await threads.run(job_of("a"), lambda: 1 // 0)

    run(check)


def test_one_thread_is_never_taken_by_long_bodies() -> None:
    async def check(threads: FairThreads) -> None:
        gate = threading.Event()
        long = [asyncio.create_task(threads.run(job_of("a", LONG_BODY_BYTES + 1), gate.wait)) for _ in range(9)]
        await asyncio.sleep(0)
        assert await threads.run(job_of("a", LONG_BODY_BYTES), lambda: "short") == "short"
        assert not any(task.done() for task in long)
        gate.set()
        await asyncio.gather(*long)

    run(check)


def test_clients_take_turns() -> None:
    async def check(threads: FairThreads) -> None:
        gate, order = threading.Event(), list[str]()
        tasks = [asyncio.create_task(threads.run(job_of("a"), gate.wait)) for _ in range(NUM_THREADS)]
        await asyncio.sleep(0)
        for client in "aaaab":
            tasks.append(asyncio.create_task(threads.run(job_of(client), order.append, client)))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*tasks)
        assert order.index("b") < NUM_THREADS

    run(check)


def test_a_job_that_is_over_leaves_the_queue_at_once() -> None:
    async def check(threads: FairThreads) -> None:
        gate, has_run = threading.Event(), list[int]()
        tasks = [asyncio.create_task(threads.run(job_of("a"), gate.wait)) for _ in range(NUM_THREADS)]
        job = job_of("a")
        job.on_over = threads.drop
        waiting = asyncio.create_task(threads.run(job, has_run.append, 1))
        await asyncio.sleep(0)
        job.stop(RequestCancelled("the client left"))
        with pytest.raises(RequestCancelled, match="the client left"):
            await waiting
        with pytest.raises(RequestCancelled, match="the client left"):
            await threads.run(job, has_run.append, 2)
        gate.set()
        await asyncio.gather(*tasks)
        assert has_run == []

    run(check)


def test_a_closed_pool_leaves_nobody_waiting() -> None:
    async def check(threads: FairThreads) -> None:
        gate = threading.Event()
        running = [asyncio.create_task(threads.run(job_of("a"), gate.wait)) for _ in range(NUM_THREADS)]
        waiting = asyncio.create_task(threads.run(job_of("a"), gate.wait))
        await asyncio.sleep(0)
        threads.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.set()
        await asyncio.gather(*running)

    run(check)


@pytest.fixture
def slow() -> tuple[Editor, SlowTokenizer]:
    tokenizer = SlowTokenizer()
    return logged_editor("x = 2\n```", tokenizer, max_context_tokens=4096), tokenizer


@pytest.mark.parametrize(
    "fields",
    [{"input": "z" * 3_000_000}, {"context": [{"path": "b.py", "text": "z" * 1_000_000}]}],
    ids=["checked", "indexed"],
)
def test_small_edits_pass_by_long_ones_and_those_end_with_their_clients(
    slow: tuple[Editor, SlowTokenizer], fields: dict[str, Any]
) -> None:
    editor, tokenizer = slow
    with on_socket(editor, max_batch_size=8) as client, ExitStack() as stack:
        connections = [stack.enter_context(raw_post(client, {**SMALL, **fields})) for _ in range(3)]
        wait_until(lambda: tokenizer.num_calls > 3)
        assert client.post("/v1/edits", json=SMALL).json()["choices"][0]["text"] == "x = 2\n"
        num_calls = tokenizer.num_calls
        assert num_calls < 3 * 60  # the long ones are far from done
        for connection in connections:
            connection.close()
        wait_until(lambda: counter(client, "num_requests_waiting") + counter(client, "num_requests_running") == 0)
        time.sleep(0.3)
        num_calls = tokenizer.num_calls
        time.sleep(0.5)
        assert tokenizer.num_calls == num_calls


@pytest.mark.parametrize("path", ["/v1/edits", "/v1/completions", "/v1/chat/completions"])
def test_a_body_of_megabytes_is_refused_with_the_numbers(path: str) -> None:
    text = "x = 1\n" * 2_200_000
    body = {
        "/v1/edits": {**SMALL, "input": text},
        "/v1/completions": {"prompt": text},
        "/v1/chat/completions": {"messages": [{"role": "user", "content": text}]},
    }[path]
    with in_process(logged_editor("", max_context_tokens=4096)) as client:
        error = client.post(path, json=body).json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["param"] in ("input", "prompt", "messages")
    assert "at least 4097 prompt tokens in a text of 132000" in error["message"]
    assert error["message"].endswith("this model's maximum context length is 4096 tokens")


def test_many_context_files_are_cut_with_a_warning() -> None:
    files = [{"path": f"{number}.py", "text": "x = 1\n"} for number in range(20_000)]
    with in_process(logged_editor("x = 2\n```")) as client:
        answer = client.post("/v1/edits", json={**SMALL, "context": files}).json()
    assert answer["choices"][0]["text"] == "x = 2\n"
    (warning,) = answer["warnings"]
    assert warning.startswith("context was cut to 1000 files and 1048576 characters, of 20000 and 120000: ")


@pytest.mark.parametrize("tiny", [b"[]", b"{}", b"[{}]"])
def test_millions_of_tiny_arrays_and_objects_are_refused_unparsed(tiny: bytes) -> None:
    with in_process(ScriptedEditor()) as client:
        body = b"[" + b",".join([tiny] * MAX_BRACKETS) + b"]"
        error = client.post("/v1/edits", content=body, headers=JSON).json()["error"]
    assert error["code"] == "invalid_value"
    number = 1 + MAX_BRACKETS * len(tiny) // 2
    assert error["message"] == f"expected at most {MAX_BRACKETS} objects and arrays, got {number}"


def test_a_body_that_comes_too_slowly_is_refused_and_its_room_comes_free() -> None:
    with on_socket(ScriptedEditor(), body_seconds=0.2, max_body_bytes=1000) as client:
        for _ in range(20):  # together more than there is room for
            with raw_send(client, b'{"input": "' + b"x" * 700, Content_Length="900") as connection:
                reply = b""
                while b"}}" not in reply:
                    reply += connection.recv(65536)
            assert reply.startswith(b"HTTP/1.1 504")
            assert b"expected a whole body within 0.2 s, got 711 bytes" in reply
        assert client.post("/v1/edits", json=SMALL).status_code == 200


def test_bodies_that_are_held_open_take_no_more_memory_than_there_is_room_for() -> None:
    with on_socket(ScriptedEditor(), max_body_bytes=100_000) as client, ExitStack() as stack:

        def is_refused() -> bool:
            body = {**SMALL, "input": "y" * 90_000}
            return client.post("/v1/edits", json=body, headers={"x-api-key": "greedy"}).status_code == 429

        held = []
        while not is_refused():
            assert len(held) < 100
            connection = raw_send(client, b"x" * 90_000, Content_Length="95000", x_api_key="greedy")
            held.append(stack.enter_context(connection))
        assert client.post("/v1/edits", json=SMALL, headers={"x-api-key": "other"}).status_code == 200
        for connection in held:
            connection.close()
        wait_until(lambda: not is_refused())


def test_all_routes_share_the_room_for_bodies() -> None:
    with on_socket(ScriptedEditor(), max_body_bytes=100_000) as client, ExitStack() as stack:

        def is_refused() -> bool:
            body = {"prompt": "y" * 90_000, "max_tokens": 1}
            return client.post("/v1/completions", json=body, headers={"x-api-key": "greedy"}).status_code == 429

        num_held = 0
        while not is_refused():
            assert num_held < 100
            stack.enter_context(raw_send(client, b"x" * 90_000, Content_Length="95000", x_api_key="greedy"))
            num_held += 1


def test_the_room_for_bodies_is_shared() -> None:
    room = BodyRoom(100)
    room.take("a", 50)
    with pytest.raises(QueueFull):
        room.take("a", 1)
    room.take("b", 50)
    with pytest.raises(QueueFull):
        room.take("c", 1)
    room.give_back("a", 50)
    room.take("c", 50)
    room.give_back("b", 50)
    room.give_back("c", 50)
    assert not room.held


def test_one_client_cannot_fill_the_preparation() -> None:
    editor = ScriptedEditor()
    with on_socket(editor, max_queued_requests=4) as client, ThreadPoolExecutor(8) as pool:
        body = {"input": "a", "instruction": "ponder"}
        greedy = [pool.submit(client.post, "/v1/edits", json=body, headers={"x-api-key": "a"}) for _ in range(4)]
        wait_until(lambda: editor.log.count("ponder") == NUM_THREADS)
        wait_until(lambda: client.post("/v1/edits", json=body, headers={"x-api-key": "a"}).status_code == 429)
        other = pool.submit(client.post, "/v1/edits", json={**body, "instruction": "go"}, headers={"x-api-key": "b"})
        editor.release()
        assert other.result().status_code == 200
        assert [request.result().status_code for request in greedy] == [200] * 4


def test_a_body_may_come_in_pieces_of_any_size() -> None:
    with on_socket(ScriptedEditor()) as client:
        payload = json.dumps(SMALL).encode()
        with raw_send(client, payload[:5], Content_Length=str(len(payload))) as connection:
            for index in range(5, len(payload)):
                connection.sendall(payload[index : index + 1])
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
