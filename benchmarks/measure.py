"""Judges the edits, runs the methods in turn, and sums up. Prints nothing and knows no command line."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.edit_set import BenchEdit
from benchmarks.methods import METHODS, OURS, PLAIN, PROMPT_LOOKUP, Run, Task, run
from lookahead_edit.editor import Editor, EditRequest
from lookahead_edit.text_changes import unified_diff

# Room for a wrong answer to show itself; a right one has a closing fence and an end token besides the file.
EXTRA_TOKENS = 64
RATIOS = tuple((other, own) for own in OURS for other in (PLAIN, PROMPT_LOOKUP))


@dataclass(frozen=True)
class Judged:
    """What the model makes of an edit."""

    edit: BenchEdit
    task: Task
    is_right: bool
    finish_reason: str
    difference: str  # unified diff from the right answer to the model's, empty where it is right


@dataclass(frozen=True)
class Spread:
    """Median, least and greatest of repeated measurements."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        known = sorted(values)
        return cls(statistics.median(known), known[0], known[-1])


@dataclass(frozen=True)
class Measured:
    """All runs of one edit: method -> a run a repetition."""

    judged: Judged
    runs: dict[str, list[Run]]

    @property
    def num_output_tokens(self) -> int:
        return len(self.runs[PLAIN][0].tokens)

    def first_difference(self, method: str) -> int | None:
        """Index of the first token that isn't plain decoding's, in any repetition; None where all are equal."""
        plain = self.runs[PLAIN][0].tokens
        for decoded in self.runs[method]:
            if decoded.tokens != plain:
                pairs = zip(decoded.tokens, plain, strict=False)
                shorter = min(len(decoded.tokens), len(plain))
                return next((index for index, (own, other) in enumerate(pairs) if own != other), shorter)
        return None

    @property
    def is_equal(self) -> bool:
        return all(self.first_difference(method) is None for method in self.runs)


def judge(editor: Editor, edit: BenchEdit) -> Judged:
    """Decodes the edit once, by the editor. Right is the exact expected text, ended by the model itself."""
    num_tokens = len(editor.tokenizer.encode(edit.expected, parse_special=False))
    request = EditRequest(edit.before, edit.instruction, path=edit.path, max_tokens=num_tokens + EXTRA_TOKENS)
    result = editor.edit(request)
    is_right = result.text == edit.expected and result.finish_reason == "stop"
    difference = "" if is_right else unified_diff(edit.expected, result.text, edit.path)
    return Judged(edit, Task(request, editor.prompt_tokens(request)), is_right, result.finish_reason, difference)


def measure(
    editor: Editor,
    judged: Sequence[Judged],
    num_repeats: int,
    tell: Callable[[str], None] = lambda message: None,
) -> list[Measured]:
    """Runs every method on every edit, `num_repeats` times.

    The methods take turns on each edit, and the order turns with edit and repetition, so that a machine that slows
    down or speeds up meanwhile does so for all of them. One warm-up a method is not counted: it compiles kernels and
    fills caches.
    """
    names = list(METHODS)
    for method in names:
        tell(f"warming up {method}")
        run(method, editor, judged[0].task)
    runs: list[dict[str, list[Run]]] = [{method: [] for method in names} for _ in judged]
    for repeat in range(num_repeats):
        for index, one in enumerate(judged):
            first = (repeat + index) % len(names)
            for method in names[first:] + names[:first]:
                where = f"{one.edit.name} ({index + 1} of {len(judged)})"
                tell(f"repetition {repeat + 1} of {num_repeats}, {where}, {method}")
                runs[index][method].append(run(method, editor, one.task))
    return [Measured(one, own) for one, own in zip(judged, runs, strict=True)]


def ratio(measured: Sequence[Measured], slow: str, fast: str, seconds: Callable[[Run], float]) -> Spread:
    """Time of `slow` / time of `fast`, summed over the edits within each repetition."""
    num_repeats = len(measured[0].runs[slow])
    return Spread.of(
        sum(seconds(one.runs[slow][repeat]) for one in measured)
        / sum(seconds(one.runs[fast][repeat]) for one in measured)
        for repeat in range(num_repeats)
    )


def total(measured: Sequence[Measured], method: str, seconds: Callable[[Run], float]) -> Spread:
    """Seconds of a method, summed over the edits within each repetition."""
    num_repeats = len(measured[0].runs[method])
    return Spread.of(sum(seconds(one.runs[method][repeat]) for one in measured) for repeat in range(num_repeats))


def tokens_per_round(measured: Sequence[Measured], method: str) -> float:
    """Emitted tokens / forward passes that emitted, over all edits; the same in every repetition."""
    decoded = [one.runs[method][0] for one in measured]
    return sum(len(one.tokens) for one in decoded) / sum(one.num_rounds for one in decoded)
