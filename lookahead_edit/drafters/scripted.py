"""A drafter that drafts what it is told: oracle, hostile or alternating drafts for tests and replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lookahead_edit.types import Draft, IntArray, Source, SourceKind


class ScriptedDrafter:
    """Drafts ``script(tokens)``, where `tokens` are prompt and output so far, int32[num_tokens].

    It keeps the rounds it heard of in `commits`: (emitted tokens, verified draft, accepted tokens).

    Examples:
        Hostile: ``ScriptedDrafter(lambda tokens: [7, 7, 7])``.
        Oracle that knows the whole text: ``ScriptedDrafter(lambda tokens: text[len(tokens) :])``.
    """

    def __init__(self, script: Callable[[IntArray], Sequence[int] | IntArray], *, match_length: int = 64) -> None:
        self.commits: list[tuple[IntArray, Draft, int]] = []
        self._script = script
        self._match_length = match_length
        self._tokens = np.empty(0, dtype=np.int32)

    def start(self, prompt: IntArray, sources: Sequence[Source]) -> None:
        self._tokens = prompt.copy()

    def draft(self, max_draft_tokens: int) -> Draft:
        tokens = np.asarray(self._script(self._tokens), dtype=np.int32)[: max(max_draft_tokens, 0)]
        if len(tokens) == 0:
            return Draft(reason="the script drafts nothing")
        return Draft(
            tokens=tokens,
            sources=np.full(len(tokens), SourceKind.PREDICTION, dtype=np.int8),
            match_length=self._match_length,
        )

    def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None:
        self.commits.append((tokens, draft, num_accepted_tokens))
        self._tokens = np.concatenate([self._tokens, tokens])

    @property
    def num_index_bytes(self) -> int:
        return self._tokens.nbytes


class NoDrafter(ScriptedDrafter):
    """Never drafts: speculation is off."""

    def __init__(self, reason: str = "speculation is off") -> None:
        super().__init__(lambda tokens: ())
        self._reason = reason

    def draft(self, max_draft_tokens: int) -> Draft:
        return Draft(reason=self._reason)

    def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None:
        pass
