"""The peers that look for the text's last tokens earlier in the text. Written from their descriptions.

n is the length of the n-gram or match that is looked for, k that of the draft.
"""

from __future__ import annotations

import numpy as np

from benchmarks.peers.context import ContextDrafter, Place
from benchmarks.peers.kernels import NONE, find_frequent, find_most_recent, find_suffix
from lookahead_edit.suffix_index import enlarged
from lookahead_edit.types import IntArray, SourceKind


class HfLookup(ContextDrafter):
    """transformers' `prompt_lookup_num_tokens`: n = 2, then 1; the first window that equals the tail; k = 10.

    Example: after ``1 2 3 4 1 2 5 9 1 2`` the tail ``1 2`` first stands at 0, so ``3 4 1 2 5 9 1 2`` is drafted: all
    that follows there, as it is fewer than 10.
    """

    def __init__(self, *, num_draft_tokens: int = 10, max_ngram_length: int = 2) -> None:
        super().__init__()
        self.num_draft_tokens = num_draft_tokens
        self.max_ngram_length = max_ngram_length

    def find(self, max_draft_tokens: int) -> Place:
        match_length, end = find_suffix(self.text, self.num_tokens, 1, self.max_ngram_length, 1)
        return Place(match_length, end, self.num_draft_tokens)


class PromptLookup(ContextDrafter):
    """The original prompt lookup (Saxena, 2023): n = 3, 2, 1; the first window that all k = 10 tokens follow.

    Example: with k = 2, after ``1 2 3 4 5 2 3 6 1 2 3`` the tail ``1 2 3`` stands at 0, so ``4 5`` is drafted. With
    k = 10 nothing is: of no window, not even of a single ``3``, do ten tokens follow.
    """

    def __init__(self, *, num_draft_tokens: int = 10, max_ngram_length: int = 3) -> None:
        super().__init__()
        self.num_draft_tokens = num_draft_tokens
        self.max_ngram_length = max_ngram_length

    def find(self, max_draft_tokens: int) -> Place:
        match_length, end = find_suffix(self.text, self.num_tokens, 1, self.max_ngram_length, self.num_draft_tokens)
        return Place(match_length, end, self.num_draft_tokens)


class VllmNgram(ContextDrafter):
    """vLLM's `ngram`: the longest suffix of `min_ngram_length` to `max_ngram_length` tokens, its first occurrence."""

    def __init__(self, *, min_ngram_length: int = 5, max_ngram_length: int = 5, num_draft_tokens: int = 5) -> None:
        super().__init__()
        self.min_ngram_length = min_ngram_length
        self.max_ngram_length = max_ngram_length
        self.num_draft_tokens = num_draft_tokens

    def find(self, max_draft_tokens: int) -> Place:
        match_length, end = find_suffix(self.text, self.num_tokens, self.min_ngram_length, self.max_ngram_length, 1)
        return Place(match_length, end, self.num_draft_tokens)


class LlamaCppSimple(ContextDrafter):
    """llama.cpp's `ngram-simple`: the last n = 12 tokens where they occurred most recently, k = 48.

    Nothing is drafted where fewer than n tokens follow there; an earlier occurrence isn't looked for then.
    """

    def __init__(self, *, ngram_length: int = 12, num_draft_tokens: int = 48) -> None:
        super().__init__()
        self.ngram_length = ngram_length
        self.num_draft_tokens = num_draft_tokens

    def find(self, max_draft_tokens: int) -> Place:
        end = find_most_recent(self.text, self.num_tokens, self.ngram_length)
        if end == NONE or self.num_tokens - end < self.ngram_length:
            return Place(0, NONE, 0)
        return Place(self.ngram_length, end, self.num_draft_tokens)


class SuffixAutomaton(ContextDrafter):
    """SAM decoding, on the context alone: the longest suffix m, its first end, k = 4 m up to 60.

    An automaton answers what the scan here does; where the two differ is time, which isn't measured.
    """

    def __init__(self, *, draft_tokens_per_match: float = 4, max_draft_tokens: int = 60) -> None:
        super().__init__()
        self.draft_tokens_per_match = draft_tokens_per_match
        self.max_draft_tokens = max_draft_tokens

    def find(self, max_draft_tokens: int) -> Place:
        match_length, end = find_suffix(self.text, self.num_tokens, 1, self.num_tokens, 1)
        return Place(match_length, end, min(int(self.draft_tokens_per_match * match_length), self.max_draft_tokens))


class ArcticSuffix(ContextDrafter):
    """Arctic Inference's suffix decoding (Oliaro et al., 2024) with one count over prompt and output.

    `max_depth` is D, `max_draft_factor` the tokens drafted for each one that matches; the rule is that of
    `kernels.find_frequent`. `max_draft_tokens` limits each continuation before their scores are compared.
    """

    def __init__(
        self,
        *,
        max_depth: int = 24,
        max_draft_factor: float = 1,
        min_probability: float = 0.1,
        max_draft_tokens: int = 256,
    ) -> None:
        super().__init__()
        self.max_depth = max_depth
        self.max_draft_factor = max_draft_factor
        self.min_probability = min_probability
        self.max_draft_tokens = max_draft_tokens
        self._matches = np.empty(0, dtype=np.int32)
        self._ends = np.empty(0, dtype=np.int32)
        self._tally = np.zeros(0, dtype=np.int32)

    def find(self, max_draft_tokens: int) -> Place:
        return Place(
            *find_frequent(
                self.text,
                self.num_tokens,
                self.max_depth,
                float(self.max_draft_factor),
                self.min_probability,
                min(max_draft_tokens, self.max_draft_tokens),
                self._matches,
                self._ends,
                self._tally,
            )
        )

    @property
    def num_index_bytes(self) -> int:
        return super().num_index_bytes + self._matches.nbytes + self._ends.nbytes + self._tally.nbytes

    def _append(self, tokens: IntArray, kind: SourceKind) -> None:
        super()._append(tokens, kind)
        if len(self._matches) < len(self.text):
            self._matches = enlarged(self._matches, len(self.text))
            self._ends = enlarged(self._ends, len(self.text))
        num_values = int(tokens.max(initial=-1)) + 1
        if num_values > len(self._tally):
            self._tally = np.zeros(num_values, dtype=np.int32)
