"""Online suffix automaton over int32 tokens, in flat arrays. Trusts its input; `suffix_index.SuffixIndex` owns it.

A state stands for all substrings that end at the same positions. Blumer et al., "The smallest automaton recognizing
the subwords of a text" (1985); the on-line construction is the usual one. Three things are ours. A state's first
transition, on the token that followed its first occurrence, isn't a branch; only branches go to the hash table, never
more than tokens. States list their children in the tree of suffix links, so that all ends of a match can be visited.
And state i >= 0 is the one of the first i tokens: its length, its first end and where its first transition leads, to
state i + 1, are its number. Only *clones*, the states split off others, need to store them, so their rows are longer;
they have the numbers -2, -3, … and their rows fill the same array from the back.

Arrays (n tokens):
    text    int32[n]         tokens; sources are parted by unique negative separators
    states  int32[13 n + 5]  rows of the columns below, each from `row_of` on: root, n prefixes, at most n clones
    edges   int32[n, 4]      columns EDGE_STATE … EDGE_NEXT below; the branches only
    slots   int32[2 n]       open addressing, (state, token) -> row of `edges`, NONE where free; at most half full
    counts  int64[3]         NUM_TOKENS, NUM_CLONES, NUM_EDGES

An *end* is the position after an occurrence, that is, of the token that followed it.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int32]
Counts: TypeAlias = NDArray[np.int64]

NONE, ROOT = -1, 0

# Columns of a state's row.
LINK = 0  # state of the longest suffix that also ends elsewhere
EDGES = 1  # first row of this state's branches
CHILD, SIBLING, PREVIOUS = 2, 3, 4  # first child, next and previous sibling in the tree of suffix links
NUM_COLUMNS = 5
# More columns of a clone's row.
LENGTH = 5  # tokens of the longest substring of this state
FIRST_END = 6  # end of the first occurrence
NEXT = 7  # where text[FIRST_END] leads
NUM_CLONE_COLUMNS = 8

EDGE_STATE, EDGE_TOKEN, EDGE_TARGET, EDGE_NEXT = range(4)  # columns of `edges`
NUM_TOKENS, NUM_CLONES, NUM_EDGES = range(3)  # entries of `counts`


@njit(cache=True)
def row_of(state: int) -> int:
    """Where the state's row begins; a negative index counts from the back."""
    return NUM_COLUMNS * state if state >= 0 else NUM_CLONE_COLUMNS * (state + 1)


@njit(cache=True)
def length_of(state: int, states: Ints) -> int:
    """Tokens of the longest substring of the state."""
    length: int = state if state >= 0 else states[row_of(state) + LENGTH]
    return length


@njit(cache=True)
def first_end_of(state: int, states: Ints) -> int:
    """End of the state's first occurrence."""
    end: int = state if state >= 0 else states[row_of(state) + FIRST_END]
    return end


@njit(cache=True)
def next_of(state: int, states: Ints) -> int:
    """Where the token at the state's first end leads."""
    target: int = state + 1 if state >= 0 else states[row_of(state) + NEXT]
    return target


@njit(cache=True)
def slot_of(state: int, token: int, slots: Ints) -> int:
    """First slot to probe. The products stay below 2**63, so that plain NumPy computes the same without overflow."""
    mixed = (np.int64(state) * 1481765933) ^ (np.int64(token) * 1865811235)
    return int((((mixed ^ (mixed >> 23)) & (2**31 - 1)) * len(slots)) >> 31)


@njit(cache=True)
def find_edge(state: int, token: int, edges: Ints, slots: Ints) -> int:
    """Row of the branch, or NONE."""
    slot = slot_of(state, token, slots)
    while True:
        edge: int = slots[slot]
        if edge == NONE or (edges[edge, EDGE_STATE] == state and edges[edge, EDGE_TOKEN] == token):
            return edge
        slot = slot + 1 if slot + 1 < len(slots) else 0


@njit(cache=True)
def enter_edge(edge: int, edges: Ints, slots: Ints) -> None:
    """Enters one branch into the table: the first free slot from its own on."""
    slot = slot_of(edges[edge, EDGE_STATE], edges[edge, EDGE_TOKEN], slots)
    while slots[slot] != NONE:
        slot = slot + 1 if slot + 1 < len(slots) else 0
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
    edges[edge, EDGE_NEXT] = states[row_of(state) + EDGES]
    states[row_of(state) + EDGES] = edge
    enter_edge(edge, edges, slots)


@njit(cache=True)
def add_child(child: int, parent: int, states: Ints) -> None:
    """Makes `child` the first of `parent`'s children."""
    first = states[row_of(parent) + CHILD]
    states[row_of(child) + LINK] = parent
    states[row_of(child) + SIBLING] = first
    states[row_of(child) + PREVIOUS] = NONE
    if first != NONE:
        states[row_of(first) + PREVIOUS] = child
    states[row_of(parent) + CHILD] = child


@njit(cache=True)
def split_state(state: int, length: int, states: Ints, edges: Ints, slots: Ints, counts: Counts) -> int:
    """A new state takes over the substrings of up to `length` tokens, and the place in the tree."""
    clone: int = -2 - counts[NUM_CLONES]
    counts[NUM_CLONES] += 1
    row, clone_row = row_of(state), row_of(clone)
    states[clone_row + LENGTH] = length
    states[clone_row + FIRST_END] = first_end_of(state, states)
    states[clone_row + NEXT] = next_of(state, states)
    states[clone_row + EDGES] = NONE
    edge = states[row + EDGES]
    while edge != NONE:
        add_edge(clone, edges[edge, EDGE_TOKEN], edges[edge, EDGE_TARGET], states, edges, slots, counts)
        edge = edges[edge, EDGE_NEXT]
    parent, before, after = states[row + LINK], states[row + PREVIOUS], states[row + SIBLING]
    states[clone_row + LINK] = parent
    states[clone_row + PREVIOUS] = before
    states[clone_row + SIBLING] = after
    if before != NONE:
        states[row_of(before) + SIBLING] = clone
    else:
        states[row_of(parent) + CHILD] = clone
    if after != NONE:
        states[row_of(after) + PREVIOUS] = clone
    states[clone_row + CHILD] = NONE
    add_child(state, clone, states)
    return clone


@njit(cache=True)
def append_token(text: Ints, states: Ints, edges: Ints, slots: Ints, counts: Counts) -> None:
    """Amortised O(1): every step of the walk below adds a transition, and there are at most 3 n of those."""
    last = counts[NUM_TOKENS]
    current = last + 1
    counts[NUM_TOKENS] = current
    token = text[last]
    states[row_of(current) + EDGES] = NONE
    states[row_of(current) + CHILD] = NONE

    walk = states[row_of(last) + LINK]
    target = NONE
    while walk != NONE:
        if text[first_end_of(walk, states)] == token:
            target = next_of(walk, states)
            break
        if states[row_of(walk) + EDGES] != NONE:
            edge = find_edge(walk, token, edges, slots)
            if edge != NONE:
                target = edges[edge, EDGE_TARGET]
                break
        add_edge(walk, token, current, states, edges, slots, counts)
        walk = states[row_of(walk) + LINK]

    if target == NONE:
        add_child(current, ROOT, states)
        return
    length = length_of(walk, states) + 1
    if length == length_of(target, states):
        add_child(current, target, states)
        return
    clone = split_state(target, length, states, edges, slots, counts)
    while walk != NONE:
        if text[first_end_of(walk, states)] == token:
            if next_of(walk, states) != target:
                break  # always so if `walk` is no clone: where it leads has one token more than `walk`, not more
            states[row_of(walk) + NEXT] = clone
        else:
            edge = find_edge(walk, token, edges, slots)
            if edges[edge, EDGE_TARGET] != target:
                break
            edges[edge, EDGE_TARGET] = clone
        walk = states[row_of(walk) + LINK]
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
    slots[:] = NONE
    states[:NUM_COLUMNS] = NONE
