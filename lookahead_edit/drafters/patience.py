"""Stops a drafter that isn't believed any more, and lets it come back by itself."""

from __future__ import annotations

from collections.abc import Sequence

from lookahead_edit.types import Draft, Drafter, IntArray, Source

MAX_FAILED_DRAFTS = 8  # in a row, nothing accepted
MIN_REQUIRED_LENGTH = 4  # matching tokens that are required then; twice as many after each further row of failures
MAX_REQUIRED_LENGTH = 1024
NUM_WAITING_ROUNDS = 32  # without a draft, after which half as many are required, on trial


class PatientDrafter:
    """Wraps a drafter: after a row of drafts of which nothing was accepted, only longer matches are drafted.

    One accepted token, and everything is drafted again. Otherwise the requirement falls by half after
    NUM_WAITING_ROUNDS rounds without a draft, and a single failure raises it again. The drafter inside goes on reading
    meanwhile, so nothing is lost. A drafter that is always wrong ends up at one draft in 33 rounds.
    """

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self._required_length = 0
        self._num_failed_drafts = 0
        self._num_waiting_rounds = 0

    def start(self, prompt: IntArray, sources: Sequence[Source]) -> None:
        self._required_length = self._num_failed_drafts = self._num_waiting_rounds = 0
        self._drafter.start(prompt, sources)

    def draft(self, max_draft_tokens: int) -> Draft:
        draft = self._drafter.draft(max_draft_tokens)
        if len(draft) == 0 or draft.match_length >= self._required_length:
            return draft
        return draft.cut(
            0,
            f"nothing accepted in the last {MAX_FAILED_DRAFTS} drafts, "
            f"waiting for a match of {self._required_length} tokens",
        )

    def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None:
        self._drafter.commit(tokens, draft, num_accepted_tokens)
        if num_accepted_tokens > 0:
            self._required_length = self._num_failed_drafts = self._num_waiting_rounds = 0
        elif len(draft) > 0:
            self._num_waiting_rounds = 0
            self._num_failed_drafts += 1
            if self._num_failed_drafts == MAX_FAILED_DRAFTS:
                self._num_failed_drafts = 0
                doubled = max(2 * self._required_length, MIN_REQUIRED_LENGTH)
                self._required_length = min(doubled, MAX_REQUIRED_LENGTH)
        elif self._required_length > 0:
            self._num_waiting_rounds += 1
            if self._num_waiting_rounds == NUM_WAITING_ROUNDS:
                self._num_waiting_rounds = 0
                halved = self._required_length // 2
                self._required_length = halved if halved >= MIN_REQUIRED_LENGTH else 0
                self._num_failed_drafts = MAX_FAILED_DRAFTS - 1

    @property
    def num_index_bytes(self) -> int:
        return self._drafter.num_index_bytes
