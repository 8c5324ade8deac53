"""What a pass costs, and draft lengths that follow from it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from lookahead_edit.cost import CPU_CURVE, CostCurve, best_constant_length, run_costs
from lookahead_edit.kernels.length import best_length
from lookahead_edit.types import FloatArray, InvalidInput

CURVES = {"CPU": CPU_CURVE, **{f"c={cost:g}": CostCurve.linear(cost) for cost in (0.002, 0.01, 0.05, 0.3)}}


def probabilities_of(survival: float, num_tokens: int) -> FloatArray:
    return (survival ** np.arange(1, num_tokens + 1)).astype(np.float32)


# Curves.


def test_costs_between_and_beyond_the_measured_widths_are_linear() -> None:
    curve = CostCurve(widths=(1, 2, 4), costs=((1.0, 1.8, 2.0),))
    assert curve.values(1, 6) == pytest.approx([1.0, 1.8, 1.9, 2.0, 2.1, 2.2])
    assert CostCurve.linear(0.25).values(1, 4) == pytest.approx([1.25, 1.5, 1.75, 2.0])


def test_a_wider_pass_never_looks_cheaper() -> None:
    curve = CostCurve(widths=(1, 2, 4, 8), costs=((1.0, 1.5, 1.3, 1.5),))
    assert curve.values(1, 10) == pytest.approx([1.0] + [1.5] * 9)


def test_a_batch_costs_what_its_tokens_cost_in_the_largest_measured_one_below() -> None:
    curve = CostCurve(widths=(1, 3), costs=((1.0, 1.2), (1.5, 2.5)), batch_sizes=(1, 4))
    assert curve.values(2, 3) == pytest.approx([1.1, 1.3, 1.5])
    assert curve.values(4, 3) == pytest.approx([1.5, 2.0, 2.5])
    assert curve.values(8, 2) == pytest.approx([2.0, 3.0])
    assert CostCurve.linear(0.01).values(8, 2) == pytest.approx([1.08, 1.16])


def test_a_packed_pass_costs_by_its_tokens_however_the_rows_share_them() -> None:
    curve = CostCurve(widths=(1, 3), costs=((1.0, 1.2), (1.5, 2.5)), batch_sizes=(1, 4))
    assert curve.token_costs(1, 3) == pytest.approx(curve.values(1, 4))
    assert curve.token_costs(4, 8)[::4] == pytest.approx(curve.values(4, 3))
    assert curve.token_costs(4, 2) == pytest.approx([1.5, 1.625, 1.75])
    assert curve.token_costs(2, 0) == pytest.approx([1.1])


BAD_CURVES: dict[str, dict[str, Any]] = {
    "expected widths to be whole numbers that rise from 1": {"widths": (2, 3), "costs": ((1.0, 2.0),)},
    r"that rise from 1, got \(1, 1\)": {"widths": (1, 1), "costs": ((1.0, 2.0),)},
    r"that rise from 1, got \(1, 2.5\)": {"widths": (1, 2.5), "costs": ((1.0, 2.0),)},
    "expected at least two widths": {"widths": (1,), "costs": ((1.0,),)},
    "expected batch_sizes to be": {"widths": (1, 2), "costs": ((1.0, 2.0),), "batch_sizes": ()},
    r"expected 1 rows of 2 costs, got rows of \[3\]": {"widths": (1, 2), "costs": ((1.0, 2.0, 3.0),)},
    "expected costs to be finite numbers above 0, got 0.0": {"widths": (1, 2), "costs": ((0.0, 2.0),)},
    "expected costs to be finite numbers above 0, got nan": {"widths": (1, 2), "costs": ((1.0, float("nan")),)},
}


@pytest.mark.parametrize("message", BAD_CURVES)
def test_what_is_no_curve_is_refused(message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        CostCurve(**BAD_CURVES[message])


def test_a_curve_survives_json() -> None:
    curve = CostCurve(widths=(1, 2, 4), costs=((1, 2.5, 3.0), (2, 3, 4)), batch_sizes=(1, 2), shares_passes=False)
    assert CostCurve.from_json(json.loads(json.dumps(curve.to_json()))) == curve


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"widths": 3}, {**CPU_CURVE.to_json(), "costs": [["a", 1]]}, {**CPU_CURVE.to_json(), "widths": [1]}],
)
def test_json_that_is_no_curve_is_refused(document: object) -> None:
    with pytest.raises(InvalidInput):
        CostCurve.from_json(document)


# The rule.


def test_the_rule_worked_out_by_hand() -> None:
    """Each token is right with 1/2, so R = 1 everywhere, also beyond the two drafted tokens.

    Passes cost 1, 1.15, 1.3, ...; runs of mean length 1 cost min(1 / (1/2), 1.15 / (3/4), 1.3 / (7/8), ...) = 1.486.
    Drafting none costs 1 + 1.486 / 2 = 1.743, one token 1.15 + 1.486 / 4 = 1.521, both 1.3 + 1.486 / 8 = 1.486.
    Where a further token costs 1.5 passes, runs cost 2: none 1 + 2 / 2 = 2, one token 2.5 + 2 / 4 = 3.
    """
    cheap = CostCurve(widths=(1, 2), costs=((1.0, 1.15),)).values(1, 20)
    assert run_costs(cheap)[8] == pytest.approx(1.3 / 0.875)
    savings = np.zeros(3)
    assert best_length(probabilities_of(0.5, 2), cheap, run_costs(cheap), savings) == 2
    undrafted = run_costs(cheap)[8] / 2
    assert savings == pytest.approx([0.0, undrafted / 2, undrafted * 3 / 4])
    dear = CostCurve(widths=(1, 2), costs=((1.0, 2.5),)).values(1, 20)
    assert run_costs(dear)[8] == pytest.approx(2.0)
    assert best_length(probabilities_of(0.5, 2), dear, run_costs(dear), savings) == 0


@pytest.mark.parametrize("survival", [0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 0.99])
@pytest.mark.parametrize("name", CURVES)
def test_runs_of_geometric_length_cost_what_the_best_constant_length_makes_them_cost(
    name: str, survival: float
) -> None:
    """Simulated: a run of L right tokens takes ``L // (k + 1) + 1`` passes of width k + 1 with drafts of k tokens."""
    max_draft_tokens = 300
    costs = CURVES[name].values(1, max_draft_tokens + 1)
    run_lengths = np.random.default_rng(3).geometric(1 - survival, 20_000) - 1
    mean_costs = [(run_lengths // (k + 1) + 1).mean() * costs[k] for k in range(max_draft_tokens + 1)]
    drafted = probabilities_of(survival, max_draft_tokens)
    chosen = best_length(drafted, costs, run_costs(costs), np.zeros(max_draft_tokens + 1))
    assert mean_costs[chosen] <= 1.02 * min(mean_costs)
    # A short draft is judged by what may follow it: all of it is kept where a longer one would be.
    short = best_length(drafted[: max(1, chosen // 2)], costs, run_costs(costs), np.zeros(max_draft_tokens + 1))
    assert short == (max(1, chosen // 2) if chosen > 0 else 0)


def test_longer_drafts_than_pay_for_the_longest_runs_are_never_made() -> None:
    lengths = [best_constant_length(CostCurve.linear(cost).values(1, 513)) for cost in (0.002, 0.01, 0.05, 1.0)]
    assert lengths == [512, 285, 134, 30]
    assert best_constant_length(CPU_CURVE.values(1, 513)) == 341
    assert best_constant_length(CostCurve.linear(1.0).values(1, 100), survival=0.5) == 0


def test_on_a_cpu_next_to_nothing_or_much_is_drafted() -> None:
    """There a second token costs nearly as much as the first, and the 20th next to nothing."""
    costs = CPU_CURVE.values(1, 129)

    def length_at(survival: float) -> int:
        return best_length(probabilities_of(survival, 128), costs, run_costs(costs), np.zeros(129))

    assert length_at(0.3) == 0
    assert length_at(0.6) > 4
    assert length_at(0.98) > 60
