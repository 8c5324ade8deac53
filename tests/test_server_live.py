"""Over a real socket, one request at a time: the queue, cancelling, clients that leave, deadlines, sessions, pings."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from scripted_editor import ScriptedEditor
from server_harness import counter, events, on_socket, raw_post, raw_send, wait_until


@pytest.fixture(scope="module")
def shared():
    editor = ScriptedEditor()
    with on_socket(editor, max_batch_size=1, max_queued_requests=2, ping_seconds=0.05) as client:
        yield editor, client


@pytest.fixture
def editor(shared):
    editor, client = shared
    editor.reset()
    yield editor
    editor.release()
    wait_until(lambda: num_running(client) == 0 and num_waiting(client) == 0)


@pytest.fixture
def client(shared, editor):
    return shared[1]


@pytest.fixture
def background():
    with ThreadPoolExecutor(8) as pool:
        yield pool


def body(instruction, **fields):
    return {"input": "banana banana", "instruction": instruction, **fields}


def post(client, instruction, headers=None, **fields):
    return client.post("/v1/edits", json=body(instruction, **fields), headers=headers)


def num_waiting(client):
    return counter(client, "num_requests_waiting")


def num_running(client):
    return counter(client, "num_requests_running")


def error_code(response):
    return response.json()["error"]["code"]


@contextmanager
def streaming(client, instruction, **fields):
    """The lines of a stream, after its first event has come."""
    with client.stream("POST", "/v1/edits", json=body(instruction, stream=True, **fields)) as response:
        lines = response.iter_lines()
        created = json.loads(next(lines).removeprefix("data: "))
        assert created["type"] == "edit.created"
        yield created, lines


def test_requests_run_one_at_a_time_in_order(client, editor, background):
    first = background.submit(post, client, "hold")
    editor.wait_for("start hold")
    second = background.submit(post, client, "second")
    wait_until(lambda: num_waiting(client) == 1)
    third = background.submit(post, client, "third")
    wait_until(lambda: num_waiting(client) == 2)
    assert num_running(client) == 1
    assert editor.log == ["start hold"]
    editor.release()
    assert [request.result().status_code for request in (first, second, third)] == [200] * 3
    names = ("hold", "second", "third")
    assert [entry for entry in editor.log if "start" in entry] == [f"start {name}" for name in names]
    # Answers are put together beside the model, in threads that may overtake each other.
    assert {entry for entry in editor.log if "finish" in entry} == {f"finish {name}" for name in names}
    assert all(request.result().json()["metrics"]["queue_time_ms"] > 0 for request in (second, third))


def test_full_queue_is_a_429_and_comes_free_again(client, editor, background):
    before = counter(client, "requests_rejected_total", code="queue_full")
    held = background.submit(post, client, "hold")
    editor.wait_for("start hold")
    queued = [background.submit(post, client, "queued") for _ in range(2)]
    wait_until(lambda: num_waiting(client) == 2)
    refused = post(client, "refused", stream=True)
    assert (refused.status_code, error_code(refused)) == (429, "queue_full")
    assert refused.headers["retry-after"] == "1"
    editor.release()
    assert [request.result().status_code for request in (held, *queued)] == [200] * 3
    assert post(client, "again").status_code == 200
    assert counter(client, "requests_rejected_total", code="queue_full") == before + 1


def test_health_and_models_answer_while_the_model_works(client, editor, background):
    held = background.submit(post, client, "hold")
    editor.wait_for("start hold")
    assert client.get("/health").status_code == 200
    assert client.get("/v1/models").status_code == 200
    editor.release()
    held.result()


def test_cancel_by_request_id_of_a_running_plain_request(client, editor, background):
    before = counter(client, "requests_cancelled_total")
    held = background.submit(post, client, "hold", headers={"x-request-id": "mine"})
    editor.wait_for("start hold")
    assert client.post("/v1/requests/mine/cancel").json() == {"cancelled": True}
    response = held.result()
    assert (response.status_code, error_code(response)) == (499, "request_cancelled")
    assert response.headers["x-should-retry"] == "false"
    editor.wait_for("cancelled hold")
    assert client.post("/v1/requests/mine/cancel").json() == {"cancelled": False}
    assert counter(client, "requests_cancelled_total") == before + 1


def test_cancel_by_the_id_of_a_stream(client, editor):
    with streaming(client, "pause") as (created, lines):
        editor.wait_for("start pause")
        assert client.post(f"/requests/{created['id']}/cancel/").json() == {"cancelled": True}
        rest = [line for line in lines if line.startswith("data: ")]
    assert rest[-1] == "data: [DONE]"
    error = json.loads(rest[-2].removeprefix("data: "))["error"]
    assert (set(error), error["code"]) == ({"message", "type", "param", "code"}, "request_cancelled")
    editor.wait_for("cancelled pause")


def test_cancel_of_a_queued_request_leaves_the_others(client, editor, background):
    held = background.submit(post, client, "hold")
    editor.wait_for("start hold")
    queued = background.submit(post, client, "queued", headers={"x-request-id": "queued"})
    wait_until(lambda: num_waiting(client) == 1)
    other = background.submit(post, client, "other")
    wait_until(lambda: num_waiting(client) == 2)
    assert client.post("/v1/requests/queued/cancel").json() == {"cancelled": True}
    assert queued.result().status_code == 499
    editor.release()
    assert (held.result().status_code, other.result().status_code) == (200, 200)
    assert "start queued" not in editor.log


def test_cancel_of_a_name_that_two_requests_chose_cancels_neither(client, editor, background):
    same = {"x-request-id": "1"}
    requests = [background.submit(post, client, "hold", headers=same) for _ in range(2)]
    wait_until(lambda: num_running(client) + num_waiting(client) == 2)
    assert client.post("/v1/requests/1/cancel").json() == {"cancelled": False}
    editor.release()
    assert [request.result().status_code for request in requests] == [200, 200]


def test_cancel_of_an_unknown_request_is_no_error(client):
    assert client.post("/v1/requests/nobody/cancel").json() == {"cancelled": False}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("instruction", ["hold", "pause"])
def test_client_that_leaves_stops_its_request(client, editor, instruction, stream):
    connection = raw_post(client, body(instruction, stream=stream))
    editor.wait_for(f"start {instruction}")
    connection.close()
    editor.wait_for(f"cancelled {instruction}")
    assert post(client, "next").status_code == 200
    assert num_running(client) == 0


@pytest.mark.parametrize("stream", [False, True])
def test_client_that_leaves_the_queue_never_runs(client, editor, background, stream):
    held = background.submit(post, client, "hold")
    editor.wait_for("start hold")
    connection = raw_post(client, body("queued", stream=stream))
    wait_until(lambda: num_waiting(client) == 1)
    connection.close()
    wait_until(lambda: num_waiting(client) == 0)
    editor.release()
    assert held.result().status_code == 200
    assert post(client, "next").status_code == 200
    assert "start queued" not in editor.log


def test_client_that_leaves_stops_no_other(client, editor, background):
    held = background.submit(post, client, "hold", headers={"x-request-id": "a"})
    editor.wait_for("start hold")
    connections = [raw_post(client, body("queued"), **{"x-request-id": "a"}) for _ in range(2)]
    wait_until(lambda: num_waiting(client) == 2)
    for connection in connections:
        connection.close()
    wait_until(lambda: num_waiting(client) == 0)
    assert "cancelled hold" not in editor.log
    editor.release()
    assert held.result().status_code == 200


def test_client_that_leaves_in_mid_body_runs_nothing(client, editor):
    raw_send(client, b'{"input": ', Content_Length="99").close()
    assert post(client, "next").status_code == 200
    assert editor.log == ["start next", "finish next"]


def test_long_check_holds_up_neither_health_nor_running_work(client, editor, background):
    pondered = background.submit(post, client, "ponder")
    editor.wait_for("ponder")
    assert client.get("/health").status_code == 200
    assert post(client, "other").status_code == 200
    editor.release()
    assert pondered.result().status_code == 200


def test_client_that_leaves_while_its_request_is_checked_never_runs(client, editor):
    connection = raw_post(client, body("ponder"), **{"x-request-id": "pondered"})
    editor.wait_for("ponder")
    connection.close()
    wait_until(lambda: not client.post("/v1/requests/pondered/cancel").json()["cancelled"])
    editor.release()
    assert post(client, "next").status_code == 200
    assert "start ponder" not in editor.log


@pytest.mark.parametrize("stream", [False, True])
def test_deadline_passes_while_running(client, editor, stream):
    for timeout_ms in (80, 800, 8000, 30_000):  # on a busy machine a short one may pass before it runs
        started = time.monotonic()
        response = post(client, "hold", timeout_ms=timeout_ms, stream=stream)
        assert time.monotonic() - started >= timeout_ms / 1000
        if stream:
            assert events(response.text)[-1]["error"]["code"] == "deadline_exceeded"
        else:
            assert (response.status_code, error_code(response)) == (504, "deadline_exceeded")
            assert response.headers["x-should-retry"] == "false"
        if "start hold" in editor.log:
            break
    editor.wait_for("cancelled hold")


def test_deadline_passes_in_the_queue(client, editor, background):
    held = background.submit(post, client, "hold")
    editor.wait_for("start hold")
    assert error_code(post(client, "queued", timeout_ms=50)) == "deadline_exceeded"
    editor.release()
    assert held.result().status_code == 200
    assert "start queued" not in editor.log


def test_deadline_that_is_met_changes_nothing(client):
    assert post(client, "go", timeout_ms=9000.5).status_code == 200


def test_newer_request_of_a_session_stops_the_running_one(client, editor, background):
    old = background.submit(post, client, "hold", session="tab", document_version=1)
    editor.wait_for("start hold")
    new = post(client, "new", session="tab", document_version=2)
    assert (old.result().status_code, error_code(old.result())) == (499, "request_superseded")
    assert old.result().headers["x-should-retry"] == "false"
    assert new.json()["edit"]["document_version"] == 2
    assert editor.log == ["start hold", "cancelled hold", "start new", "finish new"]


def test_newer_request_of_a_session_takes_the_place_of_a_queued_one(client, editor, background):
    held = background.submit(post, client, "hold", session="other")
    editor.wait_for("start hold")
    background.submit(post, client, "filler")
    wait_until(lambda: num_waiting(client) == 1)
    old = background.submit(post, client, "old", session="tab")
    wait_until(lambda: num_waiting(client) == 2)
    new = background.submit(post, client, "new", session="tab")  # also where the queue is full
    assert error_code(old.result()) == "request_superseded"
    editor.release()
    assert (held.result().status_code, new.result().status_code) == (200, 200)
    assert "start old" not in editor.log


def test_session_stream_hears_that_it_was_superseded(client, editor):
    with streaming(client, "pause", session="tab") as (_, lines):
        editor.wait_for("start pause")
        assert post(client, "new", session="tab").status_code == 200
        rest = [line for line in lines if line.startswith("data: ")]
    assert json.loads(rest[-2].removeprefix("data: "))["error"]["code"] == "request_superseded"


def test_older_request_whose_body_comes_late_does_not_stop_the_newer_one(client, editor, background):
    payload = json.dumps(body("old", session="tab")).encode()
    old = raw_send(client, b"", Content_Length=str(len(payload)), Expect="100-continue")
    assert old.recv(4096).startswith(b"HTTP/1.1 100")
    new = background.submit(post, client, "hold", session="tab")
    editor.wait_for("start hold")
    old.sendall(payload)
    reply = b""
    with old:
        while b"request_superseded" not in reply:
            piece = old.recv(65536)
            assert piece, reply
            reply += piece
    editor.release()
    assert new.result().status_code == 200
    assert "start old" not in editor.log


def test_requests_without_a_session_are_strangers(client, editor, background):
    held = background.submit(post, client, "hold")
    editor.wait_for("start hold")
    queued = background.submit(post, client, "queued", session=None)
    wait_until(lambda: num_waiting(client) == 1)
    editor.release()
    assert (held.result().status_code, queued.result().status_code) == (200, 200)


def test_invalid_newer_request_supersedes_nothing(client, editor, background):
    held = background.submit(post, client, "hold", session="tab")
    editor.wait_for("start hold")
    assert post(client, "bad", session="tab", n=2).status_code == 400
    editor.release()
    assert held.result().status_code == 200


def test_pings_come_while_the_prompt_is_read_and_in_the_queue(client, editor):
    with streaming(client, "hold") as (_, lines), streaming(client, "queued") as (_, queued_lines):
        for waiting in (lines, queued_lines):
            pings = []
            while len(pings) < 3:
                line = next(waiting)
                assert line in (": ping", "")
                pings += [line] if line else []
        editor.release()
        for waiting in (lines, queued_lines):
            data = [line for line in waiting if line and line != ": ping"]
            assert data[-1] == "data: [DONE]"
            assert json.loads(data[-2].removeprefix("data: "))["type"] == "edit.completed"


def test_deltas_arrive_as_they_are_made(client, editor):
    with streaming(client, "pause") as (_, lines):
        line = next(line for line in lines if line.startswith("data: "))
        assert json.loads(line.removeprefix("data: ")) == {"type": "edit.delta", "text": "bbnbn", "offset": 0}
        assert "finish pause" not in editor.log
        editor.release()
        assert list(lines)[-2] == "data: [DONE]"


def test_reader_that_stalls_keeps_nobody_else_waiting():
    editor = ScriptedEditor(rounds_of=200_000, max_context_tokens=10**8)
    big = {"input": "banana" * 10**6, "instruction": "go", "stream": True, "output": ["text"]}
    with on_socket(editor) as client:
        stalled = [raw_post(client, big) for _ in range(2)]
        wait_until(lambda: editor.log.count("finish go") == 2)
        assert post(client, "next").status_code == 200
        for connection in stalled:
            connection.close()


def test_connection_is_kept_for_the_next_request(client):
    with httpx.Client(base_url=client.base_url, trust_env=False) as one:
        answers = [one.post("/v1/edits", json=body("go")).json()["choices"][0]["text"] for _ in range(3)]
    assert answers == ["bbnbnb bbnbnb"] * 3


def test_body_that_waits_for_a_go_ahead_is_refused_without_it(client):
    connection = raw_send(client, b"", Content_Length=str(10**9), Expect="100-continue")
    reply = connection.recv(65536)
    connection.close()
    assert reply.startswith(b"HTTP/1.1 413")


def test_many_clients_come_and_go():
    """Half of them leave at once; the others each get their own answer."""
    with on_socket(ScriptedEditor()) as client:
        wrong = []

        def ask(number):
            text = f"a{number}"
            answer = client.post("/v1/edits", json={"input": text, "instruction": "go"})
            if answer.json()["choices"][0]["text"] != f"b{number}":
                wrong.append(number)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
            raw_post(client, body("slow", stream=True)).close()
        for thread in threads:
            thread.join()
        assert wrong == []
        wait_until(lambda: num_running(client) == 0 and num_waiting(client) == 0)
