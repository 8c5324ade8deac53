"""Chat and text completions that tell what they quote: `include: ["provenance"]`."""

from __future__ import annotations

import pytest
from logged_editor import logged_editor
from server_harness import events, in_process

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
SAID = "It was a bright cold day in April, and the clocks were striking thirteen."
ANSWER = "😀 He wrote: it was a bright cold day in April, and the clocks were striking. So."


def body(path, **fields):
    if path == TEXT:
        return {"prompt": SAID, **fields}
    messages = [{"role": "system", "content": "Quote."}, {"role": "user", "content": [{"type": "text", "text": SAID}]}]
    return {"messages": [*messages, {"role": "assistant", "content": "Yes:"}], **fields}


@pytest.fixture(scope="module")
def client():
    with in_process(logged_editor(ANSWER)) as client:
        yield client


def units(text, encoding):
    """As clients count them: the text as a sequence from which offsets slice."""
    if encoding == "utf-8":
        return text.encode()
    return text.encode("utf-16-le") if encoding == "utf-16" else text


@pytest.mark.parametrize("encoding", [None, "utf-16", "utf-8", "utf-32"])
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_quotes_are_told_with_their_source(client, path, encoding):
    fields = {"include": ["provenance"]} | ({} if encoding is None else {"position_encoding": encoding})
    answer = client.post(path, json=body(path, **fields)).json()
    quoted = answer["choices"][0]["provenance"]
    encoding = encoding or "utf-16"
    assert quoted["position_encoding"] == encoding
    (span,) = quoted["spans"]
    assert span["source"] == ("prompt" if path == TEXT else "messages[1]")
    width = 2 if encoding == "utf-16" else 1
    text = units(ANSWER, encoding)[span["start"] * width : span["end"] * width]
    assert text == units(SAID, encoding)[span["source_start"] * width : span["source_end"] * width]
    assert "bright cold day" in (text if isinstance(text, str) else text.decode("utf-16-le" if width == 2 else "utf-8"))
    assert 0.5 < quoted["quoted_share"] < 1


@pytest.mark.parametrize("stream_options", [None, {"include_usage": True}])
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_in_a_stream_they_stand_where_the_text_ends(client, path, stream_options):
    fields = {"include": ["provenance"], "stream": True, "stream_options": stream_options}
    chunks = events(client.post(path, json=body(path, **fields)).text)
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert [choice["finish_reason"] for choice in choices if "provenance" in choice] == ["stop"]
    plain = client.post(path, json=body(path, include=["provenance"])).json()
    assert choices[-1]["provenance"] == plain["choices"][0]["provenance"]


@pytest.mark.parametrize("fields", [{}, {"include": None}, {"include": []}])
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_unasked_nothing_is_told(client, path, fields):
    assert "provenance" not in client.post(path, json=body(path, **fields)).json()["choices"][0]


def test_token_ids_hold_nothing_to_quote(client):
    answer = client.post(TEXT, json={"prompt": [97, 98], "include": ["provenance"]}).json()
    assert "provenance" not in answer["choices"][0]
    assert answer["warnings"] == ["provenance: expected a prompt that is text, got token ids"]


@pytest.mark.parametrize("include", ["provenance", ["sources"], [3]])
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_nothing_else_can_be_included(client, path, include):
    response = client.post(path, json=body(path, include=include))
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("include")
