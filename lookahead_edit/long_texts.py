"""Texts of any length to tokens, in pieces: what can't fit is refused before it is read to its end, and what nobody
waits for any more is left alone. Knows tokens and texts, no request and no model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from lookahead_edit.types import NO_TOKENS, ContextLengthExceeded, IntArray, RequestCancelled, Tokenizer

PIECE_CHARACTERS = 16_384  # encoded in one call, some 10 ms
# A text that is shorter than this, for each token of the context, is not looked at before it is encoded as a whole.
CHARACTERS_PER_TOKEN = 4
# Cut into pieces a text has some tokens more or less: only what has so many times the context's can't be mistaken.
CERTAIN_EXCESS = 2

# Tokenizers split there anyway, so that the pieces of a text have the tokens of the whole.
_LINE_START = re.compile(r"\n(?=\S)")


class LongTexts:
    """Encodes the texts of one request.

    Args:
        tokenizer: turns text into tokens.
        max_context_tokens: of prompt and answer together.
        is_cancelled: asked between pieces.

    Errors: RequestCancelled, as soon as `is_cancelled` says so.

    Example:
        >>> texts = LongTexts(ByteTokenizer(), max_context_tokens=8)
        >>> texts.require_room("short")
        >>> texts.encode("a prediction", 5).tolist() == list(b"a pre")
        True
    """

    def __init__(self, tokenizer: Tokenizer, max_context_tokens: int, is_cancelled: Callable[[], bool]) -> None:
        self._tokenizer = tokenizer
        self._max_context_tokens = max_context_tokens
        self._is_cancelled = is_cancelled

    def require_room(self, text: str) -> None:
        """Raises ContextLengthExceeded for a text that certainly doesn't fit, after a part of it.

        One that passes may still be too long, but never by so much that it takes long to find out. Special tokens may
        be spelled out in it: counted as such, they only make it seem shorter.
        """
        self._require_wanted()
        if len(text) <= CHARACTERS_PER_TOKEN * self._max_context_tokens:
            return
        num_tokens = 0
        for piece in self._pieces(text):
            num_tokens += len(self._tokenizer.encode(piece))
            if num_tokens > CERTAIN_EXCESS * self._max_context_tokens:
                raise ContextLengthExceeded(
                    self._max_context_tokens + 1, self._max_context_tokens, num_characters=len(text)
                )

    def encode(self, text: str, max_tokens: int | None = None) -> IntArray:
        """int32[num_tokens]: the first tokens of the text, or all; special tokens are plain characters."""
        encoded = [NO_TOKENS]
        num_tokens = 0
        for piece in self._pieces(text):
            encoded.append(self._tokenizer.encode(piece, parse_special=False))
            num_tokens += len(encoded[-1])
            if max_tokens is not None and num_tokens >= max_tokens:
                break
        return np.concatenate(encoded)[:max_tokens]

    def _pieces(self, text: str) -> Iterator[str]:
        """Of at most PIECE_CHARACTERS each, cut where a line begins if one does in the second half."""
        start = 0
        while start < len(text):
            self._require_wanted()
            end = start + PIECE_CHARACTERS
            if end < len(text):
                line_starts = _LINE_START.finditer(text, end - PIECE_CHARACTERS // 2, end)
                end = max((found.end() for found in line_starts), default=end)
            yield text[start:end]
            start = end

    def _require_wanted(self) -> None:
        if self._is_cancelled():
            raise RequestCancelled("the request was cancelled")
