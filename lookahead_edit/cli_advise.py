"""`lookahead-edit advise`: what speculation would be worth for logged traffic on this machine, and where not."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lookahead_edit.cli_advise_output import lines_of, tables_of
from lookahead_edit.cli_command import WITH_COMMAS
from lookahead_edit.cli_display import Display
from lookahead_edit.cli_files import label_of, write_standard_output
from lookahead_edit.cli_options import Device, DtypeOption, Model, Quiet, open_editor
from lookahead_edit.cli_plot import PLOT_SUFFIXES, require_matplotlib
from lookahead_edit.cli_replay import open_tokenizer
from lookahead_edit.cli_replay_output import check_output
from lookahead_edit.cli_traces import MAKING_READY, BadLines, opened_traces, progress, token_traces
from lookahead_edit.config import MAX_COST_RATIO, AdviseConfig, SpeculationConfig
from lookahead_edit.types import InvalidInput, Tokenizer, UnsupportedModel

if TYPE_CHECKING:
    from lookahead_edit.advise import Advice
    from lookahead_edit.cost import CostCurve
    from lookahead_edit.crossover import Crossover
    from lookahead_edit.editor import Editor

MAX_BATCH_SIZE = 1024

ADVISE_EXAMPLES = """\b
Examples:
  lookahead-edit advise traces.jsonl
  lookahead-edit advise traces.jsonl --model Qwen/Qwen2.5-Coder-7B-Instruct
  lookahead-edit advise traces.jsonl.gz --cost 0.002 --plot advice.png
"""


@dataclasses.dataclass(frozen=True)
class Machine:
    """What the advice is for."""

    label: str
    curve: CostCurve
    is_in_seconds: bool
    tokenizer: Tokenizer
    cache_bytes_per_token: int | None  # of keys and values; None where no model is named


def advise(
    traces: Annotated[str, typer.Argument(help="JSON lines, plain or gzip; - for standard input.", metavar="TRACES")],
    model: Model = None,
    cost: Annotated[
        float | None,
        typer.Option(
            "--cost",
            help="Instead of a model: what a further token in a round costs, in forward passes.",
            metavar="NUMBER",
        ),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", help="With --cost; the default model's if left out.", metavar="NAME")
    ] = None,
    drafters: Annotated[
        str, typer.Option("--drafters", help=f"Of edit, suffix, ngram and none, {WITH_COMMAS}.", metavar="NAMES")
    ] = ",".join(AdviseConfig.drafters),
    batch: Annotated[
        str, typer.Option("--batch", help=f"Sizes of batches, {WITH_COMMAS}.", metavar="NUMBERS")
    ] = ",".join(map(str, AdviseConfig.batch_sizes)),
    limit: Annotated[int | None, typer.Option("--limit", help="Stop after so many traces.", min=1, metavar="N")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document with all figures.")] = False,
    plot: Annotated[str | None, typer.Option("--plot", help="Draw it: .png, .svg or .pdf.", metavar="FILE")] = None,
    dtype: DtypeOption = None,
    device: Device = None,
    quiet: Quiet = False,
) -> None:
    """Tells what drafts would gain on your own traffic.

    Replays logged traces with each drafter, at the cost of a pass measured on this machine (kept by `calibrate`, or
    measured now) or given by --cost. Gains are those of decoding; reading prompts takes as long as ever.
    """
    display = Display(is_quiet=quiet, is_long=True)
    if plot is not None:
        check_output("--plot", plot, traces, PLOT_SUFFIXES)
        require_matplotlib()
    batch_sizes = _parse_sizes(batch)
    names = [name.strip() for name in drafters.split(",")]
    _check(names, cost, tokenizer, {"model": model, "dtype": dtype, "device": device})
    with opened_traces(traces) as file:
        if cost is not None:
            machine = _machine_of_cost(cost, tokenizer, display)
        else:
            machine = _machine(open_editor(model, dtype, device, display), display)
        from lookahead_edit.advise import Adviser
        from lookahead_edit.crossover import crossovers

        with display.live(MAKING_READY):
            adviser = Adviser(
                machine.curve,
                is_in_seconds=machine.is_in_seconds,
                tokenizer=machine.tokenizer,
                drafters=names,
                batch_sizes=batch_sizes,
            )
        bad_lines = BadLines(display)
        with progress(file, display) as advance:
            for _, trace in token_traces(file, machine.tokenizer, bad_lines, label=label_of(traces), limit=limit):
                adviser.add(trace)
                advance()
    advice = adviser.advice()
    borders = crossovers(machine.curve, batch_sizes)
    if as_json:
        document = _document(traces, machine, advice, borders) | {"bad_lines": bad_lines.num_lines}
        write_standard_output(json.dumps(document, allow_nan=False) + "\n")
    else:
        write_standard_output(tables_of(advice, borders, machine.label))
        write_standard_output("".join(f"{line}\n" for line in lines_of(advice, borders, machine.cache_bytes_per_token)))
    if plot is not None:
        from lookahead_edit.cli_plot_crossover import plot_crossover

        plot_crossover(machine.curve, plot, title=machine.label, advice=advice)
        display.say(f"drawn in {plot}")


def _machine(editor: Editor, display: Display) -> Machine:
    from lookahead_edit.cli_calibrate import TOO_SLOW, calibrate_editor
    from lookahead_edit.targets.calibration import device_name
    from lookahead_edit.targets.hf import HfTarget
    from lookahead_edit.targets.roofline import cache_bytes_per_token

    with display.live("measuring what a pass costs"):
        calibration = calibrate_editor(editor)
    if calibration is None:
        raise UnsupportedModel(f"{editor.model_name} could not be measured: {TOO_SLOW}, or use --cost")
    assert isinstance(editor.target, HfTarget)
    loaded = editor.target.model
    dtype = str(loaded.dtype).removeprefix("torch.")
    label = f"{editor.model_name}, {dtype}, {device_name(loaded.device)}"
    return Machine(label, calibration.curve, True, editor.tokenizer, cache_bytes_per_token(loaded))


def _machine_of_cost(cost: float, tokenizer: str | None, display: Display) -> Machine:
    from lookahead_edit.cost import CostCurve

    return Machine(f"c = {cost:g}", CostCurve.linear(cost), False, open_tokenizer(tokenizer, display), None)


def _parse_sizes(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,4}", part) and 1 <= int(part) <= MAX_BATCH_SIZE for part in parts):
        raise InvalidInput(
            f"expected --batch to be whole numbers from 1 to {MAX_BATCH_SIZE} with commas between, got {text!r}",
            param="batch",
        )
    return tuple(sorted({int(part) for part in parts}))


def _check(names: list[str], cost: float | None, tokenizer: str | None, of_models: dict[str, str | None]) -> None:
    from lookahead_edit.speculation import check_speculation

    for name in names:
        check_speculation(SpeculationConfig(drafter=name))
    if cost is None:
        if tokenizer is not None:
            raise InvalidInput("expected --tokenizer together with --cost: a model has its own", param="tokenizer")
        return
    for name, value in of_models.items():
        if value is not None:
            raise InvalidInput(f"expected --{name} or --cost, got both", param="cost")
    if not 0.0 <= cost <= MAX_COST_RATIO:
        raise InvalidInput(f"expected --cost to be a number from 0 to {MAX_COST_RATIO:g}, got {cost:g}", param="cost")


def _document(traces: str, machine: Machine, advice: Advice, borders: list[Crossover]) -> dict[str, Any]:
    return {
        "file": traces,
        "machine": machine.label,
        "curve": machine.curve.to_json(),
        "cache_bytes_per_token": machine.cache_bytes_per_token,
        **dataclasses.asdict(advice),
        "crossover": [dataclasses.asdict(border) for border in borders],
    }
