"""Looks a text up in a suffix automaton that it is not part of. Trusts its input; `automaton` says what the arrays are.

Beside those:
    query   int32[m]  units of the text that is looked up; a negative one occurs nowhere
    lengths int32[m]  units of the longest match that ends with each
    matched int32[m]  the automaton's state there
"""

from __future__ import annotations

from numba import njit

from lookahead_edit.kernels.automaton import (
    CHILD,
    EDGE_TARGET,
    EDGES,
    LINK,
    NONE,
    ROOT,
    SIBLING,
    Ints,
    find_edge,
    first_end_of,
    length_of,
    next_of,
    row_of,
)


@njit(cache=True, nogil=True)
def follow(state: int, unit: int, num_units: int, text: Ints, states: Ints, edges: Ints, slots: Ints) -> int:
    """Where `unit` leads from the state, or NONE."""
    end = first_end_of(state, states)
    if end < num_units and text[end] == unit:
        return int(next_of(state, states))
    if states[row_of(state) + EDGES] == NONE:
        return NONE
    edge = find_edge(state, unit, edges, slots)
    return NONE if edge == NONE else int(edges[edge, EDGE_TARGET])


@njit(cache=True, nogil=True)
def look_up(
    query: Ints, num_units: int, text: Ints, states: Ints, edges: Ints, slots: Ints, lengths: Ints, matched: Ints
) -> None:
    """Matching statistics: the longest substring of the text that ends at each unit of the query.

    Chang, Lawler, "Sublinear approximate string matching and biological applications" (1994), section 2; on an
    automaton every step back along a suffix link undoes one step forward, so this is linear in the query.
    """
    state, length = ROOT, 0
    for place in range(len(query)):
        unit = query[place]
        target = NONE
        if unit < 0:
            state, length = ROOT, 0
        else:
            target = follow(state, unit, num_units, text, states, edges, slots)
            while target == NONE and state != ROOT:
                state = states[row_of(state) + LINK]
                length = length_of(state, states)
                target = follow(state, unit, num_units, text, states, edges, slots)
        if target != NONE:
            state = target
            length += 1
        lengths[place] = length
        matched[place] = state


@njit(cache=True, nogil=True)
def choose_end(state: int, length: int, cursor: int, states: Ints, max_ends: int) -> int:
    """Where the last `length` units of a match end: the first end whose occurrence begins at or after `cursor`.

    The first end of all where there is none, or where none was found among the first `max_ends` that were visited.
    """
    parent = states[row_of(state) + LINK]
    while parent != NONE and length_of(parent, states) >= length:
        state = parent
        parent = states[row_of(state) + LINK]
    first = first_end_of(state, states)
    if first - length >= cursor:
        return int(first)
    best = NONE
    num_visited = 0
    node = state
    while True:
        if node >= 0:
            if node - length >= cursor and (best == NONE or node < best):
                best = node
            num_visited += 1
            if num_visited == max_ends:
                break
        if states[row_of(node) + CHILD] != NONE:
            node = states[row_of(node) + CHILD]
            continue
        while node != state and states[row_of(node) + SIBLING] == NONE:
            node = states[row_of(node) + LINK]
        if node == state:
            break
        node = states[row_of(node) + SIBLING]
    return int(first if best == NONE else best)
