"""Which candidate is drafted: one call a round. Trusts its input; `drafters.edit.EditDrafter` owns the arrays."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lookahead_edit.kernels.acceptance import (
    MIN_PROBABILITY,
    Bytes,
    Floats,
    Ints,
    fill_probabilities,
    first_probability,
)
from lookahead_edit.kernels.alignment import NONE, Counts
from lookahead_edit.kernels.candidates import (
    ARRAY,
    EVIDENCE,
    IN_PREDICTED,
    IN_TEXT,
    IN_WORKSPACE,
    MAX_CANDIDATES,
    MOST_RECENT,
    POSITION,
    TYPE,
    UNKNOWN_CLASS,
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
            copied_classes[offset] = UNKNOWN_CLASS
    return len(tokens)


@njit(cache=True)
def tail_type(candidates: Counts, index: int) -> int:
    """The type that a copy's later tokens are judged by: the model was fitted without other files at hand."""
    return MOST_RECENT if candidates[index, ARRAY] == IN_WORKSPACE else int(candidates[index, TYPE])


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
    rate: int,
    break_factor: float,
    roots: Ints,
    splits: Ints,
    thresholds: Floats,
    children: Ints,
    tail_log_odds: Floats,
    costs: NDArray[np.float64],
    futures: NDArray[np.float64],
    tokens: Ints,
    copied_classes: Bytes,
    probabilities: Floats,
) -> tuple[int, int, float]:
    """(candidate, number of tokens, first token's probability): fills the draft and its probabilities.

    Candidates with the same first token make one guess of it: the highest of their probabilities is taken for all, and
    only the one that is expected to go on furthest stands for the group. Of the groups, the one that saves most is
    drafted, by the rule of kernels.length at a moderate cost; how much of it, the policy decides.
    """
    firsts = np.empty(MAX_CANDIDATES, dtype=np.float64)
    expected = np.empty(MAX_CANDIDATES, dtype=np.float64)
    gains = np.empty(MAX_CANDIDATES, dtype=np.float64)
    entries = np.empty(8, dtype=np.int32)
    savings = np.empty(NUM_WEIGHED_TOKENS + 1, dtype=np.float64)
    for index in range(count):
        firsts[index] = first_probability(features[index], roots, splits, thresholds, children)
    for index in range(count):
        token = first_token(candidates, index, text, predicted, workspace)
        for other in range(count):
            if first_token(candidates, other, text, predicted, workspace) == token:
                firsts[index] = max(firsts[index], firsts[other])
    limit = min(NUM_WEIGHED_TOKENS, len(tokens))
    for index in range(count):
        num_copied = copy_candidate(
            candidates, index, text, num_tokens, classes, predicted, predicted_classes, num_predicted, workspace,
            tokens[:limit], copied_classes[:limit],
        )  # fmt: skip
        num_copied = fill_probabilities(
            tail_type(candidates, index), num_predicted > 0, candidates[index, EVIDENCE], firsts[index],
            copied_classes[:num_copied], rate, break_factor, tail_log_odds, entries, probabilities[:num_copied],
        )  # fmt: skip
        expected[index], gains[index] = 0.0, 0.0
        if num_copied > 0:
            expected[index] = probabilities[:num_copied].sum()
            length = best_length(probabilities[:num_copied], costs, futures, savings)
            if length > 0:
                gains[index] = savings[length] - (costs[length] - costs[0])
    best, best_gain = NONE, 0.0
    for index in range(count):
        token = first_token(candidates, index, text, predicted, workspace)
        stands_for_group = True
        for other in range(count):
            if other != index and first_token(candidates, other, text, predicted, workspace) == token:
                is_further = expected[other] > expected[index]
                stands_for_group &= not (is_further or (expected[other] == expected[index] and other < index))
        if stands_for_group and gains[index] > best_gain:
            best, best_gain = index, gains[index]
    if best == NONE:
        highest = 0.0
        for index in range(count):
            highest = max(highest, firsts[index])
        return NONE, 0, highest
    num_copied = copy_candidate(
        candidates, best, text, num_tokens, classes, predicted, predicted_classes, num_predicted, workspace, tokens,
        copied_classes,
    )  # fmt: skip
    num_copied = fill_probabilities(
        tail_type(candidates, best), num_predicted > 0, candidates[best, EVIDENCE], firsts[best],
        copied_classes[:num_copied], rate, break_factor, tail_log_odds, entries, probabilities[:num_copied],
    )  # fmt: skip
    if candidates[best, ARRAY] == IN_PREDICTED:
        factor = 1.0
        for offset in range(num_copied):
            factor *= factors[candidates[best, POSITION] + offset]
            probabilities[offset] *= factor
            if offset > 0 and probabilities[offset] < MIN_PROBABILITY:
                return best, offset, firsts[best]
    return best, num_copied, firsts[best]
