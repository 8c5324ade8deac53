"""One row's drafter: its prompt read in pieces, its output caught up with, its draft and how that fared.

Knows one sequence; the batch decides how much may be read and how much of a draft is verified.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np

from lookahead_edit.drafters.edit import EditDrafter
from lookahead_edit.drafters.vocabulary import Vocabulary
from lookahead_edit.failures import describe_failure
from lookahead_edit.prompt_sources import BlockScanner, file_among, source_of
from lookahead_edit.types import NO_TOKENS, Draft, Drafter, IntArray, Round, Source, SourceKind, num_agreeing
from lookahead_edit.vllm_plugin.wishes import Wishes

logger = logging.getLogger(__name__)

READING = "the prompt is still being indexed"
FAILED = "the drafter failed"
BYTES_A_TOKEN = 128  # of index, tables and the file rewritten


class RowDrafting:
    """From a prompt to drafts. Faults stay here: after one, this row is decoded without drafts.

    Args:
        prompt: int32[num_prompt_tokens], kept.
        make_drafter: a fresh drafter for this row.
        vocabulary: finds the file in the prompt.
        wishes: the request's.
        sources: texts that every request may copy from.
    """

    def __init__(
        self,
        prompt: IntArray,
        make_drafter: Callable[[], Drafter],
        vocabulary: Vocabulary,
        wishes: Wishes,
        sources: Sequence[Source] = (),
    ) -> None:
        self.draft = Draft()  # what was proposed last
        self.wishes = wishes
        self.num_prompt_tokens = len(prompt)
        self.num_output_tokens = 0
        self._prompt = prompt
        self._sources = (*wishes.sources, *sources)
        self._make_drafter = make_drafter
        self._scanner: BlockScanner | None = BlockScanner(vocabulary) if wishes.file is None else None
        self._num_scanned = 0
        self._drafter: Drafter | None = None
        self._is_ready = False
        self._has_failed = False
        self._late = NO_TOKENS  # emitted before the prompt was indexed

    @property
    def is_off(self) -> bool:
        """Whether it never drafts: the request says so, or its drafter failed."""
        return self.wishes.max_draft_tokens == 0 or self._has_failed

    @property
    def is_ready(self) -> bool:
        """Whether the prompt is indexed."""
        return self._is_ready

    @property
    def num_index_bytes(self) -> int:
        """A bound on the memory held for this row alone, in bytes."""
        num_own_tokens = sum(len(source.tokens) for source in self.wishes.sources)
        num_tokens = self.num_prompt_tokens + self.num_output_tokens + num_own_tokens
        return 0 if self._drafter is None else BYTES_A_TOKEN * num_tokens

    def read_on(self, max_tokens: int) -> int:
        """Finds the file, then indexes the prompt; the number of tokens read, at most so many, 0 where all is done."""
        if self.is_off or self._is_ready:
            return 0
        try:
            return self._scan(max_tokens) if self._scanner is not None else self._index(max_tokens)
        except Exception as error:
            self._fail(error)
            return 0

    def commit(self, tokens: IntArray, num_verified_tokens: int | None) -> Round:
        """Takes over what the engine emitted, int32[num_emitted_tokens].

        Args:
            tokens: an accepted prefix of the draft and one of the target's own.
            num_verified_tokens: so much of the draft was verified; None where nobody says. Then a draft that the
                engine has cut shows itself only where it goes on as the target did.
        """
        draft, self.draft = self.draft, Draft()
        self.num_output_tokens += len(tokens)
        num_right_tokens = num_agreeing(draft.tokens, tokens)
        if num_verified_tokens is not None:
            draft = draft.cut(num_verified_tokens)
        elif num_right_tokens == len(tokens):
            draft = draft.cut(len(tokens) - 1)
        num_accepted_tokens = min(num_right_tokens, len(draft), len(tokens) - 1)
        finished = Round(tokens, draft, num_accepted_tokens)
        if self.is_off:
            return finished
        if not self._is_ready or self._drafter is None:
            self._late = np.concatenate([self._late, tokens])
            return finished
        try:
            self._drafter.commit(tokens, draft, num_accepted_tokens)
        except Exception as error:
            self._fail(error)
        return finished

    def guess(self, max_draft_tokens: int) -> Draft:
        """At most so many tokens that may follow."""
        if self.wishes.max_draft_tokens is not None:
            max_draft_tokens = min(max_draft_tokens, self.wishes.max_draft_tokens)
        if self._has_failed:
            return Draft(reason=FAILED)
        if self.is_off:
            return Draft(reason="speculation is off for this request")
        if not self._is_ready or self._drafter is None:
            return Draft(reason=READING)
        try:
            return self._drafter.draft(max(0, max_draft_tokens))
        except Exception as error:
            self._fail(error)
            return Draft(reason=FAILED)

    def _scan(self, max_tokens: int) -> int:
        assert self._scanner is not None
        tokens = self._prompt[self._num_scanned : self._num_scanned + max_tokens]
        self._scanner.feed(tokens)
        self._num_scanned += len(tokens)
        if self._num_scanned == len(self._prompt):
            file = source_of(self._prompt, file_among(self._scanner.finish()))
            self._scanner = None
            self._begin(file)
        return max(1, len(tokens))

    def _index(self, max_tokens: int) -> int:
        if self._drafter is None:
            start, end = self.wishes.file or (0, 0)
            is_inside = start < end <= len(self._prompt)
            file = Source(SourceKind.FILE, self._prompt[start:end], prompt_start=start) if is_inside else None
            self._begin(file)
        assert self._drafter is not None
        if isinstance(self._drafter, EditDrafter) and not self._drafter.read_on(max_tokens):
            return max_tokens
        self._is_ready = True
        if len(self._late):
            late, self._late = self._late, NO_TOKENS
            self._drafter.commit(late, Draft(), 0)
        return max(1, min(max_tokens, len(self._prompt)))

    def _begin(self, file: Source | None) -> None:
        drafter = self._make_drafter()
        sources = self._sources if file is None else (file, *self._sources)
        if isinstance(drafter, EditDrafter):
            drafter.begin(self._prompt, sources)
        else:
            drafter.start(self._prompt, sources)
        self._drafter = drafter

    def _fail(self, error: Exception) -> None:
        self._has_failed = True
        self._drafter = None
        logger.error("a drafter failed, its request goes on without drafts: %s", describe_failure(error))
