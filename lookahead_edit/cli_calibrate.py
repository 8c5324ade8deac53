"""`lookahead-edit calibrate`: measures what a forward pass of the model costs here, by its width."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from lookahead_edit.cli_display import Display, counted, rendered
from lookahead_edit.cli_files import write_standard_output
from lookahead_edit.cli_options import Device, DtypeOption, Model, Quiet, TargetKind, TargetOption, open_editor
from lookahead_edit.cli_plot import PLOT_SUFFIXES, require_matplotlib
from lookahead_edit.cli_replay_output import check_output
from lookahead_edit.types import UnsupportedModel

if TYPE_CHECKING:
    from lookahead_edit.editor import Editor
    from lookahead_edit.targets.calibration import Calibration
    from lookahead_edit.targets.roofline import Roofline

TABLE_WIDTH = 80
TOO_SLOW = "its passes take too long here; is the machine busy? try again once it is quiet"

CALIBRATE_EXAMPLES = """\b
Examples:
  lookahead-edit calibrate
  lookahead-edit calibrate --model Qwen/Qwen2.5-Coder-7B-Instruct --force
  lookahead-edit calibrate --target static --plot cost.png
"""


def calibrate(
    model: Model = None,
    force: Annotated[bool, typer.Option("--force", help="Measure even if there is a stored measurement.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    plot: Annotated[
        str | None,
        typer.Option("--plot", help="Draw it, with the least a pass could cost: .png, .svg or .pdf.", metavar="FILE"),
    ] = None,
    dtype: DtypeOption = None,
    device: Device = None,
    target: TargetOption = TargetKind.DYNAMIC,
    quiet: Quiet = False,
) -> None:
    """Measures what drafts cost with a model on this machine.

    Takes a few seconds; the cost policy of later runs goes by it. The width of a pass is drafted tokens + 1, and c is
    the --cost at which `replay` would reckon such a pass as it was measured.
    """
    display = Display(is_quiet=quiet, is_long=True)
    if plot is not None:
        check_output("--plot", plot, "", PLOT_SUFFIXES)
        require_matplotlib()
    editor = open_editor(model, dtype, device, display, target)
    with display.live("measuring"):
        calibration = calibrate_editor(editor, force=force)
    if calibration is None:
        raise UnsupportedModel(f"{editor.model_name} could not be measured: {TOO_SLOW}")
    roofline = None if plot is None else _roofline(editor)
    if plot is not None and roofline is not None:
        from lookahead_edit.cli_plot_cost import plot_cost_curve

        plot_cost_curve(calibration.curve, roofline, plot, title=_title(editor, target))
        milliseconds = calibration.curve.costs[0][0] * 1000.0
        display.say(f"drawn in {plot}; one token takes {milliseconds:.1f} ms, {_bound(roofline)}")
    if as_json:
        document = _document(editor, calibration) | ({} if roofline is None else {"roofline": roofline.to_json()})
        write_standard_output(json.dumps(document, allow_nan=False) + "\n")
    else:
        _print_table(calibration)
    if calibration.is_doubtful:
        display.warn(busy_warning(calibration))
    if calibration.path is None:
        display.say("could not be stored: there is no cache directory that can be written")
    else:
        display.say(f"{'measured, stored in' if calibration.is_new else 'found in'} {calibration.path}")


def busy_warning(calibration: Calibration) -> str:
    """What to say of a measurement that is doubtful."""
    assert calibration.load is not None
    cores = counted(calibration.load.num_cores, "core")
    return (
        f"the machine was busy when it was measured (a load of {calibration.load.average:.1f} on {cores}), so the "
        "figures are doubtful; they are measured again when it is quiet"
    )


def calibrate_editor(editor: Editor, *, force: bool = False) -> Calibration | None:
    """Gives the editor's target a measured cost curve; None where it can't be measured."""
    from lookahead_edit.targets.calibration import calibrate as calibrate_target
    from lookahead_edit.targets.hf import HfTarget

    return calibrate_target(editor.target, force=force) if isinstance(editor.target, HfTarget) else None


def _roofline(editor: Editor) -> Roofline:
    from lookahead_edit.targets.calibration import NUM_CONTEXT_TOKENS
    from lookahead_edit.targets.hf import HfTarget
    from lookahead_edit.targets.roofline import measure_roofline

    assert isinstance(editor.target, HfTarget)
    return measure_roofline(editor.target.model, min(NUM_CONTEXT_TOKENS, editor.target.max_context_tokens))


def _bound(roofline: Roofline) -> str:
    megabytes = (roofline.weight_bytes + roofline.cache_bytes) / 1e6
    speed = roofline.bytes_per_second / 1e9
    return f"reading {megabytes:,.0f} MB at the measured {speed:,.1f} GB/s {roofline.seconds(1) * 1000:.1f} ms"


def _title(editor: Editor, target: TargetKind) -> str:
    from lookahead_edit.targets.calibration import device_name
    from lookahead_edit.targets.hf import HfTarget

    assert isinstance(editor.target, HfTarget)
    model = editor.target.model
    dtype = str(model.dtype).removeprefix("torch.")
    return f"{editor.model_name}, {dtype}, {device_name(model.device)}, {target.value} target"


def replay_cost(width: int, relative_cost: float) -> float | None:
    """The c for which ``(1 + c * width) / (1 + c)`` is the relative cost; None where there is none.

    Example:
        >>> replay_cost(64, 3.25)  # 64 tokens cost as much as 3.25 single ones
        0.037037037037037035
    """
    return max(0.0, relative_cost - 1.0) / (width - relative_cost) if 1.0 < width > relative_cost else None


def _document(editor: Editor, calibration: Calibration) -> dict[str, Any]:
    rows = _rows(calibration)
    return {
        "model": editor.model_name,
        "path": None if calibration.path is None else str(calibration.path),
        "new": calibration.is_new,
        "seconds": calibration.seconds,
        "load": None if calibration.load is None else dataclasses.asdict(calibration.load),
        "passes": [dict(zip(("width", "seconds", "relative", "c"), row, strict=True)) for row in rows],
    }


def _rows(calibration: Calibration) -> list[tuple[int, float, float, float | None]]:
    costs = calibration.curve.costs[0]
    relative = [cost / costs[0] for cost in costs]
    widths = calibration.curve.widths
    return [(*row, replay_cost(row[0], row[2])) for row in zip(widths, costs, relative, strict=True)]


def _print_table(calibration: Calibration) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for header in ("width", "ms", "relative", "c"):
        table.add_column(header, justify="right")
    for width, seconds, relative, cost in _rows(calibration):
        table.add_row(str(width), f"{seconds * 1000:.1f}", f"{relative:.2f}", "-" if cost is None else f"{cost:.3g}")
    write_standard_output(rendered(table, width=TABLE_WIDTH))
