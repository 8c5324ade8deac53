"""Keeps a drafter's faults from everybody else: a text never depends on its drafts, so it goes on without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lookahead_edit.types import Draft, Drafter, IntArray, Source

FAILED = "the drafter failed"


class GuardedDrafter:
    """Wraps a drafter; after its first exception nothing more is drafted.

    Args:
        drafter: asked as long as it works.
        on_error: hears of the exception, once.
    """

    def __init__(self, drafter: Drafter, on_error: Callable[[Exception], None]) -> None:
        self._drafter = drafter
        self._on_error = on_error
        self._has_failed = False

    def start(self, prompt: IntArray, sources: Sequence[Source]) -> None:
        self._try(lambda: self._drafter.start(prompt, sources))

    def draft(self, max_draft_tokens: int) -> Draft:
        drafts: list[Draft] = []
        self._try(lambda: drafts.append(self._drafter.draft(max_draft_tokens)))
        return drafts[0] if drafts else Draft(reason=FAILED)

    def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None:
        self._try(lambda: self._drafter.commit(tokens, draft, num_accepted_tokens))

    @property
    def num_index_bytes(self) -> int:
        return self._drafter.num_index_bytes

    def _try(self, call: Callable[[], None]) -> None:
        if self._has_failed:
            return
        try:
            call()
        except Exception as error:
            self._has_failed = True
            self._on_error(error)
