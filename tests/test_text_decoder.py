"""Answers keep their first blank, whatever the tokenizer does to the beginning of a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tiny_tokenizers import byte_level_tokenizer, sentencepiece_tokenizer

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.editor import Editor, EditRequest
from lookahead_edit.targets.recorded import RecordedTarget
from lookahead_edit.tokenizer import ByteTokenizer, HfTokenizer, TextDecoder
from lookahead_edit.types import IntArray


def sentencepiece_wrapped() -> HfTokenizer:
    return HfTokenizer(sentencepiece_tokenizer())


@pytest.mark.parametrize("text", ["    a = 1\n    b = 2\n", " x\n", "  "])
@pytest.mark.parametrize("enabled", [True, False])
def test_an_edit_keeps_the_indentation_of_its_first_line(text: str, enabled: bool) -> None:
    """SentencePiece's decoders drop a blank in front of the first token, and an answer begins with its indentation."""
    tokenizer = HfTokenizer(sentencepiece_tokenizer())
    opening = len(tokenizer.encode("```\n"))
    answer = tokenizer.encode(f"```\n{text.rstrip(chr(10))}\n```\n")[opening:]
    editor = Editor(RecordedTarget(lambda prompt: answer, end_token_id=2), tokenizer)
    request = EditRequest(text, instruction="Leave it.", speculation=SpeculationConfig(enabled=enabled))
    assert editor.edit(request).text == text


def test_a_prompt_that_ends_inside_a_character_or_in_a_marker_adds_nothing() -> None:
    tokenizer = ByteTokenizer()
    for last_token in (0xC3, 257, ord("x"), None):
        decoder = TextDecoder(tokenizer.decode, last_token)
        texts = [decoder.push(token) for token in "é x".encode()]
        assert "".join(texts) + decoder.finish() == "é x"
    assert TextDecoder(tokenizer.decode, ord("x")).finish() == ""
    assert np.array_equal(tokenizer.encode("é"), [0xC3, 0xA9])


@pytest.mark.parametrize("make", [byte_level_tokenizer, sentencepiece_tokenizer])
def test_texts_of_single_tokens_are_kept_and_the_answer_is_as_if_they_were_not(make: Callable[[], Any]) -> None:
    tokenizer = HfTokenizer(make())
    text = "    total = add(first, 'é→😀')\n\tif x:\n" * 6
    tokens = tokenizer.encode(text).tolist()
    decoded: list[tuple[int, ...]] = []

    def decode(part: IntArray) -> str:
        decoded.append(tuple(part.tolist()))
        return tokenizer.decode(part)

    last_token = tokens[0]
    decoder = TextDecoder(decode, last_token)
    pieces = [decoder.push(token) for token in tokens]
    decoded.clear()
    again = [decoder.push(token) for token in tokens]
    assert [part for part in decoded if len(part) == 1] == []  # each was decoded alone before
    both = np.array([last_token, *tokens, *tokens], np.int32)
    whole = "".join(pieces + again) + decoder.finish()
    assert whole == tokenizer.decode(both).removeprefix(tokenizer.decode(both[:1]))


def test_endless_broken_text_is_given_out_and_not_decoded_over_and_over() -> None:
    num_decoded = 0

    def decode(tokens: IntArray) -> str:
        nonlocal num_decoded
        num_decoded += len(tokens)
        return ByteTokenizer().decode(tokens)

    decoder = TextDecoder(decode)
    pieces = [decoder.push(0x80) for _ in range(1000)]
    assert "".join(pieces) + decoder.finish() == "\ufffd" * 1000
    assert num_decoded < 1000 * 3 * 64


@pytest.mark.parametrize("make", [ByteTokenizer, lambda: HfTokenizer(byte_level_tokenizer()), sentencepiece_wrapped])
def test_pairs_that_decoders_share_change_no_text(make: Callable[[], Any]) -> None:
    tokenizer = make()
    generator = np.random.default_rng(5)
    shared: dict[tuple[int, int], str] = {}
    for _ in range(60):
        tokens = generator.integers(0, 260, 40).tolist()
        last_token = None if generator.random() < 0.3 else int(generator.integers(0, 200))
        alone, sharing = TextDecoder(tokenizer.decode, last_token), TextDecoder(tokenizer.decode, last_token, shared)
        for token in tokens:
            assert sharing.push(token) == alone.push(token)
        assert sharing.finish() == alone.finish()
    assert shared


def test_a_pair_that_is_known_is_not_decoded_again() -> None:
    decoded: list[int] = []

    def decode(tokens: IntArray) -> str:
        decoded.append(len(tokens))
        return ByteTokenizer().decode(tokens)

    shared: dict[tuple[int, int], str] = {}
    for _ in range(3):
        decoder = TextDecoder(decode, ord("a"), shared)
        assert "".join(decoder.push(token) for token in b"bcbcbc") == "bcbcbc"
    assert decoded.count(2) == 3  # ab, bc, cb
