"""Scan for an n-gram, the baseline without an index. Trusts its input."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

NONE = -1


@njit(cache=True)
def find_ngram(
    text: NDArray[np.int32], num_tokens: int, max_ngram_length: int, min_ngram_length: int
) -> tuple[int, int]:
    """(n, end): the most recent earlier occurrence of the last n tokens, for the largest n that has one.

    `end` is the position after it; (0, NONE) where none of the lengths from max to min occurs. One backward pass:
    about 1 ns a token.
    """
    last = num_tokens - 1
    best_length, best_end = 0, NONE
    for position in range(last - 1, -1, -1):
        if text[position] != text[last]:
            continue
        length = 1
        while length < max_ngram_length and length <= position and text[position - length] == text[last - length]:
            length += 1
        if length > best_length:
            best_length, best_end = length, position + 1
            if length == max_ngram_length:
                break
    if best_length < min_ngram_length:
        return 0, NONE
    return best_length, best_end
