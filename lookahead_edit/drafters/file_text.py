"""The text behind a file's tokens: words, lines, and where tokens may be exchanged without touching their neighbours.

Knows no draft and no rule. All offsets are bytes of the text, all positions are tokens of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice, pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lookahead_edit.drafters.vocabulary import Vocabulary
from lookahead_edit.types import IntArray

MAX_OCCURRENCES = 100_000  # of one word; later ones are copied as they are
MAX_CHUNK_TOKENS = 32  # of tokens without a blank between them; longer ones are cut anywhere

MAX_WIDENINGS = 2

Edits: TypeAlias = tuple[tuple[int, int, bytes], ...]  # bytes from, bytes to, and what stands there instead
Exchange: TypeAlias = tuple[int, int, IntArray, int]  # tokens from, tokens to, int32[num_new_tokens], number of an edit

_SPACES = b" \t\r\n"
_WORD_BYTES = rb"0-9A-Za-z_\x80-\xfe"  # what isn't ASCII counts as a letter; 0xff is no text
_STARTS_WITH_WORD = re.compile(rb"[" + _WORD_BYTES + rb"]")
_ENDS_WITH_WORD = re.compile(rb"[" + _WORD_BYTES + rb"]\Z")


class FileText:
    """Built from a file's tokens in about 0.2 µs a token.

    `starts`, int64[num_tokens + 1], is where each token's text begins, and the whole ends.
    `borders`, int64[num_borders], are positions from 0 to num_tokens where a blank or line end follows something else:
    there a tokenizer begins anew.
    """

    def __init__(self, vocabulary: Vocabulary, file: IntArray) -> None:
        self._vocabulary = vocabulary
        self._file = file
        texts = vocabulary.texts_of(file)
        self.content = b"".join(texts)
        self.starts = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum([len(text) for text in texts], out=self.starts[1:])
        content = np.frombuffer(self.content, dtype=np.uint8)
        self._is_space = np.isin(content, np.frombuffer(_SPACES, dtype=np.uint8))
        self.borders = self._find_borders()
        line_ends = np.flatnonzero(content == ord("\n"))
        self.line_starts = np.concatenate([[0], line_ends + 1])  # int64[num_lines]
        solid = np.append(np.flatnonzero(~self._is_space), len(content))
        self.indent_ends = solid[
            np.searchsorted(solid, self.line_starts)
        ]  # int64[num_lines]: the first that's no blank
        self.is_blank = self.indent_ends >= np.append(line_ends, len(content))  # bool[num_lines]

    def line_of(self, position: int) -> int:
        """Number of the line, from 0, in which the token at `position` begins."""
        return int(self.line_starts.searchsorted(self.starts[position], "right")) - 1

    def indent(self, line: int) -> bytes:
        """Blanks and tabs at the line's beginning."""
        return self.content[self.line_starts[line] : self.indent_ends[line]]

    def block_end(self, line: int) -> int:
        """The first later line, or the number of lines, that is indented less than `line`.

        One that begins with ``#`` at the very left is a directive or a comment, and ends nothing.
        """
        later = slice(line + 1, None)
        widths = self.indent_ends[later] - self.line_starts[later]
        ends = (widths < self.indent_ends[line] - self.line_starts[line]) & ~self.is_blank[later]
        for found in np.flatnonzero(ends).tolist():
            number = line + 1 + found
            if self.content[self.line_starts[number] : self.line_starts[number] + 1] != b"#":
                return int(number)
        return len(self.line_starts)

    def occurrences(self, words: bytes) -> NDArray[np.int64]:
        """int64[num_occurrences]: where `words` stand as whole words, in order, without overlap."""
        pattern = re.escape(words)
        if _STARTS_WITH_WORD.match(words):  # behind the words, so that the search itself is for plain bytes
            pattern += rb"(?<![" + _WORD_BYTES + rb"]" + re.escape(words) + rb")"
        if _ENDS_WITH_WORD.search(words):
            pattern += rb"(?![" + _WORD_BYTES + rb"])"
        found = (match.start() for match in islice(re.finditer(pattern, self.content), MAX_OCCURRENCES))
        return np.fromiter(found, dtype=np.int64)

    def chunk(self, start: int, end: int) -> tuple[int, int]:
        """The smallest range of tokens between two borders that holds the bytes `start` to `end`, and at least one."""
        first = int(self.starts.searchsorted(start, "right")) - 1
        last = max(int(self.starts.searchsorted(end, "left")), first + 1)
        return self._between_borders(first, last)

    def encode_ahead(self, chunks: Iterable[tuple[int, int, Edits]]) -> None:
        """Makes `exchange` fast for all of these arguments."""
        texts = []
        for first, last, edits in chunks:
            old = self.content[self.starts[first] : self.starts[last]]
            with suppress(UnicodeDecodeError):
                texts += [old.decode(), _edited(old, edits).decode()]
        self._vocabulary.encode_ahead(texts)

    def exchange(self, first: int, last: int, edits: Edits) -> list[Exchange]:
        """The tokens to be exchanged where the tokens `first` to `last` are edited.

        Where these alone don't re-encode to themselves, more around them may; where nothing helps, there is nothing.
        """
        wider_first, wider_last = first, last
        for _ in range(MAX_WIDENINGS + 1):
            tokens = self._file[wider_first:wider_last]
            low = int(self.starts[wider_first])
            old = self.content[low : self.starts[wider_last]]
            encoded = self._encode(old)
            if encoded is not None and np.array_equal(encoded, tokens):
                break
            wider_first, wider_last = self._between_borders(
                max(wider_first - 1, 0), min(wider_last + 1, len(self._file))
            )
        else:
            return []
        offset = int(self.starts[first]) - low
        edits = tuple((start + offset, end + offset, new) for start, end, new in edits)
        encoded = self._encode(_edited(old, edits))
        if encoded is None:
            return []
        old_starts = (self.starts[wider_first : wider_last + 1] - low).tolist()
        new_starts = np.cumsum([0, *map(len, self._vocabulary.texts_of(encoded))]).tolist()
        moved = wider_first - first
        return [
            (start + moved, end + moved, encoded[new_start:new_end], number)
            for start, end, new_start, new_end, number in _differences(
                tokens.tolist(), encoded.tolist(), old_starts, new_starts, edits
            )
        ]

    def _encode(self, text: bytes) -> IntArray | None:
        try:
            return self._vocabulary.encode(text.decode())
        except UnicodeDecodeError:
            return None

    def _between_borders(self, first: int, last: int) -> tuple[int, int]:
        left = int(self.borders.searchsorted(first, "right")) - 1
        right = int(self.borders.searchsorted(last, "left"))
        return int(self.borders[max(left, 0)]), int(self.borders[min(right, len(self.borders) - 1)])

    def _find_borders(self) -> NDArray[np.int64]:
        num_tokens = len(self.starts) - 1
        inner = self.starts[1:-1]
        inner = np.where(inner < len(self.content), inner, 0)
        is_border = self._is_space[inner] & ~self._is_space[inner - 1] if len(self.content) else np.zeros(0, dtype=bool)
        borders = np.concatenate([[0], np.flatnonzero(is_border) + 1, [num_tokens]])
        gaps = np.diff(borders)
        if gaps.max(initial=0) > MAX_CHUNK_TOKENS:
            cuts = [
                np.arange(start, start + gap, MAX_CHUNK_TOKENS // 2)
                for start, gap in zip(borders.tolist(), gaps.tolist(), strict=False)
                if gap > MAX_CHUNK_TOKENS
            ]
            borders = np.unique(np.concatenate([borders, *cuts]))
        return borders.astype(np.int64)


def _edited(old: bytes, edits: Edits) -> bytes:
    parts = []
    at = 0
    for start, end, new in edits:
        parts += [old[at:start], new]
        at = end
    return b"".join([*parts, old[at:]])


def _differences(
    old: list[int],
    new: list[int],
    old_starts: list[int],
    new_starts: list[int],
    edits: Edits,
) -> Iterator[tuple[int, int, int, int, int]]:
    """Ranges of old and new tokens, none empty, that differ, and the number of the edit that is behind it."""
    differing: list[tuple[int, int, int, int, int]] = []
    for (start, new_start), (end, new_end) in pairwise(_common_borders(old_starts, new_starts, edits)):
        number = next((at for at, edit in enumerate(edits) if edit[1] >= old_starts[start]), len(edits) - 1)
        while start < end and new_start < new_end and old[start] == new[new_start]:
            start, new_start = start + 1, new_start + 1
        while start < end and new_start < new_end and old[end - 1] == new[new_end - 1]:
            end, new_end = end - 1, new_end - 1
        if start == end and new_start == new_end:
            continue
        # A token more where one side is empty, so that a position tells whether the exchange lies behind it.
        if start == end or new_start == new_end:
            if end < len(old) and new_end < len(new):
                end, new_end = end + 1, new_end + 1
            elif start > 0 and new_start > 0:
                start, new_start = start - 1, new_start - 1
        if differing and (start < differing[-1][1] or new_start < differing[-1][3]):
            start, _, new_start, _, number = differing.pop()
        differing.append((start, end, new_start, new_end, number))
    return (found for found in differing if found[0] < found[1] and found[2] < found[3])


def _common_borders(old_starts: list[int], new_starts: list[int], edits: Edits) -> list[tuple[int, int]]:
    """Pairs of an old and a new token that begin at the same place of the text, outside of edits."""
    new_index = {start: index for index, start in enumerate(new_starts)}
    borders: list[tuple[int, int]] = []
    index, from_, moved = 0, 0, 0
    for start, end, text in [*edits, (old_starts[-1], old_starts[-1], b"")]:
        while index < len(old_starts) and old_starts[index] < from_:
            index += 1
        while index < len(old_starts) and old_starts[index] <= start:
            found = new_index.get(old_starts[index] + moved)
            if found is not None and (not borders or borders[-1] != (index, found)):
                borders.append((index, found))
            index += 1
        index = max(index - 1, 0)
        from_, moved = end, moved + len(text) - (end - start)
    return borders
