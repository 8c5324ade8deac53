"""Does replay tell the truth? Wall-clock speed-up of edits with a real model against what replay predicts for them.

In one run: the cost of passes is measured, each edit is decoded plainly and by the editor, in turns, and the cost is
measured again. Replay gets the text that came out, the drafter and policy of the editor and the measured cost curve
(the mean of both), and no model; the cost of its rounds, in plain passes, is the prediction. Reading the prompt is left
out of both. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.arguments import edit_name, positive_int
from benchmarks.edit_set import chosen_edits
from benchmarks.environment import environment, load_average
from benchmarks.measure import Judged, Spread, judge
from benchmarks.methods import EDITOR, PLAIN, Run, run
from lookahead_edit.config import SpeculationConfig
from lookahead_edit.cost import CostCurve
from lookahead_edit.editor import Editor
from lookahead_edit.replay import TokenTrace, replay_trace
from lookahead_edit.speculation import make_drafter, make_policy
from lookahead_edit.targets.calibration import measure_curve
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.targets.loading import load_editor

MAX_WIDTH = 1024


@dataclass(frozen=True)
class Compared:
    """One edit: decoding seconds by repetition, and what replay makes of the same text, in plain passes."""

    name: str
    plain: tuple[Run, ...]
    drafted: tuple[Run, ...]
    predicted_cost: float

    @property
    def num_tokens(self) -> int:
        return len(self.plain[0].tokens)


def mean_curve(curves: Sequence[CostCurve]) -> CostCurve:
    """Of the widths that all were measured at."""
    widths = sorted(set.intersection(*(set(curve.widths) for curve in curves)))
    costs = np.mean([[curve.values(1, MAX_WIDTH)[width - 1] for width in widths] for curve in curves], axis=0)
    return CostCurve(tuple(widths), (tuple(costs.tolist()),), shares_passes=False)


def predicted_cost(editor: Editor, one: Judged, tokens: Sequence[int], curve: CostCurve) -> float:
    """Cost of the rounds that follow the first one, in passes of a single token; the first one reads the prompt."""
    prompt = editor.prompt(one.task.request)
    *output, end = tokens
    trace = TokenTrace(one.edit.name, prompt.tokens, np.array(output, np.int32), tuple(prompt.sources), end)
    config = SpeculationConfig()
    replayed = replay_trace(trace, make_drafter(config, editor.tokenizer), make_policy(config, curve))
    costs = curve.values(1, MAX_WIDTH)
    return float(sum(costs[finished.num_draft_tokens] for finished in replayed.rounds[1:]) / costs[0])


def speedup(compared: Sequence[Compared], repeat: int) -> float:
    """Measured, over all edits."""
    plain = sum(one.plain[repeat].decode_seconds for one in compared)
    return plain / sum(one.drafted[repeat].decode_seconds for one in compared)


def main() -> None:
    """Measures, replays, prints."""
    parser = argparse.ArgumentParser(description="Compare measured speed-ups with those that replay predicts.")
    parser.add_argument("--repeats", type=positive_int, default=2)
    parser.add_argument(
        "--edits", type=edit_name, nargs="*", default=[], metavar="NAME", help="only edits whose name contains one"
    )
    parser.add_argument("--model", help="the default model, a directory, a GGUF file or a hub id")
    parser.add_argument("--output", type=Path, help="also write the JSON document to this file")
    arguments = parser.parse_args()
    told = Console(stderr=True, highlight=False)
    load_before = load_average()
    editor = load_editor(arguments.model, console=told)
    judged = [judge(editor, edit) for edit in chosen_edits(arguments.edits)]
    right = [one for one in judged if one.is_right]
    target = editor.target
    assert isinstance(target, HfTarget)
    curves = [measure_curve(target, shares_passes=False)]
    target.cost_curve = curves[0]
    for method in (PLAIN, EDITOR):
        run(method, editor, right[0].task)
    runs: list[dict[str, list[Run]]] = [{PLAIN: [], EDITOR: []} for _ in right]
    for repeat in range(arguments.repeats):
        for index, one in enumerate(right):
            for method in (PLAIN, EDITOR) if (repeat + index) % 2 else (EDITOR, PLAIN):
                told.print(f"repetition {repeat + 1}, {one.edit.name}, {method}")
                runs[index][method].append(run(method, editor, one.task))
    curves.append(measure_curve(target, shares_passes=False))
    curve = mean_curve([each for each in curves if each is not None])
    compared = [
        Compared(
            one.edit.name,
            tuple(own[PLAIN]),
            tuple(own[EDITOR]),
            predicted_cost(editor, one, own[PLAIN][0].tokens, curve),
        )
        for one, own in zip(right, runs, strict=True)
    ]
    measured = Spread.of(speedup(compared, repeat) for repeat in range(arguments.repeats))
    num_plain_passes = sum(one.num_tokens - 1 for one in compared)
    predicted = num_plain_passes / sum(one.predicted_cost for one in compared)
    document: dict[str, Any] = {
        "benchmark": "prediction",
        "model": editor.model_name,
        "num_edits": len(compared),
        "num_repeats": arguments.repeats,
        "measured_speedup": {"median": measured.median, "min": measured.least, "max": measured.greatest},
        "predicted_speedup": predicted,
        "measured_over_predicted": measured.median / predicted,
        "curve": curve.to_json(),
        "curves": [each.to_json() for each in curves if each is not None],
        "edits": [
            {
                "name": one.name,
                "num_tokens": one.num_tokens,
                "num_rounds": one.drafted[0].num_rounds,
                "plain_seconds": [run.decode_seconds for run in one.plain],
                "drafted_seconds": [run.decode_seconds for run in one.drafted],
                "predicted_cost": one.predicted_cost,
            }
            for one in compared
        ],
        "environment": environment() | {"load_before": load_before, "load_after": load_average()},
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    spread = f"{measured.median:.2f} ({measured.least:.2f} to {measured.greatest:.2f})"
    print(f"measured {spread}, predicted {predicted:.2f}")
    print(json.dumps(document))


if __name__ == "__main__":
    main()
