"""Plots from where on drafts pay: speed-up over acceptance by batch size, and what traffic gains by batch size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lookahead_edit.cli_plot import COLORS, DOTS_PER_INCH, INK, LINE_STYLES, MARKERS, MUTED, require_matplotlib
from lookahead_edit.config import AdviseConfig
from lookahead_edit.crossover import MAX_ACCEPTANCE, min_acceptance, payment
from lookahead_edit.types import InvalidInput

if TYPE_CHECKING:
    from lookahead_edit.advise import Advice
    from lookahead_edit.cost import CostCurve

ACCEPTANCES = (*np.linspace(0.0, 0.96, 33).tolist(), 0.97, 0.98, 0.99)


def plot_crossover(
    curve: CostCurve,
    name: str,
    *,
    title: str,
    batch_sizes: Sequence[int] = AdviseConfig.batch_sizes,
    advice: Advice | None = None,
) -> None:
    """Writes the plot.

    Args:
        curve: what a pass costs.
        name: the file, one of PLOT_SUFFIXES.
        title: one line above.
        batch_sizes: a line each.
        advice: what one's own traffic gains is drawn, where it is given; else the least acceptance that pays.

    Raises:
        InvalidInput: matplotlib is not installed, or the file can't be written.
    """
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(11.0, 4.4), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1, wspace=0.04))
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=10, color=MUTED, x=0.012, ha="left")
    curves, sizes = figure.subplots(1, 2, width_ratios=(1.25, 1.0))
    _draw_speed_ups(curves, curve, batch_sizes)
    if advice is None:
        _draw_borders(sizes, curve, batch_sizes)
    else:
        _draw_advice(sizes, advice)
    for axes in (curves, sizes):
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(MUTED)
        axes.tick_params(which="both", color=MUTED, labelcolor=INK, labelsize=9)
        axes.grid(True, which="major", color="#e3e7eb", linewidth=0.8)
        axes.set_axisbelow(True)
    try:
        figure.savefig(name, dpi=DOTS_PER_INCH)
    except OSError as error:
        raise InvalidInput(f"can't write {name}: {error.strerror or error}", param="plot") from None


def _draw_speed_ups(axes: Any, curve: CostCurve, batch_sizes: Sequence[int]) -> None:
    for number, size in enumerate(batch_sizes):
        axes.plot(
            ACCEPTANCES,
            [payment(curve, size, acceptance).speed_up for acceptance in ACCEPTANCES],
            color=COLORS[number % len(COLORS)],
            linestyle=LINE_STYLES[number % len(LINE_STYLES)],
            linewidth=1.8,
            label=f"{size} row{'s'[: size > 1]}",
        )
    axes.axhline(1.0, color=MUTED, linewidth=0.8, linestyle=":")
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlim(0.0, 1.0)
    axes.set_xlabel("acceptance: a drafted token is right, given those before it", fontsize=9.5, color=INK)
    axes.set_ylabel("times as fast as plain", fontsize=9.5, color=INK)
    axes.set_title("Speed-up of decoding", loc="left", fontsize=12, fontweight="bold", color=INK)
    axes.legend(frameon=False, fontsize=9)


def _draw_borders(axes: Any, curve: CostCurve, batch_sizes: Sequence[int]) -> None:
    found = [(size, least) for size in batch_sizes if (least := min_acceptance(curve, size)) is not None]
    axes.plot(*zip(*found, strict=True), color=COLORS[0], marker=MARKERS[0], linewidth=1.8) if found else None
    axes.set_ylim(0.0, MAX_ACCEPTANCE)
    axes.set_ylabel("least acceptance that pays", fontsize=9.5, color=INK)
    _draw_size_axis(axes, batch_sizes, "Where drafts begin to pay")


def _draw_advice(axes: Any, advice: Advice) -> None:
    for number, drafter in enumerate(dict.fromkeys(worth.choice.drafter for worth in advice.worths)):
        worths = [worth for worth in advice.worths if worth.choice.drafter == drafter and worth.choice.length == "auto"]
        axes.plot(
            [worth.choice.batch_size for worth in worths],
            [worth.speed_up for worth in worths],
            color=COLORS[number % len(COLORS)],
            marker=MARKERS[number % len(MARKERS)],
            linestyle=LINE_STYLES[number % len(LINE_STYLES)],
            linewidth=1.8,
            label=f"{drafter}, auto",
        )
    axes.axhline(1.0, color=MUTED, linewidth=0.8, linestyle=":")
    axes.set_ylim(bottom=0.0)
    axes.set_ylabel("times as fast as plain", fontsize=9.5, color=INK)
    axes.legend(frameon=False, fontsize=9)
    _draw_size_axis(axes, [worth.choice.batch_size for worth in advice.by_batch_size], "These traces")


def _draw_size_axis(axes: Any, batch_sizes: Sequence[int], title: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(batch_sizes, [str(size) for size in batch_sizes])
    axes.minorticks_off()
    axes.set_xlabel("rows in a batch", fontsize=9.5, color=INK)
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", color=INK)
