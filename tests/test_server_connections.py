"""Connections that keep the server waiting end, whatever they wait with; those that don't are left alone."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress

import httpx
import pytest
from scripted_editor import ScriptedEditor
from server_harness import counter, on_socket, raw_send, wait_until

HEAD = b"POST /v1/edits HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nX-Slow: "
BODY = json.dumps({"input": "banana", "instruction": "go"}).encode()


def connect(client: httpx.Client) -> socket.socket:
    return socket.create_connection((client.base_url.host, client.base_url.port), timeout=60)


def rest_of(connection: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    reply = b""
    with suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            reply += piece
    return reply


def error_in(reply: bytes) -> dict[str, str]:
    head, _, body = reply.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    assert b"connection: close" in head
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


@pytest.fixture(scope="module")
def hasty():
    with on_socket(ScriptedEditor(), header_seconds=0.3) as client:
        yield client


def test_headers_that_stop_midway_are_refused_and_others_are_served_meanwhile(hasty) -> None:
    with connect(hasty) as slow:
        slow.sendall(HEAD)
        assert hasty.post("/v1/edits", content=BODY, headers={"content-type": "application/json"}).status_code == 200
        reply = rest_of(slow)
    assert reply.startswith(b"HTTP/1.1 504 Gateway Timeout\r\n")
    assert b"x-should-retry: false" in reply
    error = error_in(reply)
    assert (error["code"], error["message"]) == ("deadline_exceeded", "expected whole headers within 0.3 s, got a part")


def test_headers_that_come_byte_by_byte_are_refused(hasty) -> None:
    with connect(hasty) as slow:
        is_over = threading.Event()

        def trickle() -> None:
            with suppress(OSError):
                for byte in HEAD + b"x" * 10_000:
                    slow.sendall(bytes([byte]))
                    if is_over.wait(0.02):
                        return

        thread = threading.Thread(target=trickle)
        thread.start()
        reply = rest_of(slow)
        is_over.set()
        thread.join()
    # Bytes that arrive after the answer reset the connection, which may take the answer along.
    assert reply == b"" or error_in(reply)["code"] == "deadline_exceeded"


def test_a_connection_without_a_byte_is_closed_without_a_word(hasty) -> None:
    with connect(hasty) as silent:
        assert rest_of(silent) == b""


def test_the_second_request_of_a_kept_connection_has_the_same_limit(hasty) -> None:
    with connect(hasty) as kept:
        kept.sendall(b"GET /version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        reply = b""
        while b"}" not in reply:
            reply += kept.recv(65536)
        assert reply.startswith(b"HTTP/1.1 200")
        kept.sendall(HEAD)
        assert error_in(rest_of(kept))["code"] == "deadline_exceeded"


def test_a_connection_is_kept_longer_than_clients_keep_it(hasty) -> None:
    """httpx gives up an idle connection after 5 seconds; who closes first must be the client."""
    with connect(hasty) as kept:
        for _ in range(2):
            kept.sendall(b"GET /version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            reply = b""
            while b"}" not in reply:
                piece = kept.recv(65536)
                assert piece
                reply += piece
            time.sleep(6.0)


def test_what_follows_the_headers_has_the_time_of_a_body(hasty) -> None:
    with raw_send(hasty, BODY[:5], Content_Length=str(len(BODY))) as connection:
        time.sleep(0.6)
        connection.sendall(BODY[5:])
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_an_answer_may_take_longer_than_headers() -> None:
    editor = ScriptedEditor()
    with (
        on_socket(editor, header_seconds=0.1) as client,
        raw_send(client, BODY.replace(b"go", b"hold"), Content_Length=str(len(BODY) + 2)) as connection,
    ):
        editor.wait_for("start hold")
        time.sleep(0.3)
        editor.release()
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_what_follows_a_refused_request_is_not_read_for_ever(hasty) -> None:
    """Refused by its headers, with a body that trickles on."""
    with raw_send(hasty, b"x" * 10, path="/v1/nothing", Content_Length="1000000") as connection:
        reply = connection.recv(65536)
        assert reply.startswith(b"HTTP/1.1 404")
        with suppress(OSError):
            for _ in range(1000):
                connection.sendall(b"x")
                time.sleep(0.02)
            pytest.fail("the server still reads")


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", b"nonsense\r\n\r\n", b"GET / HTTP/9\r\n\r\n"]
)
def test_what_is_not_http_is_refused_in_json(hasty, sent: bytes) -> None:
    with connect(hasty) as connection:
        connection.sendall(sent)
        reply = rest_of(connection)
    assert reply.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert error_in(reply)["code"] == "invalid_value"


def test_a_body_with_two_ends_is_refused_and_what_follows_is_no_request(hasty) -> None:
    with connect(hasty) as connection:
        connection.sendall(
            b"POST /v1/edits HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 44\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        )
        reply = rest_of(connection)
    assert reply.count(b"HTTP/1.1 ") == 1
    assert error_in(reply)["message"] == "expected Content-Length or Transfer-Encoding, got both"


def test_headers_of_a_megabyte_are_refused(hasty) -> None:
    with connect(hasty) as connection:
        with suppress(OSError):
            connection.sendall(HEAD + b"x" * 2**20 + b"\r\n\r\n")
        reply = rest_of(connection)
    assert reply == b"" or error_in(reply)["code"] == "invalid_value"
    assert hasty.get("/health").status_code == 200


def test_a_client_who_reads_nothing_is_left_and_its_request_ends() -> None:
    editor = ScriptedEditor(rounds_of=2**18, max_context_tokens=2**30)
    with on_socket(editor, stalled_seconds=0.3) as client:
        body = json.dumps({"input": "banana " * 2**20, "instruction": "slow", "stream": True}).encode()
        with raw_send(client, body, Content_Length=str(len(body))) as connection:
            wait_until(lambda: counter(client, "requests_cancelled_total") == 1)
            assert len(rest_of(connection)) < 2**24
        wait_until(lambda: counter(client, "num_requests_running") == 0)


def test_a_client_who_reads_slowly_gets_it_all() -> None:
    editor = ScriptedEditor(rounds_of=2**18, max_context_tokens=2**30)
    with on_socket(editor, stalled_seconds=5.0) as client:
        body = json.dumps({"input": "banana " * 2**19, "instruction": "go", "stream": True}).encode()
        with raw_send(client, body, Content_Length=str(len(body)), Connection="close") as connection:
            reply = b""
            while piece := connection.recv(2**20):
                reply += piece
                time.sleep(0.02)
    assert reply.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
