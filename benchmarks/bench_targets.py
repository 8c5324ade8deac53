"""The same edits by the same editor on a dynamic, a static and a deterministic target: time of each over the dynamic's.

The targets take turns on each edit, and the order turns, so that a slow moment of the machine hits them alike. The
texts must be equal. Run as `python -m benchmarks.bench_targets --help`; the last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from benchmarks.arguments import edit_name, positive_int
from benchmarks.bench_edits import spread_over_kinds
from benchmarks.edit_set import chosen_edits
from benchmarks.environment import environment, load_average
from benchmarks.forwards import synchronize
from benchmarks.measure import Judged, judge
from benchmarks.methods import model_of
from lookahead_edit.config import TargetConfig
from lookahead_edit.editor import Editor, EditRequest
from lookahead_edit.targets.loading import load_editor
from lookahead_edit.targets.making import make_target
from lookahead_edit.targets.static import StaticTarget

KINDS: tuple[Literal["dynamic", "static", "deterministic"], ...] = ("dynamic", "static", "deterministic")


@dataclass
class Measured:
    """One target over all edits: a list of seconds for each repetition, an entry an edit."""

    seconds: list[list[float]] = field(default_factory=list)
    num_tokens: int = 0
    num_rounds: int = 0

    def total(self, repeat: int) -> float:
        return sum(self.seconds[repeat])


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=positive_int, default=3, help="runs of every target on every edit")
    parser.add_argument(
        "--edits", type=edit_name, nargs="*", default=[], metavar="NAME", help="only edits whose name contains one"
    )
    parser.add_argument("--limit", type=positive_int, help="measure at most so many edits, of as many kinds as can be")
    parser.add_argument("--model", help="the default model, a directory, a GGUF file or a hub id")
    parser.add_argument("--dtype", help="float32, bfloat16 or float16")
    parser.add_argument("--all", action="store_true", help="measure edits with a wrong answer too")
    parser.add_argument("--output", type=Path, metavar="FILE", help="also write the JSON document there")
    return parser.parse_args(arguments)


def measure(editors: Mapping[str, Editor], requests: Sequence[EditRequest], num_repeats: int) -> dict[str, Measured]:
    """Every target on every edit, in turn. Raises SystemExit where texts differ."""
    measured = {kind: Measured() for kind in editors}
    names = list(editors)
    for kind, editor in editors.items():
        editor.edit(requests[0])
        print(f"warmed up {kind}", file=sys.stderr, flush=True)
    for repeat in range(num_repeats):
        for one in measured.values():
            one.seconds.append([])
        for index, request in enumerate(requests):
            first = (repeat + index) % len(names)
            texts = {}
            for kind in names[first:] + names[:first]:
                synchronize()
                started = time.perf_counter()
                result = editors[kind].edit(request)
                synchronize()
                measured[kind].seconds[-1].append(time.perf_counter() - started)
                measured[kind].num_tokens += result.metrics.num_emitted_tokens
                measured[kind].num_rounds += result.metrics.num_rounds
                texts[kind] = result.text
            if len(set(texts.values())) > 1:
                raise SystemExit(f"texts differ between targets: {request.path}, {request.instruction}")
            print(f"repetition {repeat + 1}: edit {index + 1} of {len(requests)}", file=sys.stderr, flush=True)
    return measured


def figures(measured: dict[str, Measured]) -> dict[str, Any]:
    """By target: tokens, rounds, median seconds for all edits, and time over that of the dynamic target."""
    dynamic = measured["dynamic"]
    repeats = range(len(dynamic.seconds))
    return {
        kind: {
            "tokens_per_round": one.num_tokens / one.num_rounds,
            "seconds": statistics.median(one.total(repeat) for repeat in repeats),
            "times_as_fast_as_dynamic": statistics.median(
                dynamic.total(repeat) / one.total(repeat) for repeat in repeats
            ),
            "least": min(dynamic.total(repeat) / one.total(repeat) for repeat in repeats),
            "greatest": max(dynamic.total(repeat) / one.total(repeat) for repeat in repeats),
        }
        for kind, one in measured.items()
    }


def main(given: Sequence[str] | None = None) -> int:
    """Judges, measures, prints."""
    arguments = parse_arguments(given)
    load_before = load_average()
    told = Console(stderr=True, highlight=False)
    editor = load_editor(arguments.model, dtype=arguments.dtype, console=told)
    model = model_of(editor)
    judged: list[Judged] = []
    for edit in chosen_edits(arguments.edits):
        judged.append(judge(editor, edit))
        told.print(f"{edit.name} is {'right' if judged[-1].is_right else 'wrong'}")
    chosen = spread_over_kinds([one for one in judged if one.is_right or arguments.all], arguments.limit)
    if not chosen:
        raise SystemExit("no edit to measure: the model gets none right")
    editors = {
        kind: Editor(make_target(model, TargetConfig(kind=kind)), editor.tokenizer, model_name=editor.model_name)
        for kind in KINDS
    }
    for each in editors.values():
        if isinstance(each.target, StaticTarget):
            each.target.warm_up()
    found = figures(measure(editors, [one.task.request for one in chosen], arguments.repeats))
    table = Table("target", "tokens a round", "seconds", "times as fast as dynamic", "least", "greatest")
    for kind, each in found.items():
        table.add_row(kind, *(f"{value:.2f}" for value in each.values()))
    Console().print(table)
    document = {
        "benchmark": "targets",
        "model": editor.model_name,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "edits": [one.edit.name for one in chosen],
        "num_repeats": arguments.repeats,
        "targets": found,
        "environment": environment() | {"load_before": load_before, "load_after": load_average()},
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
