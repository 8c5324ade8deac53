"""The matrix: ways of decoding by workload, context, temperature and draft length, on one model, in one run.

Results are JSON lines, one for each method on each prompt and repetition; an interrupted run goes on where it was when
the same command is given again. Speed-ups are ratios within a repetition. Run as `python -m benchmarks.matrix --help`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.environment import environment, load_average
from benchmarks.matrix_methods import Bench, weight_bytes, weights_fingerprint
from benchmarks.matrix_plan import PROFILES
from benchmarks.matrix_quality import print_quality, run_quality
from benchmarks.matrix_run import run_profile
from benchmarks.matrix_store import ResultsFile, ResultsMismatch, code_fingerprint, commit, read_results
from benchmarks.matrix_tables import COLUMNS, auto_line, cell_rows, groups_of, heading, plot_speed_ups
from benchmarks.methods import model_of
from benchmarks.report import markdown_table, rich_table
from lookahead_edit.targets.calibration import stored_curve
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.targets.loading import load_editor
from lookahead_edit.types import LookaheadEditError

RESULTS = Path(__file__).resolve().parent / "results"
MIN_FREE_BYTES = 64 * 1024 * 1024
EXIT_UNEQUAL, EXIT_FAILED, EXIT_INTERRUPTED = 1, 2, 130


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--profile", choices=sorted(PROFILES), default="quick", help="quick: under 15 minutes on 2 cores"
    )
    parser.add_argument("--output", type=Path, help="by default benchmarks/results/matrix-PROFILE.jsonl")
    parser.add_argument("--model", help="the default model, a directory, a GGUF file or a hub id")
    parser.add_argument("--draft-model", help="directory or hub id; without it, methods that need one are left out")
    parser.add_argument("--dtype", help="float32, bfloat16 or float16")
    parser.add_argument("--device", help="by default the GPU, if there is one")
    parser.add_argument("--threads", type=int, help="torch's threads; its own choice by default")
    parser.add_argument("--canitedit", type=Path, metavar="FILE", help="only: task quality with and without drafts, by "
                        "the tests of CanItEdit's records (JSON lines), which are run in a sandbox")  # fmt: skip
    parser.add_argument("--limit", type=int, help="of CanItEdit's records")
    parser.add_argument("--tables", action="store_true", help="run nothing: tables of the results that are there")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="also draw the speed-ups")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; 1 where a text is not what it has to be, 2 with one line where nothing can be measured."""
    parsed = parse_arguments(arguments)
    told = Console(stderr=True, highlight=False)
    path = parsed.output or RESULTS / f"matrix-{parsed.profile}.jsonl"
    try:
        if parsed.canitedit:
            return _measure_quality(parsed, told)
        if not parsed.tables:
            _measure(parsed, path, told)
        return _report(parsed, path)
    except KeyboardInterrupt:
        told.print("interrupted; the same command goes on from here")
        return EXIT_INTERRUPTED
    except (LookaheadEditError, ResultsMismatch) as error:
        told.print(f"error: {error}", soft_wrap=True, markup=False)
    except (MemoryError, torch.OutOfMemoryError):
        told.print("error: expected memory for the models and their caches, got too little; what was measured is kept")
    except OSError as error:
        told.print(f"error: {error.filename or path}: {error.strerror or error}", soft_wrap=True, markup=False)
    return EXIT_FAILED


def _measure(parsed: argparse.Namespace, path: Path, told: Console) -> None:
    if parsed.threads:
        torch.set_num_threads(parsed.threads)
    path.parent.mkdir(parents=True, exist_ok=True)
    num_free_bytes = shutil.disk_usage(path.parent).free
    if num_free_bytes < MIN_FREE_BYTES:
        raise ResultsMismatch(f"expected 64 MB of free disk for results in {path.parent}, got {num_free_bytes} bytes")
    profile = PROFILES[parsed.profile]
    bench, facts = _open_bench(parsed, profile.max_tokens, told)
    header = facts | {
        "profile": profile.name,
        "commit": commit(),
        "code": code_fingerprint(),
        "max_tokens": profile.max_tokens,
        **environment(),
        "load_before": load_average(),
    }
    results = ResultsFile(path, header)
    if results.done:
        told.print(f"going on: {len(results.done)} turns are in {path}")
    left_out = {method.label for group in profile.groups for method in group.methods if not bench.can_run(method)}
    if left_out:
        told.print(f"left out, for there is no --draft-model: {', '.join(sorted(left_out))}")
    run_profile(bench, profile, results, told.print)


def _open_bench(parsed: argparse.Namespace, max_tokens: int, told: Console) -> tuple[Bench, dict[str, Any]]:
    editor = load_editor(parsed.model, dtype=parsed.dtype, device=parsed.device, console=told)
    model = model_of(editor)
    assert isinstance(editor.target, HfTarget)
    draft_model, drafters = None, {}
    if parsed.draft_model:
        from lookahead_edit.targets.draft_model import model_drafter_factory
        from lookahead_edit.targets.loading import load_model

        draft_model, draft_tokenizer = load_model(parsed.draft_model, dtype=model.dtype, device=model.device)
        own = editor.tokenizer.wrapped.get_vocab()  # type: ignore[attr-defined]
        drafters = model_drafter_factory(draft_model, model, (draft_tokenizer.get_vocab(), own))
    bench = Bench(model, editor.tokenizer, editor.target, max_tokens, draft_model, drafters)
    return bench, {
        "model": editor.model_name,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "weights": weights_fingerprint(model),
        "weight_bytes": weight_bytes(model),
        "draft_model": Path(parsed.draft_model).name if parsed.draft_model else None,
        "draft_weights": weights_fingerprint(draft_model) if draft_model is not None else None,
        "draft_weight_bytes": weight_bytes(draft_model) if draft_model is not None else 0,
        "is_calibrated": stored_curve(model) is not None,
    }


def _report(parsed: argparse.Namespace, path: Path) -> int:
    header, rows = read_results(path)
    # A pipe has no width: rows that wrap every word would be unreadable in a log.
    console = Console(width=None if sys.stdout.isatty() else 240)
    groups = groups_of(rows)
    for key, methods in groups.items():
        cells = cell_rows(methods)
        if parsed.markdown:
            print(f"{heading(key, methods)}\n\n{markdown_table(COLUMNS, cells)}\n")
        else:
            console.print(rich_table(heading(key, methods), COLUMNS, cells))
    for key, methods in groups.items():
        if line := auto_line(key, methods):
            print(("- " if parsed.markdown else "") + line)
    weights = f"weights: {header['weight_bytes'] / 1e6:.0f} MB"
    if header["draft_weight_bytes"]:
        weights += f", draft model {header['draft_weight_bytes'] / 1e6:.0f} MB"
    print(f"{weights}; throughput by concurrency: python -m benchmarks.bench_server")
    if parsed.plot and rows:
        title = (
            f"{header['model']}, {header['dtype']}, {header['gpu'] or header['cpu']}, {header['num_threads']} threads"
        )
        plot_speed_ups(rows, parsed.plot, title=title)
    num_unequal = sum(row["is_equal"] is False for row in rows)
    print(json.dumps({"benchmark": "matrix", "num_runs": len(rows), "num_unequal": num_unequal, **header}))
    return EXIT_UNEQUAL if num_unequal else 0


def _measure_quality(parsed: argparse.Namespace, told: Console) -> int:
    editor = load_editor(parsed.model, dtype=parsed.dtype, device=parsed.device, console=told)
    found = run_quality(editor, parsed.canitedit, parsed.limit, told.print)
    return EXIT_UNEQUAL if print_quality(found, editor.model_name, is_markdown=parsed.markdown) else 0


if __name__ == "__main__":
    sys.exit(main())
