"""The matrix: ways of decoding by workload, context, temperature and draft length, on one model, in one run.

Results are JSON lines, one for each method on each prompt and repetition; an interrupted run goes on where it was when
the same command is given again. Speed-ups are ratios within a repetition. Run as `python -m benchmarks.matrix --help`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.arguments import positive_int
from benchmarks.environment import environment, load_average
from benchmarks.matrix_compare import compare_results
from benchmarks.matrix_costs import weight_bytes, weights_fingerprint
from benchmarks.matrix_methods import Bench, supports_early_exit
from benchmarks.matrix_plan import PROFILES
from benchmarks.matrix_quality import WORKLOAD, read_records, run_quality
from benchmarks.matrix_report import print_quality, print_tables
from benchmarks.matrix_run import run_profile
from benchmarks.matrix_store import ResultsFile, ResultsMismatch, code_fingerprint, commit, read_results
from benchmarks.methods import model_of
from lookahead_edit.cli_calibrate import busy_warning
from lookahead_edit.cli_plot import PLOT_SUFFIXES, require_matplotlib
from lookahead_edit.cli_replay_output import check_output
from lookahead_edit.cost import CostCurve
from lookahead_edit.editor import Editor
from lookahead_edit.failures import is_out_of_memory
from lookahead_edit.speculation import cost_curve_of
from lookahead_edit.targets.calibration import calibrate, stored_curve
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.targets.loading import load_editor
from lookahead_edit.types import LookaheadEditError

RESULTS = Path(__file__).resolve().parent / "results"
MIN_FREE_BYTES = 64 * 1024 * 1024
EXIT_UNEQUAL, EXIT_FAILED, EXIT_INTERRUPTED = 1, 2, 130
NO_MEMORY = "error: expected memory for the models and their caches, got too little; what was measured is kept"


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--profile",
        choices=sorted(PROFILES),
        default="quick",
        help="quick: under 15 minutes on 2 cores; lengths: drafts of fixed lengths, on one edit",
    )
    parser.add_argument("--output", type=Path, help="by default benchmarks/results/matrix-PROFILE.jsonl")
    parser.add_argument("--model", help="the default model, a directory, a GGUF file or a hub id")
    parser.add_argument("--draft-model", help="directory or hub id; without it, methods that need one are left out")
    parser.add_argument("--dtype", help="float32, bfloat16 or float16")
    parser.add_argument("--device", help="by default the GPU, if there is one")
    parser.add_argument("--threads", type=positive_int, help="torch's threads; its own choice by default")
    parser.add_argument("--canitedit", type=Path, metavar="FILE", help="only: task quality with and without drafts, by "
                        "the tests of CanItEdit's records (JSON lines), which are run in a sandbox")  # fmt: skip
    parser.add_argument("--limit", type=positive_int, help="of CanItEdit's records")
    parser.add_argument("--max-tokens", type=positive_int, help="of an answer to one of CanItEdit's records")
    parser.add_argument("--tables", action="store_true", help="run nothing: tables of the results that are there")
    parser.add_argument("--compare", type=Path, nargs=2, metavar="FILE", help="run nothing: do two files of results "
                        "agree in tokens, rounds and acceptance, and ratios within the spread?")  # fmt: skip
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="also draw the speed-ups")
    parser.add_argument("--server", type=Path, metavar="FILE", default=RESULTS / "server.json", help="what "
                        "bench_server wrote, for the table of concurrencies")  # fmt: skip
    parsed = parser.parse_args(arguments)
    if not parsed.canitedit and (parsed.limit or parsed.max_tokens):
        parser.error("--limit and --max-tokens are of CanItEdit's records, which --canitedit names")
    if parsed.plot:
        _require_plot(parsed.plot, parser)
    return parsed


def _require_plot(path: Path, parser: argparse.ArgumentParser) -> None:
    """Before hours of measuring, that the plot can be drawn."""
    try:
        check_output("--plot", str(path), os.devnull, PLOT_SUFFIXES)
        require_matplotlib()
    except LookaheadEditError as error:
        parser.error(str(error))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; 1 where a text is not what it has to be, 2 with one line where nothing can be measured."""
    parsed = parse_arguments(arguments)
    told = Console(stderr=True, highlight=False)
    name = "quality" if parsed.canitedit else f"matrix-{parsed.profile}"
    path = parsed.output or RESULTS / f"{name}.jsonl"
    try:
        if parsed.compare:
            return _compare(*parsed.compare)
        if not parsed.tables:
            _require_disk(path.parent)
            if parsed.threads:
                torch.set_num_threads(parsed.threads)
            (_measure_quality if parsed.canitedit else _measure)(parsed, path, told)
        if parsed.canitedit:
            num_unequal = print_quality(path, is_markdown=parsed.markdown)
        else:
            num_unequal = print_tables(
                path, parsed.profile, parsed.server, is_markdown=parsed.markdown, plot=parsed.plot
            )
        return EXIT_UNEQUAL if num_unequal else 0
    except KeyboardInterrupt:
        told.print("interrupted; the same command goes on from here")
        return EXIT_INTERRUPTED
    except (LookaheadEditError, ResultsMismatch) as error:
        told.print(f"error: {error}", soft_wrap=True, markup=False)
    except OSError as error:
        told.print(f"error: {error.filename or path}: {error.strerror or error}", soft_wrap=True, markup=False)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        told.print(NO_MEMORY, soft_wrap=True)
    return EXIT_FAILED


def _require_disk(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    num_free_bytes = shutil.disk_usage(folder).free
    if num_free_bytes < MIN_FREE_BYTES:
        raise ResultsMismatch(f"expected 64 MB of free disk for results in {folder}, got {num_free_bytes} bytes")


def _compare(first: Path, second: Path) -> int:
    results = [read_results(path) for path in (first, second)]
    for path, found in zip((first, second), results, strict=True):
        if found.header["profile"] not in PROFILES:
            raise ResultsMismatch(f"expected results of a profile in {path}, got those of {found.header['profile']}")
    compared = compare_results(results[0], results[1], (first, second))
    print("\n".join(compared.lines()))
    print(json.dumps(compared.to_json()))
    return 0 if compared.is_same else EXIT_UNEQUAL


def _measure(parsed: argparse.Namespace, path: Path, told: Console) -> None:
    profile = PROFILES[parsed.profile]
    editor = load_editor(parsed.model, dtype=parsed.dtype, device=parsed.device, console=told)
    _measure_passes(editor, _teller(told))
    bench = _open_bench(editor, parsed)
    results = _open_results(path, _facts(editor, bench, parsed) | {"profile": profile.name}, told)
    left_out = {method.label for group in profile.groups for method in group.methods if not bench.can_run(method)}
    if left_out:
        _teller(told)(f"left out, for there is no model to draft with: {', '.join(sorted(left_out))}")
    # Draft lengths go by it, and somebody may have measured it anew since the first part of the file.
    curve = results.header["cost_curve"]
    bench = replace(bench, cost_curve=None if curve is None else CostCurve.from_json(curve))
    run_profile(bench, profile, results, _teller(told))


def _measure_passes(editor: Editor, tell: Callable[[str], None]) -> None:
    """What a pass costs, by which `auto` chooses its lengths; measured once for a model and machine."""
    tell("measuring what a pass costs, where that isn't stored")
    calibration = calibrate(_target_of(editor))
    if calibration is None:
        tell("warning: passes take too long to be measured; auto goes by what they usually cost")
    elif calibration.is_doubtful:
        tell(f"warning: {busy_warning(calibration)}")


def _measure_quality(parsed: argparse.Namespace, path: Path, told: Console) -> None:
    records = read_records(parsed.canitedit)
    editor = load_editor(parsed.model, dtype=parsed.dtype, device=parsed.device, console=told)
    model = model_of(editor)
    facts = _facts(editor, Bench(model, editor.tokenizer, _target_of(editor), 0), parsed) | {
        "profile": WORKLOAD,
        "max_tokens": parsed.max_tokens,
        "records": hashlib.sha256(parsed.canitedit.read_bytes()).hexdigest()[:16],
    }
    run_quality(editor, records[: parsed.limit], _open_results(path, facts, told), parsed.max_tokens, _teller(told))


def _open_results(path: Path, header: dict[str, Any], told: Console) -> ResultsFile:
    results = ResultsFile(path, header)
    if results.done:
        _teller(told)(f"going on: {len(results.done)} turns are in {path}")
    return results


def _teller(told: Console) -> Callable[[str], None]:
    """A line a message, however wide: the output may be a file."""
    return partial(told.print, soft_wrap=True, markup=False)


def _target_of(editor: Editor) -> HfTarget:
    assert isinstance(editor.target, HfTarget)
    return editor.target


def _open_bench(editor: Editor, parsed: argparse.Namespace) -> Bench:
    model = model_of(editor)
    draft_model, drafters = None, {}
    if parsed.draft_model:
        from lookahead_edit.targets.draft_model import model_drafter_factory
        from lookahead_edit.targets.loading import load_model

        draft_model, draft_tokenizer = load_model(parsed.draft_model, dtype=model.dtype, device=model.device)
        own = editor.tokenizer.wrapped.get_vocab()  # type: ignore[attr-defined]
        drafters = model_drafter_factory(draft_model, model, (draft_tokenizer.get_vocab(), own))
    return Bench(
        model,
        editor.tokenizer,
        _target_of(editor),
        0,
        draft_model,
        drafters,
        can_exit_early=supports_early_exit(model),
        edit_config=editor.config,
    )


def _facts(editor: Editor, bench: Bench, parsed: argparse.Namespace) -> dict[str, Any]:
    """What is measured, by what, and where: the head of a file of results."""
    model, draft_model = bench.model, bench.draft_model
    curve = cost_curve_of(bench.target)
    return {
        "model": editor.model_name,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "weights": weights_fingerprint(model),
        "weight_bytes": weight_bytes(model),
        "draft_model": Path(parsed.draft_model).name if parsed.draft_model else None,
        "draft_weights": weights_fingerprint(draft_model) if draft_model is not None else None,
        "draft_weight_bytes": weight_bytes(draft_model) if draft_model is not None else 0,
        "is_calibrated": stored_curve(model) is not None,
        "cost_curve": None if curve is None else curve.to_json(),
        "max_tokens": None,
        "records": None,
        "commit": commit(),
        "code": code_fingerprint(),
        **environment(),
        "load_before": load_average(),
    }


if __name__ == "__main__":
    sys.exit(main())
