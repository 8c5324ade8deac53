"""Routes over HTTP: a file's rules, from the request to its answer and the counters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from logged_editor import FILE, logged_editor
from scripted_editor import MODEL_NAME, ScriptedEditor
from server_harness import counter, in_process
from starlette.testclient import TestClient

from lookahead_edit.config_file import read_server_config
from lookahead_edit.server import create_app

FILE_TEXT = """
[server]
max_queued_requests = 5

[routes.interactive]
models = ["fast-edit"]
paths = ["/v1/edits"]
max_draft_tokens = 3
timeout_seconds = 20

[routes.batch]
models = ["slow-edit"]
speculation = "off"
max_tokens = 6
max_context_tokens = 2000

[routes.eager]
speculation = "on"

[routes.late]
timeout_seconds = 0.05

[routes.internal]
allows_header = false
"""
ANSWER = FILE.replace("line_20", "total") + "```"


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("config") / "server.toml"
    path.write_text(FILE_TEXT)
    return read_server_config(path).routes


@pytest.fixture
def client(routes: Any) -> Iterator[TestClient]:
    """An editor whose model changes one name in FILE, whatever it is asked."""
    with in_process(logged_editor(ANSWER), routes=routes) as client:
        yield client


@pytest.fixture
def scripted(routes: Any) -> Iterator[TestClient]:
    with in_process(ScriptedEditor(), routes=routes) as client:
        yield client


def post(client: TestClient, route: str | None = None, status: int = 200, **fields: Any) -> Any:
    headers = {} if route is None else {"x-lookahead-route": route}
    body = {"input": FILE, "instruction": "Do it.", **fields}
    response = client.post("/v1/edits", json=body, headers=headers)
    assert response.status_code == status, response.text
    return response.json()


def drafts(answer: Any) -> Any:
    return answer["metrics"]["speculative_decoding"]


@pytest.mark.parametrize(
    ("route", "model", "name"),
    [
        (None, None, "interactive"),
        (None, "slow-edit", "batch"),
        ("eager", None, "eager"),
        ("eager", "fast-edit", "eager"),
    ],
)
def test_counters_carry_the_route_that_was_taken(
    client: TestClient, route: str | None, model: str | None, name: str
) -> None:
    answer = post(client, route, model=model)
    taken = [
        each
        for each in ("interactive", "batch", "eager", "edits")
        if counter(client, "spec_decode_num_draft_tokens_total", route=each, source="file")
    ]
    assert taken == ([] if name == "batch" else [name])
    assert (drafts(answer)["num_draft_tokens"] > 0) == (name != "batch")


def test_models_lists_the_routes_names_with_their_limits(client: TestClient) -> None:
    cards = {card["id"]: card["max_model_len"] for card in client.get("/v1/models").json()["data"]}
    assert set(cards) == {"model", "fast-edit", "slow-edit"}
    assert (cards["slow-edit"], cards["fast-edit"]) == (2000, cards["model"])
    assert client.get("/v1/models/slow-edit").json()["max_model_len"] == 2000
    assert client.get("/v1/models/none").status_code == 404


def test_an_unknown_model_and_a_route_that_may_not_be_named_are_refused(client: TestClient) -> None:
    assert post(client, model="gpt", status=404)["error"]["code"] == "model_not_found"
    for name in ("nothing", "internal"):
        error = post(client, name, status=400)["error"]
        assert (error["code"], error["param"]) == ("invalid_value", "x-lookahead-route")


def test_drafts_are_no_longer_than_the_route_allows(client: TestClient) -> None:
    answer = post(client)
    assert answer["choices"][0]["text"] == FILE.replace("line_20", "total")
    assert len(drafts(answer)["acceptance_histogram"]) <= 4
    answer = post(client, speculation={"max_draft": 100})
    assert len(drafts(answer)["acceptance_histogram"]) <= 4
    assert (
        "speculation.max_draft was cut from 100 to 3, the most that the route interactive allows" in answer["warnings"]
    )
    assert drafts(answer)["num_spec_tokens"] == 3
    answer = post(client, speculation={"max_draft": 1})
    assert len(drafts(answer)["acceptance_histogram"]) == 2
    assert answer["warnings"] == []


def test_speculation_can_be_forbidden_and_forced(client: TestClient) -> None:
    off = post(client, "batch", speculation={"enabled": True}, max_tokens=5)
    assert drafts(off)["num_draft_tokens"] == 0
    assert drafts(off)["disabled_reason"] == "speculation is off for this request"
    assert off["warnings"] == ["speculation stays off: the route batch has none"]
    assert drafts(post(client, "eager"))["num_draft_tokens"] > 0
    assert drafts(post(client, "eager", speculation={"enabled": False}))["num_draft_tokens"] == 0


def test_forced_drafts_go_in_where_they_do_not_pay(routes: Any) -> None:
    """A model that never writes what is drafted: by cost they stop, by force they don't."""
    editor = logged_editor("".join(chr(0x100 + number) for number in range(800)) + "```")
    with in_process(editor, routes=routes) as client:
        text = "".join(f"{number:03}\n" for number in range(300))
        body = {"input": text, "instruction": "Do it.", "max_tokens": 800}
        rates = {}
        for route in ("edits", "eager"):
            headers = {"x-lookahead-route": route} if route == "eager" else {}
            decoding = client.post("/v1/edits", json=body, headers=headers).json()["metrics"]["speculative_decoding"]
            rates[route] = decoding["num_draft_tokens"]
    assert rates["eager"] > 2 * rates["edits"]


def test_answers_are_no_longer_than_the_route_allows(client: TestClient) -> None:
    for fields, num_warnings in (({}, 0), ({"max_tokens": 100}, 1), ({"max_tokens": 4}, 0)):
        answer = post(client, "batch", input="line_20 = 1\n", **fields)
        assert answer["usage"]["completion_tokens"] == min(6, fields.get("max_tokens", 6))
        assert (answer["choices"][0]["finish_reason"], len(answer["warnings"])) == ("length", num_warnings)


def test_a_prompt_beyond_the_routes_context_is_refused_with_the_numbers(client: TestClient) -> None:
    error = post(client, "batch", input="x" * 4000, status=400)["error"]
    assert error["code"] == "context_length_exceeded"
    limit = "the route batch has a limit of 2000 tokens for prompt and answer together"
    # The last words are those by which clients tell this error; they must be true of the model all the same.
    assert f": {limit}, where this model's maximum context length is {2**31 - 1} tokens" in error["message"]
    assert error["message"].startswith("input: expected a prompt that fits, got ")
    assert post(client, "eager", input="x" * 4000)["choices"][0]["finish_reason"] == "stop"


def test_the_routes_time_limit_holds_without_and_against_the_requests(scripted: TestClient) -> None:
    for fields in ({}, {"timeout_ms": 60_000}):
        error = post(scripted, "late", status=504, input="a", instruction="hold", **fields)["error"]
        assert error["code"] == "deadline_exceeded"
        assert "within 50 ms" in error["message"]
    answer = post(scripted, input="a", timeout_ms=60_000)
    assert answer["warnings"] == ["timeout_ms was cut from 60000 to 20000, the most that the route interactive allows"]
    assert answer["model"] == MODEL_NAME


def test_routes_hold_for_chats_and_completions_too(scripted: TestClient) -> None:
    for path, fields in (
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "banana"}]}),
        ("/v1/completions", {"prompt": "banana"}),
    ):
        response = scripted.post(path, json={"model": "slow-edit", "max_tokens": 7, **fields})
        assert response.status_code == 200, response.text
        assert "max_tokens was cut from 7 to 6, the most that the route batch allows" in response.json()["warnings"]
        refused = scripted.post(path, json={"model": "gpt", **fields})
        assert refused.status_code == 404


def test_a_route_with_a_drafter_that_does_not_exist_stops_the_server_at_once(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text('[routes.fast]\ndrafter = "magic"\n')
    with pytest.raises(ValueError, match=r"route fast: expected drafter to be one of edit, .*, got 'magic'"):
        create_app(ScriptedEditor, read_server_config(path))
