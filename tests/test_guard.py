"""The regression guard: rounds of replays and operations of the index are what was stored."""

from __future__ import annotations

import json

from benchmarks.guard import STORED, UPDATE, differences, measure, report


def test_rounds_and_index_operations_are_the_stored_ones() -> None:
    found = report(json.loads(STORED.read_text("utf-8")), measure())
    assert not found, f"\n{found}"


def test_a_figure_beyond_its_tolerance_is_named_with_what_it_was_and_how_to_keep_it() -> None:
    stored = {"replay": {"edit, a, rounds": 1000, "edit, b, rounds": 10}, "operations": {"a file, build": 1000}}
    measured = {"replay": {"edit, a, rounds": 1011, "edit, b, rounds": 11}, "operations": {"a file, build": 900}}
    assert list(differences(stored, measured)) == [
        "operations: a file, build: 900 instead of 1000 (-10.0 %, tolerance 5 %)",
        "replay: edit, a, rounds: 1011 instead of 1000 (+1.1 %, tolerance 1 %)",
    ]
    assert UPDATE in report(stored, measured)
    assert report(stored, stored) == ""


def test_a_figure_that_came_or_went_is_named() -> None:
    assert list(differences({"replay": {"a": 1}}, {"replay": {"b": 1}})) == [
        "replay: a: no longer measured",
        "replay: b: new, without a stored figure",
    ]
