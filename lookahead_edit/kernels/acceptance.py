"""How likely drafted tokens are accepted: trees for a copy's first token, a table of odds for the ones after it.

Trusts its input; `acceptance.AcceptanceModel` owns the arrays, `corpora/acceptance` makes them. Gradient-boosted trees
are Friedman's, "Greedy function approximation: a gradient boosting machine" (2001), section 4: the log odds are the sum
of one leaf a tree.

All trees are whole, of one depth d, and walked level by level side by side: 1 µs for 80 trees of depth 6. Jumping from
node to node of trees that end early takes 7, for nothing foretells such jumps.

Arrays (t trees, f features); below node i of a tree are 2 i + 1, left, and 2 i + 2:
    columns    uint8[t, 2**d - 1]    column of `features` that a node asks for
    thresholds float32[t, 2**d - 1]  left if the feature is at most this
    leaves     float32[t, 2**d]      log odds
    tail_odds  float64[NUM_TAIL_ENTRIES]  factors of the odds, so that a token takes products and no exponential
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int32]
Bytes: TypeAlias = NDArray[np.int8]
Columns: TypeAlias = NDArray[np.uint8]
Floats: TypeAlias = NDArray[np.float32]

NUM_TYPES = 17  # of candidates, see kernels.candidates, and once more those that need no file, where none is followed
NUM_CLASSES = 12  # of tokens, see drafters.vocabulary
NUM_EVIDENCE_BINS = 12
NUM_OFFSET_BINS = 8
NUM_FIRST_BINS = 10  # tenths of the first token's probability
NUM_RATE_BINS = 6
FIRST_CURSOR_LESS_TYPE = 5  # candidates below this type follow the file's cursor
NUM_CURSOR_LESS_TYPES = 6
NUM_GROUPS = 3  # following the file, elsewhere, and where the output follows no file
USUAL_BREAK_RATE = 1 / 60  # breaks a copied token

# Where the parts of the table begin; every drafted token takes one entry of each.
BY_TYPE = 0  # type, evidence
BY_CLASSES = BY_TYPE + NUM_TYPES * NUM_EVIDENCE_BINS  # group, class of the token before, class
BY_OFFSET = BY_CLASSES + NUM_GROUPS * NUM_CLASSES * NUM_CLASSES  # group, evidence at the copy's start, offset
BY_FIRST = BY_OFFSET + NUM_GROUPS * NUM_EVIDENCE_BINS * NUM_OFFSET_BINS  # first token's probability, offset
BY_RATE = BY_FIRST + NUM_FIRST_BINS * NUM_OFFSET_BINS  # group, rate of breaks, evidence
BY_CLASS = BY_RATE + NUM_GROUPS * NUM_RATE_BINS * 4  # class, evidence
NUM_TAIL_ENTRIES = BY_CLASS + NUM_CLASSES * NUM_EVIDENCE_BINS
NUM_TAIL_PARTS = 6
MIN_PROBABILITY = 1e-3  # of a whole copied piece; what is less likely isn't drafted


@njit(cache=True)
def evidence_bin(evidence: int) -> int:
    """0 to 11: 0, 1, 2, 3, 4, then up to 6, 9, 15, 31, 63, 127 and more agreeing tokens."""
    if evidence <= 4:
        return evidence
    if evidence <= 6:
        return 5
    if evidence <= 9:
        return 6
    index = 7
    limit = 16
    while index < NUM_EVIDENCE_BINS - 1 and evidence >= limit:
        index += 1
        limit *= 2
    return index


@njit(cache=True)
def offset_bin(offset: int) -> int:
    """0 to 7, in octaves."""
    index = 0
    while offset > 0 and index < NUM_OFFSET_BINS - 1:
        offset >>= 1
        index += 1
    return index


@njit(cache=True)
def rate_bin(num_breaks: int, num_emitted_tokens: int) -> int:
    """0 to 5, in octaves around USUAL_BREAK_RATE, which a single break in 60 tokens stands for beforehand."""
    rate = (num_breaks + 1.0) / (num_emitted_tokens + 1.0 / USUAL_BREAK_RATE)
    return max(0, min(NUM_RATE_BINS - 1, int(np.floor(np.log2(rate / USUAL_BREAK_RATE))) + 3))


@njit(cache=True)
def tail_entries(
    kind: int,
    follows_file: bool,
    evidence: int,
    offset: int,
    class_before: int,
    token_class: int,
    first: int,
    rate: int,
    entries: Ints,
) -> None:
    """The entries of the table that a copy's token takes; `evidence` is that at the copy's start, `first` a tenth."""
    group = 0 if kind < FIRST_CURSOR_LESS_TYPE else 1
    if not follows_file:
        group = 2
        if kind >= FIRST_CURSOR_LESS_TYPE:
            kind += NUM_CURSOR_LESS_TYPES
    agreeing = evidence_bin(evidence + offset)
    offset_index = offset_bin(offset)
    strength = 0 if agreeing < 4 else (1 if agreeing < 8 else (2 if agreeing < 10 else 3))
    entries[0] = BY_TYPE + kind * NUM_EVIDENCE_BINS + agreeing
    entries[1] = BY_CLASSES + (group * NUM_CLASSES + int(class_before)) * NUM_CLASSES + int(token_class)
    entries[2] = BY_OFFSET + (group * NUM_EVIDENCE_BINS + evidence_bin(evidence)) * NUM_OFFSET_BINS + offset_index
    entries[3] = BY_FIRST + first * NUM_OFFSET_BINS + offset_index
    entries[4] = BY_RATE + (group * NUM_RATE_BINS + rate) * 4 + strength
    entries[5] = BY_CLASS + int(token_class) * NUM_EVIDENCE_BINS + agreeing


@njit(cache=True)
def first_probability(features: Floats, columns: Columns, thresholds: Floats, leaves: Floats) -> float:
    """Probability that a copy's first token is accepted."""
    num_inner = columns.shape[1]
    nodes = np.zeros(len(columns), dtype=np.uint32)
    level = 1
    while level <= num_inner:
        for tree in range(len(nodes)):
            node = nodes[tree]
            is_right = np.uint32(features[columns[tree, node]] > thresholds[tree, node])
            nodes[tree] = np.uint32(2) * node + np.uint32(1) + is_right
        level *= 2
    log_odds = 0.0
    for tree in range(len(nodes)):
        log_odds += leaves[tree, nodes[tree] - np.uint32(num_inner)]
    return float(1.0 / (1.0 + np.exp(-log_odds)))


@njit(cache=True)
def bin_end(evidence: int, offset: int) -> int:
    """The first later offset at which the evidence's or the offset's bin is another one; see `tail_entries`."""
    agreeing = evidence + offset
    end = 1 << 30
    if agreeing < 4:
        end = offset + 1
    elif agreeing < 10:
        end = offset + (5 if agreeing < 5 else (7 if agreeing < 7 else 10)) - agreeing
    elif agreeing < 128:
        limit = 16
        while agreeing >= limit:
            limit *= 2
        end = offset + limit - agreeing
    if offset < 1 << (NUM_OFFSET_BINS - 2):
        limit = 1
        while offset >= limit:
            limit *= 2
        end = min(end, limit)
    return end


@njit(cache=True)
def fill_probabilities(
    kind: int,
    follows_file: bool,
    evidence: int,
    first: float,
    classes: Bytes,
    rate: int,
    break_factor: float,
    tail_odds: NDArray[np.float64],
    entries: Ints,
    num_filled: int,
    probabilities: Floats,
) -> int:
    """Fills P(the first i + 1 tokens are all accepted), tokens of these classes; returns how many are worth drafting.

    `break_factor` is how many times more often copies break in this request than the table says. `classes` and
    `probabilities` have the same length, and the first `num_filled` are there already; what is less likely than
    MIN_PROBABILITY is left out. Most entries are the same for many tokens in a row, so they are multiplied once.
    """
    if len(classes) == 0:
        return 0
    if num_filled == 0:
        probabilities[0] = first
        num_filled = 1
    probability = float(probabilities[num_filled - 1])
    tenth = min(NUM_FIRST_BINS - 1, int(first * NUM_FIRST_BINS))
    end, shared, by_classes, by_class = 0, 1.0, 0, 0
    for offset in range(num_filled, len(classes)):
        if offset >= end:
            tail_entries(kind, follows_file, evidence, offset, 0, 0, tenth, rate, entries)
            shared = tail_odds[entries[0]] * tail_odds[entries[2]] * tail_odds[entries[3]] * tail_odds[entries[4]]
            by_classes, by_class = entries[1], entries[5]
            end = bin_end(evidence, offset)
        before, after = int(classes[offset - 1]), int(classes[offset])
        odds = (
            shared
            * tail_odds[by_classes + before * NUM_CLASSES + after]
            * tail_odds[by_class + after * NUM_EVIDENCE_BINS]
        )
        probability *= max(1.0 - break_factor / (1.0 + odds), 0.0)
        if probability < MIN_PROBABILITY:
            return offset
        probabilities[offset] = probability
    return len(classes)
