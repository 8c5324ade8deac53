"""Texts of any length: refused after a part, left alone when nobody waits, and cut where a line begins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from logged_editor import logged_editor
from tiny_tokenizers import byte_level_tokenizer, sentencepiece_tokenizer

from lookahead_edit.config import EditConfig
from lookahead_edit.editor import EditRequest, GenerateRequest
from lookahead_edit.long_texts import CERTAIN_EXCESS, PIECE_CHARACTERS, LongTexts
from lookahead_edit.tokenizer import ByteTokenizer, HfTokenizer
from lookahead_edit.types import ContextFile, ContextLengthExceeded, IntArray, RequestCancelled, SourceKind

CODE = "".join(f"def function_{number}(first):\n    return first + {number}\n\n\n" for number in range(3000))
LONG = 40 * PIECE_CHARACTERS


class CountingTokenizer(ByteTokenizer):
    """Counts the characters it is given."""

    def __init__(self) -> None:
        self.num_characters = 0

    def encode(self, text: str, *, parse_special: bool = True) -> IntArray:
        self.num_characters += len(text)
        return super().encode(text, parse_special=parse_special)


class Leaving:
    """Says that nobody waits any more from the nth question on."""

    def __init__(self, num_answers: int) -> None:
        self.num_left = num_answers

    def __call__(self) -> bool:
        self.num_left -= 1
        return self.num_left < 0


@pytest.mark.parametrize(
    "request_",
    [
        EditRequest("x" * LONG, "Do it."),
        EditRequest("x = 1\n", "Do it." * LONG),
        EditRequest("x = 1\n", update="y = 2\n" * LONG),
        EditRequest("a\nb\n" + "x" * LONG, "Do it.", region=(2, 3)),
        GenerateRequest(prompt="x" * LONG),
        GenerateRequest(messages=({"role": "user", "content": "x" * LONG},)),
        GenerateRequest(messages=({"role": "user", "content": "Go."},), prefill="x" * LONG),
        GenerateRequest(messages=tuple({"role": "user", "content": "x" * 4000} for _ in range(LONG // 4000))),
    ],
    ids=["input", "instruction", "update", "lines around a range", "prompt", "message", "prefill", "messages"],
)
def test_what_cannot_fit_is_refused_after_a_small_part(request_: EditRequest | GenerateRequest) -> None:
    tokenizer = CountingTokenizer()
    editor = logged_editor("", tokenizer, max_context_tokens=1000)
    tokenizer.num_characters = 0
    with pytest.raises(ContextLengthExceeded, match=r"at least 1001 prompt tokens in a text of \d{6,} characters"):
        editor.check(request_)
    assert tokenizer.num_characters <= CERTAIN_EXCESS * PIECE_CHARACTERS < LONG // 10


def test_a_text_just_beyond_the_context_is_counted_to_its_end() -> None:
    editor = logged_editor("", max_context_tokens=1000)
    with pytest.raises(ContextLengthExceeded, match="got 1500 prompt tokens:"):
        editor.check(GenerateRequest(prompt="x" * 1500))


def test_special_tokens_that_are_spelled_out_do_not_make_a_prompt_seem_longer() -> None:
    """As plain characters they would be ten times as many tokens."""
    editor = logged_editor("", max_context_tokens=1000)
    editor.check(GenerateRequest(prompt="<|im_end|>" * 990))


@pytest.mark.parametrize("tokenizer", [byte_level_tokenizer, sentencepiece_tokenizer])
def test_pieces_of_a_text_have_the_tokens_of_the_whole(tokenizer: Any) -> None:
    wrapped = HfTokenizer(tokenizer())
    texts = LongTexts(wrapped, 10, bool)
    whole, pieces = wrapped.encode(CODE, parse_special=False), texts.encode(CODE)
    if tokenizer is byte_level_tokenizer:
        assert np.array_equal(pieces, whole)
    else:  # puts a blank before every text
        assert len(whole) <= len(pieces) <= len(whole) + len(CODE) // (PIECE_CHARACTERS // 2) + 1
    assert np.array_equal(texts.encode(CODE, 50), pieces[:50])


def test_a_text_without_any_line_is_cut_anywhere() -> None:
    text = "é" * (2 * PIECE_CHARACTERS + 1)
    assert LongTexts(ByteTokenizer(), 10, bool).encode(text).tolist() == list(text.encode())
    assert len(LongTexts(ByteTokenizer(), 10, bool).encode("")) == 0


@pytest.mark.parametrize("given_as", ["context", "prediction", "input"])
def test_what_nobody_waits_for_is_read_no_further(given_as: str) -> None:
    tokenizer = CountingTokenizer()
    editor = logged_editor("", tokenizer, max_context_tokens=10**7)
    editor.config = EditConfig(max_context_characters=10**9)
    fields: dict[str, Any] = {
        "context": {"context": (ContextFile("b.py", "x" * LONG),)},
        "prediction": {"prediction": "x" * LONG},
        "input": {},
    }[given_as]
    request = EditRequest("x" * (5 * 10**7) if given_as == "input" else "x = 1\n", "Do it.", **fields)
    tokenizer.num_characters = 0
    with pytest.raises(RequestCancelled):
        editor.open(request, Leaving(5))
    assert tokenizer.num_characters < 8 * PIECE_CHARACTERS


def test_a_check_reads_no_text_that_is_only_drafted_from() -> None:
    tokenizer = CountingTokenizer()
    editor = logged_editor("", tokenizer)
    tokenizer.num_characters = 0
    editor.check(EditRequest("x = 1\n", "Do it.", prediction="y" * LONG, context=(ContextFile("b.py", "z" * LONG),)))
    assert tokenizer.num_characters < 1000


def test_files_beyond_the_limits_are_left_out_with_a_warning() -> None:
    editor = logged_editor("x = 1\n```")
    editor.config = EditConfig(max_context_files=3, max_context_characters=25)
    files = tuple(ContextFile(f"{number}.py", "0123456789") for number in range(4))
    prompt = editor.prompt(EditRequest("x = 1\n", "Do it.", context=files))
    others = [source for source in prompt.sources if source.kind is SourceKind.CONTEXT]
    assert [(source.path, len(source.tokens)) for source in others] == [("0.py", 10), ("1.py", 10), ("2.py", 5)]
    result = editor.edit(EditRequest("x = 1\n", "Do it.", context=files))
    assert result.text == "x = 1\n"
    assert result.warnings == (
        "context was cut to 3 files and 25 characters, of 4 and 40: less is drafted, the text is the same",
    )
    assert editor.edit(EditRequest("x = 1\n", "Do it.", context=files[:2])).warnings == ()


def test_an_edits_prediction_beyond_the_context_is_cut_with_a_warning() -> None:
    editor = logged_editor("x = 1\n```", max_context_tokens=400)
    request = EditRequest("x = 1\n", "Do it.", prediction="y" * 1000)
    assert [len(source.tokens) for source in editor.prompt(request).sources[1:]] == [400]
    assert editor.edit(request).warnings == ("a prediction of 1001 characters was cut to 400 tokens, the context",)
