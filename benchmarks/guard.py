"""The regression guard: rounds and operations on fixed texts, counted and compared with stored figures. No seconds.

Replayed are a few traces of the corpora, a token a byte, so that no model's tokenizer is needed. Operations are lines
of the index's kernels, run as plain Python: what a kernel does is in its loops, whatever the machine. A difference is
no error: whoever meant it stores the new figures, and the change says so. Run as `python -m benchmarks.guard --help`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.kernels import automaton
from lookahead_edit.replay import Replay, drafter_factory, policy_factory, tokenize_trace
from lookahead_edit.suffix_index import NO_POSITION, SuffixIndex
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.traces import parse_trace
from lookahead_edit.types import IntArray

ROOT = Path(__file__).resolve().parent.parent
STORED = ROOT / "benchmarks" / "results" / "guard.json"
KERNELS = str(Path(automaton.__file__).parent)
DRAFTERS = ("ngram", "suffix", "edit")
COST = 0.01
TRACES = {  # of a corpus, by number
    "edits": (0, 20, 40, 60),
    "quotes": (0,),
    "structured": (0, 12),
}
NUM_TEXT_TOKENS = 1500
NUM_APPENDED_TOKENS = 100  # one by one, with a draft after each
TOLERANCES = {"replay": 0.01, "operations": 0.05}  # of a figure, and never less than one
UPDATE = "python -m benchmarks.guard --update"

Figures = dict[str, dict[str, int]]  # part -> name -> count


def replay_figures() -> dict[str, int]:
    """Rounds and drafted tokens, for each drafter and trace."""
    counts = {}
    tokenizer = ByteTokenizer()
    config = SpeculationConfig()
    for corpus, numbers in TRACES.items():
        lines = (ROOT / "corpora" / f"{corpus}.jsonl").read_bytes().splitlines()
        for number in numbers:
            trace = tokenize_trace(parse_trace(lines[number]), tokenizer)
            factories = {name: drafter_factory(SpeculationConfig(drafter=name), tokenizer) for name in DRAFTERS}
            replay = Replay(factories, [COST], policy_factory(config))
            replay.add(trace)
            for figures in replay.figures():
                counts[f"{figures.drafter}, {trace.id}, rounds"] = figures.rounds
                counts[f"{figures.drafter}, {trace.id}, drafted tokens"] = figures.drafted
    return counts


def operation_counts() -> dict[str, int]:
    """Lines of the kernels for building the index, appending and drafting; needs NUMBA_DISABLE_JIT=1."""
    counts = {}
    for name, text in texts().items():
        built, index = _count_lines(partial(SuffixIndex, text[:NUM_TEXT_TOKENS]))
        counts[f"{name}, build"] = built
        num_appended, num_drafted = 0, 0
        for position in range(NUM_TEXT_TOKENS, NUM_TEXT_TOKENS + NUM_APPENDED_TOKENS):
            num_appended += _count_lines(partial(index.append, text[position : position + 1]))[0]
            num_drafted += _count_lines(partial(index.copy_longest, NO_POSITION, 16, 0))[0]
        counts[f"{name}, append"] = num_appended
        counts[f"{name}, draft"] = num_drafted
    return counts


def texts() -> dict[str, IntArray]:
    """int32[NUM_TEXT_TOKENS + NUM_APPENDED_TOKENS] each: a file as bytes, and three that make an index slow."""
    num_tokens = NUM_TEXT_TOKENS + NUM_APPENDED_TOKENS
    source = (ROOT / "corpora" / "edits" / "decision.md").read_bytes()
    fibonacci = [1, 0]
    while len(fibonacci) < num_tokens:
        fibonacci += fibonacci[: num_tokens - len(fibonacci)][: len(fibonacci)]
    made = {
        "a file": list(source * (1 + num_tokens // len(source))),
        "one token": [7] * num_tokens,
        "two in turn": [7, 8] * num_tokens,
        "doubled word": fibonacci,
    }
    return {name: np.array(tokens[:num_tokens], dtype=np.int32) for name, tokens in made.items()}


def _count_lines(run: Callable[[], Any]) -> tuple[int, Any]:
    """Lines of kernels that `run` executes, and what it returns."""
    num_lines = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal num_lines
        num_lines += event == "line"
        return count

    def enter(frame: FrameType, event: str, argument: object) -> Any:
        return count if frame.f_code.co_filename.startswith(KERNELS) else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        result = run()
    finally:
        sys.settrace(before)
    return num_lines, result


def measure() -> Figures:
    """Both parts; the second in a process of its own, where kernels are not compiled."""
    command = [sys.executable, "-m", "benchmarks.guard", "--operations"]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    finished = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise RuntimeError(f"counting operations failed:\n{finished.stderr}")
    return {"replay": replay_figures(), "operations": json.loads(finished.stdout)}


def differences(stored: Figures, measured: Figures) -> Iterator[str]:
    """A line for each figure that is further from its stored one than its tolerance, better or worse.

    Example:
        >>> list(differences({"replay": {"edit, a, rounds": 100}}, {"replay": {"edit, a, rounds": 103}}))
        ['replay: edit, a, rounds: 103 instead of 100 (+3.0 %, tolerance 1 %)']
    """
    for part in sorted(stored.keys() | measured.keys()):
        old, new = stored.get(part, {}), measured.get(part, {})
        for name in sorted(old.keys() | new.keys()):
            if name not in old or name not in new:
                yield f"{part}: {name}: {'no longer measured' if name in old else 'new, without a stored figure'}"
                continue
            tolerance = TOLERANCES[part]
            if abs(new[name] - old[name]) > max(1.0, tolerance * old[name]):
                change = (new[name] - old[name]) / max(1, old[name])
                yield (
                    f"{part}: {name}: {new[name]} instead of {old[name]} "
                    f"({100 * change:+.1f} %, tolerance {100 * tolerance:g} %)"
                )


def report(stored: Figures, measured: Figures) -> str:
    """What changed and how to keep it; empty where nothing did."""
    lines = list(differences(stored, measured))
    if not lines:
        return ""
    return "\n".join([*lines, f"Fewer is better. If this is meant, store the new figures: {UPDATE}"])


def main() -> int:
    """Compares, or stores; 1 where something changed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="store what is measured now")
    parser.add_argument("--operations", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.operations:
        print(json.dumps(operation_counts()))
        return 0
    measured = measure()
    if arguments.update:
        STORED.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
        print(f"stored in {STORED.relative_to(ROOT)}")
        return 0
    found = report(json.loads(STORED.read_text(encoding="utf-8")), measured)
    print(found or "nothing changed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
