"""Bad input for chat and text completions: every kind ends in a row of the error table."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logged_editor import logged_editor
from scripted_editor import ScriptedEditor
from server_harness import in_process

from lookahead_edit.editor import Editor
from lookahead_edit.server.errors import KINDS
from lookahead_edit.tokenizer import HfTokenizer

JSON = {"content-type": "application/json"}
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
BASE = {CHAT: {"messages": [{"role": "user", "content": "a"}]}, TEXT: {"prompt": "a"}}
TOOL = {"type": "function", "function": {"name": "look"}}


@pytest.fixture(scope="module")
def client():
    with in_process(ScriptedEditor(), max_body_bytes=1_000_000) as client:
        yield client


def error_of(response, status, code):
    assert response.status_code == status, response.text
    ((name, error),) = response.json().items()
    assert name == "error"
    assert list(error) == ["message", "type", "param", "code"]
    assert (error["code"], KINDS[code].status) == (code, status)
    assert len(error["message"]) < 400
    return error


def message(**fields):
    return {"messages": [{"role": "user", "content": "a"}, {"role": "user", **fields}]}


def part(value):
    return message(content=[{"type": "text", "text": "a"}, value])


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b'{"prompt": "a', "invalid_json"),
        (b'{"temperature": NaN}', "invalid_json"),
        (b'{"prompt": "\xff"}', "invalid_json"),
        (b"[" * 100_000, "invalid_json"),
        (b'{"messages":' * 50_000, "invalid_json"),
        (b'{"seed": ' + b"1" * 5000 + b"}", "invalid_json"),
        (b"[]", "invalid_type"),
        (b'"text"', "invalid_type"),
        (b"{}", "missing_field"),
    ],
    ids=lambda value: repr(value[:12]) if isinstance(value, bytes) else None,
)
def test_bodies_that_are_no_request(client, path, body, code):
    error_of(client.post(path, content=body, headers=JSON), 400, code)


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_media_types_methods_and_sizes(client, path):
    error_of(client.post(path, content=b"{}", headers={"content-type": "text/plain"}), 415, "unsupported_media_type")
    error_of(client.get(path), 405, "method_not_allowed")
    error_of(client.post(path, content=b"x" * 1_000_001, headers=JSON), 413, "request_too_large")
    error_of(client.post(path, json={**BASE[path], "model": "other"}), 404, "model_not_found")


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"temperature": -1}, "invalid_value", "temperature"),
        ({"temperature": "0"}, "invalid_type", "temperature"),
        ({"top_p": 0}, "invalid_value", "top_p"),
        ({"top_k": -5}, "invalid_value", "top_k"),
        ({"min_p": 1.5}, "invalid_value", "min_p"),
        ({"seed": 2**64}, "invalid_value", "seed"),
        ({"seed": -(2**63) - 1}, "invalid_value", "seed"),
        ({"seed": 0.5}, "invalid_type", "seed"),
        ({"frequency_penalty": 2.1}, "invalid_value", "frequency_penalty"),
        ({"presence_penalty": -10}, "invalid_value", "presence_penalty"),
        ({"presence_penalty": True}, "invalid_type", "presence_penalty"),
        ({"repetition_penalty": 0}, "invalid_value", "repetition_penalty"),
        ({"max_tokens": 0}, "invalid_value", "max_tokens"),
        ({"max_tokens": -1}, "invalid_value", "max_tokens"),
        ({"max_completion_tokens": 0}, "invalid_value", "max_completion_tokens"),
        ({"max_tokens": "9"}, "invalid_type", "max_tokens"),
        ({"logit_bias": []}, "invalid_type", "logit_bias"),
        ({"logit_bias": {"a": 1}}, "invalid_value", "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "invalid_value", "logit_bias"),
        ({"logit_bias": {"٣": 1}}, "invalid_value", "logit_bias"),
        ({"logit_bias": {"1": 101}}, "invalid_value", "logit_bias"),
        ({"logit_bias": {"1": "5"}}, "invalid_type", "logit_bias"),
        ({"logit_bias": {str(token): 1 for token in range(1025)}}, "invalid_value", "logit_bias"),
        ({"stop": ["x"] * 10_000}, "invalid_value", "stop"),
        ({"stop": [3]}, "invalid_type", "stop[0]"),
        ({"stop": {}}, "invalid_type", "stop"),
        ({"n": 2}, "unsupported_parameter", "n"),
        ({"n": 0}, "invalid_value", "n"),
        ({"stream": "yes"}, "invalid_type", "stream"),
        ({"stream_options": True}, "invalid_type", "stream_options"),
        ({"stream_options": {"include_usage": 1}}, "invalid_type", "stream_options.include_usage"),
        ({"prediction": 3}, "invalid_type", "prediction"),
        ({"prediction": {"type": "file"}}, "invalid_value", "prediction"),
        ({"prediction": {"type": "content", "content": None}}, "missing_field", "prediction"),
        ({"speculation": 3}, "invalid_type", "speculation"),
        ({"speculation": [3]}, "invalid_type", "speculation"),
        ({"speculation": {"enabled": "no"}}, "invalid_type", "speculation.enabled"),
        ({"speculation": {"max_draft": 5000}}, "invalid_value", "speculation.max_draft"),
        ({"speculation": {"drafter": "magic"}}, "invalid_value", "speculation.drafter"),
        ({"speculation": {"type": "file", "content": ""}}, "invalid_value", "speculation.type"),
        ({"session": 3}, "invalid_type", "session"),
        ({"timeout_ms": 0}, "invalid_value", "timeout_ms"),
        ({"model": {}}, "invalid_type", "model"),
    ],
    ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else None,
)
def test_bad_field_of_both_is_a_400_that_names_it(client, path, fields, code, param):
    error = error_of(client.post(path, json={**BASE[path], **fields}), 400, code)
    assert error["param"] == param
    assert ", got " in error["message"]


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"messages": None}, "missing_field", "messages"),
        ({"messages": []}, "invalid_value", "messages"),
        ({"messages": "a"}, "invalid_type", "messages"),
        ({"messages": ["a"]}, "invalid_type", "messages[0]"),
        (message(role=None), "missing_field", "messages[1].role"),
        (message(role="narrator"), "invalid_value", "messages[1].role"),
        (message(role=3), "invalid_type", "messages[1].role"),
        (message(content=3), "invalid_type", "messages[1].content"),
        (message(content={}), "invalid_type", "messages[1].content"),
        (part(3), "invalid_type", "messages[1].content"),
        (part({"type": "text"}), "invalid_type", "messages[1].content"),
        (part({"type": "image_url", "image_url": {"url": "x"}}), "unsupported_parameter", "messages[1].content"),
        (part({"type": "input_audio"}), "unsupported_parameter", "messages[1].content"),
        (message(tool_calls={}), "invalid_type", "messages[1].tool_calls"),
        (message(tool_calls=[3]), "invalid_type", "messages[1].tool_calls[0]"),
        (message(tool_call_id=3), "invalid_type", "messages[1].tool_call_id"),
        ({"tools": {}}, "invalid_type", "tools"),
        ({"tools": ["look"]}, "invalid_type", "tools[0]"),
        ({"tools": [TOOL], "tool_choice": "maybe"}, "invalid_value", "tool_choice"),
        ({"tools": [TOOL], "tool_choice": 3}, "invalid_type", "tool_choice"),
        ({"tool_choice": "required"}, "invalid_value", "tools"),
        ({"response_format": "json"}, "invalid_type", "response_format"),
        ({"response_format": {"type": "json_schema"}}, "unsupported_parameter", "response_format"),
        ({"response_format": {"type": 3}}, "unsupported_parameter", "response_format"),
        ({"logprobs": True}, "unsupported_parameter", "logprobs"),
        ({"logprobs": 3}, "invalid_type", "logprobs"),
        ({"top_logprobs": 3}, "unsupported_parameter", "top_logprobs"),
    ],
    ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else None,
)
def test_bad_field_of_a_chat_is_a_400_that_names_it(client, fields, code, param):
    error = error_of(client.post(CHAT, json={**BASE[CHAT], **fields}), 400, code)
    assert error["param"] == param
    assert ", got " in error["message"]


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"prompt": None}, "missing_field", "prompt"),
        ({"prompt": 3}, "invalid_type", "prompt"),
        ({"prompt": {}}, "invalid_type", "prompt"),
        ({"prompt": []}, "invalid_value", "prompt"),
        ({"prompt": [[]]}, "invalid_value", "prompt"),
        ({"prompt": [1, True]}, "invalid_type", "prompt"),
        ({"prompt": [1.5]}, "invalid_type", "prompt"),
        ({"prompt": [1, None]}, "invalid_type", "prompt"),
        ({"prompt": ["a", "b"]}, "unsupported_parameter", "prompt"),
        ({"prompt": [[1], [2]]}, "unsupported_parameter", "prompt"),
        ({"suffix": "b"}, "unsupported_parameter", "suffix"),
        ({"echo": True}, "unsupported_parameter", "echo"),
        ({"best_of": 3}, "unsupported_parameter", "best_of"),
        ({"logprobs": 0}, "unsupported_parameter", "logprobs"),
        ({"logprobs": True}, "unsupported_parameter", "logprobs"),
    ],
    ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else None,
)
def test_bad_field_of_a_text_completion_is_a_400_that_names_it(client, fields, code, param):
    error = error_of(client.post(TEXT, json={**BASE[TEXT], **fields}), 400, code)
    assert error["param"] == param
    assert ", got " in error["message"]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": "\ud800"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "\ud800"}]}]},
        {"messages": [{"role": "user", "content": "a", "tool_calls": [{"\ud800": 1}]}]},
        {"messages": [{"role": "user", "content": "a"}], "tools": [{"function": {"description": "\ud800"}}]},
        {"messages": [{"role": "user", "content": "a"}], "prediction": ["\ud800"]},
        {"messages": [{"role": "user", "content": "a"}], "speculation": "\ud800"},
    ],
    ids=lambda body: json.dumps(body)[-60:],
)
def test_lone_surrogates_are_refused_wherever_they_stand(client, body):
    response = client.post(CHAT, content=json.dumps(body), headers=JSON)
    assert response.status_code == 400
    assert response.json()["error"]["code"] in ("invalid_value", "invalid_type")


def test_deep_values_that_nobody_reads_are_refused_or_ignored(client):
    deep = "[" * 900 + "]" * 900
    for field in ("tools", "metadata"):
        value = f'[{{"function": {deep}}}]' if field == "tools" else deep
        body = f'{{"messages": [{{"role": "user", "content": "a"}}], "{field}": {value}}}'
        response = client.post(CHAT, content=body, headers=JSON)
        assert response.status_code in (200, 400), response.text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_prompt_beyond_the_context_is_refused_with_the_numbers(path, stream):
    with in_process(logged_editor("x", max_context_tokens=200)) as client:
        field, value = ("messages", [{"role": "user", "content": "x" * 300}]) if path == CHAT else ("prompt", "x" * 300)
        response = client.post(path, json={field: value, "stream": stream})
        error = error_of(response, 400, "context_length_exceeded")
    assert error["param"] == field
    assert "200 tokens" in error["message"]
    assert ("319" if path == CHAT else "300") in error["message"]


@pytest.mark.parametrize("fields", [{"prompt": [300]}, {"prompt": [-1]}, {"prompt": [10**30]}, {"prompt": ""}])
def test_prompt_that_the_model_cannot_read_is_refused(fields):
    with in_process(logged_editor("x", vocab_size=258)) as client:
        assert error_of(client.post(TEXT, json=fields), 400, "invalid_value")["param"] == "prompt"
        biased = client.post(TEXT, json={"prompt": "a", "logit_bias": {"258": 1}})
        assert error_of(biased, 400, "invalid_value")["param"] == "logit_bias"


def test_what_the_chat_template_refuses_is_an_error_of_the_messages():
    from tiny_tokenizers import byte_level_tokenizer

    strict = HfTokenizer(byte_level_tokenizer("{{ raise_exception('Roles must alternate.') }}"))
    editor = Editor(logged_editor("x").target, strict)
    with in_process(editor) as client:
        error = error_of(client.post(CHAT, json=BASE[CHAT]), 400, "invalid_value")
    assert error["param"] == "messages"
    assert "Roles must alternate." in error["message"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("path", [CHAT, TEXT])
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_json_object_gets_past_the_table(client, path, data):
    schema = client.get("/openapi.json").json()["components"]["schemas"]
    names = sorted(schema["ChatBody" if path == CHAT else "CompletionBody"]["properties"])
    fields = data.draw(
        st.dictionaries(st.sampled_from([name for name in names if name != "timeout_ms"]), VALUES, max_size=4)
    )
    response = client.post(path, json={**BASE[path], **fields})
    if response.status_code != 200:
        code = response.json()["error"]["code"]
        assert code != "internal_error"
        error_of(response, KINDS[code].status, code)
        assert response.status_code in (400, 404)
