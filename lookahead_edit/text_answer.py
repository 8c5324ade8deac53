"""Cleans a model's answer while it streams: stop strings, line ends, fences. Knows no tokens and no document.

The prompt ends in an opening fence that the model did not write, so an answer is what stands before the closing one.
Everything here is append-only and independent of how the answer is cut into pieces: what `AnswerStream` gives out
piece by piece adds up to what `clean_answer` makes of the whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from lookahead_edit.text_lines import to_lf

REPLACEMENT_CHARACTER = "\ufffd"

_FENCE_LINE = re.compile(r"(`{3,})([^`\n]*)\n?")
_FENCE_LINE_PREFIX = re.compile(r"`{0,2}|`{3,}[^`\n]*")
_CLOSING_LINE_PREFIX = re.compile(r"`*[ \t]*")
_FENCE_AFTER_TEXT = re.compile(r"[^`]*(?:`{1,2}[^`]+)*[^`\n](`{3,})[ \t]*\n?")
_MARK = re.compile(r"[`\r\n]")

_MARKDOWN = ("markdown", "md")


def find_stop(text: str, stops: Sequence[str]) -> int | None:
    """Where the stop string begins that is complete first; None where there is none.

    Of two that are complete at the same character the longer one counts. The answer does not depend on how the text
    arrives, as "begins first" would: with stops ``abcd`` and ``bc``, the text ends at ``bc`` before ``d`` is known.

    >>> find_stop("x = 1\\nEND", ["END", "\\nE"])
    5
    """
    found = [(start + len(stop), start) for stop in stops if stop and (start := text.find(stop)) >= 0]
    return min(found)[1] if found else None


def held_back_length(text: str, stops: Sequence[str]) -> int:
    """How many characters at the end of `text` may be the beginning of a stop string.

    >>> held_back_length("x = 1\\nEN", ["END", "\\nEND"])
    3
    """
    longest = max(map(len, stops), default=0) - 1
    for length in range(min(longest, len(text)), 0, -1):
        tail = text[len(text) - length :]
        if any(len(stop) > length and stop.startswith(tail) for stop in stops):
            return length
    return 0


@dataclass(frozen=True, slots=True)
class Answer:
    """A cleaned answer in LF text. `is_closed` tells whether a fence or a stop string ended it, or just its end."""

    text: str
    is_closed: bool
    fence_stripped: bool  # the model opened a fence of its own around the whole answer
    is_stopped: bool = False  # a stop string cut it off before its closing fence: there may have been more


def clean_answer(
    raw: str,
    fence: str,
    *,
    language: str = "",
    starts_with_fence: bool = False,
    stops: Sequence[str] = (),
) -> Answer:
    """The region's new text, from all that the model wrote after the opening fence.

    >>> clean_answer("x = 2\\n```\\nI changed x.", "```").text
    'x = 2\\n'
    """
    stream = AnswerStream(fence, language=language, starts_with_fence=starts_with_fence, stops=stops)
    stream.push(raw)
    stream.finish()
    return stream.answer


class _State(Enum):
    FIRST_LINE = auto()
    CONTENT = auto()
    REOPENED = auto()  # inside a fence of the model's own; nothing is given out until it is known what follows
    RECLOSED = auto()  # behind it
    FINISHED = auto()


class AnswerStream:
    """Takes an answer piece by piece and gives out what is certain.

    Args:
        fence: the opening fence of the prompt, backticks only; a line of at least as many ends the answer.
        language: the word behind the opening fence.
        starts_with_fence: whether the region itself begins with a fence. Otherwise a fence of the model's own around
            the whole answer is removed.
        stops: strings that end the answer and are not part of it. One that is itself a closing fence closes it.

    A block that the answer opens (a fence with a word behind it) is closed by its own fence, not the answer's. A
    fence right behind the last line's text ends the answer too, where nothing follows.
    """

    def __init__(
        self,
        fence: str,
        *,
        language: str = "",
        starts_with_fence: bool = False,
        stops: Sequence[str] = (),
    ) -> None:
        assert len(fence) >= 3
        assert set(fence) == {"`"}
        self._language = language
        self._keeps_leading_fence = starts_with_fence
        self._stops = tuple(stop for stop in stops if stop)
        self._state = _State.FIRST_LINE
        self._num_fence = len(fence)  # backticks
        self._num_closing = len(fence)  # differs from the above inside a fence of the model's own
        self._num_inner = 0  # those of a block that the answer itself opened, 0 outside
        self._num_seen = 0  # characters taken by update()
        self._raw = ""  # may begin a stop string or a \r\n
        self._line = ""  # the line that is not over yet
        self._num_sent = 0  # its characters already given out
        self._held: list[str] = []  # whole lines in REOPENED and RECLOSED
        self._doubtful = ""  # a fence right behind text, and the blank lines since
        self._given: list[str] = []
        self._is_closed = False
        self._is_stopped = False
        self._fence_stripped = False

    @property
    def is_finished(self) -> bool:
        """Whether a closing fence or a stop string was seen: nothing that follows can change the answer."""
        return self._state is _State.FINISHED

    @property
    def answer(self) -> Answer:
        """What was given out so far."""
        return Answer("".join(self._given), self._is_closed, self._fence_stripped, self._is_stopped)

    def update(self, decoded: str) -> str:
        """Like `push`, with all the text decoded so far; its incomplete UTF-8 (U+FFFD at the end) has to wait.

        Give a stream to `update` or to `push`, not to both. At the end, pass what still ends in U+FFFD to `finish`.
        """
        ready = decoded.rstrip(REPLACEMENT_CHARACTER)
        if len(ready) <= self._num_seen:
            return ""
        piece, self._num_seen = ready[self._num_seen :], len(ready)
        return self.push(piece)

    def push(self, text: str) -> str:
        """Takes the next piece and returns what can be given out, possibly nothing."""
        if self._goes_on_plainly(text):
            self._line += text
            self._num_sent += len(text)
            self._given.append(text)
            return text
        if self.is_finished:
            return ""
        self._raw += text
        stop = find_stop(self._raw, self._stops)
        if stop is not None:
            found = min((text for text in self._stops if self._raw.startswith(text, stop)), key=len)
            self._raw = self._raw[:stop]
            self._is_closed = True
            return self._give(self._end(found))
        num_ready = len(self._raw) - held_back_length(self._raw, self._stops)
        if self._raw[:num_ready].endswith("\r"):
            num_ready -= 1
        ready, self._raw = self._raw[:num_ready], self._raw[num_ready:]
        return self._give(self._take(to_lf(ready)))

    def _goes_on_plainly(self, text: str) -> bool:
        """Whether nothing is held back and nothing here could be: most pieces, which needn't be looked at closely."""
        return (
            self._state is _State.CONTENT
            and 0 < self._num_sent == len(self._line)
            and not (self._raw or self._stops or self._doubtful)
            and _MARK.search(text) is None
        )

    def finish(self, decoded: str | None = None) -> str:
        """The answer is over: returns what was held back and belongs to it.

        `decoded` is for a stream fed by `update`: the whole text once more, now with its last U+FFFD.
        """
        if self.is_finished:
            return ""
        if decoded is not None:
            piece, self._num_seen = decoded[self._num_seen :], len(decoded)
            return self.push(piece) + self.finish()
        return self._give(self._end())

    def _end(self, stop: str = "") -> str:
        """Takes what was held back; `stop` is the stop string behind it, if that's what ends the answer."""
        text = self._take(to_lf(self._raw))
        if not self.is_finished:
            is_fence = self._is_closing_fence(stop)
            line, self._line = self._line, ""
            text += self._take_line(line) if line else ""
            closes = is_fence or self.is_finished or self._state is _State.RECLOSED or bool(self._doubtful)
            self._is_stopped = bool(stop) and not closes
        if self._state in (_State.REOPENED, _State.RECLOSED):
            text += self._strip_own_fence()
        self._is_closed = self._is_closed or bool(self._doubtful)
        self._state = _State.FINISHED
        return text

    def _is_closing_fence(self, stop: str) -> bool:
        """Whether a stop string, found behind the line that isn't over yet, is the fence that closes the answer.

        On the first line it may as well open one, of which nothing would be left.
        """
        marks = to_lf(stop).strip()
        starts_line = not self._line or to_lf(stop).startswith("\n")
        is_long = len(marks) >= self._num_closing and not marks.strip("`")
        return self._state is not _State.FIRST_LINE and starts_line and is_long and not self._num_inner

    def _give(self, text: str) -> str:
        if text:
            self._given.append(text)
        return text

    def _take(self, lf_text: str) -> str:
        pieces = []
        *whole, rest = lf_text.split("\n")
        for part in whole:
            line, self._line = self._line + part + "\n", ""
            pieces.append(self._take_line(line))
            if self.is_finished:
                return "".join(pieces)
        self._line += rest
        return "".join([*pieces, self._take_unfinished_line()])

    def _take_unfinished_line(self) -> str:
        if self._state in (_State.REOPENED, _State.RECLOSED):
            return ""
        if not self._num_sent:
            may_be_fence = _FENCE_LINE_PREFIX if self._state is _State.FIRST_LINE else _CLOSING_LINE_PREFIX
            if not self._line.strip(" \t") or may_be_fence.fullmatch(self._line):
                return ""
        text = self._line[self._num_sent :]
        before_blanks = text.rstrip(" \t")
        if before_blanks.endswith("`"):
            text = before_blanks.rstrip("`")
        self._num_sent += len(text)
        return self._release_doubtful() + text

    def _take_line(self, line: str) -> str:
        """Takes a whole line, or the last one without its end."""
        num_sent, self._num_sent = self._num_sent, 0
        fence = _FENCE_LINE.fullmatch(line)
        num_backticks, word = (len(fence[1]), fence[2].strip(" \t")) if fence else (0, "")
        if self._state is _State.FIRST_LINE:
            self._state = _State.CONTENT
            if self._reopens(num_backticks, word):
                self._state = _State.REOPENED
                self._num_closing = num_backticks
                self._held.append(line)
                return ""
        if self._state is _State.RECLOSED:
            return self._take_line_behind_own_fence(line, closes=bool(fence and not word))
        if num_backticks >= (self._num_inner or self._num_closing) and not word:
            if not self._num_inner:
                return self._close(line)
            self._num_inner = 0
        elif num_backticks >= self._num_closing and not self._num_inner:
            self._num_inner = num_backticks
        if self._state is _State.REOPENED:
            self._held.append(line)
            return ""
        return self._content(line, num_sent)

    def _reopens(self, num_backticks: int, word: str) -> bool:
        """Whether a first line opens a fence around the answer, rather than a block that belongs to it."""
        if not num_backticks or self._keeps_leading_fence:
            return False
        if self._language in _MARKDOWN and word:
            return word in _MARKDOWN
        return num_backticks >= self._num_fence or bool(word and word == self._language)

    def _close(self, line: str) -> str:
        if self._state is _State.REOPENED:
            self._state = _State.RECLOSED
            self._held.append(line)
            return ""
        self._state = _State.FINISHED
        self._is_closed = True
        return self._release_doubtful()

    def _take_line_behind_own_fence(self, line: str, *, closes: bool) -> str:
        if closes:
            text = self._strip_own_fence()
            self._state = _State.FINISHED
            self._is_closed = True
            return text
        self._held.append(line)
        if not line.strip():
            return ""
        # More follows: the fence was the first block of a longer answer, and stays.
        held = self._held[:-1]
        self._state = _State.CONTENT
        self._num_closing = self._num_fence
        self._held = []
        return "".join(held) + self._take_line(line)

    def _strip_own_fence(self) -> str:
        opening, *lines = self._held
        self._held = []
        if self._state is _State.RECLOSED:
            self._is_closed = True
            while not lines[-1].startswith("`"):
                lines.pop()
            lines.pop()
        elif not opening.strip("` \t\n") and not "".join(lines).strip():
            # A bare fence with nothing behind it closes an empty answer.
            self._is_closed = True
            return ""
        self._fence_stripped = True
        return "".join(lines)

    def _content(self, line: str, num_sent: int) -> str:
        if self._doubtful and not line.strip():
            self._doubtful += line
            return ""
        text = self._release_doubtful()
        after_text = None if self._num_inner else _FENCE_AFTER_TEXT.fullmatch(line)
        if after_text and len(after_text[1]) >= self._num_closing and line[: after_text.start(1)].strip():
            self._doubtful = line[after_text.start(1) :]
            return text + line[num_sent : after_text.start(1)]
        return text + line[num_sent:]

    def _release_doubtful(self) -> str:
        text, self._doubtful = self._doubtful, ""
        return text
