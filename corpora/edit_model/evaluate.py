"""Exact match of an adapter on held-out tasks, by family and kind.

The tasks come from packages that training never reads, with a fixed seed. An answer is right when its whole text,
to the end of the turn, equals the expected one. Run as `python -m corpora.edit_model.evaluate --help`.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import AutoModelForCausalLM, AutoTokenizer

from corpora.edit_model.decode import greedy
from corpora.edit_model.kinds import TaskMix
from corpora.edit_model.lora import attach
from corpora.edit_model.prompts import END_OF_TURN
from corpora.edit_model.tasks import Task, make_task

EVALUATION_SEED = 0
NUM_TASKS = {"edit": 80, "multi": 20, "range": 20, "merge": 20, "quote": 30}
MAX_TASK_TOKENS = 1300
# How much of a wrong answer is decoded after its first wrong character, for the report.
NUM_TOKENS_AFTER_MISS = 8
SHOWN_CHARACTERS = 160


@dataclass(frozen=True)
class Outcome:
    """One judged task; the excerpts begin a little before the first difference."""

    family: str
    kind: str
    language: str
    index: int
    is_right: bool
    instruction: str = ""
    expected: str = ""
    got: str = ""


def evaluation_tasks(family: str, count: int, tokenizer: Any) -> list[tuple[int, Task]]:
    """The first `count` tasks of a family that fit the token limit."""
    mix = TaskMix(families={family: 1.0})
    tasks: list[tuple[int, Task]] = []
    index = 0
    while len(tasks) < count:
        task = make_task("evaluation", EVALUATION_SEED, index, mix)
        if len(tokenizer.encode(task.prompt + task.answer)) <= MAX_TASK_TOKENS:
            tasks.append((index, task))
        index += 1
    return tasks


def judge(model: Any, tokenizer: Any, index: int, task: Task) -> Outcome:
    """Decode one task greedily until it is right or wrong beyond doubt."""
    expected = task.answer.removesuffix(END_OF_TURN)
    tokens_after_miss = 0

    def is_done(output: list[int]) -> bool:
        # A text that ends in the middle of a character decodes to U+FFFD, no miss by itself.
        nonlocal tokens_after_miss
        if not expected.startswith(tokenizer.decode(output).rstrip("\ufffd")):
            tokens_after_miss += 1
        return tokens_after_miss > NUM_TOKENS_AFTER_MISS

    guess = tokenizer.encode(expected)
    output = greedy(
        model,
        tokenizer.encode(task.prompt),
        tokenizer.encode(task.before),
        guess,
        tokenizer.convert_tokens_to_ids(END_OF_TURN),
        is_done,
    )
    got = tokenizer.decode(output)
    if got == expected:
        return Outcome(task.family, task.kind, task.language, index, is_right=True)
    same = next(
        (n for n, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b), min(len(got), len(expected))
    )
    start = max(0, same - SHOWN_CHARACTERS // 4)
    excerpts = [text[start : start + SHOWN_CHARACTERS] for text in (expected, got)]
    return Outcome(task.family, task.kind, task.language, index, False, task.instruction, *excerpts)


def report(outcomes: list[Outcome]) -> dict[str, Any]:
    """Counts by family and kind, and the misses."""
    families: dict[str, Any] = {}
    for family in sorted({outcome.family for outcome in outcomes}):
        own = [outcome for outcome in outcomes if outcome.family == family]
        totals = Counter(outcome.kind for outcome in own)
        rights = Counter(outcome.kind for outcome in own if outcome.is_right)
        kinds = {kind: {"right": rights[kind], "total": totals[kind]} for kind in sorted(totals)}
        families[family] = {"right": sum(rights.values()), "total": len(own), "kinds": kinds}
    return {"families": families, "misses": [asdict(outcome) for outcome in outcomes if not outcome.is_right]}


def print_tables(result: dict[str, Any], console: Console) -> None:
    """One table with a row for each family and its kinds."""
    table = Table("family", "kind", "right", "of", "%")
    for family, counts in result["families"].items():
        rows = {"all": counts, **counts["kinds"]}
        for kind, row in rows.items():
            share = f"{100 * row['right'] / row['total']:.0f}"
            style = "bold" if kind == "all" else None
            table.add_row(family, kind, str(row["right"]), str(row["total"]), share, style=style)
    console.print(table)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Exact match of an adapter on held-out tasks.")
    parser.add_argument("--base", type=Path, required=True, help="folder of the base model, as safetensors")
    parser.add_argument("--adapter", type=Path, help="adapter folder; without one the base model is judged")
    parser.add_argument("--output", type=Path, help="JSON file for the result")
    parser.add_argument("--workers", type=int, default=2, help="tasks decoded at once, one core each")
    for family, count in NUM_TASKS.items():
        parser.add_argument(f"--{family}", type=int, default=count, help=f"number of {family} tasks")
    return parser.parse_args()


def main() -> None:
    """Judge the adapter and print the table."""
    arguments = parse_arguments()
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(arguments.base)
    model: Any = AutoModelForCausalLM.from_pretrained(arguments.base, dtype=torch.float32)
    if arguments.adapter:
        attach(model, arguments.adapter, rank=0, alpha=0, first_layer=model.config.num_hidden_layers)
    model.eval()
    tasks = [task for family in NUM_TASKS for task in evaluation_tasks(family, getattr(arguments, family), tokenizer)]
    with ThreadPoolExecutor(arguments.workers) as workers:
        judged = workers.map(lambda numbered: judge(model, tokenizer, *numbered), tasks)
        outcomes = list(track(judged, "judging", total=len(tasks)))
    result = report(outcomes)
    print_tables(result, Console())
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
