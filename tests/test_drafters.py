"""What each drafter guesses, and why it sometimes doesn't."""

from __future__ import annotations

import numpy as np
import pytest

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.drafters import DRAFTERS
from lookahead_edit.drafters.ngram import NgramDrafter
from lookahead_edit.drafters.patience import MAX_FAILED_DRAFTS, NUM_WAITING_ROUNDS, PatientDrafter
from lookahead_edit.drafters.scripted import NoDrafter, ScriptedDrafter
from lookahead_edit.drafters.suffix import MAX_OVERRUN_TOKENS, START_MATCH_LENGTH, SuffixDrafter
from lookahead_edit.types import NO_TOKENS, Drafter, Source, SourceKind
from tests.drafting import commit, decode, emit, tokens_of

ANY_MATCH = SpeculationConfig(min_match_length=1)
FENCE = [90, 91]


def editing(file: list[int], *sources: Source, before: list[int] | None = None) -> SuffixDrafter:
    """A suffix drafter at the start of an answer; the prompt is ``before, fence, file, fence, 99, fence``."""
    head = [*(before or [80]), *FENCE]
    prompt = tokens_of(*head, *file, *FENCE, 99, *FENCE)
    drafter = SuffixDrafter(ANY_MATCH)
    drafter.start(prompt, [Source(kind=SourceKind.FILE, tokens=tokens_of(*file), prompt_start=len(head)), *sources])
    return drafter


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_drafter_keeps_its_word_on_random_traffic(name: str) -> None:
    generator = np.random.default_rng(6)
    for num_values in (1, 2, 5, 40):
        prompt = generator.integers(0, num_values, 60).astype(np.int32)
        other = Source(kind=SourceKind.CONTEXT, tokens=generator.integers(0, num_values, 30).astype(np.int32))
        file = Source(kind=SourceKind.FILE, tokens=prompt[10:40], prompt_start=10)
        drafter = DRAFTERS[name](ANY_MATCH, None)
        drafter.start(prompt, [other, file])
        for _ in range(60):
            max_draft_tokens = int(generator.integers(0, 12))
            draft = drafter.draft(max_draft_tokens)
            assert len(draft) <= max_draft_tokens
            assert draft.tokens.dtype == np.int32
            assert draft.sources.dtype == np.int8
            assert draft.sources.shape == draft.tokens.shape
            assert ((draft.tokens >= 0) & (draft.tokens < num_values)).all()
            assert (len(draft) == 0) == (draft.reason is not None)
            assert len(draft) == 0 or draft.match_length >= 1
            kept = draft.cut(int(generator.integers(0, 13)), "cut")
            accepted = int(generator.integers(0, len(kept) + 1))
            own = generator.integers(0, num_values, 1).astype(np.int32)
            drafter.commit(np.concatenate([kept.tokens[:accepted], own]), kept, accepted)
        assert drafter.num_index_bytes >= 0


@pytest.mark.parametrize("name", DRAFTERS)
def test_an_empty_prompt_is_no_error(name: str) -> None:
    drafter = DRAFTERS[name](ANY_MATCH, None)
    drafter.start(NO_TOKENS, [])
    assert drafter.draft(8).reason is not None
    emit(drafter, 1, 2, 1)
    assert drafter.draft(8).tokens.tolist() in ([], [2, 1], [2, 1, 2, 1, 2, 1, 2, 1])


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_drafter_can_be_started_again(name: str) -> None:
    drafter = DRAFTERS[name](ANY_MATCH, None)
    fresh = DRAFTERS[name](ANY_MATCH, None)
    drafter.start(tokens_of(1, 2, 3), [])
    emit(drafter, 1, 2)
    for each in (drafter, fresh):
        each.start(tokens_of(5, 6, 7, 5), [])
        emit(each, 6)
    assert drafter.draft(8).tokens.tolist() == fresh.draft(8).tokens.tolist()


def test_none_never_drafts_and_says_so() -> None:
    drafter = DRAFTERS["none"](ANY_MATCH, None)
    drafter.start(tokens_of(1, 1, 1), [])
    assert drafter.draft(8).reason == "speculation is off"
    assert NoDrafter("too short to pay").draft(8).reason == "too short to pay"


def test_scripted_drafts_follow_the_tokens_so_far() -> None:
    truth = tokens_of(1, 2, 3, 4, 5, 6)
    oracle = ScriptedDrafter(lambda tokens: truth[len(tokens) :])
    oracle.start(truth[:1], [])
    draft = oracle.draft(3)
    assert draft.tokens.tolist() == [2, 3, 4]
    commit(oracle, draft, 2, 3, 4, 5)
    assert oracle.draft(3).tokens.tolist() == [6]
    assert [accepted for _, _, accepted in oracle.commits] == [3]
    commit(oracle, oracle.draft(0), 6)
    assert oracle.draft(3).reason == "the script drafts nothing"


def test_ngram_copies_from_the_most_recent_occurrence_of_the_longest_ngram() -> None:
    drafter = NgramDrafter(ANY_MATCH)
    drafter.start(tokens_of(1, 2, 3, 50, 9, 2, 3, 51, 3, 52, 1, 2, 3), [])
    draft = drafter.draft(4)
    assert (draft.tokens.tolist(), draft.match_length) == ([50, 9, 2, 3], 3)
    emit(drafter, 7, 2, 3)
    assert drafter.draft(1).tokens.tolist() == [7]  # "2 3" came last in the prompt's end
    emit(drafter, 60)
    assert drafter.draft(4).reason == "no earlier occurrence of the last token"


def test_ngram_reports_the_file_and_the_output_as_sources() -> None:
    drafter = NgramDrafter(ANY_MATCH, max_ngram_length=2)
    drafter.start(tokens_of(5, 6, 7), [Source(kind=SourceKind.FILE, tokens=tokens_of(6), prompt_start=1)])
    emit(drafter, 5)
    draft = drafter.draft(8)
    assert draft.tokens.tolist() == [6, 7, 5]
    assert draft.sources.tolist() == [SourceKind.FILE, SourceKind.PROMPT, SourceKind.OUTPUT]


def test_ngram_looks_for_nothing_shorter_than_it_may() -> None:
    drafter = NgramDrafter(SpeculationConfig(min_match_length=2))
    drafter.start(tokens_of(4, 5, 6, 4), [])
    assert drafter.draft(8).reason == "no earlier occurrence of the last 2 tokens"


def test_an_answer_is_expected_to_begin_as_the_file_does() -> None:
    draft = editing([1, 2, 3, 4, 5]).draft(64)
    assert draft.tokens[:5].tolist() == [1, 2, 3, 4, 5]
    assert draft.match_length == START_MATCH_LENGTH
    assert draft.sources[:5].tolist() == [SourceKind.FILE] * 5


def test_a_prediction_comes_before_the_file() -> None:
    prediction = Source(kind=SourceKind.PREDICTION, tokens=tokens_of(1, 2, 7, 4))
    draft = editing([1, 2, 3, 4], prediction).draft(64)
    assert draft.tokens.tolist() == [1, 2, 7, 4]  # and stops at its end
    assert draft.sources.tolist() == [SourceKind.PREDICTION] * 4


def test_the_tail_of_the_prompt_also_leads_to_the_file() -> None:
    drafter = SuffixDrafter(ANY_MATCH)
    opening = [FENCE[0], 92]  # with a language, unlike the closing fence
    drafter.start(tokens_of(80, *opening, 1, 2, 3, *FENCE, 99, *opening), [])
    draft = drafter.draft(3)
    assert (draft.tokens.tolist(), draft.match_length) == ([1, 2, 3], 2)


def test_the_file_is_found_after_an_unexpected_opening() -> None:
    drafter = editing([1, 2, 3, 4, 5], before=[80, 81])
    commit(drafter, drafter.draft(64), 70)
    commit(drafter, drafter.draft(64), FENCE[0])
    commit(drafter, drafter.draft(64).cut(0), FENCE[1])
    assert drafter.draft(3).tokens.tolist() == [1, 2, 3]


def test_what_closes_the_file_in_the_prompt_is_drafted_too_but_little_more() -> None:
    drafter = editing([1, 2, 3, 4, 5])
    draft = drafter.draft(64)
    assert draft.tokens.tolist() == [1, 2, 3, 4, 5, *FENCE, 99, FENCE[0]]
    assert draft.sources[5:].tolist() == [SourceKind.PROMPT] * MAX_OVERRUN_TOKENS


def test_copying_an_unchanged_file_takes_one_round_for_each_full_draft() -> None:
    file = list(range(1, 80))
    drafts = decode(editing(file), [*file, *FENCE], max_draft_tokens=16)
    assert len(drafts) == 5
    assert [draft.match_length for draft in drafts] == [START_MATCH_LENGTH, 22, 39, 56, 67]


@pytest.mark.parametrize(
    ("answer", "num_rounds"),
    [
        pytest.param([1, 2, 3, 4, 5, 70, 6, 7, 8, 9], 3, id="insertion"),
        pytest.param([1, 2, 3, 4, 5, 7, 8, 9], 2, id="deletion"),
        pytest.param([1, 2, 3, 4, 5, 70, 7, 8, 9], 3, id="replacement"),
        pytest.param([1, 2, 3, 70, 71, 72, 4, 5, 6, 7, 8, 9], 5, id="long insertion"),
    ],
)
def test_copying_goes_on_right_after_a_change(answer: list[int], num_rounds: int) -> None:
    assert len(decode(editing([1, 2, 3, 4, 5, 6, 7, 8, 9]), [*answer, *FENCE])) == num_rounds


def test_the_nearest_occurrence_after_the_cursor_is_meant() -> None:
    file = [10, 20, 1, 11, 20, 1, 12, 20, 1, 13, 20, 1, 14]
    drafter = editing(file)
    draft = drafter.draft(64)
    commit(drafter, draft, 10, 20, 1, 11, 20, 1, 70)  # 12 was replaced
    commit(drafter, drafter.draft(64).cut(0), 20)
    draft = drafter.draft(64)
    assert draft.tokens[:3].tolist() == [1, 13, 20]
    assert draft.match_length == 1 + 3  # near, so it counts for more


def test_a_much_longer_match_elsewhere_wins_over_the_cursor() -> None:
    file = [1, 2, 3, 30, 31, 32, 33, 34, 35, 36, 37, 38, 4, 5]
    drafter = editing(file)
    commit(drafter, drafter.draft(64), 1, 2, 3, 70)
    emit(drafter, 33, 34, 35, 36)
    assert drafter.draft(2).tokens.tolist() == [37, 38]


def test_a_file_comes_before_other_sources_with_an_equal_match() -> None:
    context = Source(kind=SourceKind.CONTEXT, tokens=tokens_of(50, 51, 60))
    drafter = editing([*range(1, 30), 50, 51, 61], context)
    commit(drafter, drafter.draft(1).cut(0), 70)
    emit(drafter, 50, 51, 62, 50, 51)
    draft = drafter.draft(1)
    assert (draft.tokens.tolist(), draft.sources.tolist()) == ([61], [SourceKind.FILE])


def test_other_sources_are_copied_from_where_the_file_has_nothing() -> None:
    context = Source(kind=SourceKind.CONTEXT, tokens=tokens_of(50, 51, 52, 53))
    drafter = editing([1, 2, 3], context)
    commit(drafter, drafter.draft(8), 50)
    draft = drafter.draft(8)
    assert draft.tokens.tolist() == [51, 52, 53]
    assert draft.sources.tolist() == [SourceKind.CONTEXT] * 3


def test_a_repeated_output_is_continued_periodically() -> None:
    drafter = editing([1, 2, 3])
    commit(drafter, drafter.draft(8), 60)
    emit(drafter, 61, 62, 60, 61)
    draft = drafter.draft(7)
    assert draft.tokens.tolist() == [62, 60, 61, 62, 60, 61, 62]
    assert draft.sources.tolist() == [SourceKind.OUTPUT] * 7


def test_a_place_that_was_wrong_is_passed_over_until_more_tokens_match() -> None:
    file = [*range(1, 30), 40, 41, 42, 43]
    drafter = editing(file)
    commit(drafter, drafter.draft(64), 70)
    emit(drafter, 40)
    commit(drafter, drafter.draft(64), 71)  # 41 was drafted and wrong
    emit(drafter, 40)
    assert drafter.draft(64).reason == "what matches leads nowhere, or was wrong before"
    emit(drafter, 41, 42)
    assert drafter.draft(64).tokens[:1].tolist() == [43]


def test_nothing_is_padded_and_reasons_are_given() -> None:
    drafter = editing([1, 2, 3])
    assert drafter.draft(0).reason == "no room for a draft"
    commit(drafter, drafter.draft(8), 70)
    assert drafter.draft(8).reason == "no earlier occurrence of the last token"
    strict = SuffixDrafter(SpeculationConfig(min_match_length=3))
    strict.start(tokens_of(1, 2, 3, 9, 1, 2), [])
    assert strict.draft(8).reason == "fewer than 3 tokens match"
    emit(strict, 3)
    assert strict.draft(2).tokens.tolist() == [9, 1]


def test_the_cursor_does_not_jump_for_a_short_accidental_match() -> None:
    file = [*range(1, 60), 7, 90]
    drafter = editing(file)
    commit(drafter, drafter.draft(64), 1, 2, 3, 70)
    commit(drafter, drafter.draft(64).cut(0), 58)
    draft = drafter.draft(64)
    assert draft.tokens[0] == 59
    commit(drafter, draft, 59, 71)  # far away, and wrong after one token
    commit(drafter, drafter.draft(64).cut(0), 5)
    assert drafter.draft(2).match_length > 1  # 5 is near the old cursor, behind 3


def failing(match_length: int) -> PatientDrafter:
    drafter = PatientDrafter(ScriptedDrafter(lambda tokens: [1, 2, 3], match_length=match_length))
    drafter.start(tokens_of(0), [])
    return drafter


def fail(drafter: Drafter, num_rounds: int) -> list[int]:
    """Rounds in which nothing is accepted; the lengths of the drafts."""
    lengths = []
    for _ in range(num_rounds):
        draft = drafter.draft(8)
        lengths.append(len(draft))
        commit(drafter, draft, 9)
    return lengths


def test_patience_ends_after_a_row_of_failures_and_comes_back_by_itself() -> None:
    drafter = failing(match_length=3)
    lengths = fail(drafter, MAX_FAILED_DRAFTS + NUM_WAITING_ROUNDS + 1)
    assert lengths == [3] * MAX_FAILED_DRAFTS + [0] * NUM_WAITING_ROUNDS + [3]


def test_patience_says_what_it_waits_for() -> None:
    drafter = failing(match_length=3)
    fail(drafter, MAX_FAILED_DRAFTS)
    assert drafter.draft(8).reason == "nothing accepted in the last 8 drafts, waiting for a match of 4 tokens"


def test_longer_matches_are_drafted_meanwhile_and_a_hit_restores_everything() -> None:
    match_length = 2
    inner = ScriptedDrafter(lambda tokens: [1, 2, 3])
    drafter = PatientDrafter(inner)
    drafter.start(tokens_of(0), [])
    inner._match_length = match_length
    fail(drafter, MAX_FAILED_DRAFTS)
    assert len(drafter.draft(8)) == 0
    inner._match_length = 4
    draft = drafter.draft(8)
    assert len(draft) == 3
    commit(drafter, draft, 1, 9)
    inner._match_length = 1
    assert len(drafter.draft(8)) == 3


def test_a_hostile_drafter_wastes_few_drafts() -> None:
    lengths = fail(failing(match_length=64), 2000)
    assert sum(length > 0 for length in lengths) < 200
    assert any(lengths[-100:])  # but it still tries
