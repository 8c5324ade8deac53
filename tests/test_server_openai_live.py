"""Chat and text completions over a real socket: pings, cancelling, clients that leave, deadlines, sessions."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from scripted_editor import ScriptedEditor
from server_harness import counter, events, on_socket, raw_post, raw_send, wait_until

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(scope="module")
def shared():
    editor = ScriptedEditor()
    with on_socket(editor, ping_seconds=0.05) as client:
        yield editor, client


@pytest.fixture
def editor(shared):
    editor, client = shared
    editor.reset()
    yield editor
    editor.release()
    wait_until(lambda: num_running(client) == 0)


@pytest.fixture
def client(shared, editor):
    return shared[1]


@pytest.fixture
def background():
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture(params=[CHAT, TEXT])
def path(request):
    return request.param


def body(path, script, **fields):
    asked = {"messages": [{"role": "user", "content": script}]} if path == CHAT else {"prompt": script}
    return {**asked, **fields}


def num_running(client):
    return counter(client, "num_requests_running")


def frames_of(lines):
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


def test_stream_is_kept_alive_while_the_prompt_is_read(client, editor, path):
    with client.stream("POST", path, json=body(path, "hold", stream=True)) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        first = next(line for line in lines if line)
        if path == CHAT:
            assert json.loads(first.removeprefix("data: "))["choices"][0]["delta"]["role"] == "assistant"
        assert next(line for line in lines if line.startswith(":")) == ": ping"
        editor.release()
        rest = "\n".join(lines)
    assert "data: [DONE]" in rest


def test_text_arrives_while_the_rest_is_generated(client, editor, path):
    with client.stream("POST", path, json=body(path, "pause pause", stream=True)) as response:
        lines = (line for line in response.iter_lines() if line.startswith("data: {"))
        texts = (
            choice.get("text") or choice.get("delta", {}).get("content")
            for line in lines
            for choice in json.loads(line.removeprefix("data: "))["choices"]
        )
        assert next(text for text in texts if text) == "pbuse"
        assert num_running(client) == 1
        editor.release()
        assert "".join(text for text in texts if text) == " pbuse"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("script", ["hold", "pause pause"])
def test_client_that_leaves_stops_its_request(client, editor, path, script, stream):
    connection = raw_post(client, body(path, script, stream=stream), path)
    editor.wait_for(f"start {script}")
    connection.close()
    editor.wait_for(f"cancelled {script}")
    assert client.post(path, json=body(path, "next")).status_code == 200


def test_half_sent_body_harms_nobody(client, editor, path):
    connection = raw_send(client, b'{"prompt": "a', path, **{"Content-Length": "1000"})
    assert client.post(path, json=body(path, "next")).status_code == 200
    connection.close()
    assert client.post(path, json=body(path, "next")).status_code == 200
    assert len(editor.requests) == 2


def test_cancelled_stream_ends_in_an_error_without_a_reason_to_finish(client, editor, path):
    with client.stream("POST", path, json=body(path, "pause pause", stream=True)) as response:
        lines = response.iter_lines()
        job_id = frames_of([next(line for line in lines if line.startswith("data: {"))])[0]["id"]
        assert client.post(f"/v1/requests/{job_id}/cancel").json() == {"cancelled": True}
        rest = list(lines)
    *chunks, error = frames_of(rest)
    assert (list(error), error["error"]["code"]) == (["error"], "request_cancelled")
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    assert "data: [DONE]" not in rest
    editor.wait_for("cancelled pause pause")


def test_deadline_is_kept(client, editor, path):
    late = client.post(path, json=body(path, "hold", timeout_ms=50))
    assert (late.status_code, late.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert late.headers["x-should-retry"] == "false"
    editor.wait_for("cancelled hold")


def test_newer_request_of_a_session_takes_the_place_of_the_older(client, editor, background, path):
    older = background.submit(client.post, path, json=body(path, "hold", session="tab"))
    editor.wait_for("start hold")
    newer = client.post(path, json=body(path, "newer", session="tab"))
    assert (older.result().status_code, older.result().json()["error"]["code"]) == (499, "request_superseded")
    assert newer.status_code == 200


def test_chat_text_and_edit_run_beside_each_other(client, editor, background):
    asked = [(CHAT, body(CHAT, "hold chat")), (TEXT, body(TEXT, "hold text"))]
    asked.append(("/v1/edits", {"input": "a", "instruction": "hold edit"}))
    answers = [background.submit(client.post, path, json=fields) for path, fields in asked]
    wait_until(lambda: num_running(client) == 3)
    editor.release()
    chat, text, edit = (answer.result().json()["choices"][0] for answer in answers)
    assert (chat["message"]["content"], text["text"], edit["text"]) == ("hold chbt", "hold text", "b")


def test_counters_tell_what_was_served(client, editor, path):
    before = counter(client, "request_success_total", finished_reason="stop")
    client.post(path, json=body(path, "banana"))
    events(client.post(path, json=body(path, "banana", stream=True)).text)
    assert counter(client, "request_success_total", finished_reason="stop") == before + 2
