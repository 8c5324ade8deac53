"""Tables of measured edits, for the terminal and as Markdown, and the figures as one JSON document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

from benchmarks.measure import RATIOS, Judged, Measured, Spread, ratio, tokens_per_round, total
from benchmarks.methods import EDITOR, HOOK, METHODS, PLAIN, PROMPT_LOOKUP, Run

SECONDS: dict[str, Callable[[Run], float]] = {
    "seconds": lambda run: run.seconds,
    "prefill_seconds": lambda run: run.prefill_seconds,
    "decode_seconds": lambda run: run.decode_seconds,
}
LABELS = {PLAIN: "plain", PROMPT_LOOKUP: "lookup", HOOK: "hook", EDITOR: "editor"}
EDIT_TITLE = "Each edit: tokens a round (t/r), seconds and ratios of seconds, median (least..greatest)"
EDIT_COLUMNS = (
    "edit",
    "kind",
    "prompt",
    "output",
    "equal",
    *(f"{LABELS[method]} t/r" for method in METHODS if method != PLAIN),
    *(f"{LABELS[method]} s" for method in METHODS),
    *(f"{LABELS[slow]} / {LABELS[fast]}" for slow, fast in RATIOS),
)
TOTAL_TITLE = "All edits: sums of seconds, and ratios of sums, median (least..greatest) of the repetitions"
TOTAL_COLUMNS = (
    "method",
    "tokens a round",
    "s",
    "prefill s",
    "decode s",
    "outside the forward",
    "plain / it",
    "decode only",
)


def spread_text(spread: Spread, digits: int = 2) -> str:
    """Median, then least to greatest where they differ in what is shown."""
    least, median, greatest = (f"{value:.{digits}f}" for value in (spread.least, spread.median, spread.greatest))
    return median if least == greatest else f"{median} ({least}..{greatest})"


def edit_rows(measured: Sequence[Measured]) -> list[list[str]]:
    """A row an edit; medians over the repetitions, with the spread of the ratios."""
    rows = []
    for one in measured:
        seconds = [Spread.of(run.seconds for run in one.runs[method]).median for method in METHODS]
        rows.append(
            [
                one.judged.edit.name,
                one.judged.edit.kind,
                str(len(one.judged.task.prompt)),
                str(one.num_output_tokens),
                "yes" if one.is_equal else "NO",
                *(f"{one.runs[method][0].tokens_per_round:.1f}" for method in METHODS if method != PLAIN),
                *(f"{value:.2f}" for value in seconds),
                *(spread_text(ratio([one], slow, fast, SECONDS["seconds"]), 1) for slow, fast in RATIOS),
            ]
        )
    return rows


def total_rows(measured: Sequence[Measured]) -> list[list[str]]:
    """A row a method, over all edits; ratios of sums."""
    return [
        [
            method,
            f"{tokens_per_round(measured, method):.2f}",
            *(spread_text(total(measured, method, seconds)) for seconds in SECONDS.values()),
            f"{100 * overhead_share(measured, method).median:.1f} %",
            spread_text(ratio(measured, PLAIN, method, SECONDS["seconds"])),
            spread_text(ratio(measured, PLAIN, method, SECONDS["decode_seconds"])),
        ]
        for method in METHODS
    ]


def overhead_share(measured: Sequence[Measured], method: str) -> Spread:
    """Share of the decoding time outside forward passes, over all edits."""
    num_repeats = len(measured[0].runs[method])
    shares = []
    for repeat in range(num_repeats):
        runs = [one.runs[method][repeat] for one in measured]
        decode_seconds = sum(run.decode_seconds for run in runs)
        shares.append(1.0 - sum(run.forward_seconds for run in runs) / decode_seconds if decode_seconds else 0.0)
    return Spread.of(shares)


def rich_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """For the terminal."""
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """For a README."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def wrong_rows(judged: Sequence[Judged]) -> list[list[str]]:
    """Edits that the model doesn't get right, with the first line that is missing and the first that is too much."""
    rows = []
    for one in judged:
        if not one.is_right:
            body = one.difference.partition("\n@@")[2].splitlines()
            changed = (next((line for line in body if line.startswith(sign)), "") for sign in "-+")
            shown = "  ".join(filter(None, changed))
            rows.append([one.edit.name, one.edit.kind, one.finish_reason, shown[:100].replace("|", "\\|")])
    return rows


def figures(judged: Sequence[Judged], measured: Sequence[Measured]) -> dict[str, Any]:
    """Everything the tables show and more, as plain values."""
    return {
        "num_edits": len(judged),
        "num_right": sum(one.is_right for one in judged),
        "num_measured": len(measured),
        "num_unequal": sum(not one.is_equal for one in measured),
        "edits": [_edit_figures(one) for one in measured],
        "wrong": [
            {"name": one.edit.name, "kind": one.edit.kind, "finish_reason": one.finish_reason, "diff": one.difference}
            for one in judged
            if not one.is_right
        ],
        "totals": _totals(measured) if measured else None,
    }


def _edit_figures(one: Measured) -> dict[str, Any]:
    return {
        "name": one.judged.edit.name,
        "kind": one.judged.edit.kind,
        "is_right": one.judged.is_right,
        "num_prompt_tokens": len(one.judged.task.prompt),
        "num_output_tokens": one.num_output_tokens,
        "first_unequal_token": {method: one.first_difference(method) for method in METHODS},
        "methods": {
            method: {
                "num_rounds": one.runs[method][0].num_rounds,
                "tokens_per_round": one.runs[method][0].tokens_per_round,
                **{name: _spread(Spread.of(map(seconds, one.runs[method]))) for name, seconds in SECONDS.items()},
                "overhead_share": _spread(Spread.of(run.overhead_share for run in one.runs[method])),
            }
            for method in METHODS
        },
        "ratios": _ratios([one]),
    }


def _totals(measured: Sequence[Measured]) -> dict[str, Any]:
    return {
        "methods": {
            method: {
                "tokens_per_round": tokens_per_round(measured, method),
                **{name: _spread(total(measured, method, seconds)) for name, seconds in SECONDS.items()},
                "overhead_share": _spread(overhead_share(measured, method)),
            }
            for method in METHODS
        },
        "ratios": _ratios(measured),
    }


def _ratios(measured: Sequence[Measured]) -> dict[str, Any]:
    return {
        f"{slow}/{fast}": {
            name: _spread(ratio(measured, slow, fast, SECONDS[name])) for name in ("seconds", "decode_seconds")
        }
        for slow, fast in RATIOS
    }


def _spread(spread: Spread) -> dict[str, float]:
    return {"median": spread.median, "min": spread.least, "max": spread.greatest}
