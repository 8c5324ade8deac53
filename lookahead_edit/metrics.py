"""Counters of one request or of many: pure, no clock, no output.

Every round that emits counts, also those without a draft; steps in which a prompt was only read on count as reading it.
Only tokens that were really guessed count as drafted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lookahead_edit.types import Round, SourceKind

NUM_SHOWN_REASONS = 3  # the most frequent ones
NOTHING_EMITTED = "no round has emitted anything"


@dataclass(slots=True)
class SpeculationMetrics:
    """What speculation did, summed over rounds.

    Ratios are None where nothing was measured, so that "no draft" never reads as "0 % accepted".
    """

    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_rounds: int = 0
    num_draft_rounds: int = 0  # rounds that had a draft
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_emitted_tokens: int = 0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0  # whole verification, forward pass and prefill included
    forward_seconds: float = 0.0  # the model's forward passes, prefill excluded
    prefill_seconds: float = 0.0  # reading the prompt; also whole steps until it was read
    first_token_seconds: float | None = None  # from the start of the first round
    total_seconds: float = 0.0
    max_index_bytes: int = 0
    num_drafted_by_source: Counter[str] = field(default_factory=Counter)
    num_accepted_by_source: Counter[str] = field(default_factory=Counter)
    num_drafted_by_position: list[int] = field(default_factory=list)
    num_accepted_by_position: list[int] = field(default_factory=list)
    num_rounds_by_accepted: Counter[int] = field(default_factory=Counter)  # accepted tokens -> draft rounds
    num_rounds_by_reason: Counter[str] = field(default_factory=Counter)  # why nothing was drafted -> rounds
    disabled_reason: str | None = None  # known before the first round
    unused_prediction: str | None = None  # why the request's own prediction is not drafted from

    def count_index_build(self, seconds: float) -> None:
        """Counts reading the prompt into the drafter's index: drafting time, before the first round."""
        self.draft_seconds += seconds
        self.total_seconds += seconds

    def add(self, finished: Round) -> None:
        """Counts one round."""
        self.add_step([finished])

    def add_step(self, rounds: Sequence[Round]) -> None:
        """Counts the rounds that several rows did in one step, and the step's seconds once.

        Where none of them emitted anything, the whole step was spent on reading prompts, also what it did for other
        rows meanwhile.
        """
        step = rounds[0]
        step_seconds = step.draft_seconds + step.verify_seconds
        self.draft_seconds += step.draft_seconds
        self.verify_seconds += step.verify_seconds
        self.total_seconds += step_seconds
        if any(len(finished.tokens) for finished in rounds):
            model_seconds = step.forward_seconds + step.prefill_seconds
            prefill_seconds = min(model_seconds, sum(finished.prefill_seconds for finished in rounds))
            self.prefill_seconds += prefill_seconds
            self.forward_seconds += model_seconds - prefill_seconds
        else:
            self.prefill_seconds += step_seconds
        for finished in rounds:
            self.num_cached_tokens += finished.num_cached_tokens
            if len(finished.tokens):
                self._count_tokens(finished)
        if self.first_token_seconds is None and self.num_emitted_tokens:
            self.first_token_seconds = self.total_seconds

    def _count_tokens(self, finished: Round) -> None:
        num_drafted, num_accepted = finished.num_draft_tokens, finished.num_accepted_tokens
        self.num_rounds += 1
        self.num_emitted_tokens += len(finished.tokens)
        if num_drafted == 0:
            self.num_rounds_by_reason[finished.draft.reason or "nothing drafted"] += 1
            return
        self.num_draft_rounds += 1
        self.num_draft_tokens += num_drafted
        self.num_accepted_tokens += num_accepted
        self.num_rounds_by_accepted[num_accepted] += 1
        _count_sources(self.num_drafted_by_source, finished.draft.sources)
        _count_sources(self.num_accepted_by_source, finished.draft.sources[:num_accepted])
        _count_positions(self.num_drafted_by_position, num_drafted)
        _count_positions(self.num_accepted_by_position, num_accepted)

    @property
    def tokens_per_round(self) -> float | None:
        """Emitted tokens / rounds, all rounds counted."""
        return self.num_emitted_tokens / self.num_rounds if self.num_rounds else None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / drafted tokens."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else None

    @property
    def undrafted_reason(self) -> str | None:
        """Why there was no draft in any round; None where there was one.

        Example: ``"no earlier occurrence of the last token (5 of 6 rounds); no room for a draft (1 of 6 rounds)"``
        """
        if self.num_draft_tokens:
            return None
        if self.disabled_reason is not None:
            return self.disabled_reason
        reasons = [
            reason if number == self.num_rounds else f"{reason} ({number} of {self.num_rounds} rounds)"
            for reason, number in self.num_rounds_by_reason.most_common(NUM_SHOWN_REASONS)
        ]
        return "; ".join(([self.unused_prediction] if self.unused_prediction else []) + (reasons or [NOTHING_EMITTED]))

    @property
    def num_wasted_tokens(self) -> int:
        """Drafted tokens that were verified in vain."""
        return self.num_draft_tokens - self.num_accepted_tokens

    @property
    def decode_seconds(self) -> float:
        """Everything but reading the prompt."""
        return self.total_seconds - self.prefill_seconds

    @property
    def tokens_per_second(self) -> float | None:
        """Emitted tokens a second of decoding, prefill excluded."""
        return self.num_emitted_tokens / self.decode_seconds if self.decode_seconds > 0.0 else None

    @property
    def overhead_share(self) -> float | None:
        """Share of the decoding time spent outside the model's forward pass."""
        if self.decode_seconds <= 0.0:
            return None
        return 1.0 - self.forward_seconds / self.decode_seconds


def _count_sources(counter: Counter[str], sources: np.ndarray[tuple[int], np.dtype[np.int8]]) -> None:
    kinds = sources.tobytes()
    for kind in SourceKind:
        count = kinds.count(kind)
        if count:
            counter[kind.label] += count


def _count_positions(counts: list[int], num_tokens: int) -> None:
    counts.extend([0] * (num_tokens - len(counts)))
    for position in range(num_tokens):
        counts[position] += 1
