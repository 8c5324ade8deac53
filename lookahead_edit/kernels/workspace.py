"""Sorted contexts of a text that never changes. Trusts its input; `workspace_index.WorkspaceIndex` owns the arrays.

An *end* is the position after an occurrence, that is, of the token that followed it; its *context* is what stands
before it, read backwards. With the ends sorted by their contexts, all occurrences of a suffix stand side by side, and a
binary search finds the longest that occurs. This is a suffix array of the reversed text, sorted by doubling: Manber,
Myers, "Suffix arrays: a new method for on-line string searches" (1993), sections 2 (search) and 3 (sort). It stops at
MAX_LENGTH tokens, so that building takes time linear in the text, and no text makes it slow.

Arrays (n tokens):
    text   int32[n]  tokens; sources are parted by negative separators, which match nothing
    order  int32[n]  positions, by the tokens that end there, read backwards
    ranks  int32[n]  of each position: where those that end in the same tokens begin in `order`
    ends   int32[m]  positions with a token at and before them, by their contexts; equal ones ascending
    tail   int32[k]  what is looked for: the last k tokens of a sequence
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int32]
Pair: TypeAlias = tuple[int, int]

NONE = -1

MAX_LENGTH = 32  # tokens compared
MAX_LOOKED_AT = 64  # occurrences whose next tokens are counted
MAX_FOLLOWED = 16  # of each
DIGIT_BITS = 16  # of a token are sorted by at once


# Building lets go of the interpreter's lock: a server goes on answering while it indexes.
@njit(cache=True, nogil=True)
def sort_by_digit(text: Ints, shift: int, order: Ints, new_order: Ints) -> None:
    """Stable counting sort by the DIGIT_BITS of the tokens from bit `shift` on, as if negative tokens came first."""
    mask = (1 << DIGIT_BITS) - 1
    places = np.zeros(mask + 2, dtype=np.int32)
    for position in order:
        places[(((np.int64(text[position]) + 2**31) >> shift) & mask) + 1] += 1
    places = np.cumsum(places)
    for position in order:
        digit = ((np.int64(text[position]) + 2**31) >> shift) & mask
        new_order[places[digit]] = position
        places[digit] += 1


@njit(cache=True, nogil=True)
def rank_by_token(text: Ints, order: Ints, ranks: Ints) -> None:
    """Ranks of positions that are in the order of their tokens."""
    first = 0
    for index in range(len(order)):
        if text[order[index]] != text[order[first]]:
            first = index
        ranks[order[index]] = first


@njit(cache=True, nogil=True)
def sort_by_pair(length: int, order: Ints, ranks: Ints, new_order: Ints, next_places: Ints) -> None:
    """From the order by the last `length` tokens to that by twice as many; `ranks` are still the former's.

    The order by the first of those two halves is the known one, of positions `length` before; sorting that by the
    second half, stably, takes one pass.
    """
    num_tokens = len(order)
    for index in range(num_tokens):
        next_places[index] = index
    for position in range(min(length, num_tokens)):  # nothing comes before: these are first
        new_order[next_places[ranks[position]]] = position
        next_places[ranks[position]] += 1
    for index in range(num_tokens):
        position = order[index] + length
        if position < num_tokens:
            new_order[next_places[ranks[position]]] = position
            next_places[ranks[position]] += 1


@njit(cache=True, nogil=True)
def rank_by_pair(length: int, order: Ints, ranks: Ints, new_ranks: Ints) -> int:
    """Ranks by twice `length` tokens, from those by `length`; returns how many differ."""
    num_ranks = 0
    first, last_rank, last_rank_before = 0, NONE, NONE
    for index in range(len(order)):
        position = order[index]
        rank = ranks[position]
        rank_before = ranks[position - length] if position >= length else NONE
        if rank != last_rank or rank_before != last_rank_before:
            first, last_rank, last_rank_before = index, rank, rank_before
            num_ranks += 1
        new_ranks[position] = first
    return num_ranks


@njit(cache=True, nogil=True)
def sort_contexts(max_length: int, text: Ints, order: Ints, new_order: Ints, ranks: Ints, new_ranks: Ints) -> int:
    """Sorts the ends, up to `max_length` (a power of two) tokens deep, into the front of `order`; returns how many.

    The other arrays, int32[n] each, hold anything before and after. Six passes over the text at most.
    """
    num_tokens = len(text)
    for position in range(num_tokens):
        new_order[position] = position
    sort_by_digit(text, 0, new_order, order)
    sort_by_digit(text, DIGIT_BITS, order, new_order)
    rank_by_token(text, new_order, ranks)
    length, num_ranks = 1, 0
    source, target = new_order, order
    while length < max_length and num_ranks < num_tokens:
        sort_by_pair(length, source, ranks, target, new_ranks)
        num_ranks = rank_by_pair(length, target, ranks, new_ranks)
        source, target = target, source
        ranks, new_ranks = new_ranks, ranks
        length *= 2
    num_ends = 0
    for index in range(num_tokens):
        position = source[index]
        if text[position] >= 0 and position + 1 < num_tokens and text[position + 1] >= 0:
            order[num_ends] = position + 1
            num_ends += 1
    return num_ends


@njit(cache=True)
def common_length(text: Ints, end: int, tail: Ints, known_length: int, max_length: int) -> int:
    """Tokens before `end` that equal the last ones of `tail`, at most `max_length`; the first ones are known to."""
    length = known_length
    limit = min(end, max_length)
    while length < limit and text[end - 1 - length] == tail[len(tail) - 1 - length]:
        length += 1
    return length


@njit(cache=True)
def find_place(text: Ints, ends: Ints, tail: Ints) -> int:
    """How many ends have a context before the tail's: those most like it stand just before and after that place."""
    low, high = 0, len(ends)
    low_length = high_length = 0  # what the ends just outside have in common with the tail; all between has that too
    while low < high:
        middle = (low + high) // 2
        end = ends[middle]
        length = common_length(text, end, tail, min(low_length, high_length), len(tail))
        if length == len(tail) or (length < end and text[end - 1 - length] > tail[len(tail) - 1 - length]):
            high, high_length = middle, length
        else:
            low, low_length = middle + 1, length
    return low


@njit(cache=True)
def length_at(place: int, text: Ints, ends: Ints, tail: Ints) -> int:
    """Tokens that the end at `place` has in common with the tail; 0 outside."""
    if place < 0 or place >= len(ends):
        return 0
    length: int = common_length(text, ends[place], tail, 0, len(tail))
    return length


@njit(cache=True)
def longest_length(place: int, min_count: int, text: Ints, ends: Ints, tail: Ints) -> int:
    """The most tokens of the tail that end at `min_count` or more places; they are neighbours of `place`."""
    left, right = place - 1, place
    left_length, right_length = length_at(left, text, ends, tail), length_at(right, text, ends, tail)
    for _ in range(min_count - 1):
        if left_length > right_length:
            left -= 1
            left_length = min(left_length, length_at(left, text, ends, tail))
        else:
            right += 1
            right_length = min(right_length, length_at(right, text, ends, tail))
    return int(max(left_length, right_length))


@njit(cache=True)
def count_matching(place: int, step: int, length: int, text: Ints, ends: Ints, tail: Ints) -> int:
    """How many ends from `place` on, upwards (`step` 1) or downwards (-1), match `length` tokens or more."""
    count, stride = 0, 1
    while length_at(place + step * (count + stride - 1), text, ends, tail) >= length:
        count += stride
        stride *= 2
    while stride > 1:
        stride //= 2
        if length_at(place + step * (count + stride - 1), text, ends, tail) >= length:
            count += stride
    return count


@njit(cache=True)
def keep_majority(offset: int, num_ends: int, text: Ints, ends: Ints, tokens: Ints) -> int:
    """Moves to the front the ends with the most frequent token at `offset` after them; returns how many, 0 for none.

    Of equally frequent tokens it's the one whose last end comes later. A separator is no token. `tokens` is scratch.
    """
    for index in range(num_ends):
        tokens[index] = text[ends[index] + offset]
    best_token, best_count, best_last = NONE, 0, NONE
    for index in range(num_ends):
        token = tokens[index]
        if token < 0 or token == best_token:
            continue
        count, last = 0, NONE
        for other in range(num_ends):
            if tokens[other] == token:
                count += 1
                last = max(last, ends[other])
        if count > best_count or (count == best_count and last > best_last):
            best_token, best_count, best_last = token, count, last
            if 2 * count > num_ends:
                break
    num_kept = 0
    for index in range(num_ends):
        if tokens[index] == best_token and best_count > 0:
            ends[num_kept] = ends[index]
            num_kept += 1
    return num_kept


@njit(cache=True)
def follow_majority(first: int, count: int, text: Ints, ends: Ints) -> Pair:
    """(how many agree on the next token, end of one that goes on as most do) of `count` ends from place `first` on.

    Looked at are MAX_LOOKED_AT of them, evenly spread. Those that agree with most on the next token are kept, of these
    the ones that agree on the token after it, and so on for MAX_FOLLOWED tokens; of what is left it's the last.

    Copying that one instead of the last that agrees on the next token: 2 % more right tokens in 16, in modules of the
    standard library that were kept out of the index.
    """
    num_kept = min(count, MAX_LOOKED_AT)
    kept = np.empty(num_kept, dtype=np.int32)
    tokens = np.empty(num_kept, dtype=np.int32)
    for index in range(num_kept):
        kept[index] = ends[first + index * count // num_kept]
    num_kept = num_agreeing = keep_majority(0, num_kept, text, kept, tokens)
    for offset in range(1, MAX_FOLLOWED):
        num_left = keep_majority(offset, num_kept, text, kept, tokens) if num_kept > 1 else 0
        if num_left == 0:
            break
        num_kept = num_left
    return num_agreeing, int(np.max(kept[:num_kept]))


@njit(cache=True)
def find_longest(text: Ints, ends: Ints, tail: Ints, min_count: int) -> tuple[int, int, int, int]:
    """(length, count, num_agreeing, end) of the longest suffix of `tail` that ends at `min_count` places or more.

    Separators have equals, so the tail is taken from behind its last one on.
    """
    start = len(tail)
    while start > 0 and tail[start - 1] >= 0:
        start -= 1
    tail = tail[start:]
    place = find_place(text, ends, tail)
    length = longest_length(place, min_count, text, ends, tail)
    if length == 0:
        return 0, 0, 0, NONE
    num_before = count_matching(place - 1, -1, length, text, ends, tail)
    count = num_before + count_matching(place, 1, length, text, ends, tail)
    num_agreeing, end = follow_majority(place - num_before, count, text, ends)
    return length, count, num_agreeing, end
