"""Throughput and latency by concurrency, which `bench_server` measures, as the matrix's tables show them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LOAD_COLUMNS = ("clients at once", "mode", "tokens/s", "times off", "requests/s", "median s", "95 % s", "queue s")
MODES = ("off", "on", "auto")


def read_load(path: Path) -> dict[str, Any] | None:
    """What `bench_server` wrote; None where nothing is there, or something else."""
    try:
        document = json.loads(path.read_text("utf-8"))
        load_rows(document)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return dict(document)


def load_rows(document: Mapping[str, Any]) -> list[list[str]]:
    """A row for each number of clients and mode: `LOAD_COLUMNS`."""
    rows = {(row["concurrency"], row["mode"]): row for row in document["rows"]}
    return [
        _cells(row, rows.get((concurrency, "off")))
        for concurrency in sorted({concurrency for concurrency, _ in rows})
        for mode in MODES
        if (row := rows.get((concurrency, mode)))
    ]


def _cells(row: Mapping[str, Any], off: Mapping[str, Any] | None) -> list[str]:
    return [
        str(row["concurrency"]),
        row["mode"],
        f"{row['tokens_per_second']:.1f}",
        "-" if off is None else f"{row['tokens_per_second'] / off['tokens_per_second']:.2f}",
        f"{row['requests_per_second']:.3f}",
        f"{row['p50_seconds']:.2f}",
        f"{row['p95_seconds']:.2f}",
        f"{row['mean_queue_seconds']:.2f}",
    ]


def load_heading(document: Mapping[str, Any], header: Mapping[str, Any], path: Path) -> str:
    """Above the table; says where the server's figures come from another model or machine than the matrix's."""
    where = document["environment"]
    other = [
        f"{name} {got}"
        for name, got in (("model", document["model"]), ("cpu", where["cpu"]), ("gpu", where["gpu"]))
        if got != header[name]
    ]
    note = f", measured with another {', '.join(other)}" if other else ""
    edits = f"{len(document['edits'])} whole-file edits, T = 0"
    return f"throughput and latency by concurrency ({edits}; python -m benchmarks.bench_server, {path.name}{note})"
