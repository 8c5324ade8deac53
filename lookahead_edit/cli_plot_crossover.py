"""Plots from where on drafts pay: speed-up over acceptance by batch size, and what traffic gains by batch size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lookahead_edit.cli_display import counted
from lookahead_edit.cli_plot import COLORS, INK, LINE_STYLES, MARKERS, MUTED, new_figure, save_figure
from lookahead_edit.crossover import Payments

if TYPE_CHECKING:
    from lookahead_edit.advise import Advice
    from lookahead_edit.cost import CostCurve

ACCEPTANCES = (*np.linspace(0.0, 0.96, 33).tolist(), 0.97, 0.98, 0.99)


def plot_crossover(curve: CostCurve, name: str, *, title: str, advice: Advice) -> None:
    """Writes the plot.

    Args:
        curve: what a pass costs.
        name: the file, one of PLOT_SUFFIXES.
        title: one line above.
        advice: what one's own traffic gains; a line for each of its batch sizes.

    Raises:
        InvalidInput: matplotlib is not installed, or the file can't be written.
    """
    batch_sizes = [worth.choice.batch_size for worth in advice.by_batch_size]
    figure = new_figure(11.0, 4.4, title)
    curves, sizes = figure.subplots(1, 2, width_ratios=(1.25, 1.0))
    _draw_speed_ups(curves, curve, batch_sizes)
    _draw_advice(sizes, advice, batch_sizes)
    for axes in (curves, sizes):
        axes.grid(True, which="major", color="#e3e7eb", linewidth=0.8)
        axes.set_axisbelow(True)
    save_figure(figure, name)


def _draw_speed_ups(axes: Any, curve: CostCurve, batch_sizes: Sequence[int]) -> None:
    payments = Payments(curve)
    for number, size in enumerate(batch_sizes):
        axes.plot(
            ACCEPTANCES,
            [payments.of(size, acceptance).speed_up for acceptance in ACCEPTANCES],
            color=COLORS[number % len(COLORS)],
            linestyle=LINE_STYLES[number % len(LINE_STYLES)],
            linewidth=1.8,
            label=counted(size, "row"),
        )
    axes.axhline(1.0, color=MUTED, linewidth=0.8, linestyle=":")
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlim(0.0, 1.0)
    axes.set_xlabel("acceptance: a drafted token is right, given those before it")
    axes.set_ylabel("times as fast as plain")
    axes.set_title("Speed-up of decoding", loc="left", fontsize=12, fontweight="bold", color=INK)
    axes.legend(frameon=False, fontsize=9)


def _draw_advice(axes: Any, advice: Advice, batch_sizes: Sequence[int]) -> None:
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
    axes.set_ylabel("times as fast as plain")
    axes.legend(frameon=False, fontsize=9)
    axes.set_xscale("log", base=2)
    axes.set_xticks(batch_sizes, [str(size) for size in batch_sizes])
    axes.minorticks_off()
    axes.set_xlabel("rows in a batch")
    axes.set_title("These traces", loc="left", fontsize=12, fontweight="bold", color=INK)
