"""Greedy decoding for the evaluation: drafts are verified in blocks, so a right answer costs one forward pass.

It stands apart from the product's engine on purpose: the evaluation must not depend on what it helps to judge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import DynamicCache

MAX_DRAFT_TOKENS = 32
MATCH_LENGTHS = (6, 3, 2, 1)


def draft_from(source: list[int], output: list[int], limit: int = MAX_DRAFT_TOKENS) -> list[int]:
    """What follows the last tokens of `output` in `source`, longest match first, the latest place of several.

    Example: `draft_from([5, 6, 7, 8], [9, 6])` → `[7, 8]`.
    """
    for length in MATCH_LENGTHS:
        tail = output[-length:]
        if len(tail) < length:
            continue
        for start in range(len(source) - length - 1, -1, -1):
            if source[start : start + length] == tail:
                return source[start + length : start + length + limit]
    return []


@torch.inference_mode()
def greedy(
    model: Any,
    prompt: list[int],
    source: list[int],
    guess: list[int],
    end_token: int,
    is_done: Callable[[list[int]], bool],
) -> list[int]:
    """The tokens that greedy decoding emits, until the end token (left out) or until `is_done` of the output.

    `guess` is the first draft, here the expected answer: a token of it counts only where the model's own choice is
    the same, so the output is that of decoding token by token.
    """
    cache = DynamicCache()
    output: list[int] = []
    pending, draft = list(prompt), list(guess)
    while True:
        ids = torch.tensor([pending + draft])
        hidden = model.model(input_ids=ids, past_key_values=cache, use_cache=True).last_hidden_state
        choices = model.lm_head(hidden[0, len(pending) - 1 :]).argmax(-1).tolist()  # int[len(draft) + 1]
        num_accepted = 0
        while num_accepted < len(draft) and draft[num_accepted] == choices[num_accepted]:
            num_accepted += 1
        emitted = choices[: num_accepted + 1]
        if num_accepted < len(draft):
            cache.crop(num_accepted - len(draft))
        for token in emitted:
            if token == end_token:
                return output
            output.append(token)
            if is_done(output):
                return output
        pending, draft = emitted[-1:], draft_from(source, output)
