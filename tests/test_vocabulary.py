"""Texts and classes of tokens, for each kind of tokenizer."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookahead_edit.drafters.vocabulary import UNMAPPABLE, Vocabulary
from lookahead_edit.kernels.acceptance import NUM_CLASSES
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
    has_blank, is_name = body != decoded, body[0] == "_" or body[0] != body[0].lower()
    if body[0].isdigit():
        return 7 if has_blank else 6
    if body[0] == "_" or body[0].isalnum():
        return 1 if has_blank else (11 if is_name else 2)
    kinds = {8: body.endswith(("(", "[", "{")), 9: body.startswith((")", "]", "}")), 10: body.endswith(("'", '"', "`"))}
    return next((kind for kind, holds in kinds.items() if holds), 3 if has_blank else 4)


class Pieces(ByteTokenizer):
    """Each text is a token."""

    def __init__(self, texts: list[bytes]) -> None:
        self._texts = texts

    def token_bytes(self, token: int) -> bytes | None:
        return self._texts[token]


CLASSES = {
    0: [b"\n", b"  \n\t", b"a\n", b"):\n", b"\r\n"],
    1: [b" a", b"\t _b", b"  \xc3\xa9", b" \xa9", b" Ab"],
    2: [b"a", b"ab1", "é".encode(), b"\xc3", b"\xa9(", "漢".encode()],
    3: [b" =", b"  ->", b" ->x", b"\t#", " →".encode()],
    4: [b"=", b".x", b"->", "→".encode(), b"@", b"\r", b""],
    5: [b" ", b"\t", b"  \t"],
    6: [b"0", b"12", b"3a", "٣".encode()],
    7: [b" 0", b"\t12"],
    8: [b"(", b" [", b"={", b")(", b"({"],
    9: [b")", b"):", b" ]", b"}'", b"]]", b"})"],
    10: [b"'", b' "', b"``", b'="', b"(`"],
    11: [b"_", b"__x", b"A", b"Ab", "Éa".encode()],
}


def test_classes_are_the_first_that_hold() -> None:
    texts = [text for number in CLASSES for text in CLASSES[number]]
    classes = Vocabulary(Pieces(texts)).token_classes(np.arange(len(texts), dtype=np.int32))
    assert classes.tolist() == [number for number in CLASSES for _ in CLASSES[number]]
    assert [naive_class(text) for text in texts] == classes.tolist()
    assert len(CLASSES) == NUM_CLASSES


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


class Owner:
    """Something that has a text."""


def test_the_classes_of_a_long_text_are_kept_as_long_as_its_owner_lives() -> None:
    tokenizer, first, second = ByteTokenizer(), Owner(), Owner()
    one, other = np.array([97, 10, -1], np.int32), np.array([32, 97, 40, 10], np.int32)
    kept = Vocabulary(tokenizer).classes_of(first, one)
    assert kept.tolist() == [2, 0, 4]
    assert Vocabulary(tokenizer).classes_of(second, other).tolist() == [5, 2, 8, 0]
    assert Vocabulary(tokenizer).classes_of(first, one) is kept  # by whoever asks
    assert Vocabulary(ByteTokenizer()).classes_of(first, one) is not kept  # the same tokens may be other texts there
    assert Vocabulary(None).classes_of(first, one).tolist() == [4, 4, 4]
    assert Vocabulary(tokenizer).classes_of(first, one).tolist() == [2, 0, 4]
    reference = weakref.ref(kept)
    del kept, first
    gc.collect()
    assert reference() is None
    assert Vocabulary(tokenizer).classes_of(Owner(), other).tolist() == [5, 2, 8, 0]


@pytest.mark.parametrize("name", NAMES)
def test_the_table_of_classes_knows_what_was_asked_for(name: str) -> None:
    vocabulary = Vocabulary(made(name))
    vocabulary._tables = type(vocabulary._tables)()  # forgets what other tests found out
    assert len(vocabulary.class_table) == 0
    asked = np.array([100, 3, 100, 5], np.int32)
    classes = vocabulary.token_classes(asked)
    table = vocabulary.class_table
    assert table.dtype == np.int8
    assert table[asked].tolist() == classes.tolist()
    assert set(np.delete(table, asked).tolist()) == {-1}
    vocabulary.token_classes(np.array([300, -1, 2**31 - 1], np.int32))
    assert vocabulary.class_table[asked].tolist() == classes.tolist()  # a larger one now
    assert vocabulary.class_table[300] >= 0
    assert len(Vocabulary(None).class_table) == 0


def test_threads_that_ask_for_new_tokens_at_once_get_their_classes() -> None:
    vocabulary = Vocabulary(ByteTokenizer())
    sizes = np.random.default_rng(2).integers(1, 200_000, 400).tolist()

    def classes_are_right(size: int) -> bool:
        tokens = np.array([97, size, 10, 32, size // 2], np.int32)
        expected = [naive_class(ByteTokenizer().token_bytes(token)) for token in tokens.tolist()]
        return vocabulary.token_classes(tokens).tolist() == expected

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(classes_are_right, sizes))


def test_a_vocabulary_grows_with_the_tokens_seen() -> None:
    vocabulary = Vocabulary(ByteTokenizer())
    small: IntArray = np.array([97], np.int32)
    assert vocabulary.token_classes(small).tolist() == [2]
    assert vocabulary.token_classes(np.array([200, 97, 10], np.int32)).tolist() == [2, 2, 0]
