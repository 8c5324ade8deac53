"""Small promises of every endpoint: names that come back, HEAD, strings that can't be encoded, errors in our words."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from logged_editor import logged_editor
from scripted_editor import MODEL_NAME, ScriptedEditor
from server_harness import events, in_process, on_socket
from starlette.testclient import TestClient

from lookahead_edit.config import RouteConfig, ServerConfig
from lookahead_edit.types import InvalidInput

ROUTES = (RouteConfig("fast", models=("fast-edit",)), RouteConfig("rest", paths=("/v1",)))
PLACE = {"line": 0, "character": 0}
BEYOND = {"line": 7, "character": 0}
SHARED: dict[str, Any] = {"stop": ["END"], "model": MODEL_NAME, "session": "tab"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/edits": {
        **SHARED,
        "input": "a",
        "instruction": "go",
        "update": "b",
        "path": "a.py",
        "language": "python",
        "context": [{"path": "b.py", "text": "c"}],
        "prediction": {"type": "content", "content": [{"type": "text", "text": "d"}]},
        "speculation": {"drafter": "edit"},
        "output": ["text"],
        "include": ["provenance"],
        "position_encoding": "utf-8",
        "document_version": "7",
    },
    "/v1/chat/completions": {
        **SHARED,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "go"}], "name": "me"},
            {"role": "assistant", "content": None, "refusal": "no", "tool_calls": [CALL]},
            {"role": "tool", "content": "e", "tool_call_id": "1"},
        ],
        "prediction": "d",
        "speculation": {"type": "content", "content": "d", "drafter": "edit"},
        "tools": [TOOL],
        "tool_choice": "auto",
        "response_format": {"type": "text"},
        "include": ["provenance"],
        "position_encoding": "utf-8",
    },
    "/v1/completions": {**SHARED, "prompt": "go", "suffix": "", "prediction": "d", "include": ["provenance"]},
}
BODY_NAMES = {"/v1/edits": "EditBody", "/v1/chat/completions": "ChatBody", "/v1/completions": "CompletionBody"}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with in_process(ScriptedEditor(), routes=ROUTES) as client:
        yield client


def strings(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where strings stand in a JSON value."""
    if isinstance(value, str):
        yield place
    elif isinstance(value, dict | list):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from strings(item, (*place, name))


def changed(body: dict[str, Any], place: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    body = copy.deepcopy(body)
    inner: Any = body
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    return body


CASES = [(path, place) for path, body in BODIES.items() for place in strings(body)]


@pytest.mark.parametrize(("path", "place"), CASES, ids=lambda value: str(value).replace("/", " "))
@pytest.mark.parametrize("stream", [False, True])
def test_a_string_that_cannot_be_encoded_is_refused_wherever_it_stands(
    client: TestClient, path: str, place: tuple[str | int, ...], stream: bool
) -> None:
    assert client.post(path, json=BODIES[path]).status_code == 200
    body = changed(BODIES[path], place, "x\ud800") | {"stream": stream}
    response = client.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
    error = response.json()["error"]
    assert response.status_code in (400, 404)
    assert str(error["param"]).startswith(str(place[0]))
    assert "\ud800" not in error["message"]
    assert "expected " in error["message"]
    assert " got " in error["message"]


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/edits", {"timeout_ms": 0}, "expected timeout_ms to be above 0, got 0"),
    ("/v1/edits", {"timeout_ms": -1.5}, "expected timeout_ms to be above 0, got -1.5"),
    ("/v1/edits", {"output": ["html"]}, "expected output[0] to be 'text', 'edits' or 'diff', got 'html'"),
    ("/v1/edits", {"range": {"start": PLACE, "end": []}}, "expected range.end to be an object, got an empty array"),
    ("/v1/edits", {"context": [[1]]}, "expected context[0] to be an object, got an array"),
    ("/v1/chat/completions", {"messages": []}, "expected messages to hold at least 1, got an empty array"),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "boss", "content": "go"}]},
        "expected messages[0].role to be 'system', 'developer', 'user', 'assistant' or 'tool', got 'boss'",
    ),
    ("/v1/chat/completions", {"tools": [3]}, "expected tools[0] to be an object, got 3"),
    ("/v1/chat/completions", {"response_format": "json"}, "expected response_format to be an object, got 'json'"),
    ("/v1/completions", {"prompt": [3, "x"]}, "prompt: expected one prompt, got 2"),
    ("/v1/completions", {"prompt": {}}, "prompt: expected a string or an array of token ids, got an object"),
    ("/v1/edits", {"max_tokens": 0}, "max_tokens: expected at least 1, got 0"),
    ("/v1/edits", {"range": {"start": PLACE, "end": BEYOND}}, "range: expected a line from 0 to 0, got 7"),
    ("/v1/completions", {"stop": ["x"] * 17}, "stop: expected at most 16 strings, got 17"),
    ("/v1/completions", {"seed": -(2**63) - 1}, f"expected seed between 0 and 2**64 - 1, got {-(2**63) - 1}"),
]


@pytest.mark.parametrize(("path", "fields", "message"), WRONG, ids=lambda value: str(value)[:40].replace("/", " "))
def test_errors_say_what_was_expected_in_our_words(
    client: TestClient, path: str, fields: dict[str, Any], message: str
) -> None:
    response = client.post(path, json={**BODIES[path], **fields})
    assert (response.status_code, response.json()["error"]["message"]) == (400, message)


@pytest.mark.parametrize(
    "fields",
    [{"language": "a " * 10**5}, {"range": {"start": {"line": 10**2000, "character": 0}, "end": PLACE}}],
    ids=["language", "range"],
)
def test_a_wrong_value_of_any_length_is_not_repeated(fields: dict[str, Any]) -> None:
    with in_process(logged_editor("x", max_context_tokens=4096)) as client:
        response = client.post("/v1/edits", json={**BODIES["/v1/edits"], "model": None, **fields})
    assert response.status_code == 400
    assert len(response.json()["error"]["message"]) <= 1001


WRONG_VALUES = [None, True, 3, -1, 1.5, 10**400, "", "x", [], [None], [[1]], {}, {"a": 1}]
FOREIGN = ("Input should", "should be", "valid ", "Value error", "function-", "pydantic", "List ", "validation")


@pytest.mark.parametrize("path", BODIES)
def test_no_error_repeats_the_frameworks_words(path: str) -> None:
    """Neither for a wrong value of any field nor for one inside it; with an editor that checks what it gets."""
    with in_process(logged_editor("x", max_context_tokens=4096)) as client:
        try_wrong_values(client, path)


def try_wrong_values(client: TestClient, path: str) -> None:
    right = {**BODIES[path], "model": None}
    for name in client.get("/openapi.json").json()["components"]["schemas"][BODY_NAMES[path]]["properties"]:
        for value in WRONG_VALUES:
            for wrong in (value, [value], {"content": value, "type": value, "enabled": value, "start": value}):
                response = client.post(path, json={**right, name: wrong})
                if response.status_code in (200, 504):  # a time limit of 1.5 ms is none that is wrong
                    continue
                error = response.json()["error"]
                assert response.status_code in (400, 404), (name, wrong, error)
                assert not [word for word in FOREIGN if word in error["message"]], error["message"]
                assert " got " in error["message"]
                assert "(" not in str(error["param"])
                assert error["param"] is None or error["param"] in error["message"], error


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("name", [None, MODEL_NAME, "fast-edit"])
def test_an_answer_has_the_name_that_its_request_had(client: TestClient, path: str, name: str | None) -> None:
    body = {**BODIES[path], "model": name}
    expected = name or MODEL_NAME
    assert client.post(path, json=body).json()["model"] == expected
    for event in events(client.post(path, json={**body, "stream": True}).text):
        assert event.get("model", expected) == expected
    assert client.post(path, json={**body, "model": "another"}).status_code == 404


@pytest.mark.parametrize("stream", [False, True])
def test_an_edit_has_quotes_only_where_they_were_asked_for(client: TestClient, stream: bool) -> None:
    for include in (None, ["sources"], ["provenance"]):
        body = {"input": "a", "instruction": "go", "include": include, "stream": stream}
        response = client.post("/v1/edits", json=body)
        answer = events(response.text)[-1] if stream else response.json()
        assert ("provenance" in answer["choices"][0]) == (include == ["provenance"])


@pytest.mark.parametrize("path", ["/", "/health", "/metrics", "/version", "/v1/models", "/openapi.json", "/v1/stats"])
def test_head_is_answered_like_get_without_a_body(path: str) -> None:
    with on_socket(ScriptedEditor()) as client:
        whole, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"] == whole.headers["content-type"]
        assert "content-length" in head.headers
        refused = client.head("/v1/edits")
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
        assert client.head("/nothing").status_code == 404
        assert client.delete(path).headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(("key", "got"), [("", "an empty one"), (" secret", "one with"), ("secret\n", "one with")])
def test_a_key_that_no_client_could_send_is_refused_without_repeating_it(key: str, got: str) -> None:
    with pytest.raises(InvalidInput, match=f"expected api_key .*, got {got}") as caught:
        ServerConfig(api_key=key)
    assert "secret" not in str(caught.value)


def test_an_empty_key_opens_nothing() -> None:
    with in_process(ScriptedEditor(), api_key="right") as client:
        for headers in ({"authorization": "Bearer "}, {"authorization": "Bearer"}, {"x-api-key": ""}, {"api-key": ""}):
            assert client.get("/v1/models", headers=headers).status_code == 401
        assert client.get("/v1/models", headers={"api-key": "right"}).status_code == 200
