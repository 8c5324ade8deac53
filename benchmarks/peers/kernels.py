"""Scans for the peers' rules, over the plain text of prompt and output. They trust their input.

An *end* is the position after an earlier occurrence of the text's last tokens, that is, of the token that followed it.
"""

# numba's decorators carry no types.
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from functools import cache
from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int32]

NONE = -1


@njit(cache=True)
def find_suffix(text: Ints, num_tokens: int, shortest: int, longest: int, num_following: int) -> tuple[int, int]:
    """(length, first end): the longest suffix, of `shortest` to `longest` tokens, that occurs earlier.

    Only occurrences that at least `num_following` >= 1 tokens follow; of several the first. (0, NONE) if there is none.
    One pass: about 1 ns a token.
    """
    last = num_tokens - 1
    best_length, best_end = shortest - 1, NONE
    for end in range(shortest, num_tokens - num_following + 1):
        # The token that would make this match longer than the best one is the one that most likely differs.
        if best_length >= end or text[end - 1 - best_length] != text[last - best_length] or text[end - 1] != text[last]:
            continue
        length = 1
        while length < longest and length < end and text[end - 1 - length] == text[last - length]:
            length += 1
        if length > best_length:
            best_length, best_end = length, end
            if length == longest:
                break
    if best_end == NONE:
        return 0, NONE
    return best_length, best_end


@njit(cache=True)
def find_most_recent(text: Ints, num_tokens: int, length: int) -> int:
    """Last end of the last `length` tokens before the text's own end, or NONE."""
    last = num_tokens - 1
    for end in range(num_tokens - 1, length - 1, -1):
        matched = 0
        while matched < length and text[end - 1 - matched] == text[last - matched]:
            matched += 1
        if matched == length:
            return end
    return NONE


@njit(cache=True)
def follow_most_frequent(
    text: Ints, num_tokens: int, limit: int, min_probability: float, num_ends: int, ends: Ints, tally: Ints
) -> tuple[float, int, int]:
    """(score, end, length): the most frequent continuation of a substring, token by token.

    ``ends[:num_ends]`` are the ends of all its occurrences, ascending; they are overwritten. `tally` is all zero and
    longer than the largest token. A token is added while the product of count ratios, count(with it) / count(without),
    is at least `min_probability`; the score is the sum of these products. Of equally frequent tokens the one that
    came first in the text is taken. The continuation stands at ``text[end : end + length]``.
    """
    score, product = 0.0, 1.0
    length = 0
    count = num_ends
    while length < limit:
        for index in range(num_ends):
            if ends[index] + length < num_tokens:
                tally[text[ends[index] + length]] += 1
        next_count, token = 0, NONE
        for index in range(num_ends):
            if ends[index] + length < num_tokens and tally[text[ends[index] + length]] > next_count:
                token = text[ends[index] + length]
                next_count = tally[token]
        kept = 0
        for index in range(num_ends):
            if ends[index] + length < num_tokens:
                tally[text[ends[index] + length]] = 0
        product = product * next_count / count
        if next_count == 0 or product < min_probability:
            break
        for index in range(num_ends):
            if ends[index] + length < num_tokens and text[ends[index] + length] == token:
                ends[kept] = ends[index]
                kept += 1
        num_ends = count = kept
        score += product
        length += 1
    return score, ends[0], length


@njit(cache=True)
def find_frequent(
    text: Ints,
    num_tokens: int,
    max_depth: int,
    factor: float,
    min_probability: float,
    max_draft_tokens: int,
    matches: Ints,
    ends: Ints,
    tally: Ints,
) -> tuple[int, int, int]:
    """(match length, end, length) of the best-scoring frequent continuation of any suffix; (0, NONE, 0) without one.

    A suffix of m tokens may be continued by ``floor(factor * m)``, ``max_depth - m`` and `max_draft_tokens` tokens, by
    the rule of `follow_most_frequent`; of equal scores the longer suffix's wins. Its occurrences, which include the
    text's own end, are those of the suffix one shorter that one more token agrees with. `matches` and `ends` have room
    for all tokens.
    """
    last = num_tokens - 1
    num_matches = 0
    for position in range(num_tokens):
        if text[position] == text[last]:
            matches[num_matches] = position + 1
            num_matches += 1
    best_score = 0.0
    best_match, best_end, best_length = 0, NONE, 0
    num_followed, score, end, length = 0, 0.0, NONE, 0
    match_length = 1
    while num_matches > 1 and match_length < max_depth:
        limit = min(int(factor * match_length), max_depth - match_length, max_draft_tokens)
        next_limit = min(int(factor * (match_length + 1)), max_depth - match_length - 1, max_draft_tokens)
        ends[:num_matches] = matches[:num_matches]
        kept = 0
        for index in range(num_matches):
            start = matches[index] - match_length
            if start > 0 and text[start - 1] == text[last - match_length]:
                matches[kept] = matches[index]
                kept += 1
        # Suffixes with the same occurrences differ in their limits only, which rise, then fall. While they rise, the
        # longest one counts; while they fall, what was found first still holds, unless it is too long now. And as no
        # product is above 1, no score is above its limit. Without this D = 512 took 1 ms where a copy goes on.
        is_outdone = kept == num_matches and next_limit >= limit
        is_cut = num_matches == num_followed and limit < length
        if limit > 0 and limit >= best_score and not is_outdone and not is_cut:
            if num_matches != num_followed:
                score, end, length = follow_most_frequent(
                    text, num_tokens, limit, min_probability, num_matches, ends, tally
                )
                num_followed = num_matches
            if length > 0 and score >= best_score:
                best_score = score
                best_match, best_end, best_length = match_length, end, length
        num_matches = kept
        match_length += 1
    return best_match, best_end, best_length


@njit(cache=True)
def find_copy(text: Ints, num_tokens: int, future: Ints, limit: int) -> tuple[int, int]:
    """(start, length): the first of the longest copies from the text that begin `future`, `limit` tokens at most.

    A copy that reaches the text's end goes on into itself, as what repeats itself may go on doing so.
    """
    best_start, best_length = NONE, 0
    limit = min(limit, len(future))
    for start in range(num_tokens):
        length = 0
        while length < limit:
            position = start + length
            token = text[position] if position < num_tokens else future[position - num_tokens]
            if token != future[length]:
                break
            length += 1
        if length > best_length:
            best_start, best_length = start, length
            if length == limit:
                break
    return best_start, best_length


@cache
def compile_kernels() -> None:
    """Compiles all kernels, or loads them from the disk cache."""
    text, room = np.zeros(4, dtype=np.int32), np.zeros(4, dtype=np.int32)
    find_suffix(text, 4, 1, 2, 1)
    find_most_recent(text, 4, 1)
    find_frequent(text, 4, 4, 1.0, 0.1, 4, room, room.copy(), np.zeros(1, dtype=np.int32))
    find_copy(text, 4, room, 1)
