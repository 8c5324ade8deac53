"""Inside vLLM: our proposer against none, vLLM's own n-grams and, where installed, suffix decoding.

    .venv-vllm/bin/python -m benchmarks.bench_vllm --output benchmarks/results/vllm.json --markdown
    .venv-vllm/bin/python -m benchmarks.bench_vllm --parts proposer         # only what a proposal costs

Edits: the benchmark's, each once, dealt out to the concurrencies, so that no method can copy an answer that it gave
before. Open: stories, in which there is next to nothing to copy, at the highest concurrency: what speculation costs
where it can't gain. The methods take turns on each load, in an order that turns as well. Prints tables and one line of
JSON. Greedy text must be that of no speculation on the same load, else the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.arguments import positive_float, positive_int
from benchmarks.edit_set import chosen_edits
from benchmarks.environment import environment, load_average
from benchmarks.vllm_engines import EngineFailed, EngineProcess, EngineSettings, Load, Measured

PLAIN, OURS = "plain", "ours"
# Of vLLM's speculative_config. Tuned: what does best for edits in replays, see peers in the README.
METHODS: dict[str, dict[str, Any] | None] = {
    PLAIN: None,
    "ngram": {"method": "ngram", "num_speculative_tokens": 5},
    "ngram tuned": {
        "method": "ngram",
        "num_speculative_tokens": 16,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 5,
    },
    "suffix": {"method": "suffix"},
    "suffix tuned": {
        "method": "suffix",
        "num_speculative_tokens": 64,
        "suffix_decoding_max_tree_depth": 64,
        "suffix_decoding_max_spec_factor": 4.0,
    },
    OURS: {
        "method": "custom_class",
        "model": "lookahead_edit.vllm_plugin.EditProposer",
        "num_speculative_tokens": 64,
    },
}
# Concurrency, loads, requests a load.
EDIT_LOADS = ((1, 5, 1), (4, 2, 6), (16, 2, 20))
OPEN_LOAD = (16, 3, 16)
EDITS, OPEN, PROPOSER = PARTS = ("edits", "open", "proposer")
GOAL_TIMES_PLAIN = 0.97


@dataclass(frozen=True)
class Run:
    """One load, done by one method."""

    part: str
    method: str
    concurrency: int
    load: int
    measured: Measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="directory or hub id; the default model if left out")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--max-tokens", type=positive_int, default=112)
    parser.add_argument("--max-model-len", type=positive_int, default=2048)
    parser.add_argument("--scale", type=positive_float, default=1.0, help="less than 1: fewer requests a load")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--output", type=Path, help="a file for the JSON")
    arguments = parser.parse_args()
    sys.exit(run(arguments))


def run(arguments: argparse.Namespace) -> int:
    from lookahead_edit.targets.tokenizer_loading import load_tokenizer

    card = environment() | {"max_tokens": arguments.max_tokens, "load_before": load_average()}
    tokenizer = load_tokenizer(arguments.model)
    model = arguments.model or _default_model()
    parts = arguments.parts.split(",")
    loads = [
        (part, number, load)
        for part, number, load in _loads(tokenizer, arguments.max_tokens, arguments.max_model_len, arguments.scale)
        if part in parts
    ]
    settings = EngineSettings(model, max_model_len=arguments.max_model_len)
    runs, missing = compare(loads, arguments.methods.split(","), settings)
    document: dict[str, Any] = {"environment": card, "missing": missing}
    if runs:
        document |= {"rows": table_of(runs), "texts_that_differ": differing(runs), "goals": goals_of(table_of(runs))}
    if PROPOSER in parts:
        from benchmarks.vllm_proposer import time_alone, time_in_engine

        _say("the proposer alone, and 16 rows of 8k tokens")
        document["proposer_alone"] = time_alone(tokenizer)
        ours = METHODS[OURS]
        assert ours is not None
        document["proposer_in_engine"] = time_in_engine(tokenizer, ours, model)
    card["load_after"] = load_average()
    print("\n".join(lines_of(document.get("rows", []), as_markdown=arguments.markdown)))
    for name in ("texts_that_differ", "missing", "goals", "proposer_alone", "proposer_in_engine"):
        print(f"{name}: {json.dumps(document.get(name))}")
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document))
    return 1 if document.get("texts_that_differ") else 0


def compare(
    loads: Sequence[tuple[str, int, Load]], methods: Sequence[str], settings: EngineSettings
) -> tuple[list[Run], dict[str, str]]:
    """What was measured, and which methods don't run here, with the reason."""
    engines: dict[str, EngineProcess] = {}
    missing: dict[str, str] = {}
    runs: list[Run] = []
    try:
        for method in methods if loads else ():
            _say(f"starting {method}")
            try:
                engines[method] = EngineProcess(METHODS[method], settings)
                engines[method].measure(Load(1, (tuple(range(100, 164)),), 8))  # compiles what is compiled late
            except EngineFailed as error:
                engines.pop(method, None)
                missing[method] = str(error)
                _say(f"{method} doesn't run here: {error}")
        order = list(engines)
        for turn, (part, number, load) in enumerate(loads):
            first = turn % len(order)
            for method in order[first:] + order[:first]:
                measured = engines[method].measure(load)
                runs.append(Run(part, method, load.concurrency, number, measured))
                _say(
                    f"{part} {load.concurrency:>2} {method:<13}{measured.num_tokens / measured.seconds:>7.1f} tokens/s"
                )
    finally:
        for engine in engines.values():
            engine.end()
    return runs, missing


def table_of(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """A row for each part, concurrency and method; sums over the loads."""
    rows = []
    for part, concurrency in sorted({(run.part, run.concurrency) for run in runs}):
        own = [run for run in runs if (run.part, run.concurrency) == (part, concurrency)]
        plain = {run.load: run.measured for run in own if run.method == PLAIN}
        for method in dict.fromkeys(run.method for run in sorted(own, key=lambda run: list(METHODS).index(run.method))):
            measured = {run.load: run.measured for run in own if run.method == method}
            num_tokens = sum(each.num_tokens for each in measured.values())
            seconds = sum(each.seconds for each in measured.values())
            # The same tokens in each, so ratios of seconds are ratios of throughput.
            ratios = [plain[load].seconds / measured[load].seconds for load in measured if load in plain]
            rows.append(
                {
                    "part": part,
                    "concurrency": concurrency,
                    "method": method,
                    "num_requests": sum(len(each.outputs) for each in measured.values()),
                    "num_tokens": num_tokens,
                    "tokens_per_forward": num_tokens / sum(each.num_forwards for each in measured.values()),
                    "tokens_per_second": num_tokens / seconds,
                    "times_plain": sum(each.seconds for each in plain.values()) / seconds if plain else None,
                    "times_plain_range": [min(ratios), max(ratios)] if ratios else None,
                    "num_drafted_tokens": sum(each.num_drafted_tokens for each in measured.values()),
                    "num_accepted_tokens": sum(each.num_accepted_tokens for each in measured.values()),
                    "propose_share": sum(each.propose_seconds for each in measured.values()) / seconds,
                    "seconds": seconds,
                }
            )
    return rows


def differing(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Requests whose text isn't that of no speculation."""
    plain = {(run.part, run.concurrency, run.load): run.measured.outputs for run in runs if run.method == PLAIN}
    found = []
    for run in runs:
        expected = plain.get((run.part, run.concurrency, run.load), run.measured.outputs)
        for index, (want, got) in enumerate(zip(expected, run.measured.outputs, strict=True)):
            if want != got:
                token = next((at for at, (a, b) in enumerate(zip(want, got, strict=False)) if a != b), len(want))
                found.append(
                    {
                        "part": run.part,
                        "concurrency": run.concurrency,
                        "load": run.load,
                        "request": index,
                        "method": run.method,
                        "token": token,
                    }
                )
    return found


def goals_of(rows: Sequence[dict[str, Any]]) -> dict[str, bool]:
    """Whether ours is ahead of every other method at each concurrency, and next to never behind plain decoding."""
    goals = {}
    by_key = {(row["part"], row["concurrency"], row["method"]): row for row in rows}
    for (part, concurrency, method), ours in by_key.items():
        if method != OURS:
            continue
        others = [row for key, row in by_key.items() if key[:2] == (part, concurrency) and key[2] != OURS]
        for figure in ("tokens_per_forward", "tokens_per_second") if part == EDITS else ():
            goals[f"{part} {concurrency}: ahead in {figure}"] = all(ours[figure] > row[figure] for row in others)
        if ours["times_plain"] is not None:
            goals[f"{part} {concurrency}: at least {GOAL_TIMES_PLAIN} of plain"] = (
                ours["times_plain"] >= GOAL_TIMES_PLAIN
            )
    return goals


def lines_of(rows: Sequence[dict[str, Any]], *, as_markdown: bool) -> Iterator[str]:
    heads = ("text", "at once", "method", "tokens/forward", "tokens/s", "times plain", "accepted", "proposing")
    if as_markdown:
        yield "| " + " | ".join(heads) + " |"
        yield "|---" * len(heads) + "|"
    else:
        yield "  ".join(f"{head:>16}" for head in heads)
    for row in rows:
        drafted = row["num_drafted_tokens"]
        cells = (
            row["part"],
            str(row["concurrency"]),
            row["method"],
            f"{row['tokens_per_forward']:.2f}",
            f"{row['tokens_per_second']:.1f}",
            "" if row["times_plain"] is None else f"{row['times_plain']:.2f}",
            f"{row['num_accepted_tokens'] / drafted:.0%}" if drafted else "",
            f"{row['propose_share']:.1%}",
        )
        yield "| " + " | ".join(cells) + " |" if as_markdown else "  ".join(f"{cell:>16}" for cell in cells)


def _loads(tokenizer: Any, max_tokens: int, max_model_len: int, scale: float) -> Iterator[tuple[str, int, Load]]:
    """Part, number and load; concurrencies take turns."""
    from lookahead_edit.config import EditConfig
    from lookahead_edit.prompts import PromptBuilder
    from lookahead_edit.tasks import EditRequest

    builder = PromptBuilder(tokenizer, max_context_tokens=max_model_len, vocab_size=2**31 - 1, config=EditConfig())
    # Neighbours in the set edit the same file; each load gets many files.
    edits = sorted(chosen_edits(), key=lambda edit: edit.instruction)
    given = iter(edits)
    for number in range(max(count for _, count, _ in EDIT_LOADS)):
        for concurrency, count, num_requests in EDIT_LOADS:
            if number >= count:
                continue
            chosen = [next(given) for _ in range(max(1, round(scale * num_requests)))]
            requests = [EditRequest(edit.before, edit.instruction, path=edit.path) for edit in chosen]
            prompts = tuple(tuple(builder.for_edit(request).tokens.tolist()) for request in requests)
            yield EDITS, number, Load(concurrency, prompts, max_tokens)
    concurrency, count, num_requests = OPEN_LOAD
    words = (
        ("a fox", "a lighthouse", "two brothers", "an old clock"),
        ("rain", "a letter", "the sea", "bread"),
        ("in spring", "long ago", "on the moon"),
    )
    # A request for a story is answered in twenty words by a small model; a book that has begun goes on.
    texts = [
        f"A true account of {who} and {what}, {when}.\n\nChapter 1\n\nIt was still dark outside when"
        for who, what, when in product(*words)
    ]
    for number in range(count):
        chosen_texts = texts[number::count][: max(1, round(scale * num_requests))]
        prompts = tuple(tuple(tokenizer.encode(text, parse_special=False).tolist()) for text in chosen_texts)
        yield OPEN, number, Load(concurrency, prompts, max_tokens)


def _default_model() -> str:
    from lookahead_edit.targets.default_model import default_model_directory

    return str(default_model_directory())


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
