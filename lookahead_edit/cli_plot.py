"""Plots what a replay found: tokens per round, and the modelled speed-up over the cost of a token.

matplotlib is an extra, and imported only to draw.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lookahead_edit.cli_files import whole_file
from lookahead_edit.text_visible import in_one_line
from lookahead_edit.types import InvalidInput

if TYPE_CHECKING:
    from lookahead_edit.replay import Replay

PLOT_SUFFIXES = (".png", ".svg", ".pdf")
INSTALL_PLOT = 'pip install "lookahead-edit[plot]"'
# Okabe and Ito's palette, told apart with any colour vision; markers and line styles say it once more.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINE_STYLES = ("-", "--", "-.", ":")
INK, MUTED = "#1c2126", "#5a646e"
NUM_GRID_COSTS = 80
DOTS_PER_INCH = 160


def require_matplotlib() -> None:
    """Raises InvalidInput where matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise InvalidInput(
            f"expected matplotlib for --plot, but it is not installed; run: {INSTALL_PLOT}", param="plot"
        )


def new_figure(width: float, height: float, title: str) -> Any:
    """An empty figure of so many inches, with one line above all panels. Raises as `require_matplotlib`."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1, wspace=0.04))
    FigureCanvasAgg(figure)
    figure.suptitle(in_one_line(title), fontsize=10, color=MUTED, x=0.012, ha="left", parse_math=False)
    return figure


def save_figure(figure: Any, name: str) -> None:
    """Gives all panels their frame and labels, and writes the file. Raises InvalidInput where it can't be written."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(MUTED)
        axes.tick_params(which="both", color=MUTED, labelcolor=INK, labelsize=9)
        axes.xaxis.label.set(fontsize=9.5, color=INK)
        axes.yaxis.label.set(fontsize=9.5, color=INK)
    with whole_file(name, param="plot") as file, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # names of models in any script
        figure.savefig(file, dpi=DOTS_PER_INCH, format=Path(name).suffix.removeprefix("."))


def plot_replay(replay: Replay, drafters: Sequence[str], name: str, *, title: str) -> None:
    """Writes the plot. Where the policy doesn't depend on the cost, the curves run over a fine grid of costs.

    Args:
        replay: with at least one trace.
        drafters: their names, in the order shown.
        name: the file, one of PLOT_SUFFIXES.
        title: one line above both panels.

    Raises:
        InvalidInput: matplotlib is not installed, or the file can't be written.
    """
    height = max(3.8, 1.6 + 0.34 * len(drafters) * (len(replay.costs) if replay.is_cost_aware else 1))
    figure = new_figure(11.0, height, title)
    bars, curves = figure.subplots(1, 2, width_ratios=(1.0, 1.25))
    _draw_tokens_per_round(bars, replay, drafters)
    _draw_speedups(curves, replay, drafters)
    save_figure(figure, name)


def _draw_tokens_per_round(axes: Any, replay: Replay, drafters: Sequence[str]) -> None:
    costs = replay.costs if replay.is_cost_aware else replay.costs[:1]
    labels, values, colors = [], [], []
    for number, drafter in enumerate(drafters):
        for cost in costs:
            totals = replay.totals(drafter, cost)
            labels.append(f"{drafter}, c = {cost:g}" if replay.is_cost_aware else drafter)
            values.append(totals.num_output_tokens / totals.num_rounds)
            colors.append(COLORS[number % len(COLORS)])
    bars = axes.barh(range(len(labels)), values, color=colors, height=0.55)
    axes.bar_label(bars, labels=[f"{value:.1f}" for value in values], padding=4, color=INK, fontsize=9)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.12 * max(values))
    axes.set_xlabel("output tokens per round")
    axes.set_title("Tokens per round", loc="left", fontsize=12, fontweight="bold", color=INK)
    axes.tick_params(axis="y", length=0)
    axes.axvline(1.0, color=MUTED, linewidth=0.8, linestyle=":")


def _draw_speedups(axes: Any, replay: Replay, drafters: Sequence[str]) -> None:
    shown_costs = sorted(cost for cost in replay.costs if cost > 0.0) or [0.01]
    grid = np.geomspace(min(0.001, shown_costs[0] / 2), max(0.1, shown_costs[-1] * 2), NUM_GRID_COSTS)
    for number, drafter in enumerate(drafters):
        color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
        style = {"color": color, "linestyle": LINE_STYLES[number % len(LINE_STYLES)], "linewidth": 1.8}
        points = [replay.totals(drafter, cost).modelled_speedup(cost) for cost in shown_costs if cost in replay.costs]
        points_at = [cost for cost in shown_costs if cost in replay.costs]
        if replay.is_cost_aware:
            axes.plot(points_at, points, marker=marker, markersize=6, label=drafter, **style)
        else:
            totals = replay.totals(drafter, replay.costs[0])
            axes.plot(grid, [totals.modelled_speedup(float(cost)) for cost in grid], **style)
            axes.plot(points_at, points, linestyle="none", marker=marker, markersize=6, color=color)
            axes.plot([], [], marker=marker, label=drafter, **style)
    axes.axhline(1.0, color=MUTED, linewidth=0.8, linestyle=":")
    axes.annotate("plain decoding", (1.0, 1.0), xycoords=("axes fraction", "data"), xytext=(-2, 3),
                  textcoords="offset points", ha="right", va="bottom", fontsize=8, color=MUTED)  # fmt: skip
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(_label_round_costs)
    axes.set_xlim(grid[0], grid[-1])
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("c, cost of a further token in a round (share of a forward pass)")
    axes.set_ylabel("modelled speed-up over plain (times)")
    axes.set_title("Modelled speed-up", loc="left", fontsize=12, fontweight="bold", color=INK)
    axes.grid(True, which="major", color="#e3e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=9)


def _label_round_costs(value: float, position: int | None = None) -> str:
    """Between the powers of ten, 2 and 5 times one are labelled."""
    label = f"{value:g}"
    return label if label.lstrip("0.") in ("2", "5") else ""
