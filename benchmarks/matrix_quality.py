"""Task quality with and without drafts: edits of CanItEdit's records, judged by the records' own tests.

The texts must be equal, so the tests must pass and fail alike; running them shows that nothing was lost on the way.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.matrix_store import ResultsFile, Turn
from benchmarks.sandbox import run_python
from lookahead_edit.config import SpeculationConfig
from lookahead_edit.editor import Editor, EditRequest, EditResult
from lookahead_edit.types import ContextLengthExceeded, InvalidInput

WORKLOAD = "canitedit"
WITH, WITHOUT = "edit auto", "none"
FIELDS = ("id", "before", "after", "tests", "instruction_descriptive")
QUALITY_COLUMNS = (
    *("records", "tests run here", "pass without drafts", "pass with drafts", "texts or verdicts that differ"),
    *("answers cut", "tokens", "tokens/s without", "tokens/s with"),
)
Row = Mapping[str, Any]


def read_records(path: Path) -> list[dict[str, Any]]:
    """Raises InvalidInput, naming the line, for one that is no record with tests."""
    records = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            missing = [name for name in FIELDS if name not in record]
        except (ValueError, TypeError):
            missing = list(FIELDS)
        if missing:
            raise InvalidInput(f"expected line {number} of {path} to be a record with {', '.join(missing)}")
        records.append(record)
    if not records:
        raise InvalidInput(f"expected records in {path}, got none")
    return records


def run_quality(
    editor: Editor,
    records: Sequence[Mapping[str, Any]],
    results: ResultsFile,
    max_tokens: int | None = None,
    tell: Callable[[str], None] = lambda message: None,
) -> None:
    """Edits every record that the results don't have yet, greedily, with drafts and without.

    Args:
        editor: judges nothing.
        records: of `read_records`.
        results: gets two rows a record. Those that don't fit the model's context are left out, and told.
        max_tokens: of an answer; None: what the editor gives it.
        tell: hears of progress.
    """
    for number, record in enumerate(records, start=1):
        turn: Turn = (WORKLOAD, 0, 0.0, str(record["id"]), 0)
        if turn in results.done:
            continue
        which = f"{number} of {len(records)}: {record['id']}"
        try:
            order = (WITH, WITHOUT) if number % 2 else (WITHOUT, WITH)
            edited = {label: _edited(editor, record, label, max_tokens) for label in order}
        except ContextLengthExceeded as error:
            tell(f"{which} is left out: {error}")
            continue
        is_runnable = _passes(record["after"], record)
        is_equal = edited[WITH][0].text == edited[WITHOUT][0].text
        rows = [_row(turn, label, record, *edited[label], is_runnable, is_equal) for label in (WITH, WITHOUT)]
        results.add_turn(rows)
        tell(f"{which} {'passes' if rows[0]['passes'] else 'fails'}, {rows[0]['num_tokens']} tokens")


def _edited(editor: Editor, record: Mapping[str, Any], label: str, max_tokens: int | None) -> tuple[EditResult, float]:
    request = EditRequest(
        record["before"],
        record["instruction_descriptive"],
        language="python",
        max_tokens=max_tokens,
        speculation=SpeculationConfig(enabled=label == WITH),
    )
    started = time.perf_counter()
    result = editor.edit(request)
    return result, time.perf_counter() - started


def _passes(text: str, record: Mapping[str, Any]) -> bool:
    return run_python(f"{text}\n{record['tests']}\n")


def _row(
    turn: Turn,
    label: str,
    record: Mapping[str, Any],
    result: EditResult,
    seconds: float,
    is_runnable: bool,
    is_equal: bool,
) -> dict[str, Any]:
    workload, context, temperature, task, repetition = turn
    return {
        **{"workload": workload, "context": context, "temperature": temperature, "task": task},
        **{"repetition": repetition, "method": label.split()[0], "draft_length": "auto", "label": label},
        "text_digest": hashlib.sha256(result.text.encode("utf-8", "surrogatepass")).hexdigest()[:16],
        "num_tokens": result.metrics.num_emitted_tokens,
        "num_rounds": result.metrics.num_rounds,
        "seconds": seconds,
        "is_cut": result.truncated,
        "is_runnable": is_runnable,  # the reference answer passes its own tests here: packages may be missing
        "passes": _passes(result.text, record),
        "is_equal": is_equal,
    }


def quality_cells(rows: Sequence[Row]) -> list[str]:
    """Of `QUALITY_COLUMNS`, over all records."""
    drafting, plain = _by_task(rows, WITH), _by_task(rows, WITHOUT)
    runnable = [task for task, row in plain.items() if row["is_runnable"]]
    return [
        str(len(plain)),
        str(len(runnable)),
        *(str(sum(found[task]["passes"] for task in runnable)) for found in (plain, drafting)),
        str(num_unequal(rows)),
        str(sum(row["is_cut"] for row in plain.values())),
        str(sum(row["num_tokens"] for row in plain.values())),
        *(f"{_speed(found.values()):.1f}" for found in (plain, drafting)),
    ]


def num_unequal(rows: Sequence[Row]) -> int:
    """Records whose texts or verdicts are not the same with and without drafts."""
    drafting, plain = _by_task(rows, WITH), _by_task(rows, WITHOUT)
    return sum(
        not row["is_equal"] or row["passes"] != drafting[task]["passes"] or row["is_cut"] != drafting[task]["is_cut"]
        for task, row in plain.items()
    )


def _by_task(rows: Sequence[Row], label: str) -> dict[str, Row]:
    return {row["task"]: row for row in rows if row["label"] == label}


def _speed(rows: Any) -> float:
    found = list(rows)
    return float(sum(row["num_tokens"] for row in found) / sum(row["seconds"] for row in found)) if found else 0.0
