"""The decode loop: library, hook, server, replay and benchmarks all run this one. Knows no text, no torch, no clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import replace

import numpy as np

from lookahead_edit.sequence import Sequence
from lookahead_edit.types import Draft, Policy, Round, Target


class Engine:
    """Continues live sequences, a round at a time.

    Args:
        target: verifies drafts and keeps a cache for each sequence.
        policy: decides how much of each draft is verified.
        clock: seconds, monotonic; tests and replay pass their own.
    """

    def __init__(self, target: Target, policy: Policy, clock: Callable[[], float] = time.perf_counter) -> None:
        self.target = target
        self.policy = policy
        self._clock = clock

    def step(self, sequences: SequenceOf[Sequence]) -> list[Round]:
        """One round: a single verification for all the given unfinished sequences; a Round for each, in order."""
        # 1) each sequence's drafter guesses what follows, leaving room for the target's own token
        started = self._clock()
        guesses = [sequence.drafter.draft(self._draft_limit(sequence)) for sequence in sequences]

        # 2) the policy keeps what is worth verifying
        drafts = [self._within_vocabulary(draft) for draft in self.policy.cut(guesses)]
        drafted = self._clock()

        # 3) the target verifies all drafts at once: accepted prefix plus one token a row
        rows = [sequence.row(draft) for sequence, draft in zip(sequences, drafts, strict=True)]
        verified = self.target.verify(rows)

        # 4) each sequence commits up to its first stop, and everybody hears how it went
        rounds = [
            sequence.commit(tokens, draft)
            for sequence, tokens, draft in zip(sequences, verified.tokens, drafts, strict=True)
        ]
        verify_seconds = self._clock() - drafted
        rounds = [
            replace(
                finished,
                draft_seconds=drafted - started,
                verify_seconds=verify_seconds,
                forward_seconds=verified.forward_seconds,
                prefill_seconds=verified.prefill_seconds,
                batch_size=len(rows),
            )
            for finished in rounds
        ]
        self.policy.observe(rounds)
        return rounds

    def generate(self, sequence: Sequence) -> Iterator[Round]:
        """step() with a single sequence until it is finished; the target's cache is freed at the end."""
        try:
            while not sequence.is_finished:
                yield self.step([sequence])[0]
        finally:
            self.target.close(sequence.key)

    def _draft_limit(self, sequence: Sequence) -> int:
        return min(self.policy.max_draft_tokens, sequence.num_remaining_tokens - 1)

    def _within_vocabulary(self, draft: Draft) -> Draft:
        invalid = np.flatnonzero((draft.tokens < 0) | (draft.tokens >= self.target.vocab_size))
        return draft.cut(int(invalid[0]), "the draft left the vocabulary") if len(invalid) else draft
