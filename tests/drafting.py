"""Drives a drafter by hand: what was emitted, with or without a draft, and a whole output at once.

And the edit drafter at the start of an answer, a token a byte, with a made-up acceptance model.
"""

from __future__ import annotations

import numpy as np

from lookahead_edit.acceptance import AcceptanceModel
from lookahead_edit.config import SpeculationConfig
from lookahead_edit.drafters.edit import EditDrafter
from lookahead_edit.kernels import acceptance as kernels
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.types import Draft, Drafter, IntArray, Source, SourceKind, Tokenizer

TOKENIZER = ByteTokenizer()


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


def simple_model() -> AcceptanceModel:
    """The file goes on as it did with odds of 20 to 1, what is elsewhere comes with odds of 1 to 3."""
    tail = np.zeros(kernels.NUM_TAIL_ENTRIES, np.float32)
    by_type = tail[: kernels.NUM_TYPES * kernels.NUM_EVIDENCE_BINS].reshape(kernels.NUM_TYPES, -1)
    by_type[:] = 1.5
    by_type[: kernels.FIRST_CURSOR_LESS_TYPE] = 4.0
    return AcceptanceModel(
        columns=np.zeros((1, 1), np.uint8),
        thresholds=np.array([[kernels.FIRST_CURSOR_LESS_TYPE - 1]], np.float32),
        leaves=np.array([[3.0, -1.1]], np.float32),
        tail_log_odds=tail,
    )


def codes(text: str) -> list[int]:
    return TOKENIZER.encode(text).tolist()


def text_of(draft: Draft) -> str:
    return TOKENIZER.decode(draft.tokens)


def editing(
    file: str, instruction: str = "Do it.", *sources: Source, tokenizer: Tokenizer | None = TOKENIZER
) -> EditDrafter:
    """At the start of an answer; the file is closed by a fence, and so is the prompt before it."""
    encode = (tokenizer or TOKENIZER).encode
    head, tokens = encode(f"{instruction}\n```\n"), encode(file)
    drafter = EditDrafter(SpeculationConfig(), tokenizer)
    own = [Source(SourceKind.FILE, tokens, prompt_start=len(head))] if file else []
    drafter.start(np.concatenate([head, tokens, encode("```\nHere it is:\n```\n")]), [*own, *sources])
    return drafter
