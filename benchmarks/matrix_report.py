"""Prints what a file of results holds; the last line is one JSON document. Runs nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.matrix_load import LOAD_COLUMNS, load_heading, load_rows, read_load
from benchmarks.matrix_quality import QUALITY_COLUMNS, WITH, WORKLOAD, num_unequal, quality_cells
from benchmarks.matrix_store import Results, read_results
from benchmarks.matrix_tables import (
    COLUMNS,
    NUM_TIME_COLUMNS,
    auto_line,
    cell_rows,
    groups_of,
    heading,
    ideal_line,
    plot_speed_ups,
)
from benchmarks.report import markdown_table, rich_table

LOG_WIDTH = 280


def print_tables(path: Path, profile: str, server: Path, *, is_markdown: bool, plot: Path | None) -> int:
    """Tables of every group, the lines about `auto`, throughput by concurrency; how many texts are not as they must be.

    Args:
        path: results.
        profile: whose they have to be.
        server: what `bench_server` wrote; said to be missing where it is.
        is_markdown: for a README.
        plot: also draws the speed-ups.

    Raises:
        ResultsMismatch: no file of results of that profile.
        OSError: it can't be read, or the plot not be written.
    """
    results = read_results(path, profile)
    header = results.header
    groups = groups_of(results.rows)
    for key, methods in groups.items():
        title = heading(key, methods, results.choices.get(key[:2]))
        _print_table(title, COLUMNS, cell_rows(methods), is_markdown=is_markdown)
    for key, methods in groups.items():
        for line in filter(None, (auto_line(key, methods), ideal_line(key, methods))):
            print(("- " if is_markdown else "") + line)
    document = read_load(server)
    if document is None:
        print(f"throughput by concurrency: nothing in {server}; python -m benchmarks.bench_server measures it")
    else:
        _print_table(load_heading(document, header, server), LOAD_COLUMNS, load_rows(document), is_markdown=is_markdown)
    if plot and results.rows:
        place = header["gpu"] or header["cpu"]
        title = f"{header['model']}, {header['dtype']}, {place}, {header['num_threads']} threads"
        plot_speed_ups(results.rows, plot, title=title)
    return _conclude("matrix", results, sum(row["is_equal"] is False for row in results.rows))


def print_quality(path: Path, *, is_markdown: bool) -> int:
    """Passed tests with and without drafts, and the records that pass; how many records are not the same."""
    results = read_results(path, WORKLOAD)
    title = f"CanItEdit, {results.header['model']}, {results.header['dtype']}, greedy"
    _print_table(title, QUALITY_COLUMNS, [quality_cells(results.rows)], is_markdown=is_markdown)
    passed = [row["task"] for row in results.rows if row["label"] == WITH and row["passes"]]
    print(f"passed: {', '.join(passed) or 'none'}")
    return _conclude("quality", results, num_unequal(results.rows))


def _conclude(name: str, results: Results, num_differing: int) -> int:
    counts = {"num_runs": len(results.rows), "num_unequal": num_differing}
    print(json.dumps({"benchmark": name, **counts, **results.header}))
    return num_differing


def _print_table(title: str, columns: Sequence[str], rows: list[list[str]], *, is_markdown: bool) -> None:
    if is_markdown:
        print(f"{title}\n\n{markdown_table(columns, rows)}\n")
        return
    if not sys.stdout.isatty():  # a pipe has no width: rows that wrap every word would be unreadable in a log
        Console(width=LOG_WIDTH).print(rich_table(title, columns, rows))
        return
    console = Console()
    console.print(rich_table(title, columns[:NUM_TIME_COLUMNS], [row[:NUM_TIME_COLUMNS] for row in rows]))
    if rest := columns[NUM_TIME_COLUMNS:]:
        others = [[row[0], *row[NUM_TIME_COLUMNS:]] for row in rows]
        console.print(rich_table(f"{title}: the rest", (columns[0], *rest), others))
