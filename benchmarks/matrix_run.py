"""Runs what a profile asks for, turn by turn. Prints nothing and opens no file but the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from benchmarks.matrix_choice import choose_right, chosen_tasks, for_tokens
from benchmarks.matrix_methods import NONE, PLAIN, Bench, MatrixRun, Method, run_method
from benchmarks.matrix_plan import SEED, Group, Profile
from benchmarks.matrix_store import ResultsFile, Turn
from benchmarks.matrix_workloads import MatrixTask, make_tasks, read_items
from lookahead_edit.config import SamplingConfig
from lookahead_edit.types import ContextLengthExceeded

NUM_WARM_UP_TOKENS = 8
Tell = Callable[[str], None]


def run_profile(bench: Bench, profile: Profile, results: ResultsFile, tell: Tell = lambda message: None) -> None:
    """Every turn that the results don't have yet.

    Within a turn the methods take turns on one prompt, and who begins changes with prompt and repetition. Repetitions
    go over all groups, so that an interrupted run has something of each.

    Raises:
        ContextLengthExceeded: a group's prompts and outputs don't fit the model.
    """
    for group in profile.groups:  # before the first edit is tried; prompts may turn out somewhat longer
        _require_room(bench, group.context, group.max_tokens)
    tasks = {group: _tasks(bench, group, profile, results, tell) for group in profile.groups}
    warm: set[Method] = set()
    for repetition in range(profile.num_repeats):
        for group, prompts in tasks.items():
            methods = [method for method in group.methods if bench.can_run(method)]
            for number, task in enumerate(prompts):
                turn: Turn = (group.workload, group.context, group.temperature, task.name, repetition)
                if turn in results.done:
                    continue
                _warm_up(bench, [method for method in methods if method not in warm], tell)
                warm.update(methods)
                cell = f"{group.workload}, {group.context} tokens, T = {group.temperature:g}"
                which = f"repetition {repetition + 1} of {profile.num_repeats}, prompt {number + 1} of {len(prompts)}"
                tell(f"{cell}: {which}, {len(methods)} methods")
                first = (repetition + number) % len(methods)
                rows = _turn(bench, group, [*methods[first:], *methods[:first]], task, repetition)
                results.add_turn(rows)


def _tasks(bench: Bench, group: Group, profile: Profile, results: ResultsFile, tell: Tell) -> list[MatrixTask]:
    items = read_items(group.workload, bench.edit_config)
    if not group.wants_right_answers:
        tasks = make_tasks(items, bench.tokenizer, group.context, group.num_tasks)
    elif choice := results.choices.get((group.workload, group.context)):
        tasks = chosen_tasks(bench, items, group.context, choice)[: group.num_tasks]
    else:
        alike = [one for one in profile.groups if (one.workload, one.context) == (group.workload, group.context)]
        num_tasks = max(one.num_tasks for one in alike)
        tell(f"{group.workload}, {group.context} tokens: which does the model get right?")
        choice, tasks = choose_right(for_tokens(bench, group.max_tokens), items, group.context, num_tasks, tell)
        results.add_choice((group.workload, group.context), choice)
        tasks = tasks[: group.num_tasks]
    for task in tasks:
        _require_room(bench, len(task.prompt), group.max_tokens)
    return tasks


def _require_room(bench: Bench, num_prompt_tokens: int, max_tokens: int) -> None:
    limit = bench.target.max_context_tokens
    if num_prompt_tokens + max_tokens > limit:
        raise ContextLengthExceeded(num_prompt_tokens, limit, max_tokens)


def _warm_up(bench: Bench, methods: list[Method], tell: Tell) -> None:
    """Compiles kernels and lets torch allocate; not counted."""
    if methods:
        task = make_tasks(read_items("open chat"), bench.tokenizer, 0, 1)[0]
        for method in methods:
            tell(f"warming up {method.label}")
            run_method(for_tokens(bench, NUM_WARM_UP_TOKENS), method, task, SamplingConfig())


def _turn(bench: Bench, group: Group, methods: list[Method], task: MatrixTask, repetition: int) -> list[dict[str, Any]]:
    sampling = SamplingConfig(temperature=group.temperature, seed=SEED)
    own = for_tokens(bench, group.max_tokens)
    runs: dict[Method, tuple[MatrixRun, list[int]]] = {
        method: run_method(own, method, task, sampling) for method in methods
    }
    references = {method.name: tokens for method, (_, tokens) in runs.items() if method.name in (PLAIN, NONE)}
    rows = []
    for method, (run, tokens) in runs.items():
        reference = references.get(PLAIN if sampling.is_greedy else NONE)
        promises_equality = sampling.is_greedy or method.keeps_seed
        rows.append(
            {
                "workload": group.workload,
                "context": group.context,
                "temperature": group.temperature,
                "task": task.name,
                "repetition": repetition,
                "method": method.name,
                "draft_length": method.length,
                "label": method.label,
                "num_prompt_tokens": len(task.prompt),
                "max_tokens": group.max_tokens,
                **asdict(run),
                # None: only the same distribution is promised, so there is nothing to compare.
                "is_equal": tokens == reference if promises_equality and reference is not None else None,
                "first_unequal_token": first_difference(tokens, reference) if promises_equality and reference else None,
            }
        )
    return rows


def first_difference(tokens: list[int], reference: list[int]) -> int | None:
    """Index of the first token that differs, or that only one of the two has; None where they are equal.

    Example:
        >>> first_difference([5, 6], [5, 6, 7])
        2
    """
    if tokens == reference:
        return None
    pairs = zip(tokens, reference, strict=False)
    shorter = min(len(tokens), len(reference))
    return next((index for index, (own, other) in enumerate(pairs) if own != other), shorter)
