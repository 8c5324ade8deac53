"""Who reads how much of its prompt in a round. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def share_budget(num_unread_tokens: Sequence[int], budget_tokens: int) -> list[int]:
    """How many tokens each row may read, at most `budget_tokens` together; rows in the order of their arrival.

    Half of the budget goes to the oldest rows, so that every prompt is read in the end; the rest to those that have
    least left, so that a short prompt doesn't wait for a long one. Prompts of one length are read one after the other:
    read side by side, all of them would be late.

    Example:
        >>> share_budget([2000, 0, 300, 100], 512)
        [256, 0, 156, 100]
    """
    shares = [0] * len(num_unread_tokens)
    by_age = range(len(num_unread_tokens))
    by_length = sorted(by_age, key=num_unread_tokens.__getitem__)
    left = budget_tokens
    for order, budget in ((by_age, budget_tokens // 2), (by_length, budget_tokens)):
        for row in order:
            spent = budget_tokens - left
            share = min(num_unread_tokens[row] - shares[row], budget - spent)
            shares[row] += share
            left -= share
    return shares


def share_whole_chunks(num_unread_tokens: Sequence[int], chunk_tokens: int) -> list[int]:
    """The same in chunks that don't depend on the other rows: the oldest reads its next one, the others wait.

    Example:
        >>> share_whole_chunks([0, 700, 300], 512)
        [0, 512, 0]
    """
    shares = [0] * len(num_unread_tokens)
    oldest = next((row for row, num_unread in enumerate(num_unread_tokens) if num_unread), None)
    if oldest is not None:
        shares[oldest] = min(num_unread_tokens[oldest], chunk_tokens)
    return shares
