"""Sums over the requests of a route."""

from __future__ import annotations

import pytest
from test_metrics import ROUNDS, counted

from lookahead_edit.config import DriftConfig
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.metrics_routes import MAX_RECENT_REQUESTS, RequestFigures, RouteMetrics


def test_ratios_of_a_route_are_those_of_all_its_rounds() -> None:
    route = RouteMetrics()
    route.add(counted(ROUNDS[:2]))
    route.add(counted(ROUNDS[2:]))
    together = counted(ROUNDS)
    assert route.num_requests == 2
    assert route.totals.tokens_per_round == together.tokens_per_round
    assert route.totals.acceptance_rate == together.acceptance_rate
    assert route.totals.tokens_per_second == together.tokens_per_second
    assert route.totals.num_wasted_tokens == together.num_wasted_tokens
    assert route.totals.num_drafted_by_source == together.num_drafted_by_source
    assert route.totals.num_accepted_by_source == together.num_accepted_by_source


def test_the_last_requests_are_kept_and_no_more() -> None:
    route = RouteMetrics()
    for number in range(1, 200):
        route.add(SpeculationMetrics(num_rounds=1, num_emitted_tokens=number))
    assert [figures.num_emitted_tokens for figures in route.recent] == [*range(200 - MAX_RECENT_REQUESTS, 200)]
    assert route.recent[-1] == RequestFigures(199, None, 199.0, None)


def test_a_request_that_emitted_nothing_counts_without_a_figure() -> None:
    route = RouteMetrics()
    route.add(SpeculationMetrics(num_prompt_tokens=7))
    assert (route.num_requests, route.totals.num_prompt_tokens, len(route.recent)) == (1, 7, 0)


def test_each_route_has_its_own_drift() -> None:
    config = DriftConfig(num_reference_requests=20)
    steady, falling = RouteMetrics(config), RouteMetrics(config)
    good = SpeculationMetrics(num_draft_tokens=100, num_accepted_tokens=90)
    bad = SpeculationMetrics(num_draft_tokens=100, num_accepted_tokens=20)
    for _ in range(20):
        assert steady.add(good) is None
        assert falling.add(good) is None
    events = [event for _ in range(40) if (event := falling.add(bad)) is not None]
    assert [event.change for event in events] == ["drop"]
    assert falling.drift.direction == "drop"
    assert steady.add(good) is None
    assert steady.drift.direction is None
    assert falling.drift.acceptance_rate == pytest.approx(0.2)
