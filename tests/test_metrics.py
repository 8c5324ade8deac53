"""Counters over rounds worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.types import Draft, Round, SourceKind

RATIOS = ("tokens_per_round", "acceptance_rate", "tokens_per_second", "overhead_share", "first_token_seconds")


def round_of(
    num_emitted: int,
    sources: list[SourceKind],
    num_accepted: int,
    *,
    reason: str | None = None,
    seconds: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0),
) -> Round:
    """`seconds` are draft, verify, forward, prefill."""
    draft = Draft(
        tokens=np.arange(len(sources), dtype=np.int32), sources=np.array(sources, dtype=np.int8), reason=reason
    )
    draft_seconds, verify_seconds, forward_seconds, prefill_seconds = seconds
    return Round(
        tokens=np.zeros(num_emitted, dtype=np.int32),
        draft=draft,
        num_accepted_tokens=num_accepted,
        draft_seconds=draft_seconds,
        verify_seconds=verify_seconds,
        forward_seconds=forward_seconds,
        prefill_seconds=prefill_seconds,
    )


FILE, OUTPUT = SourceKind.FILE, SourceKind.OUTPUT
ROUNDS = [
    round_of(1, [], 0, reason="no match", seconds=(0.125, 1.0, 0.0, 0.75)),  # reads the prompt
    round_of(4, [FILE, FILE, OUTPUT], 3, seconds=(0.125, 0.5, 0.25, 0.0)),  # all accepted, and the bonus
    round_of(2, [FILE, FILE, FILE, OUTPUT], 1, seconds=(0.0, 0.5, 0.5, 0.0)),  # one accepted, and the correction
    round_of(1, [OUTPUT], 0, seconds=(0.0, 0.25, 0.25, 0.0)),  # all rejected
    round_of(1, [], 0, seconds=(0.0, 0.25, 0.25, 0.0)),
    round_of(2, [FILE, FILE, FILE], 2),  # an end token inside the accepted prefix: no token of the target's own
]


def counted(rounds: list[Round]) -> SpeculationMetrics:
    metrics = SpeculationMetrics()
    for finished in rounds:
        metrics.add(finished)
    return metrics


def test_every_round_counts_also_those_without_a_draft() -> None:
    metrics = counted(ROUNDS)
    assert (metrics.num_rounds, metrics.num_draft_rounds) == (6, 4)
    assert metrics.num_emitted_tokens == 11
    assert metrics.tokens_per_round == 11 / 6


def test_only_tokens_that_were_guessed_count_as_drafted() -> None:
    metrics = counted(ROUNDS)
    assert (metrics.num_draft_tokens, metrics.num_accepted_tokens, metrics.num_wasted_tokens) == (11, 6, 5)
    assert metrics.acceptance_rate == 6 / 11


def test_acceptance_is_counted_by_source_position_and_length() -> None:
    metrics = counted(ROUNDS)
    assert metrics.num_drafted_by_source == {"file": 8, "output": 3}
    assert metrics.num_accepted_by_source == {"file": 5, "output": 1}
    assert metrics.num_drafted_by_position == [4, 3, 3, 1]
    assert metrics.num_accepted_by_position == [3, 2, 1]
    assert metrics.num_rounds_by_accepted == {3: 1, 1: 1, 0: 1, 2: 1}


def test_rounds_without_a_draft_are_counted_by_reason() -> None:
    assert counted(ROUNDS).num_rounds_by_reason == {"no match": 1, "nothing drafted": 1}


def undrafted(*reasons: str | None, **fields: str) -> str | None:
    metrics = SpeculationMetrics(**fields)  # type: ignore[arg-type]
    for reason in reasons:
        metrics.add(Round(np.zeros(1, dtype=np.int32), Draft(reason=reason), 0))
    return metrics.undrafted_reason


def test_where_nothing_was_drafted_there_is_always_a_reason() -> None:
    assert counted(ROUNDS).undrafted_reason is None
    assert undrafted() == "no round has emitted anything"
    assert undrafted(None) == "nothing drafted"
    assert undrafted("no match", "no match") == "no match"
    assert undrafted("a", "b", "b") == "b (2 of 3 rounds); a (1 of 3 rounds)"
    assert undrafted(*"aaaabbbccd") == "a (4 of 10 rounds); b (3 of 10 rounds); c (2 of 10 rounds)"
    assert undrafted("a", "b", disabled_reason="off") == "off"
    assert undrafted("a", unused_prediction="too short") == "too short; a"
    assert undrafted("a", disabled_reason="off", unused_prediction="too short") == "off"


def test_seconds_are_summed_and_the_prompt_is_no_decoding() -> None:
    metrics = counted(ROUNDS)
    assert (metrics.draft_seconds, metrics.verify_seconds) == (0.25, 2.5)
    assert (metrics.forward_seconds, metrics.prefill_seconds) == (1.25, 0.75)
    assert metrics.total_seconds == 2.75
    assert metrics.decode_seconds == 2.0
    assert metrics.tokens_per_second == 5.5
    assert metrics.overhead_share == 1.0 - 1.25 / 2.0


def test_the_first_token_comes_with_the_first_round_that_emits() -> None:
    metrics = SpeculationMetrics()
    metrics.count_index_build(0.5)
    metrics.add(round_of(0, [], 0, seconds=(0.0, 0.25, 0.0, 0.0)))
    assert metrics.first_token_seconds is None
    metrics.add(ROUNDS[0])
    metrics.add(ROUNDS[1])
    assert metrics.first_token_seconds == 0.5 + 0.25 + 1.125


def test_steps_that_only_read_the_prompt_are_prefill_and_no_rounds() -> None:
    """Also what such a step did for other rows meanwhile: the request waited for its prompt."""
    metrics = SpeculationMetrics()
    reading = round_of(0, [], 0, reason="the prompt is still being read", seconds=(0.125, 2.0, 0.5, 1.25))
    for finished in (reading, reading, ROUNDS[1]):
        metrics.add(finished)
    assert (metrics.num_rounds, metrics.num_draft_rounds, metrics.tokens_per_round) == (1, 1, 4.0)
    assert metrics.num_rounds_by_reason == {}
    assert (metrics.prefill_seconds, metrics.forward_seconds) == (4.25, 0.25)
    assert metrics.decode_seconds == 0.125 + 0.5
    assert metrics.first_token_seconds == metrics.total_seconds == 4.875


def test_a_step_of_several_rows_is_counted_once() -> None:
    """Each row's forward and prefill seconds sum up to the model's; only the own prompt is a row's prefill."""
    decoding = round_of(3, [FILE, FILE], 2, seconds=(0.25, 1.0, 0.75, 0.0))
    beginning = round_of(1, [], 0, seconds=(0.25, 1.0, 0.5, 0.25))
    reading = round_of(0, [], 0, seconds=(0.25, 1.0, 0.625, 0.125))
    metrics = SpeculationMetrics()
    metrics.add_step([decoding, beginning, reading])
    assert (metrics.num_rounds, metrics.num_emitted_tokens) == (2, 4)
    assert (metrics.prefill_seconds, metrics.forward_seconds) == (0.375, 0.375)
    assert metrics.total_seconds == 1.25
    alone = [counted([finished]) for finished in (decoding, beginning, reading)]
    assert [row.prefill_seconds for row in alone] == [0.0, 0.25, 1.25]
    assert [row.forward_seconds for row in alone] == [0.75, 0.5, 0.0]


def test_cached_prompt_tokens_are_told_once_and_summed() -> None:
    first = replace(ROUNDS[0], num_cached_tokens=40)
    assert counted([first, *ROUNDS[1:]]).num_cached_tokens == 40


def test_building_the_index_counts_as_drafting() -> None:
    metrics = SpeculationMetrics()
    metrics.count_index_build(0.5)
    assert (metrics.draft_seconds, metrics.total_seconds, metrics.num_rounds) == (0.5, 0.5, 0)


@pytest.mark.parametrize("name", RATIOS)
def test_where_nothing_was_measured_a_ratio_is_none(name: str) -> None:
    assert getattr(SpeculationMetrics(), name) is None


def test_no_draft_is_not_zero_accepted() -> None:
    assert counted([ROUNDS[0]]).acceptance_rate is None
    assert counted([ROUNDS[3]]).acceptance_rate == 0.0


def test_without_time_there_is_no_speed() -> None:
    metrics = counted([ROUNDS[5]])
    assert metrics.tokens_per_round == 2.0
    assert metrics.tokens_per_second is None
    assert metrics.overhead_share is None


def test_two_requests_share_no_counter() -> None:
    first, second = counted(ROUNDS), SpeculationMetrics()
    assert first.num_drafted_by_source
    assert not second.num_drafted_by_source
    assert not second.num_drafted_by_position
