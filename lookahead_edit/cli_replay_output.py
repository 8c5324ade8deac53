"""What a replay prints and writes: the table, a row for each trace, files. Decides nothing."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypeAlias

from rich import box
from rich.table import Table
from rich.text import Text

from lookahead_edit.cli_display import rendered
from lookahead_edit.cli_files import is_same_file, require_place, whole_file, write_standard_output
from lookahead_edit.replay_figures import ReplayFigures, ReplayTotals, TraceReplay
from lookahead_edit.types import InvalidInput

PER_TRACE_SUFFIXES = (".jsonl", ".csv")
HTML_SUFFIXES = (".html", ".htm")
TABLE_WIDTH = 1000  # characters, at most

# Line number, replayed by drafter and cost, all costs it stands for.
WriteRows: TypeAlias = Callable[[int, Mapping[tuple[str, float], TraceReplay], Sequence[float] | None], None]


def check_output(option: str, name: str, traces: str, suffixes: Sequence[str]) -> None:
    """Raises InvalidInput before anything is replayed where the file could not be written, or is the input itself."""
    path = Path(name)
    if path.suffix.lower() not in suffixes:
        raise InvalidInput(f"expected {option} to end in {' or '.join(suffixes)}, got {name!r}", param=option)
    require_place(name, param=option)
    if is_same_file(name, traces):
        raise InvalidInput(f"expected {option} to be another file than the traces, got {name}", param=option)


def write_file(name: str, text: str) -> None:
    """Writes a UTF-8 file, whole; raises InvalidInput where that fails."""
    with whole_file(name, param="html") as file:
        file.write(text.encode("utf-8"))


@contextmanager
def per_trace_rows(name: str | None) -> Iterator[WriteRows]:
    """Gives what writes a trace's rows, one for each drafter and cost; the file is there when all are in it.

    A ``.csv`` has the figures only, a ``.jsonl`` also what is counted by source and reason. Nothing without a name.
    """
    if name is None:
        yield lambda line_number, replayed, costs: None
        return
    with whole_file(name, param="per-trace") as binary, TextIOWrapper(binary, "utf-8", newline="") as file:
        writer: Any = None

        def write(
            line_number: int, replayed: Mapping[tuple[str, float], TraceReplay], costs: Sequence[float] | None
        ) -> None:
            nonlocal writer
            for row in _rows(line_number, replayed, costs):
                if name.lower().endswith(".jsonl"):
                    file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
                    continue
                plain = {key: value for key, value in row.items() if not isinstance(value, dict)}
                if writer is None:
                    writer = csv.DictWriter(file, list(plain), lineterminator="\n")
                    writer.writeheader()
                writer.writerow(plain)

        yield write


def _rows(
    line_number: int, replayed: Mapping[tuple[str, float], TraceReplay], costs: Sequence[float] | None
) -> Iterator[dict[str, Any]]:
    for (drafter, replayed_cost), value in replayed.items():
        totals = ReplayTotals()
        totals.add(value)
        for cost in costs or (replayed_cost,):
            figures = dataclasses.asdict(totals.figures(drafter, cost))
            del figures["traces"]
            yield {"line": line_number, "id": value.trace.id, **figures}


def print_table(figures: Sequence[ReplayFigures], *, title: str, has_row_per_cost: bool) -> None:
    """A row for each drafter with a column for each cost; a row for each of both where the policy depends on it."""
    # The table takes what it needs: cut headers would say nothing, so a narrow terminal wraps its lines.
    table = _table(figures, has_row_per_cost=has_row_per_cost)
    write_standard_output(rendered(Text(title, style="bold"), table, width=TABLE_WIDTH))


def _table(figures: Sequence[ReplayFigures], *, has_row_per_cost: bool) -> Table:
    costs = list(dict.fromkeys(row.cost for row in figures))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    headers = ["tokens\n/round", "accepted"]
    headers += ["c", "speed-up"] if has_row_per_cost else [f"speed-up\nc={cost:g}" for cost in costs]
    headers += ["draft µs\np50", "draft µs\np95"]
    table.add_column("drafter")
    for header in headers:
        table.add_column(Text(header), justify="right")
    for number, row in enumerate(figures):
        if has_row_per_cost:
            gains = [f"{row.cost:g}", _number(row.modelled_speedup, ".2f")]
        elif number % len(costs):
            continue
        else:
            gains = [_number(each.modelled_speedup, ".2f") for each in figures[number : number + len(costs)]]
        table.add_row(
            Text(row.drafter),
            _number(row.tokens_per_round, ".2f"),
            _number(row.acceptance_rate, ".1%"),
            *gains,
            _number(row.draft_us_p50, ".1f"),
            _number(row.draft_us_p95, ".1f"),
        )
    return table


def _number(value: float | None, spec: str) -> str:
    return "-" if value is None else format(value, spec)
