"""What single tokens stand for, and how a piece of text is encoded inside another; shared by all users of a tokenizer.

Knows no file and no draft.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from lookahead_edit.types import NO_TOKENS, IntArray, Tokenizer

ClassArray: TypeAlias = NDArray[np.int8]

HAS_NEWLINE, BLANK_AND_WORD, WORD, BLANK_AND_PUNCTUATION, PUNCTUATION, BLANKS = range(6)
NUMBER, BLANK_AND_NUMBER, OPENING, CLOSING, QUOTE, NAME = range(6, 12)
UNMAPPABLE = b"\xff"  # stands for a token without text: no byte of UTF-8
MAX_ENCODED = 20_000  # pieces of text whose tokens are remembered, about 10 MB
MAX_TOKEN = (1 << 22) - 1  # what is larger, or negative, has no text
_UNKNOWN = -1
_OPENING, _CLOSING, _QUOTES = "([{", ")]}", "\"'`"
# In front of a piece of text, where the tokenizer would add a blank of its own; the first that works is used.
_ANCHORS = ("", "\n", ".", "a")
_PROBE = " b c"
_BETWEEN = " a"  # two texts: a tokenizer begins anew before and after it


@dataclass(slots=True, eq=False)
class _Tables:
    """Filled as needed, by several threads at once: each entry is written whole, and twice with the same value."""

    texts: dict[int, bytes | None] = field(default_factory=dict)
    classes: ClassArray = field(default_factory=lambda: np.zeros(0, dtype=np.int8))
    classes_by_owner: WeakKeyDictionary[object, ClassArray] = field(default_factory=WeakKeyDictionary)
    encoded: dict[str, IntArray | None] = field(default_factory=dict)
    anchor: tuple[str, IntArray] | None = None  # and its tokens


_tables: WeakKeyDictionary[Tokenizer, _Tables] = WeakKeyDictionary()


class Vocabulary:
    """The tokens of one tokenizer; without one, no token has a text.

    Making one is cheap: what was found out about a tokenizer is kept as long as the tokenizer lives.

    Example:
        >>> vocabulary = Vocabulary(ByteTokenizer())
        >>> vocabulary.token_bytes(97), vocabulary.token_classes(np.array([97, 32, 10], np.int32)).tolist()
        (b'a', [2, 5, 0])
    """

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._tables = _Tables() if tokenizer is None else _tables.setdefault(tokenizer, _Tables())

    def token_bytes(self, token: int) -> bytes | None:
        """UTF-8, possibly a part of a character; None for special tokens and where the text can't be told."""
        texts = self._tables.texts
        if token not in texts:
            texts[token] = None if self._tokenizer is None else self._tokenizer.token_bytes(token)
        return texts[token]

    def texts_of(self, tokens: IntArray) -> list[bytes]:
        """The texts of tokens, int32[num_tokens]; UNMAPPABLE for those without."""
        texts = self._tables.texts
        listed = tokens.tolist()
        for token in set(listed):
            self.token_bytes(token)
        return [UNMAPPABLE if (text := texts[token]) is None else text for token in listed]

    @property
    def class_table(self) -> ClassArray:
        """int8[num_known]: the classes by token, -1 where one hasn't been asked for yet; not to be written to."""
        return self._tables.classes

    def token_classes(self, tokens: IntArray) -> ClassArray:
        """int8[num_tokens]: what kind of text each token, int32[num_tokens], is. The first that holds:

        0 contains a newline; 5 only blanks and tabs; 7 and 6 begins with a digit, with and without blanks before it;
        1 blanks, then a letter or underscore; 11 an underscore or capital letter, 2 another letter, or the inside of a
        character; 8 ends in an opening bracket; 9 begins with a closing one; 10 ends in a quotation mark; 3 and 4
        anything else, with and without blanks before it; 4 no text.
        """
        if self._tokenizer is None or len(tokens) == 0:
            return np.full(len(tokens), PUNCTUATION, dtype=np.int8)
        table = known = self._tables.classes
        indices = np.minimum(tokens.view(np.uint32), MAX_TOKEN)
        largest = int(indices.max())
        if largest >= len(known):
            table = np.full(min(2 * largest, MAX_TOKEN) + 1, _UNKNOWN, dtype=np.int8)
            table[: len(known)] = known
            self._tables.classes = table
        classes = table[indices]
        if classes.min() == _UNKNOWN:
            for token in set(indices[classes == _UNKNOWN].tolist()):
                table[token] = _class_of(self.token_bytes(token))
            classes = table[indices]
        return classes

    def classes_of(self, owner: object, tokens: IntArray) -> ClassArray:
        """`token_classes` of a long text that doesn't change, kept as long as `owner`, which has it, lives."""
        classes = self._tables.classes_by_owner.get(owner)
        if classes is None:
            classes = self._tables.classes_by_owner[owner] = self.token_classes(tokens)
        return classes

    def encode(self, text: str) -> IntArray | None:
        """The tokens of `text` as they'd stand inside a longer text, int32[num_tokens], not to be written to.

        None where that can't be told: their texts joined must give back the text. 50 to 150 µs, then under 1 µs.
        """
        encoded = self._tables.encoded
        if text not in encoded:
            if len(encoded) >= MAX_ENCODED:
                encoded.clear()
            tokens = encoded[text] = self._encode(text)
            return tokens
        return encoded.get(text)

    def encode_ahead(self, texts: Iterable[str]) -> None:
        """Makes `encode` fast for all of these by encoding them in one go: 0.5 µs a byte instead of 50 µs a text."""
        known = self._tables.encoded
        joined = [text for text in dict.fromkeys(texts) if text not in known and _can_be_joined(text)]
        if len(joined) < 2:
            return
        tokens = self._encode("".join(text + _BETWEEN for text in joined))
        if tokens is None:
            return
        ends = {end: index + 1 for index, end in enumerate(accumulate(map(len, self.texts_of(tokens))))}
        byte = 0
        for text in joined:
            start, end = (0 if byte == 0 else ends.get(byte)), ends.get(byte + len(text.encode()))
            if start is not None and end is not None:
                known[text] = tokens[start:end]
            byte += len(text.encode()) + len(_BETWEEN)

    def _encode(self, text: str) -> IntArray | None:
        if self._tokenizer is None or not text:
            return None
        if self._tables.anchor is None:
            self._tables.anchor = self._find_anchor()
        anchor, anchor_tokens = self._tables.anchor
        try:
            expected = text.encode()
        except UnicodeEncodeError:  # lone surrogates
            return None
        tokens = self._tokenizer.encode(anchor + text, parse_special=False)
        if not np.array_equal(tokens[: len(anchor_tokens)], anchor_tokens):
            return None
        tokens = tokens[len(anchor_tokens) :]
        return tokens if b"".join(self.texts_of(tokens)) == expected else None

    def _find_anchor(self) -> tuple[str, IntArray]:
        assert self._tokenizer is not None
        for anchor in _ANCHORS:
            tokens = self._tokenizer.encode(anchor + _PROBE, parse_special=False)
            before = self._tokenizer.encode(anchor, parse_special=False)
            is_kept = np.array_equal(tokens[: len(before)], before)
            if is_kept and b"".join(self.texts_of(tokens[len(before) :])) == _PROBE.encode():
                return anchor, before
        return "", NO_TOKENS


def _can_be_joined(text: str) -> bool:
    return text[:1].isspace() and not text[-1:].isspace()


def _class_of(text: bytes | None) -> int:
    if not text:
        return PUNCTUATION
    if b"\n" in text:
        return HAS_NEWLINE
    rest = text.lstrip(b" \t").decode("utf-8", "replace")
    if not rest:
        return BLANKS
    first, has_blank = rest[0], text[:1] in (b" ", b"\t")
    if first.isdigit():
        return BLANK_AND_NUMBER if has_blank else NUMBER
    if first in "_\ufffd" or first.isalnum():  # U+FFFD: a part of a character
        if has_blank:
            return BLANK_AND_WORD
        return NAME if first == "_" or first.isupper() else WORD
    if rest[-1] in _OPENING:
        return OPENING
    if first in _CLOSING:
        return CLOSING
    if rest[-1] in _QUOTES:
        return QUOTE
    return BLANK_AND_PUNCTUATION if has_blank else PUNCTUATION
