"""The bound for everything that copies: it knows the output."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.peers.context import ContextDrafter, Place
from benchmarks.peers.kernels import find_copy
from lookahead_edit.types import Draft, IntArray, Source, SourceKind

SEPARATOR = np.array([-1], dtype=np.int32)  # equals no token


class OracleCopy(ContextDrafter):
    """The longest verbatim copy that is right, up to `max_draft_tokens`, from any source, the prompt or the output.

    No drafter whose drafts are each a single copy needs fewer rounds, as it never pays to copy fewer tokens. It drafts
    right tokens only, so its acceptance rate is 1.

    Args:
        output: int32[num_output_tokens], what the target will emit.
        max_draft_tokens: 64 and 256 are the usual ones.
    """

    def __init__(self, *, output: IntArray, max_draft_tokens: int = 64) -> None:
        super().__init__()
        self.max_draft_tokens = max_draft_tokens
        self._output = output.astype(np.int32)  # contiguous and writable, so that the kernel is compiled only once
        self._num_emitted = 0

    def start(self, prompt: IntArray, sources: Sequence[Source]) -> None:
        self.num_tokens = self._num_emitted = 0
        for source in sources:
            if source.prompt_start is None:
                self._append(source.tokens, source.kind)
                self._append(SEPARATOR, source.kind)
        prompt_start = self.num_tokens
        self._append(prompt, SourceKind.PROMPT)
        self._mark_sources(prompt_start, sources)

    def find(self, max_draft_tokens: int) -> Place:
        future = self._output[self._num_emitted :]
        start, length = find_copy(self.text, self.num_tokens, future, min(max_draft_tokens, self.max_draft_tokens))
        return Place(length, start, length)

    def draft(self, max_draft_tokens: int) -> Draft:
        if max_draft_tokens <= 0:
            return Draft(reason="no room for a draft")
        length, start, _ = self.find(max_draft_tokens)
        if length == 0:
            return Draft(reason="the next token occurs nowhere")
        places = np.minimum(np.arange(start, start + length), self.num_tokens - 1)
        return Draft(
            tokens=self._output[self._num_emitted : self._num_emitted + length].copy(),
            sources=self.kinds[places],
            match_length=length,
        )

    def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None:
        super().commit(tokens, draft, num_accepted_tokens)
        self._num_emitted += len(tokens)
