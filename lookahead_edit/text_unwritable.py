"""Characters that a model's tokenizer can't write: lines that have some get them back. Knows no tokens and no model.

Some tokenizers drop characters (control characters without a token of their own), others change them (to composed
ones, or to U+FFFD). A model copies what is left of them, and every line that it copied would lose a little. Here each
line is known in both ways, as it is and as it is *written*, that is encoded and decoded again: an answer's line that
equals the one is the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rapidfuzz.distance import LCSseq

from lookahead_edit.text_align import Hunk, changed_hunks
from lookahead_edit.text_answer import REPLACEMENT_CHARACTER
from lookahead_edit.types import InvalidInput

MIN_KEPT_SHARE = 0.5  # of a line's characters, for what came in its place to be that line, changed
MAX_LINES_AWAY = 50  # of a changed line from where it was, among other changed ones
MAX_NAMED_CHARACTERS = 3


@dataclass(frozen=True, slots=True)
class WrittenText:
    """A text in LF lines, and what is left of it when it is encoded and decoded again."""

    text: str
    written: str

    @property
    def is_lossy(self) -> bool:
        return self.text != self.written


@dataclass(frozen=True, slots=True)
class _Place:
    """``original`` stood in a line where ``written[start:end]`` stands in what is written of it."""

    original: str
    start: int
    end: int
    is_visible: bool  # the model sees something of it, so that what it writes instead is its choice

    @property
    def name(self) -> str:
        characters = [f"U+{ord(character):04X}" for character in self.original[:MAX_NAMED_CHARACTERS]]
        return " ".join(characters) + (" …" if len(self.original) > MAX_NAMED_CHARACTERS else "")


class UnwritableCharacters:
    """Puts characters back that an answer can't have, wherever it is certain where they belong.

    Args:
        region: what the model answers with, more or less changed.
        update: a snippet that it merges, if there is one.
        first_line: the number of the region's first line in its document, from 1.

    Raises InvalidInput for a text that comes back in other lines than it went in: nothing of it could be put back.

    Example:
        >>> characters = UnwritableCharacters(WrittenText("a\\x04b\\nc = 1\\n", "ab\\nc = 1\\n"))
        >>> characters.put_back("ab\\nc = 2\\n")
        ('a\\x04b\\nc = 2\\n', [])
    """

    def __init__(self, region: WrittenText, update: WrittenText | None = None, *, first_line: int = 1) -> None:
        self._first_line = first_line
        self._update = update
        self._lines, self._written = _lines_of(region, "input")
        self._num_written = Counter(self._written)
        pairs = [*zip(self._lines, self._written, strict=True)]
        if update is not None:
            pairs += zip(*_lines_of(update, "update"), strict=True)
        originals: dict[str, set[str]] = {}
        for original, written in pairs:
            originals.setdefault(written, set()).add(original)
        # What is written in one way may stand for several lines: which of them, only the order tells.
        self._only_original = {written: next(iter(lines)) for written, lines in originals.items() if len(lines) == 1}

    def put_back(self, answer: str, *, is_cut_off: bool = False) -> tuple[str, list[str]]:
        """The answer, in LF lines, with the characters; and warnings, where some are gone for good.

        They come back in lines that are as they were, wherever these are now, and in changed lines where what stood
        beside them is still there.

        Raises InvalidInput where a character's surroundings are half there: it can't be told whether it belongs to
        what was changed. Not if `is_cut_off`, an answer that nobody uses.
        """
        answered = answer.split("\n")
        num_answered = Counter(answered)
        result = [self._only_original.get(line, line) for line in answered]
        warnings: list[str] = []
        old_end = new_end = 0
        for hunk in (*changed_hunks(self._written, answered), None):
            start = len(self._written) if hunk is None else hunk.before_start
            result[new_end : new_end + start - old_end] = self._lines[old_end:start]
            if hunk is not None:
                if not is_cut_off:
                    warnings += self._put_into_changed(hunk, answered, num_answered, result)
                old_end, new_end = hunk.before_end, hunk.after_end
        if self._update is not None and not is_cut_off:
            warnings += _warnings_of_update(self._update, set(result))
        return "\n".join(result), warnings

    def _put_into_changed(
        self, hunk: Hunk, answered: Sequence[str], num_answered: Counter[str], result: list[str]
    ) -> list[str]:
        """Lines that were changed: changes `result`, and returns what to warn of."""
        warnings: list[str] = []
        free = [line for line in range(hunk.after_start, hunk.after_end) if answered[line] not in self._only_original]
        is_in_place = hunk.before_end - hunk.before_start == hunk.after_end - hunk.after_start
        for index in range(hunk.before_start, hunk.before_end):
            line, written = self._lines[index], self._written[index]
            if line == written:
                continue
            places = _places(line, written)
            if written not in self._only_original:
                raise self._doubt(index, places[0])
            if num_answered[written] >= self._num_written[written]:
                continue  # it was moved
            middle, reach = index - hunk.before_start + hunk.after_start, 0 if is_in_place else MAX_LINES_AWAY
            other = _most_similar(written, [near for near in free if abs(near - middle) <= reach], answered)
            if other is None:
                continue  # it was taken out as a whole
            free.remove(other)
            result[other], doubtful, gone = _put_into(answered[other], written, places)
            if doubtful:
                raise self._doubt(index, doubtful[0])
            warnings += [
                f"line {self._first_line + index} has {place.name}, which the model's tokenizer can't write: "
                "the answer leaves it out with the text around it"
                for place in gone
            ]
        return warnings

    def _doubt(self, index: int, place: _Place) -> InvalidInput:
        return InvalidInput(
            f"expected an answer that leaves line {self._first_line + index} as it is around {place.name}, which the "
            "model's tokenizer can't write, got one that changes it there: nothing was changed",
            param="input",
        )


def _warnings_of_update(update: WrittenText, present: Collection[str]) -> list[str]:
    return [
        f"line {number} of the update has {_places(line, written)[0].name}, which the model's tokenizer can't write"
        for number, (line, written) in enumerate(zip(*_lines_of(update, "update"), strict=True), 1)
        if line != written and line not in present
    ]


def _lines_of(text: WrittenText, param: str) -> tuple[list[str], list[str]]:
    lines, written = text.text.split("\n"), text.written.split("\n")
    if len(lines) != len(written):
        raise InvalidInput(
            f"expected {param} of lines that the model's tokenizer can write, got {len(lines)} lines of which it "
            f"makes {len(written)}",
            param=param,
        )
    return lines, written


def _places(line: str, written: str) -> list[_Place]:
    """Where the two differ."""
    places: list[_Place] = []
    for operation in LCSseq.opcodes(line, written):
        if operation.tag == "equal":
            continue
        original, start, end = line[operation.src_start : operation.src_end], operation.dest_start, operation.dest_end
        if places and places[-1].end == start:
            last = places.pop()
            original, start = last.original + original, last.start
        text = written[start:end]
        places.append(_Place(original, start, end, bool(text) and REPLACEMENT_CHARACTER not in text))
    return places


def _most_similar(written: str, candidates: Sequence[int], answered: Sequence[str]) -> int | None:
    """The first of the candidates that have most of the line's characters, in order."""
    scores = [(LCSseq.similarity(written, answered[index]), -index) for index in candidates]
    score, index = max(scores, default=(0, 0))
    return -index if written and score >= MIN_KEPT_SHARE * len(written) else None


def _put_into(answer: str, written: str, places: Sequence[_Place]) -> tuple[str, list[_Place], list[_Place]]:
    """A changed line with what could be put back; the places that are doubtful, and those that are gone."""
    matches = {-1: -1, len(written): len(answer)}  # the line's two ends
    for operation in LCSseq.opcodes(written, answer):
        if operation.tag == "equal":
            matches.update(
                zip(
                    range(operation.src_start, operation.src_end),
                    range(operation.dest_start, operation.dest_end),
                    strict=True,
                )
            )
    pieces, cursor = [], 0
    doubtful: list[_Place] = []
    gone: list[_Place] = []
    for place in places:
        outer = [place.start - 1, place.end] if place.start == place.end else []
        kept = [matches.get(index) for index in (*outer[:1], *range(place.start, place.end), *outer[1:])]
        known = [index for index in kept if index is not None]
        if len(known) == len(kept) and known[-1] - known[0] == len(known) - 1:
            start, end = (known[-1], known[-1]) if outer else (known[0], known[-1] + 1)
            pieces += [answer[cursor:start], place.original]
            cursor = end
        elif not place.is_visible:
            around = set(range(place.start - 1, place.end + 1)) - {-1, len(written)}
            (doubtful if around & matches.keys() else gone).append(place)
    return "".join([*pieces, answer[cursor:]]), doubtful, gone
