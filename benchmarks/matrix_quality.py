"""Task quality with and without drafts: edits of CanItEdit's records, judged by the records' own tests.

The texts must be equal, so the tests must pass and fail alike; running them shows that nothing was lost on the way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import markdown_table
from benchmarks.sandbox import run_python
from lookahead_edit.config import SpeculationConfig
from lookahead_edit.editor import Editor, EditRequest
from lookahead_edit.types import ContextLengthExceeded, InvalidInput

FIELDS = ("id", "before", "after", "tests", "instruction_descriptive")


@dataclass(frozen=True)
class Judged:
    """One record, edited with and without drafts."""

    id: str
    is_runnable: bool  # the reference answer passes its own tests here: packages may be missing
    is_equal: bool
    passes_with: bool
    passes_without: bool


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
    editor: Editor, path: Path, limit: int | None = None, tell: Callable[[str], None] = lambda message: None
) -> list[Judged]:
    """Edits the first `limit` records, greedily; those that don't fit the model's context are left out, and told."""
    return list(_judge(editor, read_records(path)[:limit], tell))


def _judge(editor: Editor, records: list[dict[str, Any]], tell: Callable[[str], None]) -> Iterator[Judged]:
    for number, record in enumerate(records, start=1):
        try:
            texts = [_edited(editor, record, is_drafting) for is_drafting in (True, False)]
        except ContextLengthExceeded as error:
            tell(f"{number} of {len(records)}: {record['id']} is left out: {error}")
            continue
        reference, *passed = [run_python(f"{text}\n{record['tests']}\n") for text in (record["after"], *texts)]
        yield Judged(str(record["id"]), reference, texts[0] == texts[1], passed[0], passed[1])
        tell(f"{number} of {len(records)}: {record['id']} {'passes' if passed[0] else 'fails'}")


def _edited(editor: Editor, record: dict[str, Any], is_drafting: bool) -> str:
    speculation = SpeculationConfig(enabled=is_drafting)
    instruction = record["instruction_descriptive"]
    return editor.edit(EditRequest(record["before"], instruction, language="python", speculation=speculation)).text


def print_quality(found: list[Judged], model: str, *, is_markdown: bool) -> int:
    """Prints counts and one JSON document; how many records are not the same with and without drafts."""
    runnable = [one for one in found if one.is_runnable]
    num_with, num_without = (sum(getattr(one, name) for one in runnable) for name in ("passes_with", "passes_without"))
    num_unequal = sum(not one.is_equal or one.passes_with != one.passes_without for one in found)
    columns = ("records", "tests run here", "pass without drafts", "pass with drafts", "texts that differ")
    row = [str(value) for value in (len(found), len(runnable), num_without, num_with, num_unequal)]
    print(markdown_table(columns, [row]) if is_markdown else ", ".join(map(" ".join, zip(row, columns, strict=True))))
    document = {"benchmark": "quality", "model": model, "num_unequal": num_unequal, "records": [*map(asdict, found)]}
    print(json.dumps(document))
    return num_unequal
