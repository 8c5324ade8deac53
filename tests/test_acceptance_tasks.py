"""Traces that acceptance is learned from: made up from what is installed, valid, and always the same."""

from __future__ import annotations

import csv
import io
import json
import socket
import sys
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from corpora.acceptance import records, tasks
from corpora.edit_model.pieces import source_files
from lookahead_edit.replay import tokenize_trace
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.traces import Trace, read_traces

TOKENIZER = ByteTokenizer()
NUM_LISTS = 160
COMMON = {"version": "1.0", "summary": "Does it."}
NAMES = {"filtered", "changed", "shortened", "sorted", "unchanged"}


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens a connection fails."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("a connection was opened")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)


@pytest.fixture
def few_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    if not {"python", "markdown"} <= set(source_files("train")):
        pytest.skip("the packages that tasks are made from are not installed")
    monkeypatch.setattr(tasks, "NUM_TASKS", 12)
    monkeypatch.setattr(tasks, "NUM_CONTINUATIONS", 4)
    monkeypatch.setattr(tasks, "NUM_RECORD_LISTS", 6)


@pytest.mark.usefixtures("few_tasks", "no_network")
def test_made_up_tasks_are_valid_traces() -> None:
    traces = [*tasks.edit_traces(), *tasks.continuation_traces()]
    assert len({trace.id for trace in traces}) == len(traces) == 16
    for trace in traces:
        tokens = tokenize_trace(trace, TOKENIZER)  # refuses a source that isn't in the prompt
        assert len(tokens.output) > 0
        assert not trace.output.endswith("<|im_end|>")
    assert all(trace.source is None for trace in traces[12:])
    for index, trace in enumerate(traces[:12]):  # a quote's text is edited by nobody
        assert trace.source is not None or (trace.id.startswith("quote") and index % 2)
    assert traces == [*tasks.edit_traces(), *tasks.continuation_traces()]  # always the same


@pytest.mark.usefixtures("few_tasks")
def test_all_kinds_are_written_to_the_file_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tasks", str(tmp_path / "tasks.jsonl")])
    tasks.main()
    with (tmp_path / "tasks.jsonl").open("rb") as file:
        written = [trace for _, trace in read_traces(file)]
    made = [*tasks.edit_traces(), *tasks.continuation_traces(), *records.record_traces(6, tasks.SEED)]
    assert written == made
    assert len({trace.id for trace in written}) == 22


@pytest.mark.usefixtures("no_network")
def test_lists_of_records_are_valid_traces_and_always_the_same() -> None:
    traces = list(records.record_traces(NUM_LISTS, 3))
    assert len({trace.id for trace in traces}) == len(traces) == NUM_LISTS
    assert traces == list(records.record_traces(NUM_LISTS, 3))
    assert traces[:9] != list(records.record_traces(9, 4))
    assert {trace.id.split("-")[1] for trace in traces} == NAMES
    for trace in traces:
        assert trace.source is not None
        assert trace.prompt.count(trace.source) == 1
        tokens = tokenize_trace(trace, TOKENIZER)  # refuses a source that isn't in the prompt
        assert 0 < len(tokens.output) == len(trace.output)
        assert trace.output.isascii()
        assert trace.output.endswith("\n")


def parsed(text: str, form: str) -> list[dict[str, str]]:
    """The records as their readers read them, all values as text."""
    if form == "markdown":
        names, _, *rows = (line[2:-2].split(" | ") for line in text.splitlines())
        return [dict(zip(names, row, strict=True)) for row in rows]
    found = {
        "json": lambda: json.loads(text),
        "jsonl": lambda: [json.loads(line) for line in text.splitlines()],
        "yaml": lambda: yaml.safe_load(text),
        "csv": lambda: list(csv.DictReader(io.StringIO(text))),
    }[form]()
    return [{name: str(value) for name, value in record.items()} for record in found]


def forms_of(trace: Trace) -> tuple[str, str]:
    """The formats that went in and came out: the prompt's fences say so."""
    before, after = (line[3:] for line in trace.prompt.splitlines() if line.startswith("```") and len(line) > 3)
    return before, after


def parsed_traces() -> Iterator[tuple[Trace, list[dict[str, str]], list[dict[str, str]]]]:
    has_bars = any(" | " in str(value) for record in records.package_records() for value in record.values())
    for trace in records.record_traces(NUM_LISTS, 3):
        before, after = forms_of(trace)
        assert trace.source is not None
        if not (has_bars and "markdown" in (before, after)):  # which can't be told from those between cells
            yield trace, parsed(trace.source, before), parsed(trace.output, after)


def test_what_comes_back_is_what_was_asked_for() -> None:
    for trace, before, after in parsed_traces():
        kind = trace.id.split("-")[1]
        names = [record["name"] for record in before]
        assert records.MIN_RECORDS <= len(before) <= records.MAX_RECORDS
        if kind == "unchanged":
            assert after == before
        elif kind == "sorted":
            assert after == sorted(before, key=lambda record: record["name"], reverse=True)
        elif kind == "shortened":
            assert [list(record) for record in after] == [list(after[0])] * len(before)
            assert all(one.items() <= whole.items() for one, whole in zip(after, before, strict=True))
            assert f"Keep only the fields {', '.join(after[0])}." in trace.prompt
        elif kind == "filtered":
            limit = int(trace.prompt.split("at least ")[1].split()[0])
            kept = [record for record in before if int(record["num_requirements"]) >= limit]
            assert after == (kept or before[:1])
        else:
            (changed,) = [index for index, record in enumerate(after) if record != before[index]] or [None]
            assert [record["name"] for record in after] == names
            if changed is not None:
                assert f"version of {names[changed]} to {after[changed]['version']}." in trace.prompt


def test_some_lists_come_back_in_another_format_and_say_so() -> None:
    traces = list(records.record_traces(NUM_LISTS, 3))
    pairs = [forms_of(trace) for trace in traces]
    assert {one for pair in pairs for one in pair} == set(records.FORMATS)
    for trace, (before, after) in zip(traces, pairs, strict=True):
        assert (f" Answer in {after}." in trace.prompt) == (before != after)
    assert 0.3 < sum(before != after for before, after in pairs) / NUM_LISTS < 0.7


def test_records_of_broken_packages_and_of_other_alphabets_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def package(number: int, **fields: str) -> Any:
        about = {"Name": f"package-{number}", "Version": "1.0", "Summary": "Does it.", **fields}
        metadata = Message()
        for name, value in about.items():
            metadata[name.replace("_", "-")] = value
        return SimpleNamespace(metadata=metadata, requires=None if number % 2 else ["one", "two"])

    strange = [package(1, Summary="Größe"), package(2, Name=""), package(3, Author="two\n lines")]
    nameless = SimpleNamespace(metadata=Message(), requires=None)
    whole = [package(5), package(4, Author_email="ann@example.org", Requires_Python=">=3.10")]
    monkeypatch.setattr(records, "distributions", lambda: iter([*strange, nameless, *whole]))
    assert records.package_records() == [
        {**COMMON, "name": "package-4", "author": "ann@example.org", "num_requirements": 2, "needs_python": ">=3.10"},
        {**COMMON, "name": "package-5", "author": "unknown", "num_requirements": 0, "needs_python": "any"},
    ]
    assert len(list(records.record_traces(5, 1))) == 5  # also where there are fewer than a list is long
