"""Task quality with and without drafts: the same texts, the same verdicts, and an interrupted run goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_models import make_tiny_model

from benchmarks import matrix
from benchmarks.matrix_quality import WITH, WITHOUT, WORKLOAD, num_unequal, quality_cells, read_records, run_quality
from benchmarks.matrix_store import IDENTITY, ResultsFile, read_results
from lookahead_edit.editor import Editor
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.types import InvalidInput

HEADER = dict.fromkeys(IDENTITY, "x") | {"profile": WORKLOAD}
WHOLE = dict.fromkeys(("id", "before", "after", "tests", "instruction_descriptive"), "x")


@pytest.fixture(scope="module")
def editor() -> Editor:
    """Of a model that answers any edit with noise, the same with and without drafts."""
    model = make_tiny_model("llama")
    model.resize_token_embeddings(260)
    return Editor(HfTarget(model), ByteTokenizer())


def test_records_without_tests_are_named_by_their_line(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(WHOLE) + "\n\n" + json.dumps(WHOLE | {"id": 2}) + "\n", encoding="utf-8")
    assert len(read_records(path)) == 2
    path.write_text(json.dumps(WHOLE) + '\n{"id": 1}\n', encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"line 2 .* before, after, tests"):
        read_records(path)
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="got none"):
        read_records(path)


def test_every_record_is_edited_with_and_without_drafts_and_none_twice(editor: Editor, tmp_path: Path) -> None:
    path = tmp_path / "quality.jsonl"
    record = {"before": "x = 1\n", "after": "x = 2\n", "instruction_descriptive": "Set x to 2."}
    records: list[dict[str, Any]] = [
        record | {"id": 1, "tests": "assert x == 2\n"},
        record | {"id": 2, "tests": "import no_such_package\n"},
        record | {"id": 3, "before": "y = 1\n" * 1000, "tests": "assert True\n"},
    ]
    told: list[str] = []
    run_quality(editor, records[:1], ResultsFile(path, HEADER), 16, told.append)
    run_quality(editor, records, ResultsFile(path, HEADER), 16, told.append)
    assert [line.split()[3] for line in told] == ["1", "2", "3"]
    assert "is left out" in told[-1]
    rows = read_results(path).rows
    assert [(row["task"], row["label"]) for row in rows] == [("1", WITH), ("1", WITHOUT), ("2", WITH), ("2", WITHOUT)]
    assert [row["is_runnable"] for row in rows] == [True, True, False, False]
    assert all(row["is_equal"] and row["is_cut"] and not row["passes"] for row in rows)
    assert num_unequal(rows) == 0


def row(task: str, label: str, **changes: Any) -> dict[str, Any]:
    plain = {"task": task, "label": label, "num_tokens": 20, "seconds": 2.0, "is_cut": False, "is_runnable": True}
    return plain | {"passes": True, "is_equal": True} | changes


def test_quality_counts_only_where_the_tests_run_here() -> None:
    rows = [
        *(row("1", WITH, seconds=0.5), row("1", WITHOUT)),
        *(row("2", WITH, is_runnable=False), row("2", WITHOUT, is_runnable=False)),
    ]
    assert quality_cells(rows) == ["2", "1", "1", "1", "0", "0", "40", "10.0", "16.0"]


@pytest.mark.parametrize("changes", [{"passes": False}, {"is_cut": True}])
def test_another_verdict_with_drafts_counts(changes: dict[str, Any]) -> None:
    assert num_unequal([row("1", WITH, **changes), row("1", WITHOUT)]) == 1


def test_figures_are_shown_of_the_file_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "quality.jsonl"
    place = {"workload": "canitedit", "context": 0, "temperature": 0.0, "repetition": 0, "draft_length": "auto"}
    rows = [row("1", label, **place, method=label) for label in (WITH, WITHOUT)]
    ResultsFile(path, HEADER).add_turn(rows)
    arguments = ["--canitedit", "none", "--tables", "--markdown", "--output", str(path)]
    assert matrix.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "| 1 | 1 | 1 | 1 | 0 | 0 | 20 | 10.0 | 10.0 |" in printed
    assert "passed: 1" in printed
