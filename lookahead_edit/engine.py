"""The decode loop: library, hook, server, replay and benchmarks all run this one. Knows no text, no torch, no clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import replace

import numpy as np

from lookahead_edit.sequence import Sequence
from lookahead_edit.types import Draft, Policy, Round, Target, token_range


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
        """One round: a single verification for all the given unfinished sequences; a Round for each, in order.

        A sequence whose prompt is long emits nothing for some rounds, while the others go on.
        """
        # 1) each sequence's drafter guesses what follows, leaving room for the target's own token
        started = self._clock()
        terms = [sequence.draft_terms(self.policy.max_draft_tokens) for sequence in sequences]
        guesses = [sequence.guess(row.max_draft_tokens) for sequence, row in zip(sequences, terms, strict=True)]

        # 2) the policy keeps what is worth verifying
        vocab_size = self.target.vocab_size
        drafts = [within_vocabulary(draft, vocab_size) for draft in self.policy.cut(guesses, terms)]
        drafted = self._clock()

        # 3) the target verifies all drafts at once: accepted prefix plus one token a row
        rows = [sequence.row(draft) for sequence, draft in zip(sequences, drafts, strict=True)]
        verified = self.target.verify(rows)

        # 4) each sequence commits up to its first stop, and everybody hears how it went
        committed = [
            sequence.commit(tokens, draft)
            for sequence, tokens, draft in zip(sequences, verified.tokens, verified.drafts or drafts, strict=True)
        ]
        verify_seconds = self._clock() - drafted
        model_seconds = verified.forward_seconds + verified.prefill_seconds
        prefill_seconds = _shares(verified.prefill_seconds, verified.num_read_tokens, len(rows))
        num_cached_tokens = verified.num_cached_tokens or [0] * len(rows)
        rounds = [
            replace(
                finished,
                draft_seconds=drafted - started,
                verify_seconds=verify_seconds,
                forward_seconds=model_seconds - prefill_seconds[index],
                prefill_seconds=prefill_seconds[index],
                batch_size=len(rows),
                num_cached_tokens=num_cached_tokens[index],
            )
            for index, finished in enumerate(committed)
        ]
        if emitting := [index for index, finished in enumerate(rounds) if len(finished.tokens)]:
            self.policy.observe([rounds[index] for index in emitting], [terms[index].key for index in emitting])
        return rounds

    def generate(self, sequence: Sequence) -> Iterator[Round]:
        """step() with a single sequence until it is finished; the target's cache is freed at the end."""
        try:
            while not sequence.is_finished:
                yield self.step([sequence])[0]
        finally:
            self.target.close(sequence.key)


def within_vocabulary(draft: Draft, vocab_size: int) -> Draft:
    """The draft up to its first token that the target doesn't know, nearly always all of it."""
    if not len(draft):
        return draft
    smallest, largest = token_range(draft.tokens)
    if smallest >= 0 and largest < vocab_size:
        return draft
    invalid = np.flatnonzero((draft.tokens < 0) | (draft.tokens >= vocab_size))
    return draft.cut(int(invalid[0]), "the draft left the vocabulary")


def _shares(seconds: float, num_read_tokens: SequenceOf[int], num_rows: int) -> list[float]:
    """Each row's part of the seconds, by the prompt tokens that were read for it; equal parts where nobody says."""
    num_tokens = sum(num_read_tokens)
    if not num_tokens:
        return [seconds / num_rows] * num_rows
    return [seconds * num_read / num_tokens for num_read in num_read_tokens]
