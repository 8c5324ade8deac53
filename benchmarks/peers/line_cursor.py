"""A cursor in the predicted text that finds its way back by whole lines, as an editor's "predicted output" does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from lookahead_edit.types import NO_TOKENS, Draft, IntArray, Source, SourceKind, Tokenizer


class LineCursor:
    """Copies from the cursor on, and is lost after a token that differs.

    Once an output line is complete, a lost cursor is set behind the last predicted line that a longest common
    subsequence of lines (output so far, predicted text) uses; of several such subsequences the one that ends first. It
    is set there also if the last output line is in no predicted one, which is right after an inserted line.

    A line ends with the token that holds its line break; where that token goes on with the next line's indentation,
    so does the line, and lines are compared without the blanks at their ends. The predicted text is the prediction if
    there is one, else the file; without either nothing is drafted.

    Args:
        text_of_token: a token's text, as from `texts_of_tokens`.
        num_draft_tokens: k.

    Example: the file is ``a ⏎ b ⏎ c ⏎ d ⏎``, the output so far ``a ⏎ X ⏎``: lost at X, the cursor is set before ``b``,
    which is wrong if X replaced b. Then it is lost until ``c ⏎`` is written, and is set before ``d``.
    """

    def __init__(self, *, text_of_token: Callable[[int], str], num_draft_tokens: int = 64) -> None:
        self.num_draft_tokens = num_draft_tokens
        self._text_of_token = text_of_token
        self._predicted = NO_TOKENS
        self._kind = SourceKind.FILE

    def start(self, prompt: IntArray, sources: Sequence[Source]) -> None:
        self._predicted = NO_TOKENS
        for kind in (SourceKind.FILE, SourceKind.PREDICTION):
            for source in sources:
                if source.kind == kind and len(source.tokens):
                    self._predicted, self._kind = source.tokens, kind
        lines: list[str] = []
        self._line_starts = [0]
        open_line = ""
        for position, token in enumerate(self._predicted.tolist()):
            text = self._text_of_token(token)
            open_line += text
            if "\n" in text or position + 1 == len(self._predicted):
                lines.append(open_line.rstrip())
                self._line_starts.append(position + 1)
                open_line = ""
        self._lines = np.array(lines, dtype=object)
        # Entry i: lines in the longest common subsequence of the output's complete lines and the first i predicted.
        self._num_common = np.zeros(len(lines) + 1, dtype=np.int32)
        self._open_line = ""
        self._cursor = 0
        self._is_lost = False

    def draft(self, max_draft_tokens: int) -> Draft:
        if self._is_lost:
            return Draft(reason="lost until the line is complete")
        tokens = self._predicted[self._cursor : self._cursor + max(0, min(max_draft_tokens, self.num_draft_tokens))]
        if len(tokens) == 0:
            return Draft(reason="the predicted text ends here, or there is no room for a draft")
        return Draft(tokens=tokens.copy(), sources=np.full(len(tokens), self._kind, dtype=np.int8), match_length=1)

    def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None:
        for token in tokens.tolist():
            if not self._is_lost:
                self._is_lost = self._cursor == len(self._predicted) or self._predicted[self._cursor] != token
                self._cursor += not self._is_lost
            text = self._text_of_token(token)
            self._open_line += text
            if "\n" in text:
                self._complete_line()

    @property
    def num_index_bytes(self) -> int:
        return self._predicted.nbytes + self._num_common.nbytes

    def _complete_line(self) -> None:
        is_same = self._lines == self._open_line.rstrip()
        self._open_line = ""
        num_common = self._num_common.copy()
        num_common[1:] = np.maximum(num_common[1:], (self._num_common[:-1] + 1) * is_same)
        self._num_common = np.maximum.accumulate(num_common)
        if self._is_lost:
            self._cursor = self._line_starts[int(self._num_common.argmax())]
            self._is_lost = False


def texts_of_tokens(tokenizer: Tokenizer) -> Callable[[int], str]:
    """The text of a single token; each is decoded once, so one for all drafters saves time."""
    return cache(lambda token: tokenizer.decode(np.array([token], dtype=np.int32)))
