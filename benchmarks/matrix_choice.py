"""Which edits a model gets right, among those whose answer is long enough to show something.

A wrong edit wanders off somewhere, and how fast that goes says little. The text is the same whatever the drafts, so the
fastest method may find out, and no choice favours any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.matrix_methods import Bench, Method, run_method
from benchmarks.matrix_workloads import Item, MatrixTask, make_task
from lookahead_edit.config import SamplingConfig

MIN_ANSWER_TOKENS = 128
MAX_TRIES_PER_TASK = 8
FASTEST = Method("edit")
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Choice:
    """The items that were chosen, by name, and how many of those tried were right."""

    names: tuple[str, ...]
    num_tried: int
    num_right: int


def choose_right(
    bench: Bench, items: list[Item], num_context_tokens: int, num_tasks: int, tell: Tell = lambda message: None
) -> tuple[Choice, list[MatrixTask]]:
    """The first `num_tasks` that the model gets right, greedily and whole: one of each file, then a second of each.

    Where it gets too few of `MAX_TRIES_PER_TASK` each right, the first wrong ones are taken as well.
    """
    sizes = [len(bench.tokenizer.encode(item.answer or "", parse_special=False)) for item in items]
    fitting = [
        item for item, size in zip(items, sizes, strict=True) if MIN_ANSWER_TOKENS <= size < bench.max_tokens
    ] or items
    tried = _of_many_files(fitting)[: num_tasks * MAX_TRIES_PER_TASK]
    right: list[tuple[Item, MatrixTask]] = []
    wrong: list[tuple[Item, MatrixTask]] = []
    for item in tried:
        task = make_task(item, items, bench.tokenizer, num_context_tokens)
        is_right = writes_answer(bench, item, task)
        (right if is_right else wrong).append((item, task))
        tell(f"{item.id}, {len(task.prompt)} prompt tokens: {'right' if is_right else 'wrong'}")
        if len(right) == num_tasks:
            break
    chosen = [*right, *wrong][:num_tasks]
    choice = Choice(tuple(item.id for item, _ in chosen), len(right) + len(wrong), len(right))
    return choice, [task for _, task in chosen]


def _of_many_files(items: list[Item]) -> list[Item]:
    num_before = Counter[str | None]()
    ranked = []
    for index, item in enumerate(items):
        ranked.append((num_before[item.source], index))
        num_before[item.source] += 1
    return [items[index] for _, index in sorted(ranked)]


def chosen_tasks(bench: Bench, items: list[Item], num_context_tokens: int, choice: Choice) -> list[MatrixTask]:
    """Those of an earlier choice. Raises KeyError for a name that is no item's."""
    by_name = {item.id: item for item in items}
    return [make_task(by_name[name], items, bench.tokenizer, num_context_tokens) for name in choice.names]


def writes_answer(bench: Bench, item: Item, task: MatrixTask) -> bool:
    """Whether the model ends its answer itself, and it is the right one to the last character."""
    _, tokens = run_method(bench, FASTEST, task, SamplingConfig())
    is_ended = bool(tokens) and tokens[-1] in bench.tokenizer.eos_token_ids
    text = bench.tokenizer.decode(np.asarray(tokens[:-1], dtype=np.int32))
    return is_ended and item.answer is not None and text.rstrip() == item.answer


def for_tokens(bench: Bench, max_tokens: int) -> Bench:
    """The same bench with runs of so many tokens."""
    return replace(bench, max_tokens=max_tokens)
