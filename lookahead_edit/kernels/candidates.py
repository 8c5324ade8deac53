"""Places to copy from, and what speaks for each. Trusts its input; `drafters.edit.EditDrafter` owns the arrays.

A candidate is a place in one of three arrays: `predicted` (the file as it's expected to go on), `text` (all the suffix
index holds), `workspace` (other files). Several may begin with the same token; they are told apart by what comes next.

Arrays (n tokens of text, p predicted, MAX_CANDIDATES rows):
    candidates int64[rows, 4]           columns TYPE … EVIDENCE
    features   float32[rows, NUM_FEATURES]  what the trees of kernels.acceptance ask for
    places     int32[p]                 the file's token that each predicted one stands for, NONE in a replacement
    previous   int32[n]                 the place before where the same token stands, NONE if there is none
    recent     int32[2, MAX_RECENT]     ends of the longest suffix, and of the last token, most recent first
"""

from __future__ import annotations

import numpy as np
from numba import njit

from lookahead_edit.kernels.acceptance import Bytes, Floats, Ints
from lookahead_edit.kernels.alignment import (
    CURSOR,
    HAS_LOST,
    IS_ALIGNED,
    MAX_COMPARED,
    MAX_TOKENS_AHEAD,
    MAX_TOKENS_BEHIND,
    NONE,
    NUM_ALIGNED_TOKENS,
    NUM_BREAKS,
    NUM_EMITTED_TOKENS,
    NUM_FAILED_ROUNDS,
    NUM_HUNK_TOKENS,
    NUM_LEAD_TOKENS,
    NUM_OTHER_MISSES,
    NUM_OTHER_TOKENS,
    OTHER,
    OTHER_IN_WORKSPACE,
    REJECTED_TOKEN,
    Counts,
    agreeing,
    followed_share,
    is_following,
)

TYPE, ARRAY, POSITION, EVIDENCE = range(4)
IN_PREDICTED, IN_TEXT, IN_WORKSPACE = range(3)

# Types. Those before OTHER_CURSOR follow the file.
AT_CURSOR = 0  # copying goes on
LIKELY_END = 1  # of a hunk: the best place near the cursor that agrees with the last tokens
NEXT_END = 2  # the next place that agrees with the last token
REPLACEMENT_END = 3  # as many tokens were replaced as were written
RESUMED_LINE = 4  # at the beginning of a line: the file's line that comes next, whatever its indentation
OTHER_CURSOR = 5  # copying from elsewhere goes on
MOST_RECENT, EARLIEST, MAJORITY = 6, 7, 8  # of the places where the longest suffix occurs
COMMON = 9  # what mostly follows the last token
WORKSPACE = 10
NUM_CANDIDATE_TYPES = 11

MAX_CANDIDATES = 12
NUM_FEATURES = 30
MAX_RECENT = 32
MAX_EVIDENCE = 256
MAX_LINE_TOKENS = 60
MAX_REPLACED_TOKENS = 4
FAR = 9999.0  # a distance where there is none
NEWLINE_CLASS = 0

# What the caller found in the workspace.
WORKSPACE_POSITION, WORKSPACE_LENGTH, WORKSPACE_COUNT, WORKSPACE_AGREEING = range(4)


@njit(cache=True)
def add(candidates: Counts, count: int, kind: int, array: int, position: int, evidence: int) -> int:
    """One candidate more."""
    candidates[count, TYPE] = kind
    candidates[count, ARRAY] = array
    candidates[count, POSITION] = position
    candidates[count, EVIDENCE] = min(evidence, MAX_EVIDENCE)
    return count + 1


@njit(cache=True)
def near_cursor(
    text: Ints,
    classes: Bytes,
    num_tokens: int,
    predicted: Ints,
    predicted_classes: Bytes,
    num_predicted: int,
    state: Counts,
    candidates: Counts,
) -> int:
    """Candidates of the file; returns how many."""
    cursor, count = state[CURSOR], 0
    if state[IS_ALIGNED] == 1:
        if cursor < num_predicted:
            evidence = state[NUM_ALIGNED_TOKENS] if state[HAS_LOST] == 1 else MAX_EVIDENCE
            count = add(candidates, count, AT_CURSOR, IN_PREDICTED, cursor, evidence)
        return count
    num_hunk_tokens, last = state[NUM_HUNK_TOKENS], text[num_tokens - 1]
    best_score, best, following = -1e9, NONE, NONE
    for position in range(max(cursor - MAX_TOKENS_BEHIND, 0) + 1, min(cursor + MAX_TOKENS_AHEAD, num_predicted)):
        if predicted[position - 1] != last:
            continue
        length = agreeing(predicted, position, text, num_tokens, MAX_COMPARED)
        if min(length, 8) > best_score:  # a score is never more, and mostly less
            skip = position - min(length, num_hunk_tokens) - cursor
            score = min(length, 8) - 0.5 * np.log2(1.0 + abs(skip)) - (1.0 if skip < 0 else 0.0)
            if score > best_score:
                best_score, best = score, position
        if following == NONE and position > cursor:
            following = position
    if best != NONE:
        evidence = agreeing(predicted, best, text, num_tokens, MAX_EVIDENCE)
        count = add(candidates, count, LIKELY_END, IN_PREDICTED, best, evidence)
    if following != NONE and following != best:
        evidence = agreeing(predicted, following, text, num_tokens, MAX_EVIDENCE)
        count = add(candidates, count, NEXT_END, IN_PREDICTED, following, evidence)
    if num_hunk_tokens <= MAX_REPLACED_TOKENS and cursor + num_hunk_tokens < num_predicted:
        count = add(candidates, count, REPLACEMENT_END, IN_PREDICTED, cursor + num_hunk_tokens, 0)
    if classes[num_tokens - 1] == NEWLINE_CLASS:
        position = cursor
        while 0 < position < num_predicted and predicted_classes[position - 1] != NEWLINE_CLASS:
            position += 1
        if position < num_predicted and position != best and position != following:
            count = add(candidates, count, RESUMED_LINE, IN_PREDICTED, position, 0)
    return count


@njit(cache=True)
def last_token_ends(num_tokens: int, previous: Ints, ends: Ints) -> int:
    """Ends of the last token alone, most recent first; how many."""
    count = 0
    position = previous[num_tokens - 1]
    while position != NONE and count < len(ends):
        ends[count] = position + 1
        count += 1
        position = previous[position]
    return count


@njit(cache=True)
def majority(followers: Ints) -> int:
    """The first place of the most frequent token."""
    best, best_votes = 0, 0
    for index in range(len(followers)):
        votes = 0
        for other in range(len(followers)):
            votes += int(followers[other] == followers[index])
        if votes > best_votes:
            best, best_votes = index, votes
    return best


@njit(cache=True)
def share_of(token: int, followers: Ints) -> float:
    """How many of them are the token; -1 where there are none."""
    if len(followers) == 0:
        return -1.0
    number = 0
    for index in range(len(followers)):
        number += int(followers[index] == token)
    return number / len(followers)


@njit(cache=True)
def count_of(token: int, token_counts: Ints) -> int:
    """How often the token occurs; 0 for separators and tokens that aren't counted."""
    return int(token_counts[token]) if 0 <= token < len(token_counts) else 0


@njit(cache=True)
def is_known(
    candidates: Counts, count: int, position: int, places: Ints, file_start: int, num_file_tokens: int
) -> bool:
    """Is this place of `text` a candidate already, possibly by its place in the file?"""
    for index in range(count):
        if candidates[index, ARRAY] == IN_TEXT:
            if candidates[index, POSITION] == position:
                return True
        elif (
            candidates[index, ARRAY] == IN_PREDICTED
            and 0 <= position - file_start < num_file_tokens
            and places[candidates[index, POSITION]] == position - file_start
        ):
            return True
    return False


@njit(cache=True)
def first_token(candidates: Counts, index: int, text: Ints, predicted: Ints, workspace: Ints) -> int:
    """The token that a candidate proposes."""
    position = candidates[index, POSITION]
    if candidates[index, ARRAY] == IN_PREDICTED:
        return int(predicted[position])
    if candidates[index, ARRAY] == IN_TEXT:
        return int(text[position])
    return int(workspace[position])


@njit(cache=True)
def find_candidates(
    text: Ints,
    classes: Bytes,
    length: int,
    num_ends: int,
    previous: Ints,
    predicted: Ints,
    predicted_classes: Bytes,
    places: Ints,
    num_predicted: int,
    file_start: int,
    num_file_tokens: int,
    output_start: int,
    token_counts: Ints,
    workspace: Ints,
    workspace_classes: Bytes,
    found: Counts,
    state: Counts,
    recent: Ints,
    candidates: Counts,
    features: Floats,
) -> int:
    """Fills candidates and features; returns how many there are.

    The longest suffix that occurs before has `length` tokens and `num_ends` ends, already in ``recent[0]``.
    """
    num_tokens = len(text)
    count = near_cursor(text, classes, num_tokens, predicted, predicted_classes, num_predicted, state, candidates)
    if state[OTHER] != NONE:
        array = IN_WORKSPACE if state[OTHER_IN_WORKSPACE] == 1 else IN_TEXT
        count = add(candidates, count, OTHER_CURSOR, array, state[OTHER], state[NUM_OTHER_TOKENS])
    num_last_ends = 0
    followers = np.empty((2, MAX_RECENT), dtype=np.int32)  # what stands at the ends
    if length > 0:
        num_last_ends = last_token_ends(num_tokens, previous, recent[1])
        for index in range(num_ends):
            followers[0, index] = text[recent[0, index]]
        for index in range(num_last_ends):
            followers[1, index] = text[recent[1, index]]
        for kind in range(MOST_RECENT, COMMON + 1):
            if kind == MOST_RECENT:
                position = recent[0, 0]
            elif kind == EARLIEST:
                position = recent[0, num_ends - 1]
            elif kind == MAJORITY:
                position = recent[0, majority(followers[0, :num_ends])]
            elif length == 1 or num_last_ends == 0:
                continue
            else:
                position = recent[1, majority(followers[1, :num_last_ends])]
            if text[position] < 0 or is_known(candidates, count, position, places, file_start, num_file_tokens):
                continue
            evidence = length
            if kind == COMMON:
                evidence = agreeing(text, position, text, num_tokens, min(length, MAX_EVIDENCE))
            count = add(candidates, count, kind, IN_TEXT, position, evidence)
    is_followed = state[OTHER] == found[WORKSPACE_POSITION] and state[OTHER_IN_WORKSPACE] == 1
    if found[WORKSPACE_POSITION] != NONE and not is_followed:
        count = add(candidates, count, WORKSPACE, IN_WORKSPACE, found[WORKSPACE_POSITION], found[WORKSPACE_LENGTH])

    tokens = np.empty(MAX_CANDIDATES, dtype=np.int64)
    for index in range(count):
        tokens[index] = first_token(candidates, index, text, predicted, workspace)
    line_start = num_tokens - 1
    while line_start > 0 and line_start > num_tokens - MAX_LINE_TOKENS and classes[line_start] != NEWLINE_CLASS:
        line_start -= 1
    last = text[num_tokens - 1]
    before = text[num_tokens - 2] if num_tokens > 1 else last
    rate = (state[NUM_BREAKS] + 1.0) / (state[NUM_EMITTED_TOKENS] + 60.0)
    follows, share = is_following(num_predicted, state), followed_share(state)
    for index in range(count):
        array, position, row = candidates[index, ARRAY], candidates[index, POSITION], features[index]
        token = tokens[index]
        place = NONE  # in the file
        where = position
        if array == IN_PREDICTED:
            place = places[position]
            where = file_start + place if place != NONE else NONE
            token_class = predicted_classes[position]
        elif array == IN_TEXT:
            token_class = classes[position]
            if 0 <= position - file_start < num_file_tokens:
                place = position - file_start
        else:
            where = NONE
            token_class = workspace_classes[position]
        num_same = 0
        for other in range(count):
            if tokens[other] == token:
                num_same += 1
        row[0] = candidates[index, TYPE]
        row[1] = min(candidates[index, EVIDENCE], 64)
        row[2] = FAR
        if array == IN_PREDICTED:
            row[2] = min(position - state[CURSOR], 2000)
        elif place != NONE and state[CURSOR] < num_predicted and places[state[CURSOR]] != NONE:
            row[2] = min(place - places[state[CURSOR]], 2000)
        row[3] = 0 if state[IS_ALIGNED] == 1 else state[NUM_HUNK_TOKENS]
        row[4] = num_ends
        row[5] = num_last_ends
        row[6] = num_same
        row[7] = token_class
        row[8] = classes[num_tokens - 1]
        row[9] = classes[max(num_tokens - 2, 0)]
        row[10] = num_tokens - where if where != NONE else FAR
        row[11] = 3 if array == IN_WORKSPACE else (2 if where >= output_start else (1 if place != NONE else 0))
        row[12] = num_tokens - 1 - line_start
        row[13] = count_of(token, token_counts)
        row[14] = count_of(last, token_counts)
        row[15] = share_of(token, followers[0, :num_ends])
        row[16] = share_of(token, followers[1, :num_last_ends])
        row[17] = 1.0 if token == state[REJECTED_TOKEN] else 0.0
        row[18] = min(state[NUM_ALIGNED_TOKENS], 200)
        row[19] = rate
        row[20] = state[NUM_FAILED_ROUNDS]
        row[21] = min(state[NUM_OTHER_TOKENS], 64) if state[OTHER] != NONE else 0
        row[22] = state[NUM_OTHER_MISSES] if state[OTHER] != NONE else 9
        is_found = array == IN_WORKSPACE and position == found[WORKSPACE_POSITION]
        row[23] = found[WORKSPACE_COUNT] if is_found else 0
        row[24] = found[WORKSPACE_AGREEING] / found[WORKSPACE_COUNT] if is_found else -1.0
        row[25] = count_of(before, token_counts)
        row[26] = 1.0 if follows else 0.0
        row[27] = share
        row[28] = min(state[NUM_EMITTED_TOKENS], 400)
        row[29] = state[NUM_LEAD_TOKENS]
    return int(count)
