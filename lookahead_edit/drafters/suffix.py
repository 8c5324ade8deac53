"""Copies what followed the longest suffix that occurred before, in the file, the prompt, the output or elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.kernels.suffix import MAX_NEAR_TOKENS
from lookahead_edit.suffix_index import NO_POSITION, SuffixIndex, compile_kernels
from lookahead_edit.types import Draft, IntArray, Source, SourceKind

CURSOR_KINDS = (SourceKind.FILE, SourceKind.PREDICTION)
START_MATCH_LENGTH = 4  # an answer that begins where the file begins counts as so many agreeing tokens
MIN_JUMP_LENGTH = 6  # matching and accepted tokens that let the cursor jump to another part of the file
MAX_OVERRUN_TOKENS = 4  # what closes the file in the prompt (a fence) mostly closes the answer too


class SuffixDrafter:
    """Longest suffix, with a cursor in the file.

    The cursor stands where the last accepted copy from a file or prediction ended, at first at its start. It settles
    which of several occurrences is meant, and after an insertion, deletion or replacement a place just behind it
    counts for more than its matching tokens (`kernels.suffix.nearness`), so that copying goes on at once. A place that
    was wrong is passed over until a longer match ends there; nothing is ever forgotten.

    Example: the file is ``a b c d e`` and the answer so far ``a b X c``. The last ``c`` agrees with the file's, one
    token after the cursor (which stayed behind ``b``): drafted is ``d e``.
    """

    def __init__(self, config: SpeculationConfig) -> None:
        compile_kernels()
        self.min_match_length = config.min_match_length
        self._index: SuffixIndex | None = None
        self._cursor = NO_POSITION
        self._is_aligned = False  # the output's last token is the file's token before the cursor
        self._copied_from = NO_POSITION  # where the last draft came from
        self._has_output = False

    def start(self, prompt: IntArray, sources: Sequence[Source]) -> None:
        self._index = SuffixIndex(prompt, sources)
        self._cursor = NO_POSITION
        for kind in CURSOR_KINDS:  # a prediction is closer to the answer than the file, so it comes last and wins
            for source, position in zip(sources, self._index.starts, strict=True):
                if source.kind == kind and len(source.tokens):
                    self._cursor = position
        self._is_aligned = False
        self._has_output = False

    def draft(self, max_draft_tokens: int) -> Draft:
        assert self._index is not None, "start() comes first"
        self._copied_from = NO_POSITION
        if max_draft_tokens <= 0:
            return Draft(reason="no room for a draft")
        if not self._has_output and self._cursor != NO_POSITION:
            copy = self._index.copy_from(self._cursor, max_draft_tokens, MAX_OVERRUN_TOKENS)
            match_length = START_MATCH_LENGTH
        else:
            copy = self._index.copy_longest(self._cursor, max_draft_tokens, MAX_OVERRUN_TOKENS)
            match_length = copy.match_length
            if match_length == 0:
                return Draft(reason="no earlier occurrence of the last token")
            if match_length < self.min_match_length:
                return Draft(reason=f"fewer than {self.min_match_length} tokens match")
            if copy.position == NO_POSITION:
                return Draft(reason="what matches leads nowhere, or was wrong before")
        self._copied_from = copy.position
        return Draft(tokens=copy.tokens, sources=copy.kinds, match_length=match_length)

    def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None:
        assert self._index is not None, "start() comes first"
        self._index.append(tokens)
        self._has_output = True
        if len(draft) > 0 and self._copied_from != NO_POSITION:
            if num_accepted_tokens == 0:
                self._index.refute(self._copied_from, draft.match_length)
            elif self._moves_cursor(draft, num_accepted_tokens):
                self._cursor = self._copied_from + num_accepted_tokens
                self._is_aligned = True
                tokens = tokens[num_accepted_tokens:]
        self._follow(tokens)

    @property
    def num_index_bytes(self) -> int:
        return 0 if self._index is None else self._index.num_bytes

    def _moves_cursor(self, draft: Draft, num_accepted_tokens: int) -> bool:
        if draft.sources[0] not in CURSOR_KINDS:
            return False
        is_near = 0 <= self._copied_from - self._cursor <= MAX_NEAR_TOKENS
        return is_near or self._cursor == NO_POSITION or draft.match_length + num_accepted_tokens >= MIN_JUMP_LENGTH

    def _follow(self, tokens: IntArray) -> None:
        """Moves an aligned cursor along tokens that weren't copied from there."""
        assert self._index is not None
        text = self._index.text
        for token in tokens:
            self._is_aligned = self._is_aligned and bool(text[self._cursor] == token)
            if not self._is_aligned:
                break
            self._cursor += 1
