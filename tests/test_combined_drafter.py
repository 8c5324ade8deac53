"""Two drafters for one sequence: whose draft it is, and what each of them hears."""

from __future__ import annotations

import numpy as np
import pytest
from drafting import commit, tokens_of

from lookahead_edit.drafters.combined import NOT_ASKED, CombinedDrafter, first_probability
from lookahead_edit.drafters.scripted import ScriptedDrafter
from lookahead_edit.types import Draft


def drafting(*tokens: int, match_length: int = 8) -> ScriptedDrafter:
    return ScriptedDrafter(lambda known: tokens, match_length=match_length)


def test_the_first_drafter_is_taken_where_it_is_sure_enough_and_the_second_elsewhere() -> None:
    for match_length, expected in ((0, [7, 8]), (8, [5, 6])):
        drafter = CombinedDrafter(drafting(5, 6, match_length=match_length), drafting(7, 8), min_first_probability=0.6)
        drafter.start(tokens_of(1, 2), ())
        assert drafter.draft(8).tokens.tolist() == expected


def test_an_unlikely_copy_is_better_than_nothing() -> None:
    drafter = CombinedDrafter(drafting(5, 6, match_length=0), drafting(), min_first_probability=0.6)
    drafter.start(tokens_of(1), ())
    assert drafter.draft(8).tokens.tolist() == [5, 6]
    empty = CombinedDrafter(drafting(), drafting())
    empty.start(tokens_of(1), ())
    assert empty.draft(8).reason == "the script drafts nothing"


def test_the_second_is_not_asked_where_the_first_is_sure() -> None:
    def refuse(tokens: object) -> list[int]:
        raise AssertionError("a draft model's pass for nothing")

    drafter = CombinedDrafter(drafting(5), ScriptedDrafter(refuse))
    drafter.start(tokens_of(1), ())
    assert drafter.draft(8).tokens.tolist() == [5]


def test_both_hear_every_commit_and_only_the_one_whose_draft_it_was_how_it_fared() -> None:
    first, second = drafting(5, 6), drafting(7, 8)
    drafter = CombinedDrafter(first, second)
    drafter.start(tokens_of(1, 2), ())
    commit(drafter, drafter.draft(8), 5, 9)
    first._match_length = 0
    drafter._min_first_probability = 0.6  # type: ignore[misc]
    commit(drafter, drafter.draft(8), 7, 8, 3)
    commit(drafter, Draft(reason="not verified"), 4)  # nobody was asked
    heard = [
        [(emitted.tolist(), len(draft), accepted) for emitted, draft, accepted in each.commits]
        for each in (first, second)
    ]
    assert heard[0] == [([5, 9], 2, 1), ([7, 8, 3], 0, 0), ([4], 0, 0)]
    assert heard[1] == [([5, 9], 0, 0), ([7, 8, 3], 2, 2), ([4], 0, 0)]
    assert second.commits[0][1].reason == NOT_ASKED


def test_both_keep_their_memory_and_begin_anew() -> None:
    first, second = drafting(5), drafting(7)
    drafter = CombinedDrafter(first, second)
    drafter.start(tokens_of(1, 2, 3), ())
    assert drafter.num_index_bytes == first.num_index_bytes + second.num_index_bytes > 0
    commit(drafter, drafter.draft(4), 5, 6)
    drafter.start(tokens_of(9), ())
    assert drafter.draft(4).tokens.tolist() == [5]


def test_a_drafts_first_probability_is_its_own_estimate_or_that_of_its_match() -> None:
    assert first_probability(Draft(tokens_of(1), match_length=8)) == pytest.approx(0.9)
    estimated = Draft(tokens_of(1, 2), match_length=8, probabilities=np.array([0.25, 0.1], np.float32))
    assert first_probability(estimated) == 0.25
