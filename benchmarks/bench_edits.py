"""Edits with a real model: wall-clock time and forward passes of four ways to decode the same prompt.

`plain` is `model.generate`, `prompt_lookup` the same with transformers' own prompt lookup, `lookahead_edit` the same
with our hook, `editor` our editor. All are greedy and must emit the same tokens; only edits that the model gets right
are measured, the others are listed. Run as `python -m benchmarks.bench_edits --help`; the last line is one JSON
document.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.arguments import edit_name, positive_int
from benchmarks.edit_set import chosen_edits
from benchmarks.environment import environment, load_average
from benchmarks.measure import Judged, Measured, judge, measure
from benchmarks.methods import METHODS, model_of
from benchmarks.report import (
    EDIT_COLUMNS,
    EDIT_TITLE,
    TOTAL_COLUMNS,
    TOTAL_TITLE,
    edit_rows,
    figures,
    markdown_table,
    rich_table,
    total_rows,
    wrong_rows,
)
from lookahead_edit.config import SpeculationConfig
from lookahead_edit.targets.loading import load_editor

WRONG_COLUMNS = ("edit", "kind", "ended by", "what is different")


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=positive_int, default=3, help="runs of every method on every edit")
    parser.add_argument(
        "--edits", type=edit_name, nargs="*", default=[], metavar="NAME", help="only edits whose name contains one"
    )
    parser.add_argument("--limit", type=positive_int, help="measure at most so many edits, of as many kinds as can be")
    parser.add_argument("--threads", type=positive_int, help="torch's threads; its own choice by default")
    parser.add_argument("--model", help="the default model, a directory, a GGUF file or a hub id")
    parser.add_argument("--all", action="store_true", help="measure edits with a wrong answer too")
    parser.add_argument("--judge", action="store_true", help="only tell which edits the model gets right")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--output", type=Path, help="also write the JSON document to this file, indented")
    return parser.parse_args()


def spread_over_kinds(judged: Sequence[Judged], limit: int | None) -> list[Judged]:
    """At most `limit` edits: the first of each kind, then the second of each, and so on; in their own order."""
    num_seen: Counter[str] = Counter()
    ranked = []
    for index, one in enumerate(judged):
        ranked.append((num_seen[one.edit.kind], index))
        num_seen[one.edit.kind] += 1
    return [judged[index] for index in sorted(index for _, index in sorted(ranked)[:limit])]


def print_tables(judged: Sequence[Judged], measured: Sequence[Measured], *, is_markdown: bool) -> None:
    """Edits, totals, and what was left out; on standard output."""
    tables: list[tuple[str, Sequence[str], list[list[str]]]] = []
    if measured:
        tables.append((EDIT_TITLE, EDIT_COLUMNS, edit_rows(measured)))
        tables.append((TOTAL_TITLE, TOTAL_COLUMNS, total_rows(measured)))
    if wrong := wrong_rows(judged):
        tables.append((f"Wrong answers: {len(wrong)} of {len(judged)} edits", WRONG_COLUMNS, wrong))
    # A pipe has no width: rows that wrap every word would be unreadable in a log.
    console = Console(width=None if sys.stdout.isatty() else 240)
    for title, columns, rows in tables:
        if is_markdown:
            print(f"{title}\n\n{markdown_table(columns, rows)}\n")
        else:
            console.print(rich_table(title, columns, rows))


def main() -> int:
    """Judges, measures, prints; 1 where a method's tokens are not those of plain decoding."""
    arguments = parse_arguments()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    told = Console(stderr=True, highlight=False)
    edits = chosen_edits(arguments.edits)
    load_before = load_average()
    editor = load_editor(arguments.model, console=told)
    judged = []
    for number, edit in enumerate(edits, start=1):
        judged.append(judge(editor, edit))
        told.print(f"judged {number} of {len(edits)}: {edit.name} is {'right' if judged[-1].is_right else 'wrong'}")
    chosen = spread_over_kinds([one for one in judged if one.is_right or arguments.all], arguments.limit)
    measured: list[Measured] = []
    if chosen and not arguments.judge:
        measured = measure(editor, chosen, arguments.repeats, tell=told.print)
    print_tables(judged, measured, is_markdown=arguments.markdown)
    document: dict[str, Any] = {
        "benchmark": "edits",
        "model": editor.model_name,
        "dtype": str(model_of(editor).dtype).removeprefix("torch."),
        "device": str(model_of(editor).device),
        "num_repeats": arguments.repeats,
        "methods": list(METHODS),
        "speculation": vars(SpeculationConfig()),
        "environment": environment() | {"load_before": load_before, "load_after": load_average()},
        **figures(judged, measured),
    }
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document))
    return 1 if document["num_unequal"] else 0


if __name__ == "__main__":
    sys.exit(main())
