"""The stream of tasks: task `index` of a split and seed is always the same one. Knows nothing about tokens.

Each task is drawn with a generator of its own, so a run can resume at any index.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from corpora.edit_model.config_edits import config_task
from corpora.edit_model.edit import Edit
from corpora.edit_model.hunks import lazy_snippet, region_of
from corpora.edit_model.kinds import KIND_WEIGHTS, TaskMix, draw_edit
from corpora.edit_model.line_edits import comment
from corpora.edit_model.multi import draw_edits
from corpora.edit_model.pieces import Piece
from corpora.edit_model.prompts import END_OF_TURN, file_prompt, merge_instruction, quote_prompt, range_prompt
from corpora.edit_model.quotes import quote_task

CONFIG_WEIGHT = 14  # beside KIND_WEIGHTS
# Kinds whose result a lazy snippet can show: they add or change lines in few places.
MERGE_KINDS = (
    "string", "number", "line at start", "line at end", "docstring", "new parameter", "retype", "replace body",
    "insert line", "replace line", "change default", "decorator", "comment", "brace function",
)  # fmt: skip
MAX_REGION_LINES = 25


@dataclass(frozen=True)
class Task:
    """One prompt and its right answer, the end of the turn included."""

    family: str
    kind: str
    language: str
    instruction: str
    before: str  # the text that the answer is mostly copied from
    after: str
    prompt: str
    answer: str
    package: str


def _whole_file(family: str, kind: str, piece: Piece, edit: Edit) -> Task:
    prompt, fence = file_prompt(edit.instruction, piece.language, piece.text)
    answer = edit.after + fence + END_OF_TURN
    return Task(family, kind, piece.language, edit.instruction, piece.text, edit.after, prompt, answer, piece.package)


def _edit_task(rng: random.Random, split: str, mix: TaskMix) -> Task | None:
    if rng.random() < CONFIG_WEIGHT / (CONFIG_WEIGHT + sum(KIND_WEIGHTS.values())):
        made = config_task(rng)
        return _whole_file("edit", "config", *made) if made else None
    return _whole_file("edit", *draw_edit(rng, split, mix))


def _multi_task(rng: random.Random, split: str, mix: TaskMix) -> Task | None:
    made = draw_edits(rng, split, mix)
    return _whole_file("multi", *made) if made else None


def _merge_task(rng: random.Random, split: str, mix: TaskMix) -> Task | None:
    kind, piece, edit = draw_edit(rng, split, mix, MERGE_KINDS)
    if piece.language == "markdown":
        return None
    marker = comment(
        piece.language, rng.choice(("... existing code ...", "... existing code ...", "... rest of code ..."))
    )
    update = lazy_snippet(piece.text, edit.after, marker, rng.randint(1, 3))
    if update is None:
        return None
    return _whole_file("merge", kind, piece, Edit(merge_instruction(piece.language, update, piece.text), edit.after))


def _range_task(rng: random.Random, split: str, mix: TaskMix) -> Task | None:
    kind, piece, edit = draw_edit(rng, split, mix)
    found = region_of(piece.text, edit.after, (rng.randint(0, 8), rng.randint(0, 8)), MAX_REGION_LINES)
    if found is None:
        return None
    first, end, new_first, new_end = found
    old, new = piece.text.splitlines(), edit.after.splitlines()
    num_lines = rng.choice(mix.context_lines)
    before = [*piece.lines_before, *old[:first]][-num_lines:]
    after = [*old[end:], *piece.lines_after][:num_lines]
    region = "".join(line + "\n" for line in old[first:end])
    edited = "".join(line + "\n" for line in new[new_first:new_end])
    if not edited:
        return None
    prompt, fence = range_prompt(edit.instruction, piece.language, before, region, after)
    answer = edited + fence + END_OF_TURN
    return Task("range", kind, piece.language, edit.instruction, region, edited, prompt, answer, piece.package)


def _quote_task(rng: random.Random, split: str, mix: TaskMix) -> Task | None:
    made = quote_task(rng, split)
    if made is None:
        return None
    kind, instruction, text, answer = made
    prompt = quote_prompt(instruction, text)
    return Task("quote", kind, "text", instruction, text, answer, prompt, answer + END_OF_TURN, split)


FAMILIES = {"edit": _edit_task, "multi": _multi_task, "range": _range_task, "merge": _merge_task, "quote": _quote_task}


def make_task(split: str, seed: int, index: int, mix: TaskMix | None = None) -> Task:
    """Task number `index` of the stream of a split (`train` or `evaluation`) and seed."""
    rng = random.Random(f"{split} {seed} {index}")
    mix = mix or TaskMix()
    family = rng.choices(list(mix.families), list(mix.families.values()))[0]
    while True:
        task = FAMILIES[family](rng, split, mix)
        if task is not None:
            return task
