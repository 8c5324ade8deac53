"""Which candidate is drafted: one call a round. Trusts its input; `drafters.edit.EditDrafter` owns the arrays."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lookahead_edit.kernels.acceptance import (
    MIN_PROBABILITY,
    Bytes,
    Columns,
    Floats,
    Ints,
    fill_probabilities,
    first_probability,
    rate_bin,
)
from lookahead_edit.kernels.alignment import NONE, NUM_BREAKS, NUM_EMITTED_TOKENS, Counts, is_following
from lookahead_edit.kernels.candidates import (
    ARRAY,
    EVIDENCE,
    IN_PREDICTED,
    IN_TEXT,
    MAX_CANDIDATES,
    POSITION,
    TYPE,
    first_token,
)
from lookahead_edit.kernels.length import best_length

NUM_WEIGHED_TOKENS = 32  # of each candidate


@njit(cache=True)
def copy_candidate(
    candidates: Counts,
    index: int,
    text: Ints,
    num_tokens: int,
    classes: Bytes,
    predicted: Ints,
    predicted_classes: Bytes,
    num_predicted: int,
    workspace: Ints,
    workspace_classes: Bytes,
    tokens: Ints,
    copied_classes: Bytes,
) -> int:
    """Copies from the candidate's place to the border of its source; how many, at most ``len(tokens)``.

    At the end of the text it goes on from the place: what repeats itself may go on doing so.
    """
    start, array = candidates[index, POSITION], candidates[index, ARRAY]
    for offset in range(len(tokens)):
        position = start + offset
        if array == IN_PREDICTED:
            if position >= num_predicted:
                return offset
            tokens[offset] = predicted[position]
            copied_classes[offset] = predicted_classes[position]
        elif array == IN_TEXT:
            if position >= num_tokens:
                position = start + offset % (num_tokens - start)
            if text[position] < 0:
                return offset
            tokens[offset] = text[position]
            copied_classes[offset] = classes[position]
        else:
            if position >= len(workspace) or workspace[position] < 0:
                return offset
            tokens[offset] = workspace[position]
            copied_classes[offset] = workspace_classes[position]
    return len(tokens)


@njit(cache=True)
def choose(
    count: int,
    candidates: Counts,
    features: Floats,
    text: Ints,
    num_tokens: int,
    classes: Bytes,
    predicted: Ints,
    predicted_classes: Bytes,
    factors: Floats,
    num_predicted: int,
    workspace: Ints,
    workspace_classes: Bytes,
    state: Counts,
    break_factor: float,
    columns: Columns,
    thresholds: Floats,
    leaves: Floats,
    tail_odds: NDArray[np.float64],
    type_odds: NDArray[np.float64],
    costs: NDArray[np.float64],
    futures: NDArray[np.float64],
    tokens: Ints,
    copied_classes: Bytes,
    probabilities: Floats,
) -> tuple[int, int, float]:
    """(candidate, number of tokens, first token's probability): fills the draft and its probabilities.

    Candidates with the same first token make one guess of it: the highest of their probabilities is taken for all, and
    only the one that is expected to go on furthest stands for the group. Of the groups, the one that saves most is
    drafted, by the rule of kernels.length at a moderate cost; how much of it, the policy decides. `type_odds`,
    float64[number of types], is what the odds of a first token are multiplied by for the candidate's type.
    """
    follows_file = is_following(num_predicted, state)
    rate = rate_bin(state[NUM_BREAKS], state[NUM_EMITTED_TOKENS])
    first_tokens = np.empty(MAX_CANDIDATES, dtype=np.int64)
    firsts = np.zeros(MAX_CANDIDATES, dtype=np.float64)
    expected = np.zeros(MAX_CANDIDATES, dtype=np.float64)
    gains = np.zeros(MAX_CANDIDATES, dtype=np.float64)
    num_weighed = np.zeros(MAX_CANDIDATES, dtype=np.int64)
    limit = min(NUM_WEIGHED_TOKENS, len(tokens))
    weighed = np.empty((MAX_CANDIDATES, limit), dtype=np.float32)
    entries = np.empty(8, dtype=np.int32)
    savings = np.empty(NUM_WEIGHED_TOKENS + 1, dtype=np.float64)
    for index in range(count):
        first_tokens[index] = first_token(candidates, index, text, predicted, workspace)
        first = first_probability(features[index], columns, thresholds, leaves)
        odds = type_odds[candidates[index, TYPE]]
        first = first * odds / (1.0 - first + first * odds)
        for other in range(index):
            if first_tokens[other] == first_tokens[index]:
                first = max(first, firsts[other])
        for other in range(index + 1):
            if first_tokens[other] == first_tokens[index]:
                firsts[other] = first
    for index in range(count):
        num_copied = copy_candidate(
            candidates, index, text, num_tokens, classes, predicted, predicted_classes, num_predicted, workspace,
            workspace_classes, tokens[:limit], copied_classes[:limit],
        )  # fmt: skip
        num_copied = fill_probabilities(
            candidates[index, TYPE], follows_file, candidates[index, EVIDENCE], firsts[index],
            copied_classes[:num_copied], rate, break_factor, tail_odds, entries, 0, weighed[index, :num_copied],
        )  # fmt: skip
        num_weighed[index] = num_copied
        if num_copied > 0:
            expected[index] = weighed[index, :num_copied].sum()
            length = best_length(weighed[index, :num_copied], costs, futures, savings)
            if length > 0:
                gains[index] = savings[length] - (costs[length] - costs[0])
    best, best_gain = NONE, 0.0
    for index in range(count):
        stands_for_group = True
        for other in range(count):
            if other != index and first_tokens[other] == first_tokens[index]:
                is_further = expected[other] > expected[index]
                stands_for_group &= not (is_further or (expected[other] == expected[index] and other < index))
        if stands_for_group and gains[index] > best_gain:
            best, best_gain = index, gains[index]
    if best == NONE:
        return NONE, 0, firsts[:count].max()
    num_copied = copy_candidate(
        candidates, best, text, num_tokens, classes, predicted, predicted_classes, num_predicted, workspace,
        workspace_classes, tokens, copied_classes,
    )  # fmt: skip
    num_filled = num_weighed[best]
    probabilities[:num_filled] = weighed[best, :num_filled]
    num_copied = num_filled if num_filled < limit else num_copied  # the rest was found to be too unlikely
    num_copied = fill_probabilities(
        candidates[best, TYPE], follows_file, candidates[best, EVIDENCE], firsts[best], copied_classes[:num_copied],
        rate, break_factor, tail_odds, entries, num_filled, probabilities[:num_copied],
    )  # fmt: skip
    if candidates[best, ARRAY] == IN_PREDICTED:
        factor = 1.0
        for offset in range(num_copied):
            factor *= factors[candidates[best, POSITION] + offset]
            probabilities[offset] *= factor
            if offset > 0 and probabilities[offset] < MIN_PROBABILITY:
                return best, offset, firsts[best]
    return best, num_copied, firsts[best]
