"""From where on drafts pay: against simulated rounds, against the policy itself, and at the ends of the range."""

from __future__ import annotations

import numpy as np
import pytest

from lookahead_edit.config import AdviseConfig
from lookahead_edit.cost import CostCurve
from lookahead_edit.crossover import Payments, crossovers, row_curve
from lookahead_edit.policy_cost import CostPolicy
from lookahead_edit.types import Draft, DraftTerms

CURVE = CostCurve.linear(0.01)
ALONE = CostCurve(widths=(1, 2, 64), costs=((1.0, 1.8, 3.0),), shares_passes=False)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_the_speed_up_is_that_of_simulated_rounds(batch_size: int) -> None:
    acceptance, num_rounds = 0.8, 40_000
    found = Payments(CURVE).of(batch_size, acceptance)
    generator = np.random.default_rng(0)
    right = generator.random((num_rounds, found.num_draft_tokens)) < acceptance
    num_tokens = num_rounds + np.cumprod(right, axis=1).sum()
    costs = CURVE.values(batch_size, found.num_draft_tokens + 1)
    assert found.tokens_per_round == pytest.approx(num_tokens / num_rounds, rel=0.02)
    assert found.speed_up == pytest.approx(num_tokens / num_rounds * costs[0] / costs[-1], rel=0.02)


def test_the_length_is_the_policys_own() -> None:
    draft = Draft(
        tokens=np.zeros(512, np.int32),
        sources=np.zeros(512, np.int8),
        probabilities=(0.9 ** np.arange(1, 513)).astype(np.float32),
    )
    (cut,) = CostPolicy(CURVE, 512).cut([draft], [DraftTerms(0, 512)])
    assert Payments(CURVE).policy_length(1, 0.9) == len(cut) == 24


def test_fuller_batches_ask_for_more_acceptance_and_gain_less() -> None:
    borders = crossovers(CURVE, (1, 4, 16, 64), (0.8,))
    leasts = [border.min_acceptance for border in borders]
    gains = [border.payments[0].speed_up for border in borders]
    assert None not in leasts
    assert leasts == sorted(leasts, key=float)  # type: ignore[arg-type]
    assert gains == sorted(gains, reverse=True)
    assert leasts[0] != leasts[-1]


def test_at_the_border_drafts_begin_to_gain() -> None:
    payments = Payments(CURVE)
    least = payments.min_acceptance(8)
    assert least is not None
    assert payments.of(8, least).speed_up >= AdviseConfig.min_gain > payments.of(8, least - 0.01).speed_up


def test_where_a_token_costs_a_pass_no_acceptance_pays() -> None:
    dear = CostCurve(widths=(1, 2), costs=((1.0, 2.0),))
    assert Payments(dear).min_acceptance(1) is None
    (border,) = crossovers(dear, (1,), (0.95,))
    assert border.payments[0].speed_up <= 1.0 + 1e-9
    assert border.payments[0].min_output_tokens is None


def test_rows_that_do_not_share_passes_gain_alike_in_every_batch() -> None:
    assert Payments(ALONE).of(16, 0.9).speed_up == Payments(ALONE).of(1, 0.9).speed_up
    assert row_curve(ALONE, 16) is ALONE


def test_a_short_output_does_not_make_up_for_the_index() -> None:
    curve = CostCurve(widths=(1, 2, 64), costs=((0.010, 0.011, 0.02),))
    found = Payments(curve, start_seconds=0.1).of(1, 0.9)
    assert found.min_output_tokens is not None
    saved = 0.010 * (1.0 - 1.0 / found.speed_up)
    assert (found.min_output_tokens - 1) * saved < 0.1 <= found.min_output_tokens * saved


@pytest.mark.parametrize("batch_size", [2, 8])
def test_a_lone_row_with_its_share_drafts_as_far_as_a_row_of_the_batch(batch_size: int) -> None:
    share = row_curve(CURVE, batch_size)
    for acceptance in (0.3, 0.7, 0.9):
        shared = Payments(CURVE).policy_length(batch_size, acceptance)
        assert abs(Payments(share).policy_length(1, acceptance) - shared) <= 1


def test_what_was_asked_before_changes_no_answer() -> None:
    payments = Payments(CURVE)
    asked = [(size, acceptance) for size in (8, 1, 2, 9) for acceptance in (0.95, 0.1, 0.6)]
    assert [payments.of(*each) for each in asked * 2] == [Payments(CURVE).of(*each) for each in asked] * 2
