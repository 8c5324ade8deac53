"""A stop string of the request cuts an edit off: half a file never counts as an edited one, anywhere."""

from __future__ import annotations

from typing import Any

import pytest
from logged_editor import edited
from server_harness import events, in_process

from lookahead_edit.editor import Editor, EditRequest
from lookahead_edit.targets.recorded import RecordedTarget
from lookahead_edit.text_answer import AnswerStream, clean_answer
from lookahead_edit.tokenizer import ByteTokenizer

BEFORE = "a = 1\nb = 2\nc = 3\n"


@pytest.mark.parametrize(
    ("raw", "stop", "text", "is_stopped"),
    [
        ("a\nb\n```", "b", "a\n", True),
        ("a\nb\n```\nEND", "END", "a\nb\n", False),  # the fence came first
        ("a\nb```\n\nEND", "END", "a\nb", False),  # a fence right behind the text
        ("```py\na\n```\nEND", "END", "a\n", False),  # the model's own fence closed the answer
        ("```py\na\nEND", "END", "a\n", True),
        ("a\nb\n```", "```", "a\nb\n", False),  # the stop string is the closing fence
        ("a\nb\n```", "\n```", "a\nb", False),
        ("a\r\nb\r\n````", "\r\n```", "a\nb", False),
        ("a ```b", "```", "a ", True),
        ("a\n```sh\nls\n```\nb\n```", "ls", "a\n```sh\n", True),
        ("a\n```sh\nls\n```\nb\n```", "\n```\n", "a\n```sh\nls", True),  # closes a block of the text, not the answer
        ("```\nx = 2\n```", "```", "", True),  # may open a fence around the answer as well as close an empty one
        ("a\n``", "``", "a\n", True),
    ],
)
def test_an_answer_knows_whether_a_stop_string_cut_it_off(raw: str, stop: str, text: str, is_stopped: bool) -> None:
    answer = clean_answer(raw, "```", language="py", stops=[stop])
    assert (answer.text, answer.is_stopped) == (text, is_stopped)
    stream = AnswerStream("```", language="py", stops=[stop])
    pieces = [stream.push(character) for character in raw] + [stream.finish()]
    assert stream.answer == answer
    assert "".join(pieces) == text


def test_an_edit_that_a_stop_string_ended_is_truncated() -> None:
    result = edited(BEFORE, "a = 1\nb = 5\nc = 3\n```", stop=("b =",))
    assert (result.text, result.finish_reason, result.truncated) == ("a = 1\n", "stop", True)
    whole = edited(BEFORE, "a = 1\nb = 5\nc = 3\n```", stop=("d =", "```"))
    assert (whole.text, whole.finish_reason, whole.truncated) == ("a = 1\nb = 5\nc = 3\n", "stop", False)


def special_token_editor() -> Editor:
    """Its answer has a special token in the middle."""
    tokens = ByteTokenizer().encode("a = 1\n<|im_start|>b = 5\n```")
    return Editor(RecordedTarget(lambda prompt: tokens, end_token_id=257), ByteTokenizer())


@pytest.mark.parametrize(("stop", "is_truncated"), [("<|im_start|>", True), ("<|im_end|>", False)])
def test_a_special_token_as_a_stop_string_cuts_off_too_unless_it_ends_every_answer(
    stop: str, is_truncated: bool
) -> None:
    result = special_token_editor().edit(EditRequest(BEFORE, "Do it.", stop=(stop,)))
    assert (result.finish_reason, result.truncated) == ("stop", is_truncated)


@pytest.mark.parametrize("stream", [False, True])
def test_over_http_an_edit_that_was_stopped_has_no_edits_and_no_diff(stream: bool) -> None:
    tokens = ByteTokenizer().encode("a = 1\nb = 5\nc = 3\n```")
    editor = Editor(RecordedTarget(lambda prompt: tokens, end_token_id=257), ByteTokenizer(), model_name="recorded")
    body: dict[str, Any] = {"input": BEFORE, "instruction": "Do it.", "stop": ["c ="], "stream": stream}
    body["output"] = ["text", "edits", "diff"]
    with in_process(editor) as client:
        answer = client.post("/v1/edits", json=body)
        document = events(answer.text)[-1] if stream else answer.json()
    (choice,) = document["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("a = 1\nb = 5\n", "stop")
    assert (choice["edits"], choice["diff"], document["edit"]["truncated"]) == (None, None, True)
