"""Guesses whose chance the trees misjudge, for they have never seen the like."""

from __future__ import annotations

import numpy as np
import pytest

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.drafters.track_record import PRIOR_GUESSES, TrackRecord
from lookahead_edit.replay import Replay, drafter_factory, policy_factory, tokenize_trace
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.traces import Trace

NUM_TOKENS = 4000


def test_guesses_that_fare_as_expected_change_nothing() -> None:
    record = TrackRecord(1)
    for number in range(400):
        record.observe(0, 0.5, number % 2 == 0)
    assert record.odds[0] == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(("share", "is_right"), [(0.8, True), (0.5, False)])
def test_a_type_that_is_always_right_or_wrong_is_soon_taken_for_that(share: float, is_right: bool) -> None:
    record = TrackRecord(2)
    for _ in range(100):
        odds = record.odds[0]
        record.observe(0, share * odds / (1.0 - share + share * odds), is_right)
    odds = record.odds[0] * share / (1.0 - share)
    assert (odds > 8.0) if is_right else (odds < 1 / 8.0)
    assert record.odds[1] == 1.0


def test_the_first_guesses_weigh_little() -> None:
    record = TrackRecord(1)
    record.observe(0, 0.5, True)
    # One right guess of one, half of it expected.
    expected = (PRIOR_GUESSES + 1.0) * (PRIOR_GUESSES + 0.5) / ((PRIOR_GUESSES + 0.5) * PRIOR_GUESSES)
    assert record.odds[0] == pytest.approx(expected)


def fenced(before: str, after: str) -> Trace:
    return Trace("edit", f"Edit it.\n```\n{before}```\n", after, before)


RUNS = {
    "no file": Trace("run", "Go on. ", "a" * NUM_TOKENS),
    "blank lines": Trace("lines", "Go on. ", "\n" * NUM_TOKENS),
    "a longer run than the file's": fenced("a" * (NUM_TOKENS // 2) + "\n", "a" * NUM_TOKENS + "\n```"),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_of_one_token_are_drafted_far_at_every_cost(name: str) -> None:
    config, tokenizer = SpeculationConfig(), ByteTokenizer()
    costs = (0.002, 0.01, 0.05)
    drafters = {"edit": drafter_factory(config, tokenizer)}
    replay = Replay(drafters, costs, policy_factory(config), is_cost_aware=True)
    replay.add(tokenize_trace(RUNS[name], tokenizer))
    assert np.min([figures.tokens_per_round for figures in replay.figures()]) > 40.0
