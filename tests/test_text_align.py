"""Hunks are correct, ordered, apart from each other, and found in bounded work."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookahead_edit import text_align
from lookahead_edit.text_align import Hunk, changed_hunks

LINES = st.lists(st.sampled_from("abcdef"), max_size=25)


def check(before, after, hunks):
    rebuilt = []
    cursor = 0
    for hunk in hunks:
        assert hunk.before_end > hunk.before_start or hunk.after_end > hunk.after_start
        rebuilt += before[cursor : hunk.before_start]
        assert len(rebuilt) == hunk.after_start
        rebuilt += after[hunk.after_start : hunk.after_end]
        cursor = hunk.before_end
    assert rebuilt + before[cursor:] == after
    assert all(second.before_start > first.before_end for first, second in pairwise(hunks))


def num_changed(hunks):
    return sum(hunk.before_end - hunk.before_start + hunk.after_end - hunk.after_start for hunk in hunks)


@given(LINES, LINES)
def test_hunks_turn_one_text_into_the_other(before, after):
    check(before, after, changed_hunks(before, after))


@given(LINES, LINES)
def test_a_gap_that_is_too_large_counts_as_replaced_and_is_still_right(before, after):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_align, "MAX_GAP_CELLS", 3)
        check(before, after, changed_hunks(before, after))


@given(LINES)
def test_equal_texts_have_no_hunks(lines):
    assert changed_hunks(lines, list(lines)) == []


def test_only_what_changed_is_in_a_hunk():
    assert changed_hunks(list("abcdef"), list("abXdeYZf")) == [Hunk(2, 3, 2, 3), Hunk(5, 5, 5, 7)]


@pytest.mark.parametrize("line", ["same", "line {}", "line {}, {}"])
def test_ten_thousand_lines_keep_small_hunks(line):
    before = [line.format(number % 100, number) for number in range(10_000)]
    after = list(before)
    for number in range(9_900, 0, -100):
        after[number : number + 1] = [f"changed {number}", "added"]
    hunks = changed_hunks(before, after)
    check(before, after, hunks)
    assert num_changed(hunks) == 99 * 3


def test_a_hundred_thousand_lines_keep_small_hunks():
    before = [f"line {number}" for number in range(100_000)]
    after = ["first", *before[1:50_000], *before[50_001:-1], "last"]
    hunks = changed_hunks(before, after)
    check(before, after, hunks)
    assert num_changed(hunks) == 5
