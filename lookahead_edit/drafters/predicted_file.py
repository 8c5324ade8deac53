"""The file as the model is expected to write it on: what was learned from hunks is applied from the cursor on.

Knows the file, the cursor's state and the rules; knows no other source, and not what is drafted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lookahead_edit.drafters.rewriting import Replacement, Rewriter, Rewritten
from lookahead_edit.drafters.vocabulary import ClassArray, Vocabulary
from lookahead_edit.kernels import alignment
from lookahead_edit.types import NO_TOKENS, FloatArray, IntArray, Tokenizer

NUM_REWRITTEN_TOKENS = 512  # ahead of the cursor at a time: rewriting all of a long file would take longer than a round
MIN_REWRITTEN_TOKENS = 256  # ahead of the cursor; where fewer are left, the next ones are rewritten


class PredictedFile:
    """The file's tokens with what follows it in the prompt, rewritten for some way from the cursor on.

    `tokens`, `places`, `classes` and `factors` have one entry for each predicted token: itself; the file's token it
    stands for, NONE in a replacement; its class; and the trust in a replacement that begins there, else 1.

    Args:
        tokenizer: without one nothing is rewritten.
        file: int32[num_file_tokens], none where there is no file.
        after_file: int32[num_tokens], what follows the file where it stands in the prompt.

    Example:
        >>> predicted = PredictedFile(None, np.array([5, 6], np.int32), np.array([9], np.int32))
        >>> predicted.tokens.tolist(), predicted.places.tolist(), predicted.num_file_tokens
        ([5, 6, 9], [0, 1, 2], 2)
    """

    def __init__(
        self, tokenizer: Tokenizer | None, file: IntArray = NO_TOKENS, after_file: IntArray = NO_TOKENS
    ) -> None:
        self._vocabulary = Vocabulary(tokenizer)
        self._rewriter = Rewriter(tokenizer, file)
        self.num_file_tokens = len(file)
        self.num_tokens_after_file = len(after_file)
        self._plain: IntArray = np.concatenate([file, after_file])
        self._plain_classes = self._vocabulary.token_classes(self._plain)
        self._plain_places = np.arange(len(self._plain), dtype=np.int32)
        self._plain_factors = np.ones(len(self._plain), dtype=np.float32)
        self.tokens: IntArray = self._plain
        self.places: IntArray = self._plain_places
        self.classes: ClassArray = self._plain_classes
        self.factors: FloatArray = self._plain_factors
        self._rewritten: Rewritten | None = None
        self._rewritten_start = self._rewritten_end = 0  # in `tokens`

    @property
    def num_bytes(self) -> int:
        """Bytes of all arrays."""
        plain = (self._plain, self._plain_classes, self._plain_places, self._plain_factors)
        changed = () if self.tokens is self._plain else (self.tokens, self.places, self.classes, self.factors)
        return sum(array.nbytes for array in (*plain, *changed))

    def learn_from_instruction(self, text: str) -> None:
        """Before the first token: reads what the prompt says beside the file."""
        self._rewriter.learn_from_instruction(text)
        if self._rewriter.is_active:
            self._rewrite(0)

    def learn_from_hunk(self, state: NDArray[np.int64], text: IntArray, line_start: str | None) -> None:
        """A hunk of the output, ``text``'s end, is over: what was replaced in it may be replaced again.

        `line_start` is what the output's line begins with where the cursor was found, None where that can't be told:
        following lines may be indented so too.
        """
        old_start, old_end = int(state[alignment.OLD_START]), int(state[alignment.OLD_END])
        if old_start < old_end < len(self.tokens):
            start, end = int(self.places[old_start]), int(self.places[old_end])
            if alignment.NONE not in (start, end):
                new = text[state[alignment.NEW_START] : state[alignment.NEW_END]]
                self._rewriter.learn_hunk(start, end, new.copy())
        place = int(self.places[state[alignment.FOUND_CURSOR] - 1])
        if line_start is not None and 0 <= place < self.num_file_tokens:
            self._rewriter.set_line(place, line_start)
        if self._rewritten is not None or self._rewriter.is_active:  # the last rule may just have fallen asleep
            self._rewrite(int(state[alignment.CURSOR]))
            if state[alignment.CURSOR] < len(self.tokens):
                alignment.follow_again(text, self.tokens, len(self.tokens), state)

    def keep_ahead(self, cursor: int) -> None:
        """Rewrites the next tokens where the output is about to reach the end of those rewritten."""
        if self._rewritten is not None and self._rewritten_end - cursor < MIN_REWRITTEN_TOKENS:
            self._rewrite(cursor)

    def observe(self, position: int, num_draft_tokens: int, num_accepted_tokens: int, correction: int | None) -> None:
        """Tells the rules how the tokens drafted from `position` on fared; see `Rewriter.observe`."""
        if self._rewritten is None or position < self._rewritten_start:
            return
        offset = position - self._rewritten_start
        replacements = [
            Replacement(start - offset, end - offset, rule)
            for start, end, rule in self._rewritten.replacements
            if offset <= start < offset + num_draft_tokens
        ]
        if replacements:
            whole, part = self._rewritten, slice(offset, offset + num_draft_tokens)
            drafted = Rewritten(whole.tokens[part], whole.positions[part], whole.factors[part], replacements)
            self._rewriter.observe(drafted, num_accepted_tokens, correction)

    def _rewrite(self, cursor: int) -> None:
        """The tokens from the cursor on, under what is known now; those behind stay as they were written."""
        place = int(self.places[cursor]) if cursor < len(self.places) else alignment.NONE
        if place == alignment.NONE or place >= self.num_file_tokens:
            return
        rewritten = _without_cut_replacement(self._rewriter.copy(place, NUM_REWRITTEN_TOKENS))
        end = int(rewritten.positions[-1]) if len(rewritten.tokens) else place
        number = len(rewritten.tokens)
        places = np.empty(number, dtype=np.int32)
        places[:1] = place
        places[1:] = rewritten.positions[: number - 1]
        self.tokens = np.concatenate([self.tokens[:cursor], rewritten.tokens, self._plain[end:]])
        self.places = np.concatenate([self.places[:cursor], places, self._plain_places[end:]])
        classes = self._vocabulary.token_classes(rewritten.tokens)
        self.classes = np.concatenate([self.classes[:cursor], classes, self._plain_classes[end:]])
        self.factors = np.concatenate([self.factors[:cursor], rewritten.factors, self._plain_factors[end:]])
        is_at_end = end >= self.num_file_tokens
        self._rewritten = rewritten if self._rewriter.is_active else None
        self._rewritten_start = cursor
        self._rewritten_end = len(self.tokens) + MIN_REWRITTEN_TOKENS if is_at_end else cursor + number


def _without_cut_replacement(rewritten: Rewritten) -> Rewritten:
    """Up to the last token that a place in the file follows: the copy's end may cut a replacement in two."""
    whole = np.flatnonzero(rewritten.positions != alignment.NONE)
    end = int(whole[-1]) + 1 if len(whole) else 0
    replacements = [replacement for replacement in rewritten.replacements if replacement.end <= end]
    return Rewritten(rewritten.tokens[:end], rewritten.positions[:end], rewritten.factors[:end], replacements)
