"""Lines, line ends, byte order mark and LSP positions. Knows nothing of prompts and models.

A line ends at ``\\n``, ``\\r\\n`` or ``\\r`` and nowhere else, as in LSP: form feeds, U+2028 and their kin are ordinary
characters, which is why nothing here uses ``str.splitlines``.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Literal, TypedDict, cast, get_args

from lookahead_edit.types import InvalidInput

PositionEncoding = Literal["utf-16", "utf-8", "utf-32"]

BOM = "\ufeff"  # byte order mark

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_LINE_END = re.compile(r"\r\n|\n|\r")
_LINE_RANGE = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")


class Position(TypedDict):
    """A place between two characters; both numbers from 0, `character` in units of the position encoding."""

    line: int
    character: int


class Range(TypedDict):
    start: Position
    end: Position


def split_lines(text: str) -> list[str]:
    """The lines with their ends; ``"".join(split_lines(text)) == text``.

    >>> split_lines("a\\r\\nb\\rc")
    ['a\\r\\n', 'b\\r', 'c']
    """
    return _LINE.findall(text)


def split_line_end(line: str) -> tuple[str, str]:
    """A line's content and its end, e.g. ``("a", "\\r\\n")``; the end is empty on an unfinished last line."""
    content = line.rstrip("\r\n")
    return content, line[len(content) :]


def to_lf(text: str) -> str:
    """The same lines, each ended by ``\\n``; an unfinished last line stays so."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def with_final_newline(lf_text: str) -> str:
    """Ends the last line; an empty text has none and stays empty."""
    return lf_text if not lf_text or lf_text.endswith("\n") else lf_text + "\n"


def majority_line_end(text: str) -> str | None:
    """The commonest line end; of equally common ones the first; None where no line ends."""
    counts = Counter(_LINE_END.findall(text))
    return max(counts, key=counts.__getitem__, default=None)


def splits_unit(text: str, offset: int) -> bool:
    """Whether a cut at `offset` would part ``\\r`` from ``\\n``, or two halves of a surrogate pair."""
    if not 0 < offset < len(text):
        return False
    before, after = text[offset - 1], text[offset]
    return (before == "\r" and after == "\n") or ("\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff")


def unit_offsets(text: str, encoding: PositionEncoding) -> Sequence[int]:
    """How many units of the encoding stand before each character, and in the whole text at the end.

    >>> list(unit_offsets("a\U0001f600b", "utf-16")), list(unit_offsets("aé", "utf-8"))
    ([0, 1, 3, 4], [0, 1, 3])
    """
    if encoding == "utf-32" or text.isascii():
        return range(len(text) + 1)
    if encoding == "utf-16":
        return [0, *accumulate(1 + (character > "\uffff") for character in text)]
    return [0, *accumulate(len(character.encode("utf-8", "surrogatepass")) for character in text)]


class LinePositions:
    """Converts between character offsets of one text and LSP positions.

    >>> positions = LinePositions("a\\n\\U0001f600b", "utf-16")
    >>> positions.position(3), positions.offset(1, 2)
    ({'line': 1, 'character': 2}, 3)
    """

    def __init__(self, text: str, encoding: PositionEncoding = "utf-16") -> None:
        if encoding not in get_args(PositionEncoding):
            expected = ", ".join(get_args(PositionEncoding))
            raise InvalidInput(f"expected one of {expected}, got {encoding!r}", param="position_encoding")
        self._text = text
        self._encoding = encoding
        self._line_starts = [0, *(match.end() for match in _LINE_END.finditer(text))]
        self._latest = (0, 0)  # the last position's offset, and the units before it in its line

    @property
    def num_lines(self) -> int:
        """As LSP counts: a text that ends in a line end has an empty last line."""
        return len(self._line_starts)

    def position(self, offset: int) -> Position:
        """The position of a character offset, which must not part a ``\\r\\n``: LSP has no name for that place."""
        assert 0 <= offset <= len(self._text)
        assert not splits_unit(self._text, offset)
        line = bisect_right(self._line_starts, offset) - 1
        start, num_units = self._line_starts[line], 0
        if start <= self._latest[0] <= offset:
            start, num_units = self._latest
        num_units += self._num_units(self._text[start:offset])
        self._latest = (offset, num_units)
        return {"line": line, "character": num_units}

    def offset(self, line: int, character: int) -> int:
        """The offset of a position; past the end of the line means the end of the line, as LSP wants it.

        Raises InvalidInput where there is no such line, or `character` is inside a character.
        """
        if not 0 <= line < self.num_lines:
            raise _invalid_range(f"a line from 0 to {self.num_lines - 1}", line)
        if character < 0:
            raise _invalid_range("a character of at least 0", character)
        start = self._line_starts[line]
        end = self._line_starts[line + 1] if line + 1 < self.num_lines else len(self._text)
        content = split_line_end(self._text[start:end])[0]
        if self._encoding == "utf-32" or content.isascii():
            return start + min(character, len(content))
        # Halves what is left each time, so no character is counted twice: a line may be megabytes long.
        low, high, num_units = 0, len(content) + 1, 0  # num_units stand before low
        while high - low > 1:
            middle = (low + high) // 2
            num_more = self._num_units(content[low:middle])
            if num_units + num_more <= character:
                low, num_units = middle, num_units + num_more
            else:
                high = middle
        if num_units < character and low < len(content):
            raise _invalid_range(
                f"a position between two characters in line {line}",
                f"{character}, inside U+{ord(content[low]):04X} ({self._encoding})",
            )
        return start + low

    def offsets(self, text_range: Mapping[str, object]) -> tuple[int, int]:
        """The offsets of a range; see `range_to_offsets`."""
        start_line, start_character = _line_and_character(text_range, "start")
        end_line, end_character = _line_and_character(text_range, "end")
        start, end = self.offset(start_line, start_character), self.offset(end_line, end_character)
        if (end_line, end_character) < (start_line, start_character):
            raise _invalid_range(
                f"an end at or after the start {start_line}:{start_character}", f"{end_line}:{end_character}"
            )
        return start, end

    def _num_units(self, text: str) -> int:
        if self._encoding == "utf-32" or text.isascii():
            return len(text)
        if self._encoding == "utf-8":
            return len(text.encode("utf-8", "surrogatepass"))
        return len(text.encode("utf-16-le", "surrogatepass")) // 2


def range_to_offsets(
    text: str, text_range: Mapping[str, object], encoding: PositionEncoding = "utf-16"
) -> tuple[int, int]:
    """The character offsets of an LSP range.

    Raises InvalidInput with `invalid_range` for anything that isn't a range of this text: wrong shape, a line it
    does not have, a reversed range, a position inside a character.

    >>> range_to_offsets("ab\\ncd", {"start": {"line": 0, "character": 1}, "end": {"line": 1, "character": 9}})
    (1, 5)
    """
    return LinePositions(text, encoding).offsets(text_range)


def parse_line_range(spec: str, text: str) -> tuple[int, int]:
    """The character offsets of whole lines, written as first and last line counted from 1.

    >>> parse_line_range("2:3", "a\\nb\\nc\\nd\\n")
    (2, 6)
    """
    lines = split_lines(text)
    match = _LINE_RANGE.fullmatch(spec)
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= first <= last <= len(lines):
        raise _invalid_range(f"lines as FIRST:LAST within the file's {len(lines)} lines, from 1", spec)
    start = sum(map(len, lines[: first - 1]))
    return start, start + sum(map(len, lines[first - 1 : last]))


def _line_and_character(text_range: Mapping[str, object], side: str) -> tuple[int, int]:
    position = text_range.get(side) if isinstance(text_range, Mapping) else None
    if not isinstance(position, Mapping):
        raise _invalid_range("start and end, each with line and character", text_range)
    numbers = position.get("line"), position.get("character")
    if not all(type(number) is int for number in numbers):
        raise _invalid_range(f"whole numbers for line and character of {side}", dict(position))
    return cast("tuple[int, int]", numbers)


def _invalid_range(expected: str, got: object) -> InvalidInput:
    return InvalidInput(f"expected {expected}, got {got}", param="range", code="invalid_range")
