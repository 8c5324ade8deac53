"""The cursor in the file, against a slow twin and on edits made by hand."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from lookahead_edit.kernels import alignment
from tests import naive

IS_COMPILED = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
MAX_RANDOM_TOKENS = 120 if IS_COMPILED else 30
PROMPT = [9, 8]  # before the output
FILE = list(range(20, 60))


def new_state() -> NDArray[np.int64]:
    state = np.zeros(alignment.NUM_FIELDS, dtype=np.int64)
    alignment.reset(state)
    return state


def array_of(tokens: list[int]) -> NDArray[np.int32]:
    return np.array(tokens, dtype=np.int32)


def follow(
    state: NDArray[np.int64],
    text: list[int],
    first: int,
    predicted: list[int],
    fared: tuple[int, int] = (0, 0),
    copied_from: int = alignment.NONE,
    workspace: list[int] | None = None,
) -> None:
    """One round that emitted ``text[first:]``; `fared` is the number of drafted and of accepted tokens.

    With a workspace, it is the one that was copied from.
    """
    alignment.follow(
        array_of(text),
        first,
        array_of(predicted),
        len(predicted),
        array_of(workspace or []),
        *fared,
        alignment.NONE,
        copied_from,
        workspace is not None,
        0,
        state,
    )


def other_of(state: NDArray[np.int64]) -> tuple[int, ...]:
    fields = (alignment.OTHER, alignment.NUM_OTHER_MISSES, alignment.NUM_OTHER_TOKENS)
    return tuple(int(state[field]) for field in fields)


def hunk_of(state: NDArray[np.int64]) -> tuple[int, ...]:
    fields = (alignment.OLD_START, alignment.OLD_END, alignment.NEW_START, alignment.NEW_END)
    return tuple(int(state[field]) for field in fields)


def compare(output: list[int], predicted: list[int], rounds: Iterator[int]) -> None:
    """Rounds of several tokens end where single ones do, and both where the twin does."""
    text = [*PROMPT, *output]
    cursor, num_hunk_tokens, hunks, num_followed = naive.followed(text, len(PROMPT), predicted)
    state, found = new_state(), []
    for end in range(len(PROMPT) + 1, len(text) + 1):
        follow(state, text[:end], end - 1, predicted)
        if state[alignment.HUNK_ENDED]:
            found.append(hunk_of(state))
            assert state[alignment.FOUND_END] == end
            assert state[alignment.FOUND_CURSOR] == state[alignment.CURSOR]
    assert found == hunks
    assert state[alignment.CURSOR] == cursor
    assert state[alignment.IS_ALIGNED] == (num_hunk_tokens == 0)
    assert num_hunk_tokens in (0, state[alignment.NUM_HUNK_TOKENS])
    assert state[alignment.HAS_LOST] == (bool(hunks) or num_hunk_tokens > 0)
    assert state[alignment.NUM_EMITTED_TOKENS] == len(output)
    assert state[alignment.NUM_FOLLOWED_TOKENS] == num_followed
    at_once, end = new_state(), len(PROMPT)
    while end < len(text):
        first, end = end, min(end + next(rounds), len(text))
        follow(at_once, text[:end], first, predicted)
    counts = (alignment.NUM_ALIGNED_TOKENS, alignment.NUM_EMITTED_TOKENS, alignment.NUM_FOLLOWED_TOKENS)
    for field in (alignment.CURSOR, alignment.IS_ALIGNED, *counts):
        assert at_once[field] == state[field]


def test_the_cursor_is_where_its_twin_is_on_all_small_texts() -> None:
    strings = [list(word) for size in range(1, 6) for word in itertools.product(range(2), repeat=size)]
    rounds = itertools.cycle((1, 3, 2))
    for predicted, output in itertools.product(strings, strings):
        if IS_COMPILED or len(predicted) + len(output) < 7:
            compare(output, predicted, rounds)


def test_the_cursor_is_where_its_twin_is_on_random_edits() -> None:
    generator = np.random.default_rng(3)
    rounds = (int(generator.integers(1, 9)) for _ in itertools.count())
    for _ in range(60):
        predicted = generator.integers(0, generator.choice([2, 5, 50]), MAX_RANDOM_TOKENS).tolist()
        output = list(predicted)
        for _ in range(int(generator.integers(0, 6))):
            start = int(generator.integers(0, len(output)))
            size, num_new = generator.integers(0, 20, 2).tolist()
            output[start : start + size] = generator.integers(0, 50, num_new).tolist() + output[: start % 3]
        compare(output or [1], predicted, rounds)


@pytest.mark.parametrize(
    ("output", "hunk"),
    [
        pytest.param([*FILE[:10], 70, 71, *FILE[10:12]], (10, 10, 12, 14), id="insertion"),
        pytest.param([*FILE[:10], *FILE[13:15]], (10, 13, 12, 12), id="deletion"),
        pytest.param([*FILE[:10], 70, 71, *FILE[11:13]], (10, 11, 12, 14), id="replacement"),
        pytest.param([*FILE[:10], *FILE[30:33]], (10, 30, 12, 12), id="move from below"),
        pytest.param([*FILE[:30], *FILE[10:13]], (30, 10, 32, 32), id="lines that come again"),
    ],
)
def test_a_hunk_is_what_was_changed(output: list[int], hunk: tuple[int, ...]) -> None:
    state = new_state()
    follow(state, [*PROMPT, *output], len(PROMPT), FILE)
    assert (state[alignment.HUNK_ENDED], hunk_of(state)) == (1, hunk)
    assert FILE[state[alignment.CURSOR] - 1] == output[-1]
    assert state[alignment.IS_ALIGNED] == 1


def test_the_nearer_of_equal_places_is_taken_and_far_ones_need_more_tokens() -> None:
    file = [1, 2, 3, 4, 30, 31, *range(100, 180), 30, 31, 32, 33, 34, 35]
    state = new_state()
    follow(state, [*PROMPT, 1, 2, 70, 30, 31], len(PROMPT), file)
    assert state[alignment.CURSOR] == 6
    state = new_state()
    far = [*PROMPT, 1, 2, 70, 31, 32]
    follow(state, far, len(PROMPT), file)
    assert state[alignment.IS_ALIGNED] == 0
    follow(state, [*far, 33, 34, 35], len(far), file)
    assert (state[alignment.IS_ALIGNED], state[alignment.CURSOR]) == (1, len(file))


def test_at_the_files_end_whatever_comes_is_a_hunk() -> None:
    state = new_state()
    follow(state, [*PROMPT, *FILE, 70, 71], len(PROMPT), FILE)
    assert (state[alignment.CURSOR], state[alignment.IS_ALIGNED]) == (len(FILE), 0)
    assert state[alignment.NUM_HUNK_TOKENS] == 2


def test_without_a_file_nothing_is_lost() -> None:
    state = new_state()
    follow(state, [*PROMPT, 70, 71], len(PROMPT), [])
    assert (state[alignment.IS_ALIGNED], state[alignment.HAS_LOST], state[alignment.CURSOR]) == (1, 0, 0)


def test_copies_from_elsewhere_are_followed_until_they_fail() -> None:
    generator = np.random.default_rng(4)
    for _ in range(200):
        text = generator.integers(0, 3, int(generator.integers(4, 40))).tolist()
        text[int(generator.integers(0, len(text)))] = -1
        first = int(generator.integers(2, len(text)))
        copied_from = int(generator.integers(0, first - 1))
        if min(text[first:]) < 0 or text[copied_from] < 0:
            continue
        state = new_state()
        follow(state, text, first, [], (4, 1), copied_from)
        assert other_of(state) == naive.other_cursor(text, first, copied_from)
        assert state[alignment.OTHER_IN_WORKSPACE] == 0


def test_copies_from_the_workspace_are_followed_there_up_to_its_next_separator() -> None:
    generator = np.random.default_rng(5)
    ends = set()
    for _ in range(300):
        workspace = [*generator.integers(0, 2, int(generator.integers(2, 12))).tolist(), -1]
        workspace += [*generator.integers(0, 2, int(generator.integers(1, 9))).tolist(), -1]
        copied_from = int(generator.choice(np.flatnonzero(np.array(workspace) >= 0)))
        output = workspace[copied_from : workspace.index(-1, copied_from)]
        for at in generator.integers(0, len(output), 3 if len(output) > 3 else 0).tolist():
            output[at] = int(generator.integers(0, 3))
        text = [*PROMPT, *output[: int(generator.integers(1, len(output) + 1))], *generator.integers(0, 2, 3).tolist()]
        text = text[: int(generator.integers(len(PROMPT) + 1, len(text) + 1))]
        state = new_state()
        follow(state, text, len(PROMPT), [], (4, 1), copied_from, workspace)
        found = naive.other_cursor(text, len(PROMPT), copied_from, workspace)
        assert other_of(state) == found
        assert state[alignment.OTHER_IN_WORKSPACE] == 1
        ends.add((found[0] >= 0, min(found[1], 4)))
    assert ends >= {(True, 0), (True, 1), (False, 0), (False, 4)}


def test_a_copy_from_elsewhere_goes_on_in_the_array_that_it_was_made_from() -> None:
    workspace, text = [1, 2, 3, 4, -1, 5, 6], [7, 8, 9, 7, 8, 9]
    state = new_state()
    follow(state, [*text, 2, 3], len(text), [], (3, 2), 1, workspace)
    assert (state[alignment.OTHER], state[alignment.OTHER_IN_WORKSPACE], state[alignment.NUM_OTHER_TOKENS]) == (3, 1, 2)
    text += [2, 3]
    follow(state, [*text, 7, 8], len(text), [], (3, 2), 0)  # without a workspace: copied from the text
    assert (state[alignment.OTHER], state[alignment.OTHER_IN_WORKSPACE], state[alignment.NUM_OTHER_TOKENS]) == (2, 0, 2)
    text += [7, 8]
    follow(state, [*text, 6], len(text), [], (3, 1), 6, workspace)  # nothing comes after the workspace's last token
    assert (state[alignment.OTHER], state[alignment.OTHER_IN_WORKSPACE]) == (alignment.NONE, 1)


def test_an_output_follows_its_file_until_less_than_a_quarter_of_it_does_and_may_come_back() -> None:
    state = new_state()
    state[alignment.NUM_LEAD_TOKENS] = 1
    assert alignment.is_following(len(FILE), state)
    assert not alignment.is_following(0, state)  # there is nothing to follow
    text = list(PROMPT)
    for number in range(1, 60):
        follow(state, [*text, 70 + number], len(text), FILE)
        text.append(70 + number)
        assert alignment.followed_share(state) == pytest.approx(16 / (number + 16))
        assert alignment.is_following(len(FILE), state) == (number <= 48)
    first = len(text)
    text += FILE
    follow(state, text, first, FILE)
    assert state[alignment.NUM_FOLLOWED_TOKENS] == len(FILE) - 2  # two tokens said where it goes on
    assert alignment.followed_share(state) == pytest.approx((len(FILE) + 14) / (59 + len(FILE) + 16))
    assert alignment.is_following(len(FILE), state)


def test_an_output_that_does_not_begin_as_its_file_has_to_show_that_it_follows_it() -> None:
    state = new_state()
    assert not alignment.is_following(len(FILE), state)
    for number in range(1, len(FILE) + 1):
        follow(state, [*PROMPT, *FILE[:number]], len(PROMPT) + number - 1, FILE)
        assert alignment.followed_share(state) == pytest.approx(number / (number + 16))
        assert alignment.is_following(len(FILE), state) == (number >= 6)
        assert not alignment.is_following(0, state)


def test_a_file_that_is_written_word_for_word_is_followed_wholly() -> None:
    state = new_state()
    state[alignment.NUM_LEAD_TOKENS] = alignment.MAX_LEAD_TOKENS
    follow(state, [*PROMPT, *FILE], len(PROMPT), FILE)
    assert alignment.followed_share(state) == 1.0


def test_rounds_are_counted_by_how_their_drafts_fared() -> None:
    state = new_state()
    for num_drafted, num_accepted, num_failed, num_breaks in (
        (0, 0, 1, 0),  # a round without a draft fails as well
        (9, 0, 2, 0),
        (9, 3, 0, 0),  # too short a start to count as a break
        (9, 4, 0, 1),
        (9, 9, 0, 1),
        (9, 0, 1, 1),
    ):
        follow(state, [*PROMPT, 5], len(PROMPT), FILE, (num_drafted, num_accepted))
        assert (state[alignment.NUM_FAILED_ROUNDS], state[alignment.NUM_BREAKS]) == (num_failed, num_breaks)


def test_a_hunk_is_read_again_when_the_prediction_has_changed() -> None:
    file, output = [1, 2, 3, 4, 5, 6, 7], [1, 2, 30, 40]
    state = new_state()
    text = array_of([*PROMPT, *output])
    follow(state, text.tolist(), len(PROMPT), file)
    assert state[alignment.IS_ALIGNED] == 0
    alignment.follow_again(text, array_of(file), len(file), state)
    assert state[alignment.IS_ALIGNED] == 0  # it still begins with another token
    better = array_of([1, 2, 30, 40, 5, 6, 7])
    alignment.follow_again(text, better, len(better), state)
    assert (state[alignment.IS_ALIGNED], state[alignment.CURSOR]) == (1, 4)
    assert (state[alignment.NUM_FOLLOWED_TOKENS], state[alignment.NUM_EMITTED_TOKENS]) == (4, 4)


def test_reading_a_hunk_again_tells_a_copy_from_elsewhere_nothing_new() -> None:
    workspace = [30, 40, 50, 60, -1]
    text, state = [*PROMPT, 1, 2, 30, 40], new_state()
    follow(state, text[:4], len(PROMPT), [1, 2, 3, 4, 5, 6, 7])
    follow(state, text, 4, [1, 2, 3, 4, 5, 6, 7], (2, 2), 0, workspace)
    before = other_of(state)
    assert before == (2, 0, 2)
    better = array_of([1, 2, 30, 40, 5, 6, 7])
    alignment.follow_again(array_of(text), better, len(better), state)
    assert (state[alignment.IS_ALIGNED], other_of(state)) == (1, before)


def test_equal_tokens_are_linked_and_counted_but_for_separators_and_huge_ones() -> None:
    text = array_of([3, -1, 3, 99, 3, 99, -2, 0])
    previous, last_seen, counts = (np.full(size, -1, dtype=np.int32) for size in (8, 4, 4))
    counts[:] = 0
    no_classes, classes = np.zeros(0, dtype=np.int8), np.full(8, 9, dtype=np.int8)
    for first, end in ((0, 3), (3, 8)):
        assert not alignment.enter_tokens(text[:end].copy(), first, previous, last_seen, counts, no_classes, classes)
    assert previous.tolist() == [-1, -1, 0, -1, 2, -1, -1, -1]
    assert counts.tolist() == [1, 0, 0, 3]
    assert last_seen.tolist() == [7, -1, -1, 4]
    assert classes.tolist() == [9] * 8


def test_classes_come_from_the_table_and_unknown_ones_are_told() -> None:
    table = np.array([5, -1, 2, 0], dtype=np.int8)
    previous, last_seen, counts = (np.zeros(size, dtype=np.int32) for size in (6, 4, 4))
    for tokens, is_complete in (
        ([2, 0, 3, 2, 0, 2], True),
        ([2, 1], False),
        ([4], False),
        ([-1, 0], False),
        ([], True),
    ):
        classes = np.full(6, 9, dtype=np.int8)
        assert alignment.enter_tokens(array_of(tokens), 0, previous, last_seen, counts, table, classes) == is_complete
        known = [int(table[token]) if 0 <= token < 4 and table[token] >= 0 else 9 for token in tokens]
        assert classes.tolist() == known + [9] * (6 - len(tokens))
    classes = np.full(6, 9, dtype=np.int8)  # those before the first place stay as they are, whatever they were
    assert alignment.enter_tokens(array_of([1, 1, 0, 3]), 2, previous, last_seen, counts, table, classes)
    assert classes.tolist() == [9, 9, 5, 0, 9, 9]
