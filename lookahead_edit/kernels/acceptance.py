"""How likely drafted tokens are accepted: trees for a copy's first token, a table of log odds for the ones after it.

Trusts its input; `acceptance.AcceptanceModel` owns the arrays, `corpora/acceptance` makes them. Gradient-boosted trees
are Friedman's, "Greedy function approximation: a gradient boosting machine" (2001), section 4: the log odds are the sum
of one leaf a tree.

Arrays (n nodes, t trees, f features):
    roots      int32[t]    first node of each tree
    splits     int32[n]    column of `features` that a node asks for, NONE in a leaf
    thresholds float32[n]  left if the feature is at most this; in a leaf its log odds
    children   int32[n, 2] left and right
    tail_log_odds float32[NUM_TAIL_ENTRIES]
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int32]
Bytes: TypeAlias = NDArray[np.int8]
Floats: TypeAlias = NDArray[np.float32]

NONE = -1
NUM_TYPES = 17  # of candidates, see kernels.candidates, and once more those that need no file
NUM_CLASSES = 6  # of tokens, see drafters.vocabulary
NUM_EVIDENCE_BINS = 12
NUM_OFFSET_BINS = 8
NUM_FIRST_BINS = 10  # tenths of the first token's probability
NUM_RATE_BINS = 6
FIRST_CURSOR_LESS_TYPE = 5  # candidates below this type follow the file's cursor
NUM_CURSOR_LESS_TYPES = 6
NUM_GROUPS = 3  # following the file, elsewhere, and where there is no file
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
    has_file: bool,
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
    if not has_file:
        group = 2
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
def first_probability(features: Floats, roots: Ints, splits: Ints, thresholds: Floats, children: Ints) -> float:
    """Probability that a copy's first token is accepted."""
    log_odds = 0.0
    for root in roots:
        node = root
        while splits[node] != NONE:
            node = children[node, 0 if features[splits[node]] <= thresholds[node] else 1]
        log_odds += thresholds[node]
    return float(1.0 / (1.0 + np.exp(-log_odds)))


@njit(cache=True)
def fill_probabilities(
    kind: int,
    has_file: bool,
    evidence: int,
    first: float,
    classes: Bytes,
    rate: int,
    break_factor: float,
    tail_log_odds: Floats,
    entries: Ints,
    probabilities: Floats,
) -> int:
    """Fills P(the first i + 1 tokens are all accepted), tokens of these classes; returns how many are worth drafting.

    `break_factor` is how many times more often copies break in this request than the table says. `classes` and
    `probabilities` have the same length; what is less likely than MIN_PROBABILITY is left out.
    """
    if len(classes) == 0:
        return 0
    probability = first
    probabilities[0] = probability
    tenth = min(NUM_FIRST_BINS - 1, int(first * NUM_FIRST_BINS))
    for offset in range(1, len(classes)):
        tail_entries(kind, has_file, evidence, offset, classes[offset - 1], classes[offset], tenth, rate, entries)
        log_odds = 0.0
        for part in range(NUM_TAIL_PARTS):
            log_odds += tail_log_odds[entries[part]]
        probability *= max(1.0 - break_factor / (1.0 + np.exp(log_odds)), 0.0)
        if probability < MIN_PROBABILITY:
            return offset
        probabilities[offset] = probability
    return len(classes)
