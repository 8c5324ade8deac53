"""The decode loop, with a logged output in place of a model: limits, order, times, and what is freed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf

import numpy as np
import pytest

from lookahead_edit.config import SamplingConfig
from lookahead_edit.drafters.scripted import ScriptedDrafter
from lookahead_edit.engine import Engine
from lookahead_edit.policy import FixedPolicy, MatchLengthPolicy
from lookahead_edit.sequence import EndTokenRule, Sequence
from lookahead_edit.targets.recorded import RecordedTarget
from lookahead_edit.types import Draft, IntArray, Policy, Round, Row, Verified

PROMPT = np.array([1, 2, 3], dtype=np.int32)
OUTPUT = np.arange(10, 30, dtype=np.int32)
END = 0


class NotedTarget(RecordedTarget):
    """Keeps the rows it was given and the keys that were closed; fails at verification number `fails_at`.

    Rows whose keys are in `reading` emit nothing.
    """

    def __init__(self, fails_at: int | None = None, num_read_tokens: SequenceOf[int] = ()) -> None:
        super().__init__(lambda prompt: OUTPUT + (int(prompt[0]) - 1) * 100, end_token_id=END, vocab_size=1000)
        self.calls: list[list[Row]] = []
        self.closed: list[int] = []
        self.reading: set[int] = set()
        self._fails_at = fails_at
        self._num_read_tokens = list(num_read_tokens)

    def verify(self, rows: SequenceOf[Row]) -> Verified:
        self.calls.append(list(rows))
        if len(self.calls) == self._fails_at:
            raise RuntimeError("out of memory")
        tokens = [
            OUTPUT[:0] if row.key in self.reading else emitted
            for row, emitted in zip(rows, super().verify(rows).tokens, strict=True)
        ]
        return Verified(tokens, forward_seconds=0.25, prefill_seconds=0.125, num_read_tokens=self._num_read_tokens)

    def close(self, key: int) -> None:
        super().close(key)
        self.closed.append(key)


class NotedPolicy(FixedPolicy):
    """Keeps what it observed."""

    def __init__(self, max_draft_tokens: int) -> None:
        super().__init__(max_draft_tokens)
        self.observed: list[SequenceOf[Round]] = []

    def observe(self, rounds: SequenceOf[Round], keys: SequenceOf[int] | None = None) -> None:
        self.observed.append(rounds)


def sequence_of(
    script: Callable[[IntArray], IntArray] = lambda tokens: OUTPUT[len(tokens) - len(PROMPT) :],
    *,
    first_token: int = 1,
    max_tokens: int = 100,
) -> Sequence:
    return Sequence(
        np.array([first_token, 2, 3], dtype=np.int32),
        drafter=ScriptedDrafter(script),
        sampling=SamplingConfig(),
        max_tokens=max_tokens,
        max_context_tokens=1000,
        stop_rules=[EndTokenRule(frozenset({END}))],
    )


def ticking() -> Callable[[], float]:
    """A clock that advances a second each time it is read."""
    times = itertools.count()
    return lambda: float(next(times))


def test_a_round_emits_the_accepted_draft_and_one_token() -> None:
    sequence = sequence_of()
    finished = Engine(NotedTarget(), FixedPolicy(5)).step([sequence])[0]
    assert finished.num_draft_tokens == finished.num_accepted_tokens == 5
    assert finished.tokens.tolist() == OUTPUT[:6].tolist() == sequence.output.tolist()


def test_a_wrong_draft_costs_nothing_but_the_round() -> None:
    sequence = sequence_of(lambda tokens: np.array([10, 11, 99, 13], dtype=np.int32))
    finished = Engine(NotedTarget(), FixedPolicy(64)).step([sequence])[0]
    assert (finished.num_draft_tokens, finished.num_accepted_tokens) == (4, 2)
    assert finished.tokens.tolist() == [10, 11, 12]


def test_a_draft_leaves_room_for_the_targets_own_token() -> None:
    target = NotedTarget()
    sequence = sequence_of(max_tokens=7)
    rounds = list(Engine(target, FixedPolicy(4)).generate(sequence))
    assert [finished.num_draft_tokens for finished in rounds] == [4, 1]
    assert sequence.finish_reason == "length"
    assert sequence.output.tolist() == OUTPUT[:7].tolist()


def test_the_last_token_is_not_drafted() -> None:
    target = NotedTarget()
    list(Engine(target, FixedPolicy(64)).generate(sequence_of(max_tokens=1)))
    assert [len(rows[0].draft) for rows in target.calls] == [0]


@pytest.mark.parametrize("invalid", [1000, -1, 2**31 - 1])
def test_a_draft_is_cut_before_a_token_outside_the_vocabulary(invalid: int) -> None:
    target = NotedTarget()
    sequence = sequence_of(lambda tokens: np.array([10, 11, invalid, 12], dtype=np.int32))
    Engine(target, FixedPolicy(64)).step([sequence])
    assert target.calls[0][0].draft.tokens.tolist() == [10, 11]
    alone = sequence_of(lambda tokens: np.array([invalid], dtype=np.int32))
    finished = Engine(target, FixedPolicy(64)).step([alone])[0]
    assert finished.draft.reason == "the draft left the vocabulary"


def test_the_policy_decides_how_much_is_verified_and_hears_the_outcome() -> None:
    policy = NotedPolicy(3)
    rounds = Engine(NotedTarget(), policy).step([sequence_of(), sequence_of(first_token=2)])
    assert [finished.num_draft_tokens for finished in rounds] == [3, 3]
    assert [finished.num_accepted_tokens for finished in rounds] == [3, 0]
    assert policy.observed == [rounds]


def test_sequences_share_one_verification_and_each_gets_its_own_tokens() -> None:
    target = NotedTarget()
    first, second = sequence_of(), sequence_of(first_token=2)
    rounds = Engine(target, FixedPolicy(2)).step([first, second])
    assert len(target.calls) == 1
    assert [finished.batch_size for finished in rounds] == [2, 2]
    assert first.output.tolist() == [10, 11, 12]
    assert second.output.tolist() == [110]


@pytest.mark.parametrize(
    ("num_read_tokens", "prefill_seconds"),
    [([], [0.0625, 0.0625]), ([0, 9], [0.0, 0.125]), ([3, 1], [0.09375, 0.03125])],
)
def test_seconds_are_those_of_the_whole_step_and_only_the_own_prompt_is_prefill(
    num_read_tokens: list[int], prefill_seconds: list[float]
) -> None:
    target = NotedTarget(num_read_tokens=num_read_tokens)
    rounds = Engine(target, FixedPolicy(2), clock=ticking()).step([sequence_of(), sequence_of()])
    for finished in rounds:
        assert (finished.draft_seconds, finished.verify_seconds) == (1.0, 1.0)
        assert finished.forward_seconds + finished.prefill_seconds == 0.375
    assert [finished.prefill_seconds for finished in rounds] == prefill_seconds


def test_generate_goes_on_until_the_end_and_frees_the_row() -> None:
    target = NotedTarget()
    sequence = sequence_of()
    rounds = list(Engine(target, FixedPolicy(8)).generate(sequence))
    assert sequence.finish_reason == "stop"
    assert sequence.output.tolist() == [*OUTPUT.tolist(), END]
    assert sum(len(finished.tokens) for finished in rounds) == 21
    assert target.closed == [sequence.key]


def test_leaving_early_frees_the_row() -> None:
    target = NotedTarget()
    sequence = sequence_of()
    rounds = Engine(target, FixedPolicy(2)).generate(sequence)
    next(rounds)
    assert target.closed == []
    rounds.close()  # type: ignore[attr-defined]
    assert target.closed == [sequence.key]


def test_a_failing_target_leaves_no_row_behind() -> None:
    target = NotedTarget(fails_at=2)
    sequence = sequence_of()
    with pytest.raises(RuntimeError, match="out of memory"):
        list(Engine(target, FixedPolicy(2)).generate(sequence))
    assert target.closed == [sequence.key]
    assert sequence.output.tolist() == OUTPUT[:3].tolist()


def test_a_cancelled_row_ends_alone() -> None:
    target = NotedTarget()
    first, second = sequence_of(), sequence_of()
    second.is_cancelled = lambda: True
    rounds = Engine(target, FixedPolicy(2)).step([first, second])
    assert [len(finished.tokens) for finished in rounds] == [3, 0]
    assert (first.finish_reason, second.finish_reason) == (None, "cancelled")


def test_a_row_whose_prompt_is_still_read_goes_on_later_with_the_same_guess() -> None:
    """A drafter that was asked anew in every such round would follow its cursor for nothing."""
    target, policy = NotedTarget(), NotedPolicy(8)
    num_guesses = iter(range(100))
    reading = sequence_of(lambda tokens: OUTPUT[len(tokens) - len(PROMPT) + 0 * next(num_guesses) :])
    other = sequence_of()
    target.reading = {reading.key}
    engine = Engine(target, policy)
    for _ in range(2):
        rounds = engine.step([reading, other])
        assert (reading.finish_reason, len(reading.output)) == (None, 0)
        assert (len(rounds[0].tokens), rounds[0].draft.reason) == (0, "the prompt is still being read")
        assert policy.observed[-1] == rounds[1:]
    assert len(other.output) == 18
    target.reading = set()
    engine.step([reading, other])
    assert reading.output.tolist() == OUTPUT[:9].tolist()
    assert next(num_guesses) == 1


def test_a_step_in_which_all_rows_read_is_no_news_to_the_policy() -> None:
    target, policy = NotedTarget(), NotedPolicy(8)
    sequence = sequence_of()
    target.reading = {sequence.key}
    Engine(target, policy).step([sequence])
    assert policy.observed == []


def test_the_drafter_hears_what_was_emitted_and_verified() -> None:
    class HeardDrafter(ScriptedDrafter):
        heard: list[tuple[list[int], int, int]]

        def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None:
            super().commit(tokens, draft, num_accepted_tokens)
            self.heard.append((tokens.tolist(), len(draft), num_accepted_tokens))

    sequence = sequence_of()
    drafter = HeardDrafter(lambda tokens: np.array([10, 11, 99, 98, 97], dtype=np.int32))
    drafter.heard = []
    drafter.start(PROMPT, [])
    sequence.drafter = drafter
    engine = Engine(NotedTarget(), FixedPolicy(4))
    engine.step([sequence])
    engine.step([sequence])
    assert drafter.heard == [([10, 11, 12], 4, 2), ([13], 4, 0)]


@pytest.mark.parametrize("policy", [FixedPolicy(0), MatchLengthPolicy(64, 0.001)])
def test_a_policy_that_keeps_nothing_decodes_plainly(policy: Policy) -> None:
    sequence = sequence_of()
    rounds = list(Engine(NotedTarget(), policy).generate(sequence))
    assert [len(finished.tokens) for finished in rounds] == [1] * 21
