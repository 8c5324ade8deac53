"""`lookahead-edit corpus`: traces for replay, from git histories, releases, published sets and other traces."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from lookahead_edit.cli_command import Command
from lookahead_edit.cli_corpus_options import EditOptions, changed_limits, takes_edit_options
from lookahead_edit.cli_display import Display
from lookahead_edit.cli_files import STDIN, is_same_file, require_place, whole_file, write_standard_output
from lookahead_edit.cli_options import require_command, require_text
from lookahead_edit.cli_traces import BadLines, at_most, opened_traces
from lookahead_edit.corpus_datasets import blazedit_edits, canitedit_edits
from lookahead_edit.corpus_edits import Tally, edit_traces
from lookahead_edit.corpus_git import HistoryBounds, git_edits
from lookahead_edit.corpus_packages import fetch_release, parse_release, require_pair
from lookahead_edit.corpus_reindent import reindent_edit
from lookahead_edit.corpus_releases import read_release, release_edits
from lookahead_edit.corpus_rename import rename_edit
from lookahead_edit.corpus_sources import MakeEdit, seeded_edits
from lookahead_edit.text_json_lines import BadLine
from lookahead_edit.traces import Trace, format_trace, read_traces
from lookahead_edit.types import InvalidInput

CORPUS_EXAMPLES = """\b
Examples:
  lookahead-edit corpus from-git . --context -o commits.jsonl
  lookahead-edit corpus from-packages flask==2.3.3 flask==3.0.0 -o flask.jsonl
  lookahead-edit corpus rename flask.jsonl | lookahead-edit replay -
"""

HISTORY = HistoryBounds()

corpus_app = typer.Typer(
    name="corpus",
    help="Builds traces for replay from git, packages and published sets.",
    epilog=CORPUS_EXAMPLES,
    rich_markup_mode=None,
)


corpus_app.callback(invoke_without_command=True)(require_command)


class Form(str, Enum):
    ANY = "any"
    WHEEL = "wheel"
    SDIST = "sdist"


class Instruction(str, Enum):
    DESCRIPTIVE = "descriptive"
    LAZY = "lazy"


Output = Annotated[
    str, typer.Option("--output", "-o", help="Where the traces go; - for standard output.", metavar="FILE")
]
MaxTraces = Annotated[
    int | None, typer.Option("--max-traces", help="Stop after so many; by default at the end.", metavar="N", min=1)
]
Seed = Annotated[int, typer.Option("--seed", help="Another seed makes other choices.", metavar="N")]
Records = Annotated[str, typer.Argument(help="The set as JSON lines; - for standard input.", metavar="FILE")]
Traces = Annotated[str, typer.Argument(help="Traces with a source; - for standard input.", metavar="TRACES")]


@corpus_app.command("from-git", cls=Command)
@takes_edit_options
def from_git(
    repository: Annotated[Path, typer.Argument(help="A folder inside the repository.", metavar="REPO")],
    *,
    revisions: Annotated[
        str, typer.Option("--revisions", help="Where history is read from, or a range A..B.", metavar="REVISIONS")
    ] = HISTORY.revisions,
    since: Annotated[
        str | None, typer.Option("--since", help="Only newer commits, e.g. 2024-01-31.", metavar="DATE")
    ] = None,
    max_commits: Annotated[
        int, typer.Option("--max-commits", help="The most commits that are read.", metavar="N", min=1)
    ] = HISTORY.max_commits,
    max_files_per_commit: Annotated[
        int, typer.Option("--max-files-per-commit", help="Leave out commits of more files.", metavar="N", min=1)
    ] = HISTORY.max_files_per_commit,
    options: EditOptions,
    output: Output = STDIN,
    max_traces: MaxTraces = None,
) -> None:
    """Makes a trace of each file that a commit changed. Newest commits first; the message is the instruction."""
    _require_place(output)
    tally = Tally()
    edits = git_edits(
        repository,
        HistoryBounds(revisions, since, max_commits, max_files_per_commit),
        tally.reasons,
        suffixes=options.suffixes,
        context=options.context,
    )
    limits = changed_limits(
        revisions=(revisions, HISTORY.revisions),
        since=(since, HISTORY.since),
        max_commits=(max_commits, HISTORY.max_commits),
        max_files_per_commit=(max_files_per_commit, HISTORY.max_files_per_commit),
    )
    _write(edit_traces(edits, options.bounds, tally), output, max_traces, tally, [*limits, *options.limits])


@corpus_app.command("from-packages", cls=Command)
@takes_edit_options
def from_packages(
    old: Annotated[str, typer.Argument(help="NAME==VERSION, or npm:NAME@VERSION.", metavar="OLD")],
    new: Annotated[str, typer.Argument(help="The same package in a later version.", metavar="NEW")],
    *,
    form: Annotated[
        Form, typer.Option("--form", help="Of Python packages: any, wheel or sdist.", metavar="FORM")
    ] = Form.ANY,
    options: EditOptions,
    output: Output = STDIN,
    max_traces: MaxTraces = None,
) -> None:
    """Makes a trace of each file changed between releases. Both are fetched with pip or npm."""
    releases = parse_release(old), parse_release(new)
    require_pair(*releases)
    _require_place(output)
    with tempfile.TemporaryDirectory() as folder:
        files: list[dict[str, bytes]] = []
        for release in releases:
            place = Path(folder, str(len(files)))
            place.mkdir()
            files.append(read_release(fetch_release(release, place, form.value), options.suffixes))
    tally = Tally()
    edits = release_edits(
        *files,
        name=releases[0].name,
        old_version=releases[0].version,
        new_version=releases[1].version,
        reasons=tally.reasons,
        context=options.context,
    )
    _write(edit_traces(edits, options.bounds, tally), output, max_traces, tally, options.limits)


@corpus_app.command("from-directories", cls=Command)
@takes_edit_options
def from_directories(
    old: Annotated[Path, typer.Argument(help="A folder, or a zip, wheel or tar archive.", metavar="OLD")],
    new: Annotated[Path, typer.Argument(help="The same at a later time.", metavar="NEW")],
    *,
    name: Annotated[str, typer.Option("--name", help="What the instructions call it.", metavar="NAME")] = "the project",
    options: EditOptions,
    output: Output = STDIN,
    max_traces: MaxTraces = None,
) -> None:
    """Makes a trace of each file that differs. Compared are two folders or archives."""
    _require_place(output)
    require_text(name, "--name")
    for folder in (old, new):
        _require_other_file(output, folder)
    tally = Tally()
    edits = release_edits(
        read_release(old, options.suffixes),
        read_release(new, options.suffixes),
        name=name,
        old_version=old.resolve().name,
        new_version=new.resolve().name,
        reasons=tally.reasons,
        context=options.context,
    )
    _write(edit_traces(edits, options.bounds, tally), output, max_traces, tally, options.limits)


@corpus_app.command("canitedit", cls=Command)
def canitedit(
    records: Records,
    instruction: Annotated[
        Instruction, typer.Option("--instruction", help="Which one: descriptive or lazy.", metavar="KIND")
    ] = Instruction.DESCRIPTIVE,
    output: Output = STDIN,
    max_traces: MaxTraces = None,
) -> None:
    """Makes a trace of each record of CanItEdit."""
    with _reading(records, output) as (file, tally, hear):
        edits = canitedit_edits(file, hear, instruction.value)
        _write(edit_traces(edits, None, tally), output, max_traces, tally)


@corpus_app.command("blazedit", cls=Command)
def blazedit(records: Records, output: Output = STDIN, max_traces: MaxTraces = None) -> None:
    """Makes a trace of each record of old and new code. Fields may have any of the usual names."""
    with _reading(records, output) as (file, tally, hear):
        _write(edit_traces(blazedit_edits(file, hear), None, tally), output, max_traces, tally)


@corpus_app.command("rename", cls=Command)
def rename(traces: Traces, seed: Seed = 0, output: Output = STDIN, max_traces: MaxTraces = None) -> None:
    """Renames two identifiers in the source of each trace."""
    _transform(rename_edit, traces, seed, output, max_traces)


@corpus_app.command("reindent", cls=Command)
def reindent(traces: Traces, seed: Seed = 0, output: Output = STDIN, max_traces: MaxTraces = None) -> None:
    """Wraps a body in the source of each trace in an if."""
    _transform(reindent_edit, traces, seed, output, max_traces)


def _transform(make_edit: MakeEdit, traces: str, seed: int, output: str, max_traces: int | None) -> None:
    with _reading(traces, output) as (file, tally, hear):
        found = (trace for _, trace in read_traces(file, hear))
        edits = seeded_edits(make_edit, found, seed, tally.reasons)
        _write(edit_traces(edits, None, tally), output, max_traces, tally)


@contextlib.contextmanager
def _reading(name: str, output: str) -> Iterator[tuple[BufferedReader, Tally, Callable[[BadLine], None]]]:
    """The file, the tally of what becomes of its lines, and who hears of those that can't be read."""
    _require_place(output)
    _require_other_file(output, name)
    tally, bad_lines = Tally(), BadLines(Display())

    def hear(bad_line: BadLine) -> None:
        tally.reasons["unreadable"] += 1
        bad_lines.add(bad_line)

    with opened_traces(name) as file:
        yield file, tally, hear
    bad_lines.finish()


def _require_place(output: str) -> None:
    if output != STDIN:
        require_place(output, param="output")


def _require_other_file(output: str, source: str | Path) -> None:
    """Raises InvalidInput for an output that is the input, or a file of the folder that is read."""
    is_inside = (
        os.path.isdir(source)
        and os.path.isfile(output)
        and Path(output).resolve().is_relative_to(Path(source).resolve())
    )
    if is_inside or is_same_file(output, str(source)):
        label = "standard output" if output == STDIN else output
        raise InvalidInput(f"expected --output to be another file than the input, got {label}", param="output")


def _write(
    traces: Iterator[Trace], output: str, max_traces: int | None, tally: Tally, limits: Sequence[str] = ()
) -> None:
    """Nothing is written, and no file is touched, before there is a first trace; a file appears whole.

    `limits` are those of the command line, which are named where nothing is inside of them.
    """
    limited = at_most(traces, max_traces)
    first = next(limited, None)
    if first is None:
        named = f" ({', '.join(limits)})" if limits else ""
        raise InvalidInput(f"expected edits inside the bounds{named}, got {tally}", code="nothing_found")
    lines = map(format_trace, chain([first], limited))
    if output == STDIN:
        for line in lines:
            write_standard_output(line.decode("utf-8"))
    else:
        with whole_file(output, param="output") as file:
            file.writelines(lines)
    Display().say(str(tally))
