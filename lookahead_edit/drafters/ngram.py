"""Prompt lookup, the baseline: copies what followed the last n tokens where they occurred before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.kernels.ngram import NONE, find_ngram
from lookahead_edit.suffix_index import enlarged
from lookahead_edit.types import Draft, IntArray, Source, SourceKind


class NgramDrafter:
    """The longest n-gram that occurs earlier in prompt and output, its most recent occurrence.

    Other sources are not read, as in the original (Saxena, "Prompt Lookup Decoding", 2023); each round scans the text.
    Tokens of a file in the prompt are reported as such.

    Args:
        config: `min_match_length` is the shortest n-gram looked for.
        max_ngram_length: the longest.
    """

    def __init__(self, config: SpeculationConfig, max_ngram_length: int = 3) -> None:
        find_ngram(np.zeros(2, dtype=np.int32), 2, 1, 1)  # compiled, or loaded from the disk cache, here
        self.max_ngram_length = max(max_ngram_length, config.min_match_length)
        self.min_ngram_length = config.min_match_length
        self._text = np.empty(0, dtype=np.int32)
        self._kinds = np.empty(0, dtype=np.int8)
        self._num_tokens = 0

    def start(self, prompt: IntArray, sources: Sequence[Source]) -> None:
        self._num_tokens = 0
        self._append(prompt, SourceKind.PROMPT)
        for source in sources:
            if source.prompt_start is not None:
                self._kinds[source.prompt_start : source.prompt_start + len(source.tokens)] = source.kind

    def draft(self, max_draft_tokens: int) -> Draft:
        if max_draft_tokens <= 0:
            return Draft(reason="no room for a draft")
        if self._num_tokens == 0:
            return Draft(reason="nothing to copy from yet")
        match_length, end = find_ngram(self._text, self._num_tokens, self.max_ngram_length, self.min_ngram_length)
        if end == NONE:
            tail = "token" if self.min_ngram_length == 1 else f"{self.min_ngram_length} tokens"
            return Draft(reason=f"no earlier occurrence of the last {tail}")
        stop = min(end + max_draft_tokens, self._num_tokens)
        return Draft(
            tokens=self._text[end:stop].copy(),
            sources=self._kinds[end:stop].copy(),
            match_length=match_length,
        )

    def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None:
        self._append(tokens, SourceKind.OUTPUT)

    @property
    def num_index_bytes(self) -> int:
        return self._text.nbytes + self._kinds.nbytes

    def _append(self, tokens: IntArray, kind: SourceKind) -> None:
        num_tokens = self._num_tokens + len(tokens)
        if num_tokens > len(self._text):
            self._text = enlarged(self._text, 2 * num_tokens)
            self._kinds = enlarged(self._kinds, 2 * num_tokens)
        self._text[self._num_tokens : num_tokens] = tokens
        self._kinds[self._num_tokens : num_tokens] = kind
        self._num_tokens = num_tokens
