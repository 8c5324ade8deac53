"""Rows are recognised wherever they stand, and never taken for others."""

from __future__ import annotations

import numpy as np
import pytest

from lookahead_edit.types import IntArray
from lookahead_edit.vllm_plugin.rows import MAX_ABSENT_STEPS, NUM_HEAD_TOKENS, NUM_TAIL_TOKENS, Row, RowTracker, Seen

RANDOM = np.random.default_rng(0)


def text(num_tokens: int = 300) -> IntArray:
    return RANDOM.integers(0, 50_000, num_tokens).astype(np.int32)


def step(tracker: RowTracker, *seen: Seen) -> list[int]:
    """The keys, and what's new is taken over."""
    tracked = tracker.track(seen)
    for (row, _), each in zip(tracked, seen, strict=True):
        row.append(each.tokens[row.num_tokens :])
    return [row.key for row, _ in tracked]


def test_rows_that_change_places_keep_their_keys() -> None:
    tracker, texts = RowTracker(), [text() for _ in range(5)]
    keys = step(tracker, *(Seen(each[:200], 1) for each in texts))
    assert len(set(keys)) == 5
    order = [3, 0, 4, 2, 1]
    assert step(tracker, *(Seen(texts[place][:204], 4) for place in order)) == [keys[place] for place in order]


def test_a_row_that_comes_back_after_some_steps_is_known_and_others_keep_theirs() -> None:
    tracker, first, second = RowTracker(), text(), text()
    one, two = step(tracker, Seen(first[:100], 1), Seen(second[:100], 1))
    for length in range(101, 110):
        assert step(tracker, Seen(second[:length], 1)) == [two]
    assert step(tracker, Seen(second[:111], 2), Seen(first[:101], 1)) == [two, one]


@pytest.mark.parametrize("place", [0, NUM_HEAD_TOKENS - 1, 299])
def test_a_row_of_other_tokens_is_new(place: int) -> None:
    tracker, known = RowTracker(), text()
    (key,) = step(tracker, Seen(known[:300], 1))
    changed = np.append(known, np.int32(5))
    changed[place] += 1
    assert step(tracker, Seen(changed, 1)) != [key]


def test_a_difference_in_the_middle_of_a_long_text_is_noticed_soon() -> None:
    row, tokens = Row(text(20_000)), None
    tokens = row.tokens.copy()
    assert all(row.begins(tokens) for _ in range(50))
    tokens[10_000] += 1
    assert not all(row.begins(tokens) for _ in range(20))


def test_a_shorter_text_is_new_and_so_is_an_unrelated_one_of_the_same_end() -> None:
    tracker, known = RowTracker(), text()
    (key,) = step(tracker, Seen(known, 1))
    assert step(tracker, Seen(known[:200], 1)) != [key]
    other = np.concatenate([text(300 - NUM_TAIL_TOKENS - 1), known[-NUM_TAIL_TOKENS - 1 :]])
    assert step(tracker, Seen(np.append(other, np.int32(1)), 1)) != [key]


def test_two_requests_of_the_same_text_are_two_rows() -> None:
    tracker, known = RowTracker(), text()
    first = step(tracker, Seen(known[:100], 1), Seen(known[:100], 1))
    assert len(set(first)) == 2
    assert sorted(step(tracker, Seen(known[:101], 1), Seen(known[:101], 1))) == sorted(first)


def test_steps_in_between_that_nobody_told_about_leave_a_row_known() -> None:
    tracker, known = RowTracker(), text()
    keys = step(tracker, Seen(known[:100], 1))
    assert step(tracker, Seen(known[:150], 1)) == keys


def test_the_engines_names_tell_equal_texts_apart_and_a_reused_name_is_a_new_row() -> None:
    tracker, known = RowTracker(), text()
    one, two = step(tracker, Seen(known[:100], 1, "a"), Seen(known[:100], 1, "b"))
    assert step(tracker, Seen(known[:101], 1, "b"), Seen(known[:101], 1, "a")) == [two, one]
    (three,) = step(tracker, Seen(text(), 1, "a"))
    assert three not in (one, two)
    assert len([row for row in tracker if row.name == "a"]) == 1


def test_rows_are_forgotten_when_they_stay_away_or_the_engine_forgets_them() -> None:
    tracker, stays, leaves = RowTracker(), text(1000), text()
    step(tracker, Seen(stays[:100], 1), Seen(leaves, 1))
    for length in range(101, 102 + MAX_ABSENT_STEPS):
        step(tracker, Seen(stays[:length], 1))
    assert len(tracker) == 1
    step(tracker, Seen(text(), 1, "a"), Seen(text(), 1, "b"))
    tracker.keep_only(["b"])
    assert [row.name for row in tracker if row.name is not None] == ["b"]


def test_no_more_rows_are_remembered_than_allowed() -> None:
    tracker = RowTracker(max_rows=8)
    for _ in range(50):
        step(tracker, Seen(text(40), 1), Seen(text(40), 1))
        assert len(tracker) <= 10
