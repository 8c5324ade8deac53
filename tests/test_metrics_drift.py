"""The drift detector: quiet while nothing changes, whatever the noise, and quick where something does."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from statistics import fmean, pvariance

import pytest

from lookahead_edit.config import DriftConfig
from lookahead_edit.metrics_drift import DriftDetector, DriftEvent, Reference, long_run_variance_ratio
from lookahead_edit.types import InvalidInput

Rates = Iterator[float]


def beta(mean: float, generator: random.Random, concentration: float = 9.0) -> Rates:
    """Independent rates; the standard deviation is 0.14 at a mean of 0.74, that of real edits."""
    while True:
        yield generator.betavariate(mean * concentration, (1.0 - mean) * concentration)


def runs(generator: random.Random) -> Rates:
    """Some requests in a row are about one file, and alike."""
    while True:
        file_mean = min(max(generator.gauss(0.7, 0.1), 0.05), 0.95)
        for _ in range(generator.randint(1, 5)):
            yield min(max(generator.gauss(file_mean, 0.08), 0.0), 1.0)


def two_kinds(generator: random.Random) -> Rates:
    """Half of the requests are accepted whole, the others hardly."""
    while True:
        yield 1.0 if generator.random() < 0.5 else generator.uniform(0.0, 0.2)


def feed(detector: DriftDetector, rates: Rates, num_requests: int) -> list[DriftEvent]:
    added = (detector.add(1000, round(1000 * rate)) for rate in islice(rates, num_requests))
    return [event for event in added if event is not None]


def learned(rates: Rates, config: DriftConfig | None = None) -> DriftDetector:
    """A detector that has its reference."""
    detector = DriftDetector(config)
    assert feed(detector, rates, detector.config.num_reference_requests) == []
    assert detector.state.reference_rate is not None
    return detector


@pytest.mark.parametrize("traffic", [lambda generator: beta(0.74, generator), runs, two_kinds])
def test_stationary_traffic_raises_fewer_than_one_alarm_in_5000_requests(
    traffic: Callable[[random.Random], Rates],
) -> None:
    alarms = Counter[str]()
    for seed in range(10):
        rates = traffic(random.Random(seed))
        alarms.update(event.change for event in feed(learned(rates), rates, 5000))
    assert alarms["drop"] + alarms["rise"] < 10


@pytest.mark.parametrize(("drop", "num_requests"), [(0.1, 600), (0.2, 100), (0.3, 40)])
def test_a_drop_is_found_sooner_the_larger_it_is(drop: float, num_requests: int) -> None:
    for seed in range(10):
        generator = random.Random(seed)
        detector = learned(beta(0.74, generator))
        (event, *_) = feed(detector, beta(0.74 - drop, generator), num_requests)
        assert event.change == "drop"
        assert event.reference_rate == pytest.approx(0.74, abs=0.05)
        assert event.acceptance_rate == pytest.approx(0.74 - drop, abs=0.12)


def test_a_rise_is_told_apart_from_a_drop() -> None:
    generator = random.Random(0)
    detector = learned(beta(0.5, generator))
    (event,) = feed(detector, beta(0.75, generator), 100)
    assert (event.change, detector.state.direction) == ("rise", "rise")
    assert event.acceptance_rate > event.reference_rate


def test_the_alarm_ends_by_itself_when_acceptance_is_back_and_can_be_raised_again() -> None:
    generator = random.Random(0)
    detector = learned(beta(0.74, generator))
    (dropped,) = feed(detector, beta(0.4, generator), 500)
    (recovered,) = feed(detector, beta(0.74, generator), 100)
    assert (dropped.change, recovered.change) == ("drop", "recovered")
    assert recovered.acceptance_rate == pytest.approx(0.74, abs=0.1)
    assert detector.state.direction is None
    assert [event.change for event in feed(detector, beta(0.4, generator), 100)] == ["drop"]


def test_the_way_back_is_as_long_after_a_long_drift_as_after_a_short_one() -> None:
    delays = []
    for num_drifting in (60, 3000):
        generator = random.Random(1)
        detector = learned(beta(0.74, generator))
        feed(detector, beta(0.3, generator), num_drifting)
        back = beta(0.74, random.Random(2))
        delays.append(next(number for number, rate in enumerate(back) if detector.add(1000, round(1000 * rate))))
    assert delays[0] == delays[1] < 60


def test_a_drift_that_stays_becomes_the_reference() -> None:
    generator = random.Random(0)
    detector = learned(beta(0.74, generator), DriftConfig(num_adopting_requests=400))
    dropped, adopted = feed(detector, beta(0.4, generator), 1000)
    assert (dropped.change, adopted.change) == ("drop", "adopted")
    assert adopted.num_requests == 400
    assert detector.state.reference_rate == pytest.approx(0.4, abs=0.05)
    assert [event.change for event in feed(detector, beta(0.74, generator), 100)] == ["rise"]


def test_a_single_outlier_is_no_drift_however_far_it_is() -> None:
    generator = random.Random(0)
    detector = learned(beta(0.9, generator, 200.0))
    for _ in range(20):
        assert feed(detector, iter([0.0]), 1) == []
        assert feed(detector, beta(0.9, generator, 200.0), 20) == []


def test_outliers_in_the_reference_do_not_hide_a_drop() -> None:
    generator = random.Random(0)
    clean = beta(0.74, generator)
    spoiled = (0.0 if number % 20 == 0 else next(clean) for number in range(300))
    detector = learned(spoiled)
    (event,) = feed(detector, beta(0.5, generator), 60)
    assert event.change == "drop"


def test_a_change_that_nobody_would_act_on_is_no_drift() -> None:
    """A route that always accepted everything, and now all but one token in a hundred."""
    detector = learned(iter([1.0] * 300))
    assert feed(detector, iter([0.99] * 2000), 2000) == []
    assert [event.change for event in feed(detector, iter([0.8] * 100), 100)] == ["drop"]


def test_constant_acceptance_is_stationary() -> None:
    assert feed(learned(iter([0.5] * 300)), iter([0.5] * 5000), 5000) == []


def test_small_requests_count_together_and_those_without_a_draft_say_nothing() -> None:
    detector = DriftDetector(DriftConfig(min_draft_tokens=32))
    for _ in range(4):
        detector.add(0, 0)
        detector.add(10, 5)
    assert detector.state.num_reference_requests == 1
    detector.add(31, 0)
    detector.add(0, 0)
    assert detector.state.num_reference_requests == 1


def test_before_the_reference_is_learned_nothing_is_said() -> None:
    detector = DriftDetector(DriftConfig(num_reference_requests=50))
    assert feed(detector, iter([0.9] * 25 + [0.1] * 24), 49) == []
    state = detector.state
    assert (state.direction, state.reference_rate, state.num_reference_requests) == (None, None, 49)


def test_the_outcome_depends_on_the_order_of_requests_alone() -> None:
    def events() -> list[DriftEvent]:
        generator = random.Random(5)
        detector = learned(runs(generator))
        return feed(detector, (rate * 0.7 for rate in runs(generator)), 3000)

    assert events() == events()


def test_memory_does_not_grow_with_the_traffic() -> None:
    detector = learned(runs(random.Random(0)))
    feed(detector, runs(random.Random(1)), 3000)
    assert len(detector._recent) == 300
    assert detector.state.num_reference_requests == 300


def test_scores_of_the_reference_itself_are_standard_normal() -> None:
    rates = list(islice(two_kinds(random.Random(0)), 300))
    reference = Reference(rates, 20)
    scores = [reference.score(rate) for rate in rates]
    assert fmean(scores) == pytest.approx(0.0, abs=1e-9)
    assert 0.6 < pvariance(scores) <= 1.0  # ties share a score, so the variance is less


def test_requests_that_resemble_their_neighbours_carry_less_evidence() -> None:
    generator = random.Random(0)
    independent = [generator.gauss(0.0, 1.0) for _ in range(300)]
    in_runs = [value for value in independent[:60] for _ in range(5)]
    assert long_run_variance_ratio(independent, 20) < 1.5
    assert 2.5 < long_run_variance_ratio(in_runs, 20) < 7.5  # 5 without end
    assert long_run_variance_ratio([0.5] * 300, 20) == 1.0


@pytest.mark.parametrize(
    ("name", "value"), [("num_reference_requests", 0), ("threshold", float("inf")), ("slack", -0.1)]
)
def test_a_configuration_that_cannot_work_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=f"expected {name}"):
        DriftConfig(**{name: value})  # type: ignore[arg-type]
