"""Print tasks with the diff of their right answer, to look at."""

from __future__ import annotations

import argparse
import difflib

from rich.console import Console
from rich.rule import Rule
from rich.syntax import Syntax

from corpora.edit_model.kinds import TaskMix
from corpora.edit_model.tasks import FAMILIES, Task, make_task


def difference(task: Task) -> str:
    """A unified diff of the edit; for quotes the text and the answer."""
    if task.family == "quote":
        return f"{task.before}\n\n{task.after}"
    return "\n".join(difflib.unified_diff(task.before.splitlines(), task.after.splitlines(), lineterm="", n=2))


def main() -> None:
    """Print some tasks of one split."""
    parser = argparse.ArgumentParser(description="Print tasks with the diff of their right answer.")
    parser.add_argument("--split", choices=("train", "evaluation"), default="train")
    parser.add_argument("--family", choices=sorted(FAMILIES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=5)
    arguments = parser.parse_args()
    mix = TaskMix(families={arguments.family: 1.0}) if arguments.family else TaskMix()
    console = Console()
    for index in range(arguments.count):
        task = make_task(arguments.split, arguments.seed, index, mix)
        console.print(Rule(f"{task.family}: {task.kind} ({task.language}, {task.package})"))
        console.print(task.instruction, markup=False, highlight=False)
        console.print(Syntax(difference(task), "text" if task.family == "quote" else "diff", word_wrap=True))


if __name__ == "__main__":
    main()
