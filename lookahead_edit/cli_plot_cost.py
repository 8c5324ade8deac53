"""Plots what a pass costs by its width, and the least it could cost on the machine it was measured on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lookahead_edit.cli_display import counted
from lookahead_edit.cli_plot import COLORS, INK, LINE_STYLES, MARKERS, MUTED, new_figure, save_figure

if TYPE_CHECKING:
    from lookahead_edit.cost import CostCurve
    from lookahead_edit.targets.roofline import Roofline


def plot_cost_curve(curve: CostCurve, roofline: Roofline, name: str, *, title: str) -> None:
    """Writes the plot.

    Args:
        curve: in seconds.
        roofline: of single rows.
        name: the file, one of PLOT_SUFFIXES.
        title: one line above.

    Raises:
        InvalidInput: matplotlib is not installed, or the file can't be written.
    """
    figure = new_figure(7.6, 4.6, title)
    _draw(figure.subplots(), curve, roofline)
    save_figure(figure, name)


def _draw(axes: Any, curve: CostCurve, roofline: Roofline) -> None:
    widths = curve.widths
    for number, (batch_size, costs) in enumerate(zip(curve.batch_sizes, curve.costs, strict=True)):
        axes.plot(
            widths,
            [1000.0 * cost for cost in costs],
            color=COLORS[number % len(COLORS)],
            marker=MARKERS[number % len(MARKERS)],
            linestyle=LINE_STYLES[number % len(LINE_STYLES)],
            markersize=5,
            linewidth=1.8,
            label="measured" if curve.batch_sizes == (1,) else f"measured, {counted(batch_size, 'row')}",
        )
    grid = range(1, widths[-1] + 1)
    bound = [1000.0 * roofline.seconds(width) for width in grid]
    share = roofline.seconds(1) / curve.costs[0][0]
    label = f"roofline, 1 row ({share:.0%} of what one token takes)"
    axes.plot(grid, bound, color=INK, linewidth=1.4, linestyle=":", label=label)
    # Logarithmic, or a batch would leave single rows no room.
    lowest = 0.7 * min(*bound, 1000.0 * curve.costs[0][0])
    axes.set_yscale("log")
    axes.set_ylim(bottom=lowest)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    axes.fill_between(grid, lowest, bound, color=MUTED, alpha=0.08, linewidth=0.0)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlim(1, widths[-1])
    axes.set_xlabel("width of the pass (drafted tokens + 1)")
    axes.set_ylabel("milliseconds")
    axes.set_title("What a pass costs", loc="left", fontsize=12, fontweight="bold", color=INK)
    axes.grid(True, which="major", color="#e3e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=9)
