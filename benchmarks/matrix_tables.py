"""Tables of the matrix's results, the line about `auto`, and the plot. Knows no model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.matrix_choice import Choice
from benchmarks.matrix_methods import MODEL, NONE, PLAIN
from benchmarks.matrix_plan import AUTO
from benchmarks.measure import Spread
from benchmarks.report import spread_text
from lookahead_edit.cli_display import counted

Row = Mapping[str, Any]
GroupKey = tuple[str, int, float]

MAX_SLOWDOWN = 0.03  # of `auto`, beside the faster of the two ways without drafts
NUM_TIME_COLUMNS = 9  # of COLUMNS: what is shown first where a line has no room for all
COLUMNS = (
    "method",
    "speed-up",
    "tokens/s",
    "tokens a round",
    "accepted a round",
    "accepted",
    "prefill s",
    "first token s",
    "whole s",
    "draft s",
    "verify s",
    "correct s",
    "target GFLOP a token",
    "draft GFLOP a token",
    "weights MB",
    "cache MB",
    "index MB",
    "equal",
)


def groups_of(rows: Sequence[Row]) -> dict[GroupKey, dict[str, list[Row]]]:
    """By workload, context and temperature, then by method; in the order measured first."""
    found: dict[GroupKey, dict[str, list[Row]]] = {}
    for row in sorted(rows, key=lambda row: (row["repetition"], row["temperature"], row["context"])):
        group = found.setdefault((row["workload"], row["context"], row["temperature"]), {})
        group.setdefault(row["label"], []).append(row)
    return found


def speed(rows: Sequence[Row]) -> float:
    """Tokens a second, from the request to the last token, summed over prompts."""
    return float(sum(row["num_tokens"] for row in rows) / sum(row["seconds"] for row in rows))


def speed_up(methods: Mapping[str, Sequence[Row]], fast: str, slow: str = PLAIN) -> Spread:
    """Of one method over another: ratios within each repetition in which both ran the same prompts."""

    def turns(label: str, repetition: int) -> dict[str, Row]:
        return {row["task"]: row for row in methods[label] if row["repetition"] == repetition}

    ratios = []
    for repetition in sorted({row["repetition"] for row in methods[fast]}):
        own, other = turns(fast, repetition), turns(slow, repetition)
        common = sorted(own.keys() & other.keys())
        if common:
            ratios.append(speed([own[task] for task in common]) / speed([other[task] for task in common]))
    return Spread.of(ratios)


def cell_rows(methods: Mapping[str, Sequence[Row]]) -> list[list[str]]:
    """A row a method: sums over prompts and repetitions, speed-ups with their spread."""
    return [_cell(methods, label) for label in sorted(methods, key=_order)]


def _order(label: str) -> tuple[int, str, int]:
    name, _, length = label.partition(" ")
    known = (PLAIN, NONE, "prompt_lookup", "assisted", "early_exit", "model", "ngram", "suffix", "edit", "combined")
    return known.index(name), name, int(length) if length.isdecimal() else 1000


def _cell(methods: Mapping[str, Sequence[Row]], label: str) -> list[str]:
    rows = methods[label]
    num_rounds, num_tokens, num_accepted, num_drafted = (
        sum(row[name] for row in rows)
        for name in ("num_rounds", "num_tokens", "num_accepted_tokens", "num_draft_tokens")
    )
    return [
        label,
        spread_text(speed_up(methods, label)) if PLAIN in methods else "-",
        f"{speed(rows):.1f}",
        f"{num_tokens / num_rounds:.2f}",
        f"{num_accepted / num_rounds:.2f}",
        f"{num_accepted / num_drafted:.0%}" if num_drafted else "-",
        f"{_mean(rows, 'prefill_seconds'):.2f}",
        f"{_mean(rows, 'first_token_seconds'):.2f}",
        f"{_mean(rows, 'seconds'):.2f}",
        _optional_mean(rows, "draft_seconds"),
        f"{_mean(rows, 'verify_seconds'):.2f}",
        _optional_mean(rows, "correction_seconds"),
        *(f"{sum(row[name] for row in rows) / num_tokens / 1e9:.2f}" for name in ("target_flops", "draft_flops")),
        *(f"{max(row[name] for row in rows) / 1e6:.0f}" for name in ("weight_bytes", "cache_bytes")),
        f"{max(row['index_bytes'] for row in rows) / 1e6:.2f}",
        equality_of(rows),
    ]


def equality_of(rows: Sequence[Row]) -> str:
    """Whether all texts are those that they have to be, or that only their distribution is promised."""
    answers = {row["is_equal"] for row in rows}
    if answers == {None}:
        return "same distribution"
    return "NO" if False in answers else "yes"


def auto_line(key: GroupKey, methods: Mapping[str, Sequence[Row]]) -> str | None:
    """Whether `auto` is slower than decoding without drafts by more than `MAX_SLOWDOWN`; None where it wasn't run.

    Plain is whichever is faster, transformers' `generate` or our own loop without drafts.
    """
    if AUTO.label not in methods:
        return None
    plain = max((name for name in (PLAIN, NONE) if name in methods), key=lambda name: speed(methods[name]))
    ratio = speed_up(methods, AUTO.label, plain)
    is_kept = ratio.median >= 1.0 - MAX_SLOWDOWN
    workload, context, temperature = key
    verdict = "kept" if is_kept else "BROKEN"
    return (
        f"auto never slower than plain by more than {MAX_SLOWDOWN:.0%}: {verdict} on {workload}, {context} tokens, "
        f"T = {temperature:g}: {spread_text(ratio)} times as fast as {plain}"
    )


def ideal_line(key: GroupKey, methods: Mapping[str, Sequence[Row]]) -> str | None:
    """What the draft model would gain if all it drafts were accepted; None where none ran with a fixed length.

    With k tokens a draft, a round emits k + 1 of them and takes as long as the rounds that were measured, whatever was
    accepted in them: no training makes a draft model of this size faster than that.
    """
    lengths = {rows[0]["draft_length"]: rows for rows in methods.values() if rows[0]["method"] == MODEL}
    lengths.pop("auto", None)
    if PLAIN not in methods or not lengths:
        return None
    plain_seconds = _per_round(methods[PLAIN], "verify_seconds", num_left_out=1)
    gains = []
    for num_draft_tokens, rows in sorted(lengths.items()):
        seconds = _per_round(rows, "draft_seconds") + _per_round(rows, "verify_seconds", num_left_out=1)
        gains.append(f"{(num_draft_tokens + 1) * plain_seconds / seconds:.1f} with {num_draft_tokens}")
    return (
        f"a draft model of this size that is always right on {key[0]}, {key[1]} tokens, T = {key[2]:g}, the prompt "
        f"not counted: times plain {', '.join(gains)}"
    )


def _per_round(rows: Sequence[Row], name: str, num_left_out: int = 0) -> float:
    """Mean seconds of a round, of all but the first `num_left_out`, which have none."""
    num_rounds = sum(row["num_rounds"] - num_left_out for row in rows)
    return float(sum(row[name] for row in rows) / max(1, num_rounds))


def heading(key: GroupKey, methods: Mapping[str, Sequence[Row]], choice: Choice | None = None) -> str:
    """Above a group's table; `choice` says which edits the model gets right."""
    rows = next(iter(methods.values()))
    prompts = sorted({row["num_prompt_tokens"] for row in rows})
    span = f"{prompts[0]}" if len(prompts) == 1 else f"{prompts[0]} to {prompts[-1]}"
    num_repeats = len({row["repetition"] for row in rows})
    num_tasks = len({row["task"] for row in rows})
    right = "" if choice is None else f" ({choice.num_right} of {choice.num_tried} tried were answered right)"
    return (
        f"{key[0]}, T = {key[2]:g}, {span} prompt tokens, {counted(num_tasks, 'prompt')}{right}, at most "
        f"{rows[0]['max_tokens']} tokens of answer, {counted(num_repeats, 'repetition')}"
    )


def plot_speed_ups(rows: Sequence[Row], path: Path, *, title: str) -> None:
    """Bars of each group's methods, the spread of repetitions as whiskers; a fixed length only where it is the best."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    groups = groups_of(rows)
    num_columns = min(3, len(groups))
    num_lines = -(-len(groups) // num_columns)
    figure = Figure(figsize=(4.6 * num_columns, 3.2 * num_lines), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=9, x=0.01, ha="left")
    panels = figure.subplots(num_lines, num_columns, squeeze=False).flatten()
    for axes, (key, methods) in zip(panels, groups.items(), strict=False):
        labels = sorted(_shown(methods), key=_order)
        spreads = [speed_up(methods, label) for label in labels]
        medians = [spread.median for spread in spreads]
        whiskers = [
            [spread.median - spread.least for spread in spreads],
            [spread.greatest - spread.median for spread in spreads],
        ]
        colors = ["#0072b2" if label.startswith("edit") else "#8a949e" for label in labels]
        axes.barh(labels, medians, xerr=whiskers, color=colors, error_kw={"linewidth": 0.9})
        axes.invert_yaxis()
        axes.axvline(1.0, color="#1c2126", linewidth=0.8, linestyle=":")
        axes.set_title(f"{key[0]}, {key[1]} tokens, T = {key[2]:g}", fontsize=9, loc="left")
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel("times as fast as plain", fontsize=8)
    for axes in panels[len(groups) :]:
        axes.set_visible(False)
    figure.savefig(path, dpi=150)


def _shown(methods: Mapping[str, Sequence[Row]]) -> list[str]:
    best: dict[str, str] = {}
    for label in methods:
        name, _, length = label.partition(" ")
        key = label if not length.isdecimal() else f"{name} fixed"
        if key not in best or speed_up(methods, label).median > speed_up(methods, best[key]).median:
            best[key] = label
    return list(best.values())


def _mean(rows: Sequence[Row], name: str) -> float:
    return float(sum(row[name] for row in rows) / len(rows))


def _optional_mean(rows: Sequence[Row], name: str) -> str:
    return "-" if None in [row[name] for row in rows] else f"{_mean(rows, name):.3f}"
