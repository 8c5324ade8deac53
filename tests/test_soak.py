"""The soak: a short one on a tiny model ends well; its verdict sees memory that grows and answers that are wrong."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from server_harness import on_socket
from tiny_editors import tiny_editor

from benchmarks.soak import Sample, SoakConfig, report, slope_of, soak
from benchmarks.soak_traffic import WRONG, Answer

SHORT = SoakConfig(
    seconds=8.0, num_clients=12, sample_seconds=0.5, retry_seconds=0.05, limits=(4, 16), max_rise_share=0.5
)
IDLE = Sample(0.0, 1000.0, 9, 20, 0, 0, 5.0)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_a_short_soak_of_a_real_server_ends_well() -> None:
    with on_socket(tiny_editor(), max_batch_size=4, max_queued_requests=4) as client:
        document = asyncio.run(soak(str(client.base_url).rstrip("/"), os.getpid(), SHORT))
    assert document["unexpected"] == []
    assert document["verdict"] == dict.fromkeys(document["verdict"], True)
    assert document["num_answers"] > 20
    assert document["afterwards"]["num_running"] == document["afterwards"]["num_waiting"] == 0
    assert document["afterwards"]["kept_prompt_mib"] <= 1.0
    assert len(document["samples"]) > 2
    seen = {end for ends in document["answers"].values() for end in ends}
    assert {"200", "left"} <= seen


def growing(mib_a_sample: float, num_samples: int = 120) -> list[Sample]:
    """One every ten seconds; each seventh has a peak."""
    return [
        replace(IDLE, seconds=10.0 * index, resident_mib=1000 + mib_a_sample * index + 90 * (index % 7 == 0))
        for index in range(num_samples)
    ]


def judged(samples: list[Sample], after: Sample = IDLE, **traffic: Any) -> dict[str, Any]:
    heard = SimpleNamespace(**({"answers": [Answer("edit", "200")], "unequal": []} | traffic))
    return report(IDLE, samples, after, heard, SoakConfig())  # type: ignore[arg-type]


def test_the_slope_is_that_of_the_memory_whatever_the_peaks() -> None:
    assert slope_of(growing(0.5)) == pytest.approx(0.05, rel=0.1)
    assert slope_of(growing(0.0)) == pytest.approx(0.0, abs=0.005)
    assert slope_of([]) == slope_of([IDLE]) == 0.0


def test_growth_at_the_beginning_is_no_growth_and_later_it_is() -> None:
    filling = [replace(one, resident_mib=min(500 + 20 * index, 1000)) for index, one in enumerate(growing(0.0))]
    assert judged(filling)["verdict"]["passes"]
    assert not judged(growing(0.5))["verdict"]["memory_is_flat"]


def test_prompts_that_are_kept_are_no_growth() -> None:
    kept = [
        replace(one, resident_mib=one.resident_mib + index, kept_prompt_mib=one.kept_prompt_mib + index)
        for index, one in enumerate(growing(0.0))
    ]
    document = judged(kept)
    assert document["verdict"]["passes"]
    assert document["memory"]["greatest_kept_prompt_mib"] == 5.0 + 119


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ({"after": replace(IDLE, num_running=1)}, "nothing_runs_on"),
        ({"answers": [Answer("edit", "500", "internal_error", is_expected=False)]}, "answers_are_expected"),
        ({"unequal": ["x"]}, "texts_are_equal"),
    ],
)
def test_each_fault_is_in_the_verdict(fault: dict[str, Any], found: str) -> None:
    verdict = judged(growing(0.0), **fault)["verdict"]
    assert [name for name, is_well in verdict.items() if not is_well] == [found, "passes"]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: f"{wrong.code} {wrong.path}")
def test_bad_input_is_answered_as_the_soak_expects(wrong: Any, served: Any) -> None:
    response = served.post(wrong.path, content=wrong.body, headers=wrong.headers)
    assert (response.status_code, response.json()["error"]["code"]) == (wrong.status, wrong.code)


@pytest.fixture(scope="module")
def served() -> Any:
    with on_socket(tiny_editor()) as client:
        yield client
