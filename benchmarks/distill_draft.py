"""Makes a draft model for a target that has no smaller sibling: some of its layers, taught to foretell it.

The student keeps the target's embeddings and head. It learns the target's distributions on code and prose of installed
packages and on edits in the prompt templates, in at most an hour on two CPU cores; what it reaches on packages that it
never saw is reported at the end. A run that was stopped goes on where it was. Run as
`python -m benchmarks.distill_draft --help`; the last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.arguments import duration, positive_int, require_folder
from benchmarks.distill_report import report
from benchmarks.distill_student import choose_layers, require_layers
from benchmarks.distill_texts import KIND_WEIGHTS, make_text
from benchmarks.distill_training import Distiller, DistillOptions, load_state
from benchmarks.environment import environment
from lookahead_edit.targets.loading import DEFAULT_MODEL_NAME, is_default, load_model
from lookahead_edit.targets.roofline import num_parameters
from lookahead_edit.targets.user_paths import cache_directory
from lookahead_edit.types import LookaheadEditError

MODEL_DIRECTORY, REPORT_FILE, LOG_FILE = "model", "report.json", "log.jsonl"


def default_directory(model: str | None) -> Path:
    """Where the run of a target lies in the user's cache; its draft model is in `model` there."""
    name = DEFAULT_MODEL_NAME if is_default(model) else Path(str(model)).name
    return cache_directory() / f"draft-model-{name}"


def train(distiller: Distiller, directory: Path, seconds_limit: float, save_every: int) -> bool:
    """Steps to the end of the schedule, or until the limit of all parts of the run; whether it got to the end."""
    columns = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    console = Console(stderr=True)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOG_FILE).open("a", encoding="utf-8") as log, Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=distiller.options.steps, completed=distiller.step)
        try:
            while distiller.step < distiller.options.steps and distiller.seconds < seconds_limit:
                started = time.monotonic()
                record = distiller.run_step()
                distiller.seconds += time.monotonic() - started
                log.write(json.dumps(record | {"seconds": round(distiller.seconds, 1)}) + "\n")
                log.flush()
                figures = f"{record['divergence']:.2f} nats, {100 * record['agreement']:.0f} % alike"
                progress.update(bar, advance=1, description=figures)
                if distiller.step % save_every == 0:
                    distiller.save(directory)
        finally:
            distiller.save(directory)
    return distiller.step >= distiller.options.steps


def publish(distiller: Distiller, tokenizer: Any, directory: Path) -> Path:
    """Writes the draft model and its tokenizer where it can be loaded by name; replaces an earlier one as a whole."""
    final, new = directory / MODEL_DIRECTORY, directory / (MODEL_DIRECTORY + ".new")
    shutil.rmtree(new, ignore_errors=True)
    distiller.student.save_pretrained(new)
    tokenizer.save_pretrained(new)
    shutil.rmtree(final, ignore_errors=True)
    os.replace(new, final)
    return final


def parse_arguments() -> argparse.Namespace:
    """The command line; every default of the run is that of DistillOptions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="the target: the default model, a directory, a GGUF file or a hub id")
    parser.add_argument("--output", type=Path, help="directory of the run; one in the user's cache by default")
    parser.add_argument("--max-minutes", type=duration, default=60.0, help="of training, all parts together")
    parser.add_argument("--workers", type=positive_int, default=2, help="texts computed at once, one core each")
    parser.add_argument("--save-every", type=positive_int, default=50, help="steps between checkpoints")
    parser.add_argument("--texts", type=positive_int, default=12, help="held-out texts of each kind for the report")
    parser.add_argument("--report-only", action="store_true", help="train no more, report what there is")
    for name, value in asdict(DistillOptions()).items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    return parser.parse_args()


def run(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Trains, writes the model, and reports."""
    options = DistillOptions(**{name: getattr(arguments, name) for name in asdict(DistillOptions())})
    directory = arguments.output or default_directory(arguments.model)
    require_folder(directory)
    target, tokenizer = load_model(arguments.model, dtype=torch.float32, device="cpu", console=console)
    require_layers(target)
    state = load_state(directory, options, target)
    torch.set_num_threads(1)
    if state is None:
        torch.manual_seed(options.seed)
        probes = [make_text(tokenizer, "train", 0, index, kind) for kind in KIND_WEIGHTS for index in range(2)]
        layers = choose_layers(target, probes, options.num_layers, console.print)
    else:
        layers = tuple(state["layers"])
    distiller = Distiller(target, tokenizer, layers, options, arguments.workers)
    if state is not None:
        distiller.resume(state)
        console.print(f"goes on after step {distiller.step} of {options.steps}, {distiller.seconds:.0f} s of training")
    is_whole = arguments.report_only or train(distiller, directory, 60.0 * arguments.max_minutes, arguments.save_every)
    if not is_whole:
        console.print(
            f"stopped after {distiller.seconds / 60:.0f} minutes at step {distiller.step} of {options.steps}; "
            "a larger --max-minutes goes on"
        )
    model_directory = publish(distiller, tokenizer, directory)
    document = {
        "benchmark": "distill",
        "target": DEFAULT_MODEL_NAME if is_default(arguments.model) else arguments.model,
        "draft_model": {
            "layers": list(layers),
            "num_parameters": num_parameters(distiller.student),
            "num_trained_parameters": sum(parameter.numel() for parameter in distiller.parameters),
            "num_target_parameters": num_parameters(target),
        },
        "training": {
            "options": asdict(options),
            "steps": distiller.step,
            "num_tokens": distiller.num_tokens,
            "seconds": round(distiller.seconds, 1),
        },
        "held_out": report(target, distiller.student, tokenizer, arguments.texts, console),
        "environment": environment(),
    }
    (directory / REPORT_FILE).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    console.print(f"the draft model is in {model_directory}")
    return document


def main() -> int:
    """One line for what can't be done, and exit status 2; an interrupted run keeps its checkpoint (130)."""
    arguments, console = parse_arguments(), Console(stderr=True, highlight=False)
    try:
        document = run(arguments, console)
    except LookaheadEditError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        return 130
    print(json.dumps(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
