"""Texts and classes of tokens, for each kind of tokenizer."""

from __future__ import annotations

import gc
import weakref
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookahead_edit.drafters.vocabulary import UNMAPPABLE, Vocabulary
from lookahead_edit.tokenizer import ByteTokenizer, HfTokenizer
from lookahead_edit.types import IntArray, Tokenizer
from tests.tiny_tokenizers import byte_level_tokenizer, sentencepiece_tokenizer

NAMES = ("bytes", "byte-level", "SentencePiece")
texts = st.text(st.sampled_from("ad =_(\n\t\r0.é→😀ł▁<0x>Ġ")) | st.text(st.characters(exclude_categories=["Cs"]))


@cache
def made(name: str) -> Tokenizer:
    if name == "bytes":
        return ByteTokenizer()
    return HfTokenizer(byte_level_tokenizer() if name == "byte-level" else sentencepiece_tokenizer())


@settings(deadline=None)
@given(name=st.sampled_from(NAMES), text=texts)
def test_the_texts_of_tokens_joined_are_the_text(name: str, text: str) -> None:
    tokens = made(name).encode(text, parse_special=False)
    joined = b"".join(Vocabulary(made(name)).texts_of(tokens)).decode()
    if name == "SentencePiece":  # it puts a blank in front, and has no sign for a blank that isn't one
        text = f" {text}".replace("▁", " ") if text else ""
    assert joined == text


@pytest.mark.parametrize("name", NAMES)
def test_special_and_unknown_tokens_have_no_text(name: str) -> None:
    tokenizer = made(name)
    vocabulary = Vocabulary(tokenizer)
    (end,) = tokenizer.eos_token_ids
    for token in (end, -1, 100_000, 2**31 - 1):
        assert tokenizer.token_bytes(token) is None
        assert vocabulary.token_bytes(token) is None
        assert vocabulary.texts_of(np.array([token], np.int32)) == [UNMAPPABLE]
        assert vocabulary.token_classes(np.array([token], np.int32)).tolist() == [4]


class Lossy(HfTokenizer):
    """A vocabulary whose spelling isn't known, so that tokens have to be decoded."""

    _bytes_of_piece = None


def test_where_the_spelling_is_unknown_tokens_are_decoded_behind_another() -> None:
    tokenizer = Lossy(byte_level_tokenizer())
    tokens = tokenizer.encode(" add é")
    known = [tokenizer.token_bytes(token) for token in tokens.tolist()]
    assert known == [HfTokenizer(byte_level_tokenizer()).token_bytes(token) for token in tokens.tolist()[:-2]] + [
        None,
        None,
    ]


def naive_class(text: bytes | None) -> int:
    if not text:
        return 4
    decoded = text.decode("utf-8", "replace").replace("\ufffd", "a")
    body = decoded.lstrip(" \t")
    if "\n" in decoded:
        return 0
    if not body:
        return 5
    is_word = body[0] == "_" or body[0].isalnum()
    return {(True, True): 1, (True, False): 3, (False, True): 2, (False, False): 4}[body != decoded, is_word]


@pytest.mark.parametrize("name", NAMES)
def test_the_classes_of_tokens_are_those_of_their_texts(name: str) -> None:
    tokenizer = made(name)
    tokens = np.arange(-2, 400, dtype=np.int32)
    classes = Vocabulary(tokenizer).token_classes(tokens)
    assert classes.tolist() == [naive_class(tokenizer.token_bytes(token)) for token in tokens.tolist()]
    assert classes.dtype == np.int8
    assert Vocabulary(tokenizer).token_classes(tokens[::-3]).tolist() == classes[::-3].tolist()
    assert len(Vocabulary(tokenizer).token_classes(tokens[:0])) == 0


def test_without_a_tokenizer_nothing_has_a_text() -> None:
    vocabulary = Vocabulary(None)
    assert vocabulary.token_classes(np.arange(3, dtype=np.int32)).tolist() == [4, 4, 4]
    assert vocabulary.token_bytes(97) is None
    assert vocabulary.encode("a") is None


@settings(deadline=None)
@given(name=st.sampled_from(NAMES), parts=st.lists(texts, max_size=6))
def test_a_piece_of_text_is_encoded_as_inside_a_longer_one(name: str, parts: list[str]) -> None:
    alone, together = Vocabulary(made(name)), Vocabulary(made(name))
    together._tables = type(together._tables)()  # forgets what other tests found out
    together.encode_ahead(parts)
    for part in parts:
        tokens, same = alone.encode(part), together.encode(part)
        assert (tokens is None) == (same is None)
        if tokens is not None and same is not None:
            assert b"".join(alone.texts_of(tokens)).decode() == part
            assert tokens.tolist() == same.tolist()
        elif part:
            assert "▁" in part


def test_what_cannot_be_encoded_is_no_error() -> None:
    for name in NAMES:
        assert Vocabulary(made(name)).encode("\ud800") is None
        assert Vocabulary(made(name)).encode("") is None


def test_a_tokenizer_that_nobody_uses_is_forgotten() -> None:
    tokenizer = ByteTokenizer()
    Vocabulary(tokenizer).encode("a")
    reference = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert reference() is None


def test_a_vocabulary_grows_with_the_tokens_seen() -> None:
    vocabulary = Vocabulary(ByteTokenizer())
    small: IntArray = np.array([97], np.int32)
    assert vocabulary.token_classes(small).tolist() == [2]
    assert vocabulary.token_classes(np.array([200, 97, 10], np.int32)).tolist() == [2, 2, 0]
