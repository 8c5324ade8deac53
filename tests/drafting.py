"""Drives a drafter by hand: what was emitted, with or without a draft, and a whole output at once."""

from __future__ import annotations

import numpy as np

from lookahead_edit.types import Draft, Drafter, IntArray


def tokens_of(*tokens: int) -> IntArray:
    return np.array(tokens, dtype=np.int32)


def commit(drafter: Drafter, draft: Draft, *tokens: int) -> None:
    """Tells the drafter that `tokens` were emitted."""
    emitted = tokens_of(*tokens)
    num_accepted = 0
    while num_accepted < min(len(draft), len(emitted)) and draft.tokens[num_accepted] == emitted[num_accepted]:
        num_accepted += 1
    assert len(emitted) <= num_accepted + 1
    drafter.commit(emitted, draft, num_accepted)


def emit(drafter: Drafter, *tokens: int) -> None:
    """Plain decoding: nothing drafted is verified."""
    for token in tokens:
        commit(drafter, drafter.draft(8).cut(0, "not verified"), token)


def decode(drafter: Drafter, output: list[int], max_draft_tokens: int = 64) -> list[Draft]:
    """Verifies every draft against `output`; the drafts, one a round."""
    drafts = []
    position = 0
    while position < len(output):
        draft = drafter.draft(max_draft_tokens)
        drafts.append(draft)
        accepted = 0
        while accepted < min(len(draft), len(output) - position - 1):
            if draft.tokens[accepted] != output[position + accepted]:
                break
            accepted += 1
        commit(drafter, draft, *output[position : position + accepted + 1])
        position += accepted + 1
    return drafts
