"""Two drafters for one sequence: one that copies, where it has something likely, and another one elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from lookahead_edit.types import Draft, Drafter, IntArray, Source

MIN_FIRST_PROBABILITY = 0.5  # of a copied draft's first token: below, the other drafter is asked
NOT_ASKED = "another drafter's draft was verified"


class CombinedDrafter:
    """Drafts from `first` where its first token is likely enough, else from `second`.

    Both hear every commit; a draft of the other one's reaches them as a round in which nothing of theirs was verified.
    The choice looks at what was committed alone, never at what `second` would draft, so that drafts which are
    themselves sampled keep their law.

    Args:
        first: cheap, asked every round: a lookup.
        second: asked where the first has nothing likely: a draft model.
        min_first_probability: estimated, that the first token of the first drafter's draft is accepted. Where it makes
            no estimate, m agreeing tokens count as (m + 1) / (m + 2).
    """

    def __init__(
        self, first: Drafter, second: Drafter, *, min_first_probability: float = MIN_FIRST_PROBABILITY
    ) -> None:
        self._first = first
        self._second = second
        self._min_first_probability = min_first_probability
        self._drafted: Drafter | None = None  # whose draft the latest one is

    def start(self, prompt: IntArray, sources: Sequence[Source]) -> None:
        self._drafted = None
        self._first.start(prompt, sources)
        self._second.start(prompt, sources)

    def draft(self, max_draft_tokens: int) -> Draft:
        copied = self._first.draft(max_draft_tokens)
        self._drafted = self._first
        if len(copied) and first_probability(copied) >= self._min_first_probability:
            return copied
        other = self._second.draft(max_draft_tokens)
        if len(other) == 0:
            return copied
        self._drafted = self._second
        return other

    def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None:
        for drafter in (self._first, self._second):
            if drafter is self._drafted:
                drafter.commit(tokens, draft, num_accepted_tokens)
            else:
                drafter.commit(tokens, Draft(reason=NOT_ASKED), 0)
        self._drafted = None

    @property
    def num_index_bytes(self) -> int:
        return self._first.num_index_bytes + self._second.num_index_bytes


def first_probability(draft: Draft) -> float:
    """Estimated probability that the first token of a draft that isn't empty is accepted."""
    if draft.probabilities is not None:
        return float(draft.probabilities[0])
    return (draft.match_length + 1) / (draft.match_length + 2)
