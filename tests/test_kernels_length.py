"""The kernels of the cost rule against their slow twins."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from lookahead_edit.cost import CPU_CURVE, CostCurve, run_costs
from lookahead_edit.kernels.length import best_length, fill_savings, share_tokens
from tests import naive

CURVES = {"CPU": CPU_CURVE, **{f"c={cost:g}": CostCurve.linear(cost) for cost in (0.0, 0.002, 0.05, 1.0)}}
NODES = np.array([2.0**octave * (1 + step / 8) for octave in range(13) for step in range(8)] + [2.0**13])


def random_probabilities(generator: np.random.Generator) -> NDArray[np.float32]:
    """Never rising, from sure to hopeless."""
    num_tokens = int(generator.integers(1, 40))
    survivals = generator.beta(generator.choice([0.5, 5.0, 100.0]), 0.5, num_tokens)
    return np.cumprod(np.maximum(survivals, 1e-3)).astype(np.float32)


@pytest.mark.parametrize("name", CURVES)
def test_savings_and_length_are_those_of_the_twin(name: str) -> None:
    generator = np.random.default_rng(1)
    costs = CURVES[name].values(1, 60)
    futures = run_costs(costs)
    for _ in range(40):
        probabilities = random_probabilities(generator)
        expected = naive.draft_costs(
            probabilities.tolist(),
            costs.tolist(),
            lambda mean_length: float(np.interp(1 + mean_length, NODES, futures)),
        )
        savings = np.zeros(len(probabilities) + 1)
        fill_savings(probabilities, futures, savings)
        lengths = np.arange(len(expected))
        assert expected[0] - (savings - costs[lengths] + costs[0]) == pytest.approx(expected, rel=1e-5)
        best = best_length(probabilities, costs, futures, savings)
        assert expected[best] == pytest.approx(min(expected), rel=1e-5)


@pytest.mark.parametrize("name", CURVES)
def test_the_table_of_run_costs_is_close_between_its_nodes(name: str) -> None:
    costs = CURVES[name].values(1, 60)
    for mean_length in (0.0, 0.1, 0.77, 1.0, 3.3, 17.9, 240.0, 499.0):
        found = float(np.interp(1 + mean_length, NODES, run_costs(costs)))
        assert found == pytest.approx(naive.run_cost(mean_length, costs.tolist()), rel=1e-2)


def test_a_draft_that_is_hopeless_is_not_drafted() -> None:
    costs = CostCurve.linear(0.01).values(1, 8)
    savings = np.zeros(4)
    assert best_length(np.zeros(3, dtype=np.float32), costs, run_costs(costs), savings) == 0
    assert savings.tolist() == [0.0] * 4
    assert best_length(np.ones(3, dtype=np.float32), costs, run_costs(costs), savings) == 3


def shared(limits: NDArray[np.int64], savings: NDArray[np.float64], costs: NDArray[np.float64]) -> list[int]:
    lengths = np.full(len(limits), -1, dtype=np.int64)
    share_tokens(savings, limits, costs, lengths)
    return lengths.tolist()


@pytest.mark.parametrize("is_concave", [True, False])
def test_shared_tokens_save_as_much_as_the_twin_finds(is_concave: bool) -> None:
    """Where savings are not concave, a row's tokens go in lumps, so that a little may be missed."""
    generator = np.random.default_rng(2)
    sums = set()
    for _ in range(150):
        limits = generator.integers(0, 6, int(generator.integers(1, 5)))
        limits[0] += 1
        rates = generator.random((len(limits), 7)) - 0.2
        savings = np.cumsum(np.sort(rates)[:, ::-1] if is_concave else rates, axis=1)
        savings = np.concatenate([np.zeros((len(limits), 1)), savings], axis=1)
        costs = np.cumsum(generator.random(limits.sum() + 1) * generator.choice([0.1, 1.0, 4.0]))
        lengths = shared(limits, savings, costs)
        assert all(0 <= length <= limit for length, limit in zip(lengths, limits, strict=True))
        gain = savings[np.arange(len(limits)), lengths].sum() - (costs[sum(lengths)] - costs[0])
        most = naive.shared_gain(limits.tolist(), savings.tolist(), costs.tolist())
        assert gain == pytest.approx(most) if is_concave else most - 1.5 <= gain <= most + 1e-9
        sums.add(sum(lengths))
    assert 0 in sums
    assert max(sums) > 8


def test_a_single_row_gets_what_it_gets_alone() -> None:
    generator = np.random.default_rng(3)
    costs = CURVES["CPU"].values(1, 60)
    futures = run_costs(costs)
    for _ in range(50):
        probabilities = random_probabilities(generator)
        savings = np.zeros((1, len(probabilities) + 1))
        alone = best_length(probabilities, costs, futures, savings[0])
        limits = np.array([len(probabilities)])
        (length,) = shared(limits, savings, costs)
        gains = savings[0] - (costs[: len(probabilities) + 1] - costs[0])
        assert gains[length] == pytest.approx(gains[alone], abs=1e-3)
