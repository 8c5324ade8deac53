"""The kernels of the cost rule against their slow twins."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from lookahead_edit.cost import CPU_CURVE, CostCurve, run_costs
from lookahead_edit.kernels.length import best_length, best_shared_length, fill_savings
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


def test_the_shared_length_is_that_of_the_twin() -> None:
    generator = np.random.default_rng(2)
    found = set()
    for _ in range(100):
        lengths = generator.integers(0, 9, int(generator.integers(1, 5)))
        lengths[0] += 1
        savings = np.cumsum(generator.random((len(lengths), 10)) - 0.2, axis=1)
        costs = np.cumsum(generator.random(11) * generator.choice([0.1, 1.0, 4.0]))
        expected = naive.shared_length(lengths.tolist(), savings.tolist(), costs.tolist())
        assert best_shared_length(lengths, savings, costs) == expected
        found.add(expected)
    assert {0, 1, 8} <= found
