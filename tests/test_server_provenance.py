"""`include` on /v1/edits: verbatim quotes with their places, and where streamed text was drafted from."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_editor import ScriptedEditor
from server_harness import events, in_process

from lookahead_edit.server.provenance import MAX_COMPARED_CHARACTERS, provenance

KEPT = "one two three four five six\r\n"
TEXT = f"banana \U0001f600 = 1\r\n{KEPT}cab\r\n"  # the scripted edit turns every a into b


@pytest.fixture(scope="module")
def client():
    with in_process(ScriptedEditor()) as client:
        yield client


def post(client, *, status=200, **fields):
    response = client.post("/v1/edits", json={"input": TEXT, "instruction": "go", **fields})
    assert response.status_code == status, response.text
    return response.json()


def unit(text, offset, encoding):
    """A character's offset in units of the encoding, counted the slow way."""
    width = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
    name = encoding if encoding == "utf-8" else f"{encoding}-le"
    return len(text[:offset].encode(name)) // width


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8", "utf-32"])
def test_quotes_have_their_places_in_the_units_that_were_asked_for(client, encoding):
    (choice,) = post(client, include=["provenance"], position_encoding=encoding)["choices"]
    found = choice["provenance"]
    assert (found["position_encoding"], found["min_words"]) == (encoding, 5)
    (span,) = found["spans"]
    start, end = TEXT.index("\U0001f600"), TEXT.index("cab") - 2  # from the first sign that was kept to the line end
    assert choice["text"][start:end] == TEXT[start:end]
    assert (span["start"], span["end"]) == (unit(TEXT, start, encoding), unit(TEXT, end, encoding))
    assert (span["source"], span["source_start"], span["source_end"]) == ("input", span["start"], span["end"])
    assert found["quoted_share"] == pytest.approx((end - start) / len(choice["text"]))


def test_who_does_not_ask_gets_no_quotes(client):
    assert "provenance" not in post(client)["choices"][0]


def test_quotes_come_without_the_text_and_at_the_end_of_a_stream(client):
    assert post(client, include=["provenance"], output=[])["choices"][0]["provenance"]["spans"]
    response = client.post(
        "/v1/edits", json={"input": TEXT, "instruction": "go", "include": ["provenance"], "stream": True}
    )
    assert events(response.text)[-1]["choices"][0]["provenance"]["spans"]


def test_snippet_and_instruction_are_sources_and_files_of_the_workspace_are_none(client):
    answer = post(
        client,
        input="here we go on and on\nred blue green grey pink\nnever seen in any of these texts\n",
        instruction="here we go on and on",
        update="red blue green grey pink",
        context=[{"path": "x", "text": "never seen in any of these texts"}],
        include=["provenance"],
    )
    assert {span["source"] for span in answer["choices"][0]["provenance"]["spans"]} == {"input"}
    answer = post(client, input="a\n", instruction="say upper", update="b", include=["provenance"])
    assert answer["choices"][0]["provenance"]["spans"] == []


def test_an_unknown_part_is_refused_by_name(client):
    error = post(client, status=400, include=["everything"])["error"]
    assert (error["param"], error["code"]) == ("include[0]", "invalid_value")
    assert "'provenance' or 'sources'" in error["message"]


def test_texts_beyond_the_limit_are_not_compared_and_a_warning_says_so():
    found, warnings = provenance("a", [("input", "a" * (MAX_COMPARED_CHARACTERS + 1))])
    assert found is None
    assert warnings == [f"provenance: expected texts of at most 2097152 characters, got {MAX_COMPARED_CHARACTERS + 1}"]


def test_an_empty_answer_has_no_share():
    found, warnings = provenance("", [("input", "one two three four five")])
    assert (found.quoted_share, found.spans, warnings) == (None, [], [])


DOCUMENTS = st.text(alphabet="ab \n.é漢\U0001f600", max_size=60)


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS, st.lists(DOCUMENTS, max_size=3), st.sampled_from(["utf-16", "utf-8", "utf-32"]))
def test_every_span_is_equal_text_in_both_places(text, sources, encoding):
    named = [(f"messages[{number}]", source) for number, source in enumerate(sources)]
    found, _ = provenance(
        f"x {text} one two three four five", [*named, ("prompt", f"{text} one two three four five")], encoding
    )

    def cut(text, start, end):
        width = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
        name = encoding if encoding == "utf-8" else f"{encoding}-le"
        return text.encode(name)[start * width : end * width].decode(name)

    texts = {**dict(named), "prompt": f"{text} one two three four five"}
    assert found.spans
    for span in found.spans:
        quoted = cut(f"x {text} one two three four five", span.start, span.end)
        assert quoted == cut(texts[span.source], span.source_start, span.source_end)


def test_streamed_text_is_told_apart_by_its_source_and_counted(client):
    response = client.post(
        "/v1/edits", json={"input": "banana banana", "instruction": "go", "include": ["sources"], "stream": True}
    )
    deltas = [event for event in events(response.text) if event["type"] == "edit.delta"]
    assert [event["text"] for event in deltas] == ["bbnbn", "b bbn", "bnb"]
    assert deltas[0]["sources"] == [{"text": "bbnb", "source": "file"}, {"text": "n", "source": "own"}]
    for event in deltas:
        assert "".join(piece["text"] for piece in event["sources"]) == event["text"]
    assert [event["counts"] for event in deltas] == [
        {"num_rounds": 1, "num_tokens": 5, "num_draft_tokens": 5, "num_accepted_draft_tokens": 4},
        {"num_rounds": 2, "num_tokens": 10, "num_draft_tokens": 10, "num_accepted_draft_tokens": 8},
        {"num_rounds": 3, "num_tokens": 13, "num_draft_tokens": 13, "num_accepted_draft_tokens": 10},
    ]


def test_without_speculation_all_text_is_the_models_own(client):
    body = {"input": "banana", "instruction": "go", "include": ["sources"], "stream": True}
    response = client.post("/v1/edits", json=body | {"speculation": {"enabled": False}})
    deltas = [event for event in events(response.text) if event["type"] == "edit.delta"]
    assert {piece["source"] for event in deltas for piece in event["sources"]} == {"own"}


def test_deltas_have_nothing_more_where_sources_are_not_asked_for(client):
    response = client.post("/v1/edits", json={"input": "banana", "instruction": "go", "stream": True})
    delta = next(event for event in events(response.text) if event["type"] == "edit.delta")
    assert set(delta) == {"type", "text", "offset"}
