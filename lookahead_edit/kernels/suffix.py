"""Online suffix automaton over int32 tokens, in flat arrays. Trusts its input; `suffix_index.SuffixIndex` owns it.

A state stands for all substrings that end at the same positions. Blumer et al., "The smallest automaton recognizing
the subwords of a text" (1985); the on-line construction is the usual one. Two things are ours: a state's first
transition is stored in the state (its token is ``text[FIRST_END + 1]``), only branches go to the hash table, never more
than tokens; and states list their children in the tree of suffix links, so that all ends of a match can be visited.

Arrays (n tokens):
    text    int32[n]       tokens; sources are parted by unique negative separators
    states  int32[2 n, 8]  columns LENGTH … PREVIOUS below; row 0 is the root
    edges   int32[n, 4]    columns EDGE_STATE … EDGE_NEXT below; the branches only
    slots   int32[2^k]     open addressing, (state, token) -> row of `edges`, NONE where free; at most half full
    counts  int64[4]       NUM_TOKENS, NUM_STATES, NUM_EDGES, LAST_STATE
    kinds   int8[n]        types.SourceKind of each token
    refuted int8[n]        longest match (up to MAX_COMPARED) after which copying from here was wrong at once

An *end* is the position after an occurrence, that is, of the token that followed it.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int32]
Bytes: TypeAlias = NDArray[np.int8]
Counts: TypeAlias = NDArray[np.int64]
Pair: TypeAlias = tuple[int, int]

NONE, ROOT = -1, 0

# Columns of `states`.
LENGTH = 0  # tokens of the longest substring of this state
LINK = 1  # state of the longest suffix that also ends elsewhere
FIRST_END = 2  # position of the last token of the first occurrence (inclusive)
NEXT = 3  # where text[FIRST_END + 1] leads
EDGES = 4  # first row of this state's branches
CHILD, SIBLING, PREVIOUS = 5, 6, 7  # first child, next and previous sibling in the tree of suffix links

EDGE_STATE, EDGE_TOKEN, EDGE_TARGET, EDGE_NEXT = range(4)  # columns of `edges`
NUM_TOKENS, NUM_STATES, NUM_EDGES, LAST_STATE = range(4)  # entries of `counts`
FILE, PREDICTION = range(2)  # values of `kinds`

MAX_COMPARED = 64  # tokens compared where a match needn't be measured to its end
MAX_NEAR_TOKENS = 16  # looked at after the cursor
MAX_SCANNED = 1024  # tokens looked back for the most recent of very many ends


@njit(cache=True)
def slot_of(state: int, token: int, slots: Ints) -> int:
    """First slot to probe. The products stay below 2**63, so that plain NumPy computes the same without overflow."""
    mixed = (np.int64(state) * 1481765933) ^ (np.int64(token) * 1865811235)
    return int((mixed ^ (mixed >> 23)) & (len(slots) - 1))


@njit(cache=True)
def find_edge(state: int, token: int, edges: Ints, slots: Ints) -> int:
    """Row of the branch, or NONE."""
    slot = slot_of(state, token, slots)
    while True:
        edge: int = slots[slot]
        if edge == NONE or (edges[edge, EDGE_STATE] == state and edges[edge, EDGE_TOKEN] == token):
            return edge
        slot = (slot + 1) & (len(slots) - 1)


@njit(cache=True)
def enter_edge(edge: int, edges: Ints, slots: Ints) -> None:
    """Enters one branch into the table: the first free slot from its own on."""
    slot = slot_of(edges[edge, EDGE_STATE], edges[edge, EDGE_TOKEN], slots)
    while slots[slot] != NONE:
        slot = (slot + 1) & (len(slots) - 1)
    slots[slot] = edge


@njit(cache=True)
def enter_edges(num_edges: int, edges: Ints, slots: Ints) -> None:
    """Enters all branches into an empty table (after it has grown)."""
    for edge in range(num_edges):
        enter_edge(edge, edges, slots)


@njit(cache=True)
def add_edge(state: int, token: int, target: int, states: Ints, edges: Ints, slots: Ints, counts: Counts) -> None:
    """Adds a branch that isn't there yet."""
    edge = counts[NUM_EDGES]
    counts[NUM_EDGES] = edge + 1
    edges[edge, EDGE_STATE] = state
    edges[edge, EDGE_TOKEN] = token
    edges[edge, EDGE_TARGET] = target
    edges[edge, EDGE_NEXT] = states[state, EDGES]
    states[state, EDGES] = edge
    enter_edge(edge, edges, slots)


@njit(cache=True)
def add_child(child: int, parent: int, states: Ints) -> None:
    """Makes `child` the first of `parent`'s children."""
    first = states[parent, CHILD]
    states[child, LINK] = parent
    states[child, SIBLING] = first
    states[child, PREVIOUS] = NONE
    if first != NONE:
        states[first, PREVIOUS] = child
    states[parent, CHILD] = child


@njit(cache=True)
def split_state(state: int, length: int, states: Ints, edges: Ints, slots: Ints, counts: Counts) -> int:
    """A new state takes over the substrings of up to `length` tokens, and the place in the tree."""
    clone: int = counts[NUM_STATES]
    counts[NUM_STATES] = clone + 1
    for column in range(8):
        states[clone, column] = states[state, column]
    states[clone, LENGTH] = length
    states[clone, EDGES] = NONE
    edge = states[state, EDGES]
    while edge != NONE:
        add_edge(clone, edges[edge, EDGE_TOKEN], edges[edge, EDGE_TARGET], states, edges, slots, counts)
        edge = edges[edge, EDGE_NEXT]
    before, after = states[clone, PREVIOUS], states[clone, SIBLING]
    if before != NONE:
        states[before, SIBLING] = clone
    else:
        states[states[clone, LINK], CHILD] = clone
    if after != NONE:
        states[after, PREVIOUS] = clone
    states[clone, CHILD] = NONE
    add_child(state, clone, states)
    return clone


@njit(cache=True)
def append_token(text: Ints, states: Ints, edges: Ints, slots: Ints, counts: Counts) -> None:
    """Amortised O(1): every step of the walk below adds a transition, and there are at most 3 n of those."""
    position = counts[NUM_TOKENS]
    counts[NUM_TOKENS] = position + 1
    token = text[position]
    current = counts[NUM_STATES]
    counts[NUM_STATES] = current + 1
    states[current] = NONE
    states[current, LENGTH] = position + 1
    states[current, FIRST_END] = position

    last = counts[LAST_STATE]
    counts[LAST_STATE] = current
    states[last, NEXT] = current
    walk = states[last, LINK]
    target = NONE
    while walk != NONE:
        if text[states[walk, FIRST_END] + 1] == token:
            target = states[walk, NEXT]
            break
        if states[walk, EDGES] != NONE:
            edge = find_edge(walk, token, edges, slots)
            if edge != NONE:
                target = edges[edge, EDGE_TARGET]
                break
        add_edge(walk, token, current, states, edges, slots, counts)
        walk = states[walk, LINK]

    if target == NONE:
        add_child(current, ROOT, states)
        return
    length = states[walk, LENGTH] + 1
    if length == states[target, LENGTH]:
        add_child(current, target, states)
        return
    clone = split_state(target, length, states, edges, slots, counts)
    while walk != NONE:
        if text[states[walk, FIRST_END] + 1] == token:
            if states[walk, NEXT] != target:
                break
            states[walk, NEXT] = clone
        else:
            edge = find_edge(walk, token, edges, slots)
            if edges[edge, EDGE_TARGET] != target:
                break
            edges[edge, EDGE_TARGET] = clone
        walk = states[walk, LINK]
    add_child(current, clone, states)


@njit(cache=True)
def append_tokens(num_new_tokens: int, text: Ints, states: Ints, edges: Ints, slots: Ints, counts: Counts) -> None:
    """Takes in tokens that already stand in `text`; the other arrays have room for them."""
    for _ in range(num_new_tokens):
        append_token(text, states, edges, slots, counts)


@njit(cache=True)
def clear(states: Ints, slots: Ints, counts: Counts) -> None:
    """The index of an empty text."""
    counts[:] = 0
    counts[NUM_STATES] = 1
    slots[:] = NONE
    states[ROOT, :] = NONE
    states[ROOT, LENGTH] = 0


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
        end = states[node, FIRST_END] + 1
        if states[node, LENGTH] == end and end != num_tokens:  # a prefix of the text, that is, no split state
            if count == len(ends):
                return NONE
            place = count  # insertion sort: mostly a handful
            while place > 0 and ends[place - 1] < end:
                ends[place] = ends[place - 1]
                place -= 1
            ends[place] = end
            count += 1
        if states[node, CHILD] != NONE:
            node = states[node, CHILD]
            continue
        while node != state and states[node, SIBLING] == NONE:
            node = states[node, LINK]
        if node == state:
            return count
        node = states[node, SIBLING]


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
    state = states[counts[LAST_STATE], LINK]
    if state <= ROOT:
        return 0, 0
    length = states[state, LENGTH]
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
    text: Ints, kinds: Bytes, refuted: Bytes, states: Ints, counts: Counts, cursor: int, ends: Ints, borders: Ints
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
