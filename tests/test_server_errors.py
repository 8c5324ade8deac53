"""Every row of the error table, and that no input gets past it."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted_editor import ScriptedEditor
from server_harness import counter, in_process

from lookahead_edit.server.errors import KINDS, error_code
from lookahead_edit.types import ContextLengthExceeded, InvalidInput, LookaheadEditError, ModelUnavailable

JSON = {"content-type": "application/json"}
PLACE = {"line": 0, "character": 0}


@pytest.fixture(scope="module")
def client():
    with in_process(ScriptedEditor(), max_body_bytes=100_000) as client:
        yield client


def error_of(response, status, code):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    ((name, error),) = response.json().items()
    assert name == "error"
    assert list(error) == ["message", "type", "param", "code"]
    assert error["code"] == code
    assert error["message"]
    assert KINDS[code].status == status
    return error


def refused(client, status, code, **fields):
    return error_of(client.post("/v1/edits", json={"input": "a\nb\n", "instruction": "go", **fields}), status, code)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  ",
        b"{",
        b"nonsense",
        b'{"input": NaN}',
        b'{"input": [Infinity, -Infinity]}',
        b'{"input": "\xff"}',
        '{"input": "a"}'.encode("utf-16"),
        b'{"input": "a\n"}',
        b"[" * 100_000,
        b'{"x":' * 19_000,
        b'{"n": ' + b"1" * 5000 + b"}",
        b'{"input": "a"} {}',
    ],
    ids=lambda body: repr(body[:12]),
)
def test_what_is_not_json_is_invalid_json(client, body):
    error_of(client.post("/v1/edits", content=body, headers=JSON), 400, "invalid_json")


@pytest.mark.parametrize("body", [b"[]", b"null", b'"text"', b"3", b"true", b'[{"input": "a"}]'])
def test_json_that_is_no_object_has_the_wrong_type(client, body):
    error = error_of(client.post("/v1/edits", content=body, headers=JSON), 400, "invalid_type")
    assert error["message"].startswith("expected a JSON object, got ")


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"input": None}, "missing_field", "input"),
        ({"instruction": None}, "missing_field", "instruction"),
        ({"range": {"start": PLACE}}, "missing_field", "range.end"),
        ({"range": {"start": PLACE, "end": {"line": 0, "character": None}}}, "missing_field", "range.end.character"),
        ({"context": [{"path": "a", "text": ""}, {"text": ""}]}, "missing_field", "context[1].path"),
        ({"prediction": {"type": "content"}}, "missing_field", "prediction"),
        ({"input": 3}, "invalid_type", "input"),
        ({"input": ["a"]}, "invalid_type", "input"),
        ({"instruction": {}}, "invalid_type", "instruction"),
        ({"max_tokens": True}, "invalid_type", "max_tokens"),
        ({"max_tokens": 1.5}, "invalid_type", "max_tokens"),
        ({"max_tokens": "5"}, "invalid_type", "max_tokens"),
        ({"n": True}, "invalid_type", "n"),
        ({"seed": False}, "invalid_type", "seed"),
        ({"top_k": True}, "invalid_type", "top_k"),
        ({"temperature": True}, "invalid_type", "temperature"),
        ({"temperature": "0"}, "invalid_type", "temperature"),
        ({"timeout_ms": True}, "invalid_type", "timeout_ms"),
        ({"stream": 1}, "invalid_type", "stream"),
        ({"stream": "true"}, "invalid_type", "stream"),
        ({"stop": 3}, "invalid_type", "stop"),
        ({"stop": ["a", 3]}, "invalid_type", "stop[1]"),
        ({"stop": [None]}, "invalid_type", "stop[0]"),
        ({"range": []}, "invalid_type", "range"),
        ({"range": {"start": PLACE, "end": {"line": "0", "character": 0}}}, "invalid_type", "range.end.line"),
        ({"context": "a"}, "invalid_type", "context"),
        ({"context": [None]}, "invalid_type", "context[0]"),
        ({"prediction": 3}, "invalid_type", "prediction"),
        ({"prediction": [{"type": "image_url"}]}, "invalid_type", "prediction"),
        ({"prediction": {"content": 3}}, "invalid_type", "prediction"),
        ({"speculation": True}, "invalid_type", "speculation"),
        ({"speculation": {"enabled": 0}}, "invalid_type", "speculation.enabled"),
        ({"output": "text"}, "invalid_type", "output"),
        ({"position_encoding": 16}, "invalid_type", "position_encoding"),
        ({"document_version": True}, "invalid_type", "document_version"),
        ({"document_version": 1.5}, "invalid_type", "document_version"),
        ({"session": 3}, "invalid_type", "session"),
        ({"model": 3}, "invalid_type", "model"),
        ({"max_tokens": 0}, "invalid_value", "max_tokens"),
        ({"n": 0}, "invalid_value", "n"),
        ({"temperature": -0.1}, "invalid_value", "temperature"),
        ({"temperature": 101}, "invalid_value", "temperature"),
        ({"top_p": 0}, "invalid_value", "top_p"),
        ({"min_p": 2}, "invalid_value", "min_p"),
        ({"top_k": -1}, "invalid_value", "top_k"),
        ({"seed": -1}, "invalid_value", "seed"),
        ({"seed": 2**64}, "invalid_value", "seed"),
        ({"timeout_ms": 0}, "invalid_value", "timeout_ms"),
        ({"stop": ["x"] * 17}, "invalid_value", "stop"),
        ({"output": ["text", "html"]}, "invalid_value", "output[1]"),
        ({"position_encoding": "utf-7"}, "invalid_value", "position_encoding"),
        ({"prediction": {"type": "file", "content": ""}}, "invalid_value", "prediction"),
        ({"speculation": {"max_draft": 5000}}, "invalid_value", "speculation.max_draft"),
        ({"speculation": {"max_draft": -1}}, "invalid_value", "speculation.max_draft"),
        ({"speculation": {"drafter": "magic"}}, "invalid_value", "speculation.drafter"),
        ({"n": 2}, "unsupported_parameter", "n"),
        ({"range": {"start": PLACE, "end": {"line": 9, "character": 0}}}, "invalid_range", "range"),
        ({"range": {"start": PLACE, "end": {"line": -1, "character": 0}}}, "invalid_range", "range"),
        ({"range": {"start": {"line": 1, "character": 0}, "end": PLACE}}, "invalid_range", "range"),
        ({"input": "x" * 5000}, "context_length_exceeded", "input"),
    ],
    ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else None,
)
def test_bad_field_is_a_400_that_names_it(client, fields, code, param):
    error = refused(client, 400, code, **fields)
    assert error["param"] == param
    assert error["message"].startswith((f"expected {param}", f"{param}: expected ", "expected "))
    assert ", got " in error["message"]


def test_unknown_drafter_is_answered_with_the_known_names(client):
    message = refused(client, 400, "invalid_value", speculation={"drafter": "magic"})["message"]
    assert "edit, ngram, none, suffix" in message


@pytest.mark.parametrize("field", ["input", "instruction", "path", "session", "prediction", "stop", "model"])
def test_lone_surrogate_is_refused_by_name(client, field):
    body = json.dumps({"input": "a", "instruction": "go", field: "x\ud800"})
    error = error_of(client.post("/v1/edits", content=body, headers=JSON), 400, "invalid_value")
    assert error["param"].startswith(field)
    assert "U+D800" in error["message"]


def test_lone_surrogate_in_an_unknown_name_is_only_a_warning(client):
    body = r'{"input": "a", "instruction": "go", "\ud800": {"\udfff": 1}}'
    response = client.post("/v1/edits", content=body, headers=JSON)
    assert response.json()["warnings"] == [r"ignored unknown fields: \ud800"]


def test_surrogate_pairs_are_characters(client):
    response = client.post("/v1/edits", content=r'{"input": "\ud83d\ude00", "instruction": "go"}', headers=JSON)
    assert response.json()["choices"][0]["text"] == "\U0001f600"


@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"1" + b"0" * 400])
def test_number_beyond_every_float_is_an_invalid_value(client, number):
    body = b'{"input": "a", "instruction": "go", "temperature": ' + number + b"}"
    error = error_of(client.post("/v1/edits", content=body, headers=JSON), 400, "invalid_value")
    assert len(error["message"]) < 200


def test_message_never_repeats_a_long_value(client):
    assert len(refused(client, 400, "invalid_value", position_encoding="x" * 90_000)["message"]) < 300


def test_unknown_model_is_not_found(client):
    assert refused(client, 404, "model_not_found", model="other")["param"] == "model"
    error_of(client.get("/v1/models/other"), 404, "model_not_found")


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/v1/docs", "/nothing/"])
def test_unknown_address_is_repeated_as_it_was_sent_beside_the_one_that_describes_the_rest(client, path):
    message = error_of(client.get(path), 404, "unknown_url")["message"]
    expected, got = message.split(", got ")
    assert got == f"GET {path}"
    (described,) = (word for word in expected.split() if word.startswith("/"))
    assert "/v1/edits" in client.get(described).json()["paths"]


def test_refused_method_names_the_address_as_it_was_sent(client):
    message = error_of(client.get("/edits/"), 405, "method_not_allowed")["message"]
    assert message == "expected POST for /edits/, got GET"


def test_unknown_address_and_method(client):
    error_of(client.get("/v1/nothing"), 404, "unknown_url")
    error_of(client.post("/v1/edits/more", json={}), 404, "unknown_url")
    response = client.get("/v1/edits")
    error_of(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "POST"
    error_of(client.delete("/v1/models"), 405, "method_not_allowed")
    error_of(client.options("/v1/edits"), 405, "method_not_allowed")


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_other_media_types_are_refused(client, media_type):
    response = client.post("/v1/edits", content=b"{}", headers={"content-type": media_type})
    error_of(response, 415, "unsupported_media_type")


def test_compressed_body_is_refused(client):
    response = client.post("/v1/edits", content=b"x", headers={**JSON, "content-encoding": "gzip"})
    error_of(response, 415, "unsupported_media_type")


def test_large_body_is_refused_by_its_header_and_in_fact(client):
    error_of(client.post("/v1/edits", content=b"x" * 100_001, headers=JSON), 413, "request_too_large")
    pieces = (b"x" * 1000 for _ in range(101))
    error_of(client.post("/v1/edits", content=pieces, headers=JSON), 413, "request_too_large")


def test_body_of_just_the_limit_is_read(client):
    error_of(client.post("/v1/edits", content=b" " * 100_000, headers=JSON), 400, "invalid_json")


@pytest.mark.parametrize("instruction", ["fail", "empty"])
def test_unforeseen_error_tells_the_request_id_and_nothing_else(client, instruction, caplog):
    headers = {"x-request-id": "my-id"}
    response = client.post("/v1/edits", json={"input": "a", "instruction": instruction}, headers=headers)
    error = error_of(response, 500, "internal_error")
    assert "my-id" in error["message"]
    assert "secret" not in response.text
    assert "Traceback" not in response.text
    assert "my-id" in caplog.text


def test_server_lives_on_after_an_unforeseen_error(client):
    refused(client, 500, "internal_error", instruction="fail")
    assert client.post("/v1/edits", json={"input": "a", "instruction": "go"}).status_code == 200


def test_errors_are_counted_by_code(client):
    before = counter(client, "requests_rejected_total", code="missing_field")
    refused(client, 400, "missing_field", input=None)
    assert counter(client, "requests_rejected_total", code="missing_field") == before + 1


def test_headers_that_steer_retries():
    assert KINDS["queue_full"].headers["retry-after"] == "1"
    for code in ("request_cancelled", "request_superseded", "deadline_exceeded"):
        assert KINDS[code].headers["x-should-retry"] == "false"
    for code in ("model_loading", "shutting_down"):
        assert int(KINDS[code].headers["retry-after"]) > 0


def test_every_exception_has_a_row():
    def subclasses(root):
        for child in root.__subclasses__():
            yield child
            yield from subclasses(child)

    groups = {"HttpError", "InvalidInput", "RequestRefused", "RequestStopped"}
    own_row = {kind.__name__: kind for kind in subclasses(LookaheadEditError) if kind.__name__ not in groups}
    for name in ("QueueFull", "ShuttingDown", "ModelLoading"):
        assert KINDS[error_code(own_row[name]())].status in (429, 503)
    for name in ("RequestCancelled", "RequestSuperseded", "DeadlineExceeded"):
        assert KINDS[error_code(own_row[name]())].status in (499, 504)
    assert error_code(ContextLengthExceeded(2, 1)) == "context_length_exceeded"
    assert error_code(InvalidInput("x", code="made_up")) == "internal_error"
    assert error_code(ModelUnavailable("x")) == "internal_error"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
NAMES = [
    *("input", "instruction", "update", "model", "range", "path", "language", "context", "prediction", "speculation"),
    *("output", "position_encoding", "document_version", "session", "temperature", "top_p", "top_k", "min_p", "seed"),
    *("stop", "max_tokens", "stream", "n"),
]


@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_json_object_gets_past_the_table(client, fields):
    response = client.post("/v1/edits", json={"input": "a", "instruction": "go", **fields})
    if response.status_code != 200:
        code = response.json()["error"]["code"]
        assert code != "internal_error"
        error_of(response, KINDS[code].status, code)
        assert response.status_code in (400, 404)
