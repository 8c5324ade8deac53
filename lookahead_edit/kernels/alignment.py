"""Where in the file the output is. Trusts its input; `drafters.edit.EditDrafter` owns the arrays.

`predicted` (int32) is the file as the model is expected to write it on, `text` everything the suffix index holds, the
output at its end. The cursor goes along `predicted` with every token of the output, drafted or not, so what it knows
doesn't depend on the drafts. Where a token differs, the cursor stays, and a *hunk* begins; it ends where enough tokens
agree with a place near the cursor, or more with one further away.

`state` (int64[NUM_FIELDS]) is a sequence's memory; see the fields below.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.int8]
Ints: TypeAlias = NDArray[np.int32]
Counts: TypeAlias = NDArray[np.int64]

NONE = -1

CURSOR = 0  # next token of `predicted`; within a hunk, the first one that was replaced
IS_ALIGNED = 1
NUM_ALIGNED_TOKENS = 2  # since the last hunk
HAS_LOST = 3  # there was a hunk
NUM_HUNK_TOKENS = 4  # of the output, since the cursor stopped
OTHER = 5  # next token of the last copy that was not from the cursor; NONE if there is none
NUM_OTHER_MISSES = 6
NUM_OTHER_TOKENS = 7  # agreeing ones since the last miss
NUM_BREAKS = 8  # drafts that began well and broke
NUM_EMITTED_TOKENS = 9
NUM_FAILED_ROUNDS = 10  # in a row, nothing accepted
REJECTED_TOKEN = 11  # by the target in the last round, NONE if there was none
HUNK_ENDED = 12  # the next six tell about it
OLD_START, OLD_END, NEW_START, NEW_END = 13, 14, 15, 16  # in `predicted`, and in `text`
FOUND_CURSOR, FOUND_END = 17, 18  # where the cursor was found, and how far the text went then
OTHER_IN_WORKSPACE = 19  # 1 where OTHER is a place of the workspace, 0 where it's one of `text`
NUM_FOLLOWED_TOKENS = 20  # of the output, those that were the file's next
NUM_LEAD_TOKENS = 21  # before the file that also end the prompt, such as a fence: then the answer is likely the file
NUM_FIELDS = 22

MAX_TOKENS_BEHIND = 512  # looked at before the cursor and after it
MAX_TOKENS_AHEAD = 4096
MAX_COMPARED = 16
MAX_OTHER_MISSES = 3
MIN_BREAK_TOKENS = 4
# An answer that begins as the file does is taken for one that follows it, others have to show it first.
NUM_TRUSTED_TOKENS = 16
MAX_LEAD_TOKENS = 8
MIN_FOLLOWED_SHARE = 0.25


@njit(cache=True)
def reset(state: Counts) -> None:
    """The state at a sequence's beginning."""
    state[:] = 0
    state[IS_ALIGNED] = 1
    state[OTHER] = NONE
    state[REJECTED_TOKEN] = NONE


@njit(cache=True)
def agreeing(predicted: Ints, position: int, text: Ints, end: int, max_length: int) -> int:
    """Tokens before ``predicted[position]`` that equal those before ``text[end]``, at most `max_length`."""
    length = 0
    limit = min(position, end, max_length)
    while length < limit and predicted[position - 1 - length] == text[end - 1 - length]:
        length += 1
    return length


@njit(cache=True)
def required(skip: int) -> int:
    """Agreeing tokens that end a hunk, where `skip` tokens of the file were left out (negative: come again)."""
    if -8 <= skip <= 8:
        return 2
    if -32 <= skip <= 64:
        return 3
    return 5


@njit(cache=True)
def end_hunk(text: Ints, end: int, predicted: Ints, num_predicted: int, state: Counts) -> None:
    """Aligns the cursor again if the tokens before ``text[end]`` say where."""
    cursor, num_hunk_tokens, last = state[CURSOR], state[NUM_HUNK_TOKENS], text[end - 1]
    best_score, best, best_length = 0.0, NONE, 0
    for position in range(max(cursor - MAX_TOKENS_BEHIND, 0) + 1, min(cursor + MAX_TOKENS_AHEAD, num_predicted) + 1):
        if predicted[position - 1] != last:
            continue
        length = agreeing(predicted, position, text, end, MAX_COMPARED)
        skip = position - min(length, num_hunk_tokens) - cursor
        if length >= required(skip):
            score = length - 0.3 * np.log2(1.0 + abs(skip))
            if score > best_score:
                best_score, best, best_length = score, position, length
    if best == NONE:
        return
    num_shared = min(best_length, num_hunk_tokens)
    state[HUNK_ENDED] = 1
    state[OLD_START] = cursor
    state[OLD_END] = best - num_shared
    state[NEW_START] = end - num_hunk_tokens
    state[NEW_END] = end - num_shared
    state[FOUND_CURSOR] = best
    state[FOUND_END] = end
    state[CURSOR] = best
    state[IS_ALIGNED] = 1
    state[NUM_ALIGNED_TOKENS] = best_length


@njit(cache=True)
def follow_other(text: Ints, position: int, workspace: Ints, state: Counts) -> None:
    """Goes on with ``text[position]`` in the last copy from elsewhere; it is over at a border, or after some misses."""
    other = state[OTHER]
    copied = workspace if state[OTHER_IN_WORKSPACE] == 1 else text
    if copied[other] == text[position]:
        state[NUM_OTHER_TOKENS] += 1
    else:
        state[NUM_OTHER_MISSES] += 1
        state[NUM_OTHER_TOKENS] = 0
    other += 1
    end = len(workspace) if state[OTHER_IN_WORKSPACE] == 1 else position
    is_over = state[NUM_OTHER_MISSES] > MAX_OTHER_MISSES or other >= end or copied[other] < 0
    state[OTHER] = NONE if is_over else other


@njit(cache=True)
def followed_share(state: Counts) -> float:
    """How much of the output is the file's text, 0 to 1; all or none of so many tokens are reckoned with beforehand."""
    num_trusted_tokens = NUM_TRUSTED_TOKENS if state[NUM_LEAD_TOKENS] > 0 else 0
    return float((state[NUM_FOLLOWED_TOKENS] + num_trusted_tokens) / (state[NUM_EMITTED_TOKENS] + NUM_TRUSTED_TOKENS))


@njit(cache=True)
def is_following(num_predicted: int, state: Counts) -> bool:
    """Is there a file, and does the output go along with it, rather than tell about it?"""
    return num_predicted > 0 and followed_share(state) >= MIN_FOLLOWED_SHARE


@njit(cache=True)
def follow_in_file(text: Ints, position: int, predicted: Ints, num_predicted: int, state: Counts) -> None:
    """Moves the cursor over ``text[position]``, or begins or ends a hunk there."""
    token = text[position]
    if state[IS_ALIGNED] == 1:
        cursor = state[CURSOR]
        if cursor < num_predicted and predicted[cursor] == token:
            state[CURSOR] = cursor + 1
            state[NUM_ALIGNED_TOKENS] += 1
            state[NUM_FOLLOWED_TOKENS] += 1
            return
        state[IS_ALIGNED] = 0
        state[HAS_LOST] = 1
        state[NUM_ALIGNED_TOKENS] = 0
        state[NUM_HUNK_TOKENS] = 1
    else:
        state[NUM_HUNK_TOKENS] += 1
    end_hunk(text, position + 1, predicted, num_predicted, state)


@njit(cache=True)
def follow_token(
    text: Ints, position: int, predicted: Ints, num_predicted: int, workspace: Ints, state: Counts
) -> None:
    """Takes in ``text[position]``, the next token of the output."""
    if state[OTHER] != NONE:
        follow_other(text, position, workspace, state)
    if num_predicted > 0:
        follow_in_file(text, position, predicted, num_predicted, state)


@njit(cache=True)
def enter_tokens(
    text: Ints,
    first: int,
    previous: Ints,
    last_seen: Ints,
    token_counts: Ints,
    class_table: Bytes,
    classes: Bytes,
) -> bool:
    """Counts the tokens from ``text[first]`` on and links each to the same one before; separators are left out.

    `last_seen` (NONE at first) and `token_counts` have an entry for every token that counts, larger ones are left out
    too; `previous` and `classes` have one for every place. Classes are taken from the table, int8[num_known], which has
    a negative number where none is known: returns whether all were.
    """
    is_complete = True
    for position in range(first, len(text)):
        token = text[position]
        if 0 <= token < len(class_table) and class_table[token] >= 0:
            classes[position] = class_table[token]
        else:
            is_complete = False
        previous[position] = NONE
        if 0 <= token < len(last_seen):
            previous[position] = last_seen[token]
            last_seen[token] = position
            token_counts[token] += 1
    return is_complete


@njit(cache=True)
def follow(
    text: Ints,
    first: int,
    predicted: Ints,
    num_predicted: int,
    workspace: Ints,
    num_draft_tokens: int,
    num_accepted_tokens: int,
    rejected_token: int,
    copied_from: int,
    is_from_workspace: bool,
    evidence: int,
    state: Counts,
) -> None:
    """Takes in a round: the tokens from ``text[first]`` on, and how the draft fared.

    `copied_from` is where in `text`, or in the workspace, the draft was copied from, NONE if it was copied from the
    predicted file or nothing was drafted; `rejected_token` NONE if there is none.
    """
    state[HUNK_ENDED] = 0
    state[REJECTED_TOKEN] = rejected_token
    state[NUM_FAILED_ROUNDS] = 0 if num_accepted_tokens > 0 else state[NUM_FAILED_ROUNDS] + 1
    if MIN_BREAK_TOKENS <= num_accepted_tokens < num_draft_tokens:
        state[NUM_BREAKS] += 1
    if num_accepted_tokens > 0 and copied_from != NONE:
        state[OTHER] = copied_from
        state[OTHER_IN_WORKSPACE] = 1 if is_from_workspace else 0
        state[NUM_OTHER_MISSES] = 0
        state[NUM_OTHER_TOKENS] = evidence
    for position in range(first, len(text)):
        follow_token(text, position, predicted, num_predicted, workspace, state)
    state[NUM_EMITTED_TOKENS] += len(text) - first


@njit(cache=True)
def follow_again(text: Ints, predicted: Ints, num_predicted: int, state: Counts) -> None:
    """Takes in the present hunk's tokens once more, after `predicted` has changed from the cursor on.

    What is followed elsewhere has heard of them already.
    """
    first = len(text) - state[NUM_HUNK_TOKENS]
    if state[IS_ALIGNED] == 1 or predicted[state[CURSOR]] != text[first]:
        return
    state[IS_ALIGNED] = 1
    state[NUM_ALIGNED_TOKENS] = MIN_BREAK_TOKENS
    for position in range(first, len(text)):
        follow_in_file(text, position, predicted, num_predicted, state)
