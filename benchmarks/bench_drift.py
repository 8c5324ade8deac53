"""How often does the drift detector raise a false alarm, and how soon does it see a real one?

The noise is real: the traces of `corpora/` are replayed without a model, with the default drafter and policy, for the
acceptance of each request. Streams of requests are drawn from those:

- ``edits``: the whole-file edits, each drawn by itself; ``mixed``: all traces, likewise
- ``runs of 3`` and ``6``: so many requests in a row, on average, are of one file, as when one person works on it

A stream begins with the reference. False alarms are counted over the stationary requests that follow; the rate is
alarms over requests, up to each stream's first. For the delays, all rates are lowered (or raised) by the change right
after the reference, within 0 to 1, and the requests until the alarm are counted, over the streams that raised one;
"missed" are the others.

    python -m benchmarks.bench_drift [--streams 200] [--requests 5000] [--slack 0.5] [--threshold 12]

The very last line is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from statistics import fmean, pstdev, quantiles

from benchmarks.arguments import positive_int
from lookahead_edit.config import DriftConfig, SpeculationConfig
from lookahead_edit.metrics_drift import DriftDetector
from lookahead_edit.replay import drafter_factory, policy_factory, replay_trace
from lookahead_edit.replay_figures import DEFAULT_COSTS
from lookahead_edit.replay_tokens import tokenize_trace
from lookahead_edit.targets.tokenizer_loading import load_tokenizer
from lookahead_edit.traces import Trace, read_traces

CORPORA = Path(__file__).parent.parent / "corpora"
CHANGES = (-0.1, -0.2, -0.3, 0.1)
MAX_DELAY = 1500  # requests; later than that a change is missed
RESOLUTION = 10_000  # draft tokens that stand for one request's rate


def replayed_rates() -> dict[str, list[float]]:
    """Acceptance of each trace, by the file or text that it is about; ``edits/…`` first."""
    tokenizer = load_tokenizer()
    config = SpeculationConfig()
    make_drafter, make_policy = drafter_factory(config, tokenizer), policy_factory(config)
    rates: dict[str, list[float]] = defaultdict(list)
    for name in ("edits", "quotes", "structured"):
        with (CORPORA / f"{name}.jsonl").open("rb") as file:
            for _, trace in read_traces(file):
                assert isinstance(trace, Trace)
                tokens = tokenize_trace(trace, tokenizer)
                metrics = replay_trace(tokens, make_drafter(tokens), make_policy(DEFAULT_COSTS[-1])).metrics
                if metrics.num_draft_tokens >= DriftConfig.min_draft_tokens:
                    assert metrics.acceptance_rate is not None
                    group = "/".join(trace.id.split("/")[:2]) if name == "edits" else name
                    rates[group].append(metrics.acceptance_rate)
    return dict(rates)


def stream(groups: list[list[float]], mean_run: int, generator: random.Random) -> Iterator[float]:
    """Rates without end; a group is chosen by its size, and goes on for `mean_run` requests on average."""
    sizes = [len(group) for group in groups]
    while True:
        (group,) = generator.choices(groups, sizes)
        yield generator.choice(group)
        while generator.random() >= 1.0 / mean_run:
            yield generator.choice(group)


def first_alarm(rates: Iterator[float], config: DriftConfig, num_requests: int, change: float) -> tuple[int, str]:
    """Requests after the reference until the first alarm, and its direction; ``num_requests, ""`` without one."""
    detector = DriftDetector(config)
    for rate in islice(rates, config.num_reference_requests):
        detector.add(RESOLUTION, round(RESOLUTION * rate))
    for number, rate in enumerate(islice(rates, num_requests), start=1):
        event = detector.add(RESOLUTION, round(RESOLUTION * min(max(rate + change, 0.0), 1.0)))
        if event is not None:
            return number, event.change
    return num_requests, ""


def measure(
    make_stream: Callable[[random.Random], Iterator[float]],
    config: DriftConfig,
    num_streams: int,
    num_requests: int,
) -> dict[str, object]:
    """False alarms, and the delays of each change, of one kind of traffic."""
    sample = list(islice(make_stream(random.Random(0)), 5000))
    outcomes = [
        first_alarm(make_stream(random.Random(f"stationary {number}")), config, num_requests, 0.0)
        for number in range(num_streams)
    ]
    num_alarms = sum(bool(direction) for _, direction in outcomes)
    figures: dict[str, object] = {
        "mean": fmean(sample),
        "standard_deviation": pstdev(sample),
        "streams_with_alarm": num_alarms / num_streams,
        "requests_per_alarm": sum(number for number, _ in outcomes) / num_alarms if num_alarms else None,
    }
    for change in CHANGES:
        expected = "drop" if change < 0.0 else "rise"
        delays = []
        for number in range(num_streams):
            delay, direction = first_alarm(make_stream(random.Random(f"changed {number}")), config, MAX_DELAY, change)
            if direction == expected:
                delays.append(delay)
        p50, p95 = (quantiles(delays, n=20, method="inclusive")[index] for index in (9, 18))
        figures[f"{change:+g}"] = {"p50": p50, "p95": p95, "missed": 1.0 - len(delays) / num_streams}
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=positive_int, default=200)
    parser.add_argument("--requests", type=positive_int, default=5000, help="stationary ones in each stream")
    parser.add_argument("--slack", type=float, default=DriftConfig.slack)
    parser.add_argument("--threshold", type=float, default=DriftConfig.threshold)
    parser.add_argument("--reference", type=positive_int, default=DriftConfig.num_reference_requests, help="requests")
    arguments = parser.parse_args()
    config = replace(
        DriftConfig(),
        slack=arguments.slack,
        threshold=arguments.threshold,
        num_reference_requests=arguments.reference,
    )
    rates = replayed_rates()
    edits = [group for name, group in rates.items() if name.startswith("edits/")]
    everything = list(rates.values())
    kinds = {
        "edits": (edits, 1),
        "edits, runs of 3": (edits, 3),
        "edits, runs of 6": (edits, 6),
        "mixed": (everything, 1),
        "mixed, runs of 3": (everything, 3),
        "mixed, runs of 6": (everything, 6),
    }
    columns = "  ".join(f"{change:+g}: p50  p95  missed" for change in CHANGES)
    print(f"{'requests':18} mean    sd  with alarm  one alarm in  {columns}")
    results: dict[str, object] = {}
    for name, (groups, mean_run) in kinds.items():
        figures = measure(
            lambda generator: stream(groups, mean_run, generator),  # noqa: B023
            config,
            arguments.streams,
            arguments.requests,
        )
        results[name] = figures
        print(_row(name, figures), flush=True)
    print(json.dumps({"benchmark": "drift", "config": asdict(config), "traffic": results}))


def _row(name: str, figures: dict[str, object]) -> str:
    rate = figures["requests_per_alarm"]
    cells = [
        f"{name:18} {figures['mean']:.2f}  {figures['standard_deviation']:.2f}  {figures['streams_with_alarm']:10.1%}"
    ]
    cells.append(f"{'-' if rate is None else format(rate, '.0f'):>12}")
    for change in CHANGES:
        delay = figures[f"{change:+g}"]
        assert isinstance(delay, dict)
        cells.append(f"{delay['p50']:8.0f}{delay['p95']:6.0f}{delay['missed']:8.1%}")
    return "  ".join(cells)


if __name__ == "__main__":
    main()
