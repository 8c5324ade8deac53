"""Text to tokens and back: transformers' tokenizers behind the wrapper, streaming, and the byte-level fake."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tiny_tokenizers import STRIPPING, byte_level_tokenizer, sentencepiece_tokenizer

from lookahead_edit.tokenizer import ByteTokenizer, HfTokenizer, TextDecoder
from lookahead_edit.types import IntArray, Tokenizer

MESSAGES = [{"role": "system", "content": "Edit."}, {"role": "user", "content": " x = 1 "}]
TEXTS = [
    "",
    "def add(first, second):\n    return first + second\n",
    "grün, naïve, 日本語, \U0001f469\u200d\U0001f4bb!\n",
    "  leading blanks\n\n\n\ttabs  \n",
    "a\ufffdb\ufffd",
    "\u00e9",
]
_made: dict[str, Tokenizer] = {}


def made(name: str) -> Tokenizer:
    if name not in _made:
        makers: dict[str, Callable[[], Tokenizer]] = {
            "byte-level": lambda: HfTokenizer(byte_level_tokenizer()),
            "SentencePiece": lambda: HfTokenizer(sentencepiece_tokenizer()),
            "bytes": ByteTokenizer,
        }
        _made[name] = makers[name]()
    return _made[name]


@pytest.fixture(params=["byte-level", "SentencePiece", "bytes"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return made(request.param)


def streamed(tokenizer: Tokenizer, tokens: IntArray) -> list[str]:
    decoder = TextDecoder(tokenizer.decode)
    return [*(decoder.push(int(token)) for token in tokens), decoder.finish()]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_comes_back_from_its_tokens(tokenizer: Tokenizer, text: str) -> None:
    tokens = tokenizer.encode(text)
    assert tokens.dtype == np.int32
    assert tokenizer.decode(tokens) == text


@pytest.mark.parametrize("text", TEXTS)
def test_a_streamed_text_is_the_whole_one(tokenizer: Tokenizer, text: str) -> None:
    tokens = tokenizer.encode(text)
    pieces = streamed(tokenizer, tokens)
    assert "".join(pieces) == text
    assert len(pieces) == len(tokens) + 1


def test_nothing_is_given_out_before_its_character_is_whole() -> None:
    tokens = made("bytes").encode("é€\U0001f600")
    assert streamed(made("bytes"), tokens) == ["", "é", "", "", "€", "", "", "", "\U0001f600", ""]


def test_bytes_that_never_become_a_character_come_out_at_the_end() -> None:
    assert "".join(streamed(made("bytes"), np.array([97, 0xE2, 0x82], np.int32))) == "a\ufffd"


def test_random_token_streams_decode_as_a_whole() -> None:
    """Any bytes, also broken UTF-8: what was given out is never taken back."""
    generator = random.Random(0)
    for name in ("byte-level", "bytes"):
        tokenizer = made(name)
        for _ in range(60):
            number = generator.randint(0, 12)
            values = [generator.choice([65, 0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0]) for _ in range(number)]
            tokens = np.array([byte_token(tokenizer, value) for value in values], np.int32)
            assert "".join(streamed(tokenizer, tokens)) == tokenizer.decode(tokens)


def byte_token(tokenizer: Tokenizer, value: int) -> int:
    if isinstance(tokenizer, ByteTokenizer):
        return value
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    token: int = tokenizer._tokenizer.convert_tokens_to_ids(bytes_to_unicode()[value])  # type: ignore[attr-defined]
    return token


def test_blanks_between_sentencepiece_words_survive_streaming() -> None:
    tokens = made("SentencePiece").encode("add  add == a")
    assert [piece for piece in streamed(made("SentencePiece"), tokens) if piece][-1] == " a"


@pytest.mark.parametrize("text", [text for text in TEXTS if text])
def test_offsets_name_each_tokens_characters(text: str) -> None:
    for name in ("byte-level", "bytes"):
        tokens, offsets = made(name).encode_with_offsets(text)
        assert np.array_equal(tokens, made(name).encode(text))
        assert offsets.shape == (len(tokens), 2)
        assert offsets[0, 0] == 0
        assert offsets[-1, 1] == len(text)
        # Tokens that are parts of one character share its offsets; otherwise each begins where the last one ended.
        assert all(
            start in (last_start, last_end) for (last_start, last_end), (start, _) in itertools.pairwise(offsets)
        )


@pytest.mark.parametrize("name", ["byte-level", "bytes"])
def test_special_text_is_a_token_only_where_it_is_to_be_parsed(name: str) -> None:
    tokenizer = made(name)
    (end,) = tokenizer.eos_token_ids
    text = "a<|im_end|>b"
    assert tokenizer.encode(text).tolist().count(end) == 1
    for tokens in (
        tokenizer.encode(text, parse_special=False),
        tokenizer.encode_with_offsets(text, parse_special=False)[0],
    ):
        assert end not in tokens
        assert tokenizer.decode(tokens) == text
    assert tokenizer.decode(tokenizer.encode(text)) == "ab"
    assert {"<|im_start|>", "<|im_end|>"} <= set(tokenizer.special_texts)


def test_sentencepiece_markers_in_a_text_can_be_left_unparsed() -> None:
    tokenizer = made("SentencePiece")
    assert 2 in tokenizer.encode("a</s>b")
    assert 2 not in tokenizer.encode("a</s>b", parse_special=False)
    assert tokenizer.decode(tokenizer.encode("a</s>b", parse_special=False)) == "a</s>b"


@pytest.mark.parametrize("name", ["byte-level", "bytes"])
def test_a_chat_is_rendered_with_the_assistants_turn_opened(name: str) -> None:
    assert made(name).render_chat(MESSAGES, "```\n") == (
        "<|im_start|>system\nEdit.<|im_end|>\n<|im_start|>user\n x = 1 <|im_end|>\n<|im_start|>assistant\n```\n"
    )


def test_a_stripping_template_is_taken_as_it_is() -> None:
    rendered = HfTokenizer(byte_level_tokenizer(STRIPPING)).render_chat(MESSAGES, "")
    assert "user\nx = 1<|im_end|>" in rendered


def test_without_a_template_the_contents_follow_each_other() -> None:
    assert made("SentencePiece").render_chat(MESSAGES, "```\n") == "Edit.\n\n x = 1 \n\n```\n"


def test_end_tokens_are_the_tokenizers_unless_given() -> None:
    own: Any = byte_level_tokenizer()
    assert HfTokenizer(own).eos_token_ids == {own.eos_token_id}
    assert HfTokenizer(own, frozenset({1, 2})).eos_token_ids == {1, 2}
    own.eos_token = None
    assert HfTokenizer(own).eos_token_ids == frozenset()


def test_a_slow_tokenizer_has_no_offsets() -> None:
    class Slow:
        is_fast = False
        eos_token_id = None

        def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
            return {"input_ids": [ord(character) for character in text]}

    tokens, offsets = HfTokenizer(Slow()).encode_with_offsets("ab")
    assert tokens.tolist() == [97, 98]
    assert (offsets == -1).all()


def test_threads_that_parse_special_text_differently_do_not_disturb_each_other() -> None:
    tokenizer = HfTokenizer(byte_level_tokenizer())
    text = "one <|im_end|> two " * 20
    expected = {parse: tokenizer.encode(text, parse_special=parse).tolist() for parse in (True, False)}
    assert expected[True] != expected[False]
    with ThreadPoolExecutor(4) as pool:
        asked = [bool(number % 2) for number in range(200)]
        answers = pool.map(lambda parse: tokenizer.encode(text, parse_special=parse).tolist(), asked)
        assert all(answer == expected[parse] for parse, answer in zip(asked, answers, strict=True))


def test_prepared_for_threads_they_do_not_disturb_each_other_either() -> None:
    tokenizer = HfTokenizer(byte_level_tokenizer())
    text = "one <|im_end|> two " * 20
    expected = {parse: tokenizer.encode(text, parse_special=parse).tolist() for parse in (True, False)}
    tokenizer.prepare_for_threads()

    def ask(number: int) -> bool:
        tokens = tokenizer.encode(text, parse_special=bool(number % 2))
        return tokens.tolist() == expected[bool(number % 2)] and "two" in tokenizer.decode(tokens)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(200)))


def test_prepared_for_threads_decoding_does_not_wait_for_a_long_text_to_be_encoded() -> None:
    began, may_end = threading.Event(), threading.Event()

    class Slow:
        is_fast = True
        eos_token_id = None

        def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
            if text == "long":
                began.set()
                assert may_end.wait(10)
            return {"input_ids": [1]}

        def decode(self, tokens: list[int], **options: Any) -> str:
            return "decoded"

    tokenizer = HfTokenizer(Slow())
    tokenizer.prepare_for_threads()
    with ThreadPoolExecutor(1) as pool:
        encoding = pool.submit(tokenizer.encode, "long")
        assert began.wait(10)
        assert tokenizer.decode(encoded := tokenizer.encode("short")) == "decoded"
        may_end.set()
        assert encoding.result().tolist() == encoded.tolist()
