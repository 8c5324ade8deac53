"""The cost policy: lengths, batches, and drafts that don't pay."""

from __future__ import annotations

import numpy as np
import pytest

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.cost import CPU_CURVE, CostCurve
from lookahead_edit.payoff import ROUNDS_BETWEEN_TRIES
from lookahead_edit.policy_cost import REFUSAL, STEADY_ROUNDS, CostPolicy
from lookahead_edit.speculation import make_policy
from lookahead_edit.types import Draft, DraftTerms, FloatArray, Round, SourceKind

CURVES = {"CPU": CPU_CURVE, **{f"c={cost:g}": CostCurve.linear(cost) for cost in (0.002, 0.05, 0.3, 1.0)}}
RIGHT, WRONG = 7, 8  # every drafted token is RIGHT, and what is emitted tells whether it was


def draft_of(num_tokens: int, survival: float | None = None, match_length: int = 1) -> Draft:
    probabilities: FloatArray | None = None
    if survival is not None:
        probabilities = (survival ** np.arange(1, num_tokens + 1)).astype(np.float32)
    return Draft(
        tokens=np.full(num_tokens, RIGHT, dtype=np.int32),
        sources=np.full(num_tokens, SourceKind.FILE, dtype=np.int8),
        match_length=match_length,
        probabilities=probabilities,
    )


def round_of(draft: Draft, num_right_tokens: int) -> Round:
    """The round of a draft of which so many tokens would be right, or all there are."""
    num_accepted_tokens = min(len(draft), num_right_tokens)
    own = RIGHT if num_right_tokens > num_accepted_tokens else WRONG
    tokens = np.array([RIGHT] * num_accepted_tokens + [own], dtype=np.int32)
    return Round(tokens=tokens, draft=draft, num_accepted_tokens=num_accepted_tokens)


def kept(policy: CostPolicy, *drafts: Draft) -> list[int]:
    return [len(draft) for draft in policy.cut(drafts)]


# Lengths.


def test_the_length_follows_from_probability_and_cost() -> None:
    assert [kept(CostPolicy(CostCurve.linear(cost), 512), draft_of(500, 0.9)) for cost in (0.002, 0.01, 1.0)] == [
        [37],
        [24],
        [3],
    ]
    (none,) = CostPolicy(CPU_CURVE, 512).cut([draft_of(64, 0.31)])
    assert (len(none), none.reason) == (0, "a draft would cost more than it saves: about 30 % likely to be right")


def test_a_draft_without_probabilities_is_judged_by_its_match() -> None:
    policy = CostPolicy(CostCurve.linear(0.05), 64)
    lengths = [kept(policy, draft_of(64, match_length=match_length))[0] for match_length in (0, 1, 4, 16)]
    assert lengths == sorted(lengths)
    assert 0 < lengths[0] < 16 < lengths[-1]


def test_no_draft_is_longer_than_can_pay_or_be_borne() -> None:
    assert CostPolicy(CostCurve.linear(0.01), 512).max_draft_tokens == 285
    assert CostPolicy(CostCurve.linear(0.01), 100).max_draft_tokens == 100
    assert CostPolicy(CPU_CURVE, 512).max_draft_tokens == 341
    assert CostPolicy(CostCurve.linear(1.0), 512).max_draft_tokens == 16  # 1 + 17 is nine times 1 + 1


def test_the_curve_is_the_targets_or_else_that_of_the_configuration() -> None:
    config = SpeculationConfig(policy="cost", cost_ratio=1.0)
    assert make_policy(config).max_draft_tokens == 16
    assert make_policy(config, CostCurve.linear(0.01)).max_draft_tokens == 285


# Batches.


def test_tokens_go_to_the_rows_that_save_most_by_them() -> None:
    curve = CostCurve.linear(0.05)
    sure, doubtful, none = draft_of(500, 0.97), draft_of(500, 0.5), Draft(reason="none")
    alone = [kept(CostPolicy(curve, 512), draft)[0] for draft in (sure, doubtful)]
    together = kept(CostPolicy(curve, 512), sure, sure, sure, doubtful, none)
    assert together[4] == 0
    assert 0 < together[3] <= alone[1] < together[0] == together[1] == together[2] < alone[0]
    # A draft of another row is no reason to draft less where a further token costs always the same.
    assert kept(CostPolicy(curve, 512), sure, doubtful)[1] == kept(CostPolicy(curve, 512), none, doubtful)[1]
    assert kept(CostPolicy(curve, 512), none, none) == [0, 0]
    assert kept(CostPolicy(curve, 512), sure, draft_of(2, 0.97))[1] == 2


def test_what_another_row_has_made_cheap_is_drafted() -> None:
    """On a CPU the second token of a pass is dear, and the third is not: a second row has paid for the second."""
    shared = CostCurve(CPU_CURVE.widths, CPU_CURVE.costs, shares_passes=True)
    doubtful = draft_of(64, 0.4)
    assert kept(CostPolicy(shared, 512), doubtful) == [0]
    assert kept(CostPolicy(shared, 512), doubtful, Draft(reason="none"))[0] > 0


def test_rows_with_passes_of_their_own_are_judged_alone() -> None:
    for survival in (0.2, 0.6, 0.95):
        drafts = [draft_of(300, survival)] * 2
        (alone,) = kept(CostPolicy(CPU_CURVE, 512), drafts[0])
        assert kept(CostPolicy(CPU_CURVE, 512), *drafts) == [alone, alone]


def test_a_forced_draft_goes_in_whole_and_the_others_know() -> None:
    terms = [DraftTerms(1, 512, is_forced=True), DraftTerms(2, 512)]
    wrong, sure = draft_of(100, 0.01), draft_of(500, 0.97)
    policy = CostPolicy(CostCurve.linear(0.05), 512)
    for _ in range(200):
        verified = policy.cut([wrong, sure], terms)
        policy.observe([round_of(verified[0], 0), round_of(verified[1], 400)], [1, 2])
    assert [len(draft) for draft in verified] == [100, kept(CostPolicy(CostCurve.linear(0.05), 512), wrong, sure)[1]]


def test_a_draft_cut_at_its_rows_own_limit_would_go_on() -> None:
    """One that ends before has reached its source's end: nothing is left for a later pass, so all of it goes in now."""
    policy = CostPolicy(CostCurve.linear(1.0), 512)
    lengths = [len(policy.cut([draft_of(6, 0.9)], [DraftTerms(1, limit)])[0]) for limit in (6, 16)]
    assert lengths == [3, 6]


def test_a_full_batch_drafts_less() -> None:
    lengths = [kept(CostPolicy(CostCurve.linear(0.02), 512), *[draft_of(500, 0.9)] * rows)[0] for rows in (1, 4, 32)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > 2 * lengths[-1] > 0


# Drafts that don't pay.


def play(policy: CostPolicy, curve: CostCurve, draft: Draft, num_rounds: int, num_right_tokens: int = 0) -> float:
    """Mean cost of a round, in plain passes."""
    costs = curve.values(1, 600)
    total = 0.0
    for _ in range(num_rounds):
        (verified,) = policy.cut([draft])
        total += costs[len(verified)] / costs[0]
        policy.observe([round_of(verified, num_right_tokens)])
    return total / num_rounds


@pytest.mark.parametrize("survival", [0.99, 1.0, 0.8])
@pytest.mark.parametrize("name", CURVES)
def test_a_drafter_that_lies_costs_next_to_nothing(name: str, survival: float) -> None:
    curve = CURVES[name]
    policy = CostPolicy(curve, 512)
    assert 1.0 < play(policy, curve, draft_of(512, survival), 2000) <= 1.1


def test_refused_drafts_are_tried_now_and_then_and_say_why() -> None:
    policy = CostPolicy(CostCurve.linear(0.01), 512)
    play(policy, CostCurve.linear(0.01), draft_of(200, 0.99), 50)
    (refused,) = policy.cut([draft_of(200, 0.99)])
    assert (len(refused), refused.reason) == (0, REFUSAL)
    assert policy.cut([Draft(reason="nothing matched")])[0].reason == "nothing matched"
    lengths = []
    for _ in range(3 * ROUNDS_BETWEEN_TRIES):
        (verified,) = policy.cut([draft_of(200, 0.99)])
        lengths.append(len(verified))
        policy.observe([round_of(verified, 0)])
    assert np.count_nonzero(lengths) in (2, 3)


@pytest.mark.parametrize("num_rows", [1, 3])
def test_drafts_come_back_once_they_would_have_paid(num_rows: int) -> None:
    policy = CostPolicy(CostCurve.linear(0.01), 512)
    draft = draft_of(200, 0.99)

    def step(num_right_tokens: int) -> int:
        verified = policy.cut([draft] * num_rows)
        policy.observe([round_of(each, num_right_tokens) for each in verified])
        return len(verified[0])

    while step(0):
        pass
    refused = [step(100) for _ in range(50)]
    num_waited = refused.count(0)
    assert 10 < num_waited < 30
    assert all(refused[num_waited:])


def test_a_row_whose_drafts_do_not_pay_stops_no_other() -> None:
    policy = CostPolicy(CostCurve.linear(0.01), 512)
    draft = draft_of(200, 0.99)
    for number in range(300):
        # A third row comes and goes, and the rows change places.
        keys = [[1, 2], [2, 1], [3, 2, 1]][number % 3]
        verified = policy.cut([draft] * len(keys), [DraftTerms(key, 512) for key in keys])
        policy.observe([round_of(each, 0 if key == 1 else 100) for key, each in zip(keys, verified, strict=True)], keys)
    verified = policy.cut([draft] * 2, [DraftTerms(1, 512), DraftTerms(2, 512)])
    assert (len(verified[0]), verified[0].reason) == (0, REFUSAL)
    assert len(verified[1]) > 0


def test_a_row_that_emits_nothing_yet_is_not_judged() -> None:
    policy = CostPolicy(CostCurve.linear(0.01), 512)
    draft = draft_of(200, 0.99)
    for _ in range(200):
        verified = policy.cut([draft] * 2, [DraftTerms(1, 512), DraftTerms(2, 512)])
        policy.observe([round_of(verified[1], 100)], [2])  # the prompt of the first is still being read
    assert all(len(each) for each in policy.cut([draft] * 2, [DraftTerms(1, 512), DraftTerms(2, 512)]))


def test_a_new_row_begins_with_a_clean_account() -> None:
    policy = CostPolicy(CostCurve.linear(0.01), 512)
    draft = draft_of(200, 0.99)
    while len(verified := policy.cut([draft], [DraftTerms(1, 512)])[0]):
        policy.observe([round_of(verified, 0)], [1])
    assert len(policy.cut([draft], [DraftTerms(2, 512)])[0]) > 0


# A batch that changes.


def test_lengths_do_not_jump_where_a_batch_changes_by_one_row_and_back() -> None:
    """Scripted: in a batch of four a further token is free, in one of five it costs a whole pass."""
    curve = CostCurve(
        widths=(1, 2, 64),
        costs=((1.0, 1.001, 1.002), (4.0, 4.001, 4.002), (5.0, 30.0, 2000.0)),
        batch_sizes=(1, 4, 5),
    )
    policy = CostPolicy(curve, 64)
    draft = draft_of(64, 0.9)

    def lengths(sizes: list[int]) -> list[int]:
        return [len(policy.cut([draft] * size)[0]) for size in sizes]

    assert set(lengths([4, 5] * 50)) == {64}
    settled = lengths([4] + [5] * 20)
    assert settled == [64] * STEADY_ROUNDS + [0] * (21 - STEADY_ROUNDS)
    assert set(lengths([4, 5] * 50)) == {0}
    assert lengths([2])[0] > 0  # a change by more counts at once


def test_drafts_that_pay_are_never_refused() -> None:
    curve = CostCurve.linear(0.01)
    policy = CostPolicy(curve, 512)
    generator = np.random.default_rng(4)
    for _ in range(500):
        (verified,) = policy.cut([draft_of(200, 0.9)])
        assert len(verified) > 0
        policy.observe([round_of(verified, int(generator.geometric(0.1)) - 1)])


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize(("num_tokens", "survival"), [(10, 0.98), (20, 0.99), (60, 0.995), (100, 0.999)])
def test_a_near_certain_draft_that_reaches_its_sources_end_is_kept_whole(
    name: str, num_tokens: int, survival: float
) -> None:
    policy = CostPolicy(CURVES[name], 512)
    if policy.max_draft_tokens > num_tokens:
        assert kept(policy, draft_of(num_tokens, survival)) == [num_tokens]
