"""Searches a suffix automaton for places to copy from, and copies. Trusts its input.

`automaton` says what `text`, `states` and `counts` are, and what an end is. Beside the text (n tokens) stand
    kinds   int8[n]  types.SourceKind of each token
    refuted int8[n]  longest match (up to MAX_COMPARED) after which copying from here was wrong at once
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lookahead_edit.kernels.automaton import (
    CHILD,
    LINK,
    NONE,
    NUM_TOKENS,
    ROOT,
    SIBLING,
    Counts,
    Ints,
    length_of,
    row_of,
)

Bytes: TypeAlias = NDArray[np.int8]
Pair: TypeAlias = tuple[int, int]

FILE, PREDICTION = range(2)  # values of `kinds`

MAX_COMPARED = 64  # tokens compared where a match needn't be measured to its end
MAX_NEAR_TOKENS = 16  # looked at after the cursor
MAX_SCANNED = 1024  # tokens looked back for the most recent of very many ends


@njit(cache=True)
def common_suffix(text: Ints, end: int, num_tokens: int, max_length: int) -> int:
    """Tokens before `end` that equal the last ones of the text, at most `max_length`."""
    length = 0
    limit = min(end, max_length)
    while length < limit and text[end - 1 - length] == text[num_tokens - 1 - length]:
        length += 1
    return length


@njit(cache=True)
def collect_ends(state: int, states: Ints, num_tokens: int, ends: Ints) -> int:
    """All ends of the state's substrings but `num_tokens` itself, most recent first; NONE if `ends` is too short.

    A subtree with k ends has at most 2 k states, so this visits no more than twice the length of `ends`.
    """
    count = 0
    node = state
    while True:
        if node >= 0 and node != num_tokens:
            if count == len(ends):
                return NONE
            place = count  # insertion sort: mostly a handful
            while place > 0 and ends[place - 1] < node:
                ends[place] = ends[place - 1]
                place -= 1
            ends[place] = node
            count += 1
        if states[row_of(node) + CHILD] != NONE:
            node = states[row_of(node) + CHILD]
            continue
        while node != state and states[row_of(node) + SIBLING] == NONE:
            node = states[row_of(node) + LINK]
        if node == state:
            return count
        node = states[row_of(node) + SIBLING]


@njit(cache=True)
def scan_ends(text: Ints, num_tokens: int, length: int, max_scanned: int, ends: Ints, borders: Ints) -> int:
    """The most recent ends of the last `length` <= ``len(borders)`` tokens, looking `max_scanned` tokens back.

    Knuth, Morris, Pratt (1977) on the reversed text; borders[i] is the failure function of its first i + 1 tokens.
    """
    last = num_tokens - 1
    matched = 0
    borders[0] = 0
    for index in range(1, length):
        while matched > 0 and text[last - index] != text[last - matched]:
            matched = borders[matched - 1]
        if text[last - index] == text[last - matched]:
            matched += 1
        borders[index] = matched
    matched = 0
    count = 0
    for position in range(last - 1, max(last - 1 - max_scanned, -1), -1):
        token = text[position]
        while matched > 0 and (matched == length or token != text[last - matched]):
            matched = borders[matched - 1]
        if token == text[last - matched]:
            matched += 1
        if matched == length:
            ends[count] = position + length
            count += 1
            if count == len(ends):
                break
    return count


@njit(cache=True)
def find_longest(text: Ints, states: Ints, counts: Counts, max_scanned: int, ends: Ints, borders: Ints) -> Pair:
    """(length, count): the longest suffix of the text that also ends elsewhere, and how many of its ends are listed.

    Where `ends` is too short for all of them, the most recent ones are looked for in the last `max_scanned` tokens, and
    no more than ``len(borders)`` tokens are compared. Where none is found there, any one is listed.
    """
    num_tokens = counts[NUM_TOKENS]
    state = states[row_of(num_tokens) + LINK]
    if state in (NONE, ROOT):
        return 0, 0
    length = length_of(state, states)
    count = collect_ends(state, states, num_tokens, ends)
    if count == NONE:
        length = min(length, len(borders))
        count = max(scan_ends(text, num_tokens, length, max_scanned, ends, borders), 1)  # ends[0] holds one anyhow
    return length, count


@njit(cache=True)
def nearness(end: int, cursor: int) -> int:
    """Agreeing tokens that a place is worth for being just after the cursor.

    Mean accepted tokens in 53 real edits: a single matching token up to 4 after the cursor 8.7, as a match of 4
    elsewhere; 5 to 16 after it 1.5, as a match of 2; further away 0.5.
    """
    return 3 if end - cursor <= 4 else 1


@njit(cache=True)
def find_near(text: Ints, kinds: Bytes, num_tokens: int, cursor: int) -> Pair:
    """(score, end): the best match ending 0 to MAX_NEAR_TOKENS tokens after the cursor, of equal ones the nearest.

    Only in the file or prediction that the cursor is in; (0, cursor) if there is none. The score is the match length
    and the nearness.
    """
    best_score, best_end = 0, cursor
    if kinds[cursor] > PREDICTION:
        return best_score, best_end
    for end in range(max(cursor, 1), min(cursor + MAX_NEAR_TOKENS + 1, num_tokens)):
        if kinds[end] != kinds[cursor] or text[end] < 0:
            break
        length = common_suffix(text, end, num_tokens, MAX_COMPARED)
        if length > 0 and length + nearness(end, cursor) > best_score:
            best_score, best_end = length + nearness(end, cursor), end
    return best_score, best_end


@njit(cache=True)
def choose_end(
    text: Ints,
    kinds: Bytes,
    refuted: Bytes,
    states: Ints,
    counts: Counts,
    cursor: int,
    ends: Ints,
    borders: Ints,
) -> Pair:
    """(match length, end) to copy from; the end is NONE if there is no place, or none that deserves another try.

    `cursor` is where the last accepted copy of a file or prediction ended, or NONE. The best place just after it wins
    unless a match elsewhere is longer than its score. Elsewhere: the longest match; of several one in a file or
    prediction, nearest after the cursor, else the most recent. A place that was wrong (`refuted`) needs a longer match
    than it had then.
    """
    num_tokens = counts[NUM_TOKENS]
    length, count = find_longest(text, states, counts, MAX_SCANNED, ends, borders)
    if length == 0:
        return 0, NONE
    if cursor != NONE:
        score, end = find_near(text, kinds, num_tokens, cursor)
        if min(score, MAX_COMPARED) > refuted[end] and score >= min(length, MAX_COMPARED):
            return score, end
    best = NONE
    for index in range(count):  # most recent first, so a later one in this loop is nearer to the cursor
        end = ends[index]
        if text[end] < 0:  # the source ends here
            continue
        is_file = kinds[end] <= PREDICTION
        if best == NONE or (is_file and (kinds[best] > PREDICTION or (cursor != NONE and end >= cursor))):
            best = end
    if best != NONE and min(length, MAX_COMPARED) <= refuted[best]:
        best = NONE
    return length, best


@njit(cache=True)
def copy_tokens(text: Ints, kinds: Bytes, num_tokens: int, end: int, overrun: int, tokens: Ints, sources: Bytes) -> int:
    """Copies text[end], text[end + 1], … and their kinds into `tokens` and `sources`; returns how many.

    Stops at a separator, at the end of a file or prediction that nothing follows, and `max_overrun` past the
    border of the source. At the end of the text it goes on from `end`: what repeats itself may go on doing so.
    """
    position = end
    kind = kinds[end]
    num_overrun = 0
    for index in range(len(tokens)):
        if position == num_tokens:
            if kind <= PREDICTION:
                return index
            position = end
        if text[position] < 0:
            return index
        if kinds[position] != kind and kinds[position] != FILE:
            num_overrun += 1
            if num_overrun > overrun:
                return index
        tokens[index] = text[position]
        sources[index] = kinds[position]
        position += 1
    return len(tokens)


@njit(cache=True)
def copy_longest(
    text: Ints,
    kinds: Bytes,
    refuted: Bytes,
    states: Ints,
    counts: Counts,
    cursor: int,
    overrun: int,
    ends: Ints,
    borders: Ints,
    tokens: Ints,
    sources: Bytes,
) -> tuple[int, int, int]:
    """(number of tokens, match length, end): chooses a place and copies from it, in one call a round."""
    length, end = choose_end(text, kinds, refuted, states, counts, cursor, ends, borders)
    if end == NONE:
        return 0, length, NONE
    num_copied = copy_tokens(text, kinds, counts[NUM_TOKENS], end, overrun, tokens, sources)
    return num_copied, length, end
