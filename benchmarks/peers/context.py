"""What the copying peers share: the text of prompt and output, and a draft that is a piece of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.peers.kernels import NONE, compile_kernels
from lookahead_edit.suffix_index import enlarged
from lookahead_edit.types import Draft, IntArray, Source, SourceKind


class Place(NamedTuple):
    """Where to copy from: `num_tokens` tokens from `start` on, or fewer where the text ends; NONE is nowhere."""

    match_length: int
    start: int
    num_tokens: int


class ContextDrafter(ABC):
    """Copies from prompt and output what its rule points at. Other sources are not read, as in the originals.

    Tokens of a file in the prompt are reported as such, although the rules know of no file.
    """

    def __init__(self) -> None:
        compile_kernels()
        self.text = np.empty(0, dtype=np.int32)  # with room for tokens to come
        self.kinds = np.empty(0, dtype=np.int8)
        self.num_tokens = 0

    @abstractmethod
    def find(self, max_draft_tokens: int) -> Place:
        """The rule; the text holds at least one token. More than `max_draft_tokens` tokens are cut."""

    def start(self, prompt: IntArray, sources: Sequence[Source]) -> None:
        self.num_tokens = 0
        self._append(prompt, SourceKind.PROMPT)
        self._mark_sources(0, sources)

    def draft(self, max_draft_tokens: int) -> Draft:
        if max_draft_tokens <= 0:
            return Draft(reason="no room for a draft")
        place = self.find(max_draft_tokens)
        if place.start == NONE:
            return Draft(reason="the rule finds nothing to copy")
        stop = min(place.start + min(place.num_tokens, max_draft_tokens), self.num_tokens)
        return Draft(
            tokens=self.text[place.start : stop].copy(),
            sources=self.kinds[place.start : stop].copy(),
            match_length=place.match_length,
        )

    def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None:
        self._append(tokens, SourceKind.OUTPUT)

    @property
    def num_index_bytes(self) -> int:
        return self.text.nbytes + self.kinds.nbytes

    def _append(self, tokens: IntArray, kind: SourceKind) -> None:
        num_tokens = self.num_tokens + len(tokens)
        if num_tokens > len(self.text):
            self.text = enlarged(self.text, 2 * num_tokens)
            self.kinds = enlarged(self.kinds, 2 * num_tokens)
        self.text[self.num_tokens : num_tokens] = tokens
        self.kinds[self.num_tokens : num_tokens] = kind
        self.num_tokens = num_tokens

    def _mark_sources(self, prompt_start: int, sources: Sequence[Source]) -> None:
        for source in sources:
            if source.prompt_start is not None:
                start = prompt_start + source.prompt_start
                self.kinds[start : start + len(source.tokens)] = source.kind
