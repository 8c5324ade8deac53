"""A whole round's draft in one call. Trusts its input; `drafters.edit.EditDrafter` owns the arrays.

Those of the automaton are told of in `automaton`, those of the candidates in `candidates`, those of the odds in
`acceptance`; beside the text (n tokens) stands
    kinds   int8[>= n]  types.SourceKind of each token
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lookahead_edit.kernels.acceptance import Bytes, Columns, Floats, Ints
from lookahead_edit.kernels.alignment import NONE, Counts
from lookahead_edit.kernels.candidates import ARRAY, IN_PREDICTED, IN_WORKSPACE, POSITION, find_candidates
from lookahead_edit.kernels.choice import choose
from lookahead_edit.kernels.suffix import find_longest

PROMPT, OUTPUT, CONTEXT = 2, 3, 4  # values of `kinds`


@njit(cache=True)
def fill_sources(
    array: int, position: int, kinds: Bytes, num_tokens: int, file_kind: int, num_file_tokens: int, sources: Bytes
) -> None:
    """Where each token of a copy stands; of the predicted ones the first `num_file_tokens` are the file's."""
    for offset in range(len(sources)):
        if array == IN_WORKSPACE:
            sources[offset] = CONTEXT
        elif array == IN_PREDICTED:
            sources[offset] = file_kind if position + offset < num_file_tokens else PROMPT
        else:
            sources[offset] = kinds[position + offset] if position + offset < num_tokens else OUTPUT


@njit(cache=True)
def draft(
    text: Ints,
    kinds: Bytes,
    states: Ints,
    counts: Counts,
    borders: Ints,
    classes: Bytes,
    previous: Ints,
    predicted: Ints,
    predicted_classes: Bytes,
    places: Ints,
    factors: Floats,
    file_kind: int,
    file_start: int,
    num_file_tokens: int,
    num_tokens_after_file: int,
    output_start: int,
    token_counts: Ints,
    workspace: Ints,
    workspace_classes: Bytes,
    found: Counts,
    state: Counts,
    recent: Ints,
    candidates: Counts,
    features: Floats,
    break_factor: float,
    columns: Columns,
    thresholds: Floats,
    leaves: Floats,
    tail_odds: NDArray[np.float64],
    type_odds: NDArray[np.float64],
    costs: NDArray[np.float64],
    futures: NDArray[np.float64],
    max_draft_tokens: int,
    tokens: Ints,
    copied_classes: Bytes,
    probabilities: Floats,
    sources: Bytes,
) -> tuple[int, int, int, float]:
    """(candidates, the chosen one, tokens drafted, probability of the first): fills the four arrays of the draft.

    The chosen one is NONE where there is no candidate or none is likely enough. `tokens`, `copied_classes`,
    `probabilities` and `sources` hold `max_draft_tokens` or more.
    """
    if len(text) == 0:
        return 0, NONE, 0, 0.0
    length, num_ends = find_longest(text, states, counts, len(text), recent[0], borders)
    count = find_candidates(
        text, classes, length, num_ends, previous, predicted, predicted_classes, places, len(predicted), file_start,
        num_file_tokens, output_start, token_counts, workspace, workspace_classes, found, state, recent, candidates,
        features,
    )  # fmt: skip
    if count == 0:
        return 0, NONE, 0, 0.0
    chosen, num_tokens, first = choose(
        count, candidates, features, text, len(text), classes, predicted, predicted_classes, factors, len(predicted),
        workspace, workspace_classes, state, break_factor, columns, thresholds, leaves, tail_odds, type_odds, costs,
        futures, tokens, copied_classes, probabilities,
    )  # fmt: skip
    if chosen == NONE:
        return count, NONE, 0, first
    num_tokens = min(num_tokens, max_draft_tokens)
    num_of_file = len(predicted) - num_tokens_after_file
    fill_sources(
        candidates[chosen, ARRAY], candidates[chosen, POSITION], kinds, len(text), file_kind, num_of_file,
        sources[:num_tokens],
    )  # fmt: skip
    return count, chosen, num_tokens, first
