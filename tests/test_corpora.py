"""The project's own sets: as large and as varied as promised, valid, and what their sources give."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from corpora import build
from corpora.build import SETS, set_bytes
from corpora.specs import SpecError, read_edits, read_sections
from lookahead_edit.traces import parse_trace

CORPORA = Path(build.__file__).parent
NAMES = sorted(SETS)
EDIT_KINDS = {
    *("rename", "retype", "reindent", "insert", "delete", "move"),
    *("replace", "docstring", "bugfix", "merge", "multi", "boilerplate"),
}
EDIT_LANGUAGES = {"python", "typescript", "go", "rust", "java", "c", "sql", "yaml", "markdown"}


@cache
def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CORPORA / f"{name}.jsonl").read_text("utf-8").splitlines()]


def code(row: dict[str, Any]) -> str:
    """The answer without the fence that closes it."""
    text, fence = re.fullmatch(r"(.*\n)(`{3,})", row["output"], re.DOTALL).groups()  # type: ignore[union-attr]
    assert row["prompt"].endswith(f"{fence}{row['language']}\n")
    return text


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_set_is_what_its_sources_give(name: str) -> None:
    assert set_bytes(name) == (CORPORA / f"{name}.jsonl").read_bytes(), "run python -m corpora.build"


@pytest.mark.parametrize("name", NAMES)
def test_every_line_is_a_valid_trace_with_a_source(name: str) -> None:
    for line in (CORPORA / f"{name}.jsonl").read_bytes().splitlines():
        trace = parse_trace(line)
        assert trace.source
        assert trace.source in trace.prompt
        assert trace.output != trace.source


def test_ids_are_unique() -> None:
    ids = [row["id"] for name in NAMES for row in rows(name)]
    assert [name for name, count in Counter(ids).items() if count > 1] == []


def test_edits_cover_every_kind_and_language() -> None:
    edits = rows("edits")
    assert len(edits) >= 60
    assert {row["kind"] for row in edits} == EDIT_KINDS
    assert {row["language"] for row in edits} == EDIT_LANGUAGES
    assert min(Counter(row["kind"] for row in edits).values()) >= 3
    assert min(Counter(row["language"] for row in edits).values()) >= 6


def test_files_to_edit_are_of_realistic_and_varied_length() -> None:
    lengths = {row["id"].split("/")[1]: row["source"].count("\n") for row in rows("edits")}
    assert all(20 <= length <= 120 for length in lengths.values()), lengths
    assert len(set(lengths.values())) >= 15


def test_there_are_20_quotes_and_20_structured_outputs() -> None:
    assert len(rows("quotes")) == len(rows("structured")) == 20
    assert {row["kind"] for row in rows("quotes")} == {"article", "meeting", "incident", "changelog", "interview"}
    assert {row["kind"] for row in rows("structured")} == {"change", "filter", "convert", "extract"}
    assert {row["language"] for row in rows("structured")} == {"json", "yaml", "csv"}


@pytest.mark.parametrize("row", rows("quotes"), ids=lambda row: str(row["id"]))
def test_summaries_quote_whole_sentences_verbatim(row: dict[str, Any]) -> None:
    assert 300 <= len(row["source"].split()) <= 900
    quotes = re.findall(r'"([^"]+)"', row["output"])
    assert len(quotes) >= 4
    for quote in quotes:
        assert quote in row["source"]
        assert quote[0].isupper()
        assert quote[-1] in ".!?"


@pytest.mark.parametrize("row", [*rows("edits"), *rows("structured")], ids=lambda row: str(row["id"]))
def test_edited_code_parses(row: dict[str, Any]) -> None:
    text = code(row)
    assert not re.search(r"^(?:%% |.*[ \t]$)", text, re.MULTILINE), "a mark of the spec, or a blank at a line's end"
    if row["language"] == "python":
        ast.parse(text)
    elif row["language"] == "json":
        json.loads(text)
    elif row["language"] == "yaml":
        assert all(list(yaml.safe_load_all(text)))
    elif row["language"] == "csv":
        assert len({len(record) for record in csv.reader(io.StringIO(text))}) == 1
    elif row["language"] in ("typescript", "go", "rust", "java", "c"):
        for opening, closing in ("{}", "()", "[]"):
            assert text.count(opening) == text.count(closing)


def test_a_step_that_does_not_fit_is_named() -> None:
    spec = "%% edit rename a-to-b\nRename a.\n%% old\nzzz\n%% new\nb\n"
    with pytest.raises(SpecError, match="a-to-b: expected these lines once, got them 0 times"):
        list(read_edits(spec, "a\n"))
    with pytest.raises(SpecError, match="got them 2 times"):
        list(read_edits(spec.replace("zzz", "a"), "a\na\n"))
    with pytest.raises(SpecError, match="expected a match of"):
        list(read_edits("%% edit rename x\nDo.\n%% word q => r\n", "a\n"))
    with pytest.raises(SpecError, match="expected %% new after %% old"):
        list(read_edits("%% edit rename x\nDo.\n%% old\na\n", "a\n"))


def test_steps_apply_in_order_to_whole_lines() -> None:
    spec = (
        "%% edit multi x\nDo it.\n%% after\na\n%% add\nb\n%% word b => c\n%% each ^c$ => [\\g<0>]\n\n"
        "%% edit delete y\nDo.\n%% old\na\n%% new\n"
    )
    first, second = read_edits(spec, "a\nab\n")
    assert (first.kind, first.name, first.instruction, first.after) == ("multi", "x", "Do it.", "a\n[c]\nab\n")
    assert second.after == "ab\n"
    assert [section.name for section in read_sections(spec)][:2] == ["edit", "after"]
