"""Traces to learn acceptance from, made up from installed packages: edit tasks, and texts that simply go on.

Edits come from the edit model's task generator (its training split). A text that goes on without copying much is what
drafts have to leave alone: the first part of a file is the prompt, the second the output. So is data that comes back
filtered or in another format (`records`). Run as
`python -m corpora.acceptance.tasks OUTPUT.jsonl`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

from corpora.acceptance.records import record_traces
from corpora.edit_model.kinds import TaskMix
from corpora.edit_model.pieces import source_files
from corpora.edit_model.prompts import END_OF_TURN
from corpora.edit_model.tasks import make_task
from lookahead_edit.traces import Trace, write_traces

SEED = 77
NUM_TASKS, NUM_CONTINUATIONS, NUM_RECORD_LISTS = 360, 200, 100
MIX = TaskMix(
    families={"edit": 36.0, "multi": 22.0, "range": 5.0, "merge": 12.0, "quote": 25.0},
    line_limits=((20, 20.0), (40, 35.0), (80, 45.0)),
    num_edits=(2, 3, 4),
)
PROSE_SHARE = 0.6
MIN_CHARACTERS, MAX_CHARACTERS = 1200, 6000


def edit_traces() -> Iterator[Trace]:
    """Tasks of the training split. What is quoted from is a file in every second trace: not all files are edited."""
    for index in range(NUM_TASKS):
        task = make_task("train", SEED, index, MIX)
        source = None if task.family == "quote" and index % 2 else task.before
        yield Trace(f"{task.family}-{index}", task.prompt, task.answer.removesuffix(END_OF_TURN), source)


def continuation_traces() -> Iterator[Trace]:
    """Two neighbouring parts of a document or a program."""
    rng = random.Random(f"continuations {SEED}")
    files = source_files("train")
    number = 0
    while number < NUM_CONTINUATIONS:
        language = "markdown" if rng.random() < PROSE_SHARE else rng.choice(("python", "javascript"))
        if not files.get(language):
            continue
        text = rng.choice(files[language]).path.read_text(encoding="utf-8", errors="replace")
        if not text.isascii() or "<|" in text or len(text) < MIN_CHARACTERS:
            continue
        start = rng.randint(0, max(0, len(text) - MIN_CHARACTERS))
        text = text[start : start + rng.randint(MIN_CHARACTERS, MAX_CHARACTERS)]
        middle = text.find("\n", int(len(text) * rng.uniform(0.3, 0.7)))
        if 0 < middle < len(text) - 100:
            yield Trace(f"{language}-{number}", text[: middle + 1], text[middle + 1 :])
            number += 1


def main() -> None:
    """Write all traces to the file that is named."""
    with Path(sys.argv[1]).open("wb") as file:
        write_traces(file, [*edit_traces(), *continuation_traces(), *record_traces(NUM_RECORD_LISTS, SEED)])


if __name__ == "__main__":
    main()
