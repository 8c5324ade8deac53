"""`lookahead-edit corpus`: traces for replay, from git histories, releases, published sets and other traces."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from io import BufferedReader
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, cast

import typer

from lookahead_edit.cli_display import Display
from lookahead_edit.cli_files import STDIN, is_same_file, write_standard_output
from lookahead_edit.corpus_datasets import blazedit_edits, canitedit_edits
from lookahead_edit.corpus_edits import EditBounds, FileEdit, Tally, edit_traces
from lookahead_edit.corpus_files import ContextBounds, parse_suffixes
from lookahead_edit.corpus_git import HistoryBounds, git_edits
from lookahead_edit.corpus_packages import fetch_release, parse_release, require_pair
from lookahead_edit.corpus_reindent import reindent_edit
from lookahead_edit.corpus_releases import read_release, release_edits
from lookahead_edit.corpus_rename import rename_edit
from lookahead_edit.corpus_sources import SourceText, seeded_edits, source_of
from lookahead_edit.traces import BadLine, Trace, format_trace, read_traces
from lookahead_edit.types import InvalidInput

MAX_SHOWN_BAD_LINES = 10

CORPUS_EXAMPLES = """\b
Examples:
  lookahead-edit corpus from-git . --context -o commits.jsonl
  lookahead-edit corpus from-packages flask==2.3.3 flask==3.0.0 -o flask.jsonl
  lookahead-edit corpus rename flask.jsonl | lookahead-edit replay -
"""

BOUNDS, CONTEXT, HISTORY = EditBounds(), ContextBounds(), HistoryBounds()

corpus_app = typer.Typer(
    name="corpus",
    help="Builds traces for replay from git, packages and published sets.",
    epilog=CORPUS_EXAMPLES,
    no_args_is_help=True,
    rich_markup_mode=None,
)


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
MinCharacters = Annotated[int, typer.Option("--min-characters", help="Shorter files are left out.", metavar="N")]
MaxCharacters = Annotated[int, typer.Option("--max-characters", help="Longer files are left out.", metavar="N")]
MinChanged = Annotated[
    float, typer.Option("--min-changed", help="Least share of changed lines, of 1.", metavar="SHARE")
]
MaxChanged = Annotated[
    float, typer.Option("--max-changed", help="Largest share of changed lines, of 1.", metavar="SHARE")
]
Suffix = Annotated[
    list[str] | None,
    typer.Option(
        "--suffix", help="Only such files, e.g. .py; repeatable. By default known languages.", metavar="SUFFIX"
    ),
]
WithContext = Annotated[
    bool, typer.Option("--context", help="Add the nearest other files, before the edit, as draft-only text.")
]
ContextFiles = Annotated[
    int, typer.Option("--context-files", help="The most files of context a trace.", metavar="N", min=1)
]
ContextCharacters = Annotated[
    int, typer.Option("--context-characters", help="The most characters of context a trace.", metavar="N", min=1)
]
Seed = Annotated[int, typer.Option("--seed", help="Another seed makes other choices.", metavar="N")]
Records = Annotated[str, typer.Argument(help="The set as JSON lines; - for standard input.", metavar="FILE")]
Traces = Annotated[str, typer.Argument(help="Traces with a source; - for standard input.", metavar="TRACES")]


@corpus_app.command("from-git")
def from_git(
    repository: Annotated[Path, typer.Argument(help="A folder inside the repository.", metavar="REPO")],
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
    output: Output = STDIN,
    max_traces: MaxTraces = None,
    min_characters: MinCharacters = BOUNDS.min_characters,
    max_characters: MaxCharacters = BOUNDS.max_characters,
    min_changed: MinChanged = BOUNDS.min_changed_share,
    max_changed: MaxChanged = BOUNDS.max_changed_share,
    suffix: Suffix = None,
    context: WithContext = False,
    context_files: ContextFiles = CONTEXT.max_files,
    context_characters: ContextCharacters = CONTEXT.max_characters,
) -> None:
    """Makes a trace of each file that a commit changed. Newest commits first; the message is the instruction."""
    tally = Tally()
    edits = git_edits(
        repository,
        HistoryBounds(revisions, since, max_commits, max_files_per_commit),
        tally.reasons,
        suffixes=parse_suffixes(suffix or ()),
        context=_context_bounds(context, context_files, context_characters),
    )
    bounds = EditBounds(min_characters, max_characters, min_changed, max_changed)
    _write(edit_traces(edits, bounds, tally), output, max_traces, tally)


@corpus_app.command("from-packages")
def from_packages(
    old: Annotated[str, typer.Argument(help="NAME==VERSION, or npm:NAME@VERSION.", metavar="OLD")],
    new: Annotated[str, typer.Argument(help="The same package in a later version.", metavar="NEW")],
    form: Annotated[
        Form, typer.Option("--form", help="Of Python packages: any, wheel or sdist.", metavar="FORM")
    ] = Form.ANY,
    output: Output = STDIN,
    max_traces: MaxTraces = None,
    min_characters: MinCharacters = BOUNDS.min_characters,
    max_characters: MaxCharacters = BOUNDS.max_characters,
    min_changed: MinChanged = BOUNDS.min_changed_share,
    max_changed: MaxChanged = BOUNDS.max_changed_share,
    suffix: Suffix = None,
    context: WithContext = False,
    context_files: ContextFiles = CONTEXT.max_files,
    context_characters: ContextCharacters = CONTEXT.max_characters,
) -> None:
    """Makes a trace of each file changed between releases. Both are fetched with pip or npm."""
    releases = parse_release(old), parse_release(new)
    require_pair(*releases)
    suffixes = parse_suffixes(suffix or ())
    bounds = EditBounds(min_characters, max_characters, min_changed, max_changed)
    with tempfile.TemporaryDirectory() as folder:
        files: list[dict[str, bytes]] = []
        for release in releases:
            place = Path(folder, str(len(files)))
            place.mkdir()
            files.append(read_release(fetch_release(release, place, form.value), suffixes))
    tally = Tally()
    edits = release_edits(
        *files,
        name=releases[0].name,
        old_version=releases[0].version,
        new_version=releases[1].version,
        context=_context_bounds(context, context_files, context_characters),
    )
    _write(edit_traces(edits, bounds, tally), output, max_traces, tally)


@corpus_app.command("from-directories")
def from_directories(
    old: Annotated[Path, typer.Argument(help="A folder, or a zip, wheel or tar archive.", metavar="OLD")],
    new: Annotated[Path, typer.Argument(help="The same at a later time.", metavar="NEW")],
    name: Annotated[str, typer.Option("--name", help="What the instructions call it.", metavar="NAME")] = "the project",
    output: Output = STDIN,
    max_traces: MaxTraces = None,
    min_characters: MinCharacters = BOUNDS.min_characters,
    max_characters: MaxCharacters = BOUNDS.max_characters,
    min_changed: MinChanged = BOUNDS.min_changed_share,
    max_changed: MaxChanged = BOUNDS.max_changed_share,
    suffix: Suffix = None,
    context: WithContext = False,
    context_files: ContextFiles = CONTEXT.max_files,
    context_characters: ContextCharacters = CONTEXT.max_characters,
) -> None:
    """Makes a trace of each file that differs. Compared are two folders or archives."""
    for folder in (old, new):
        _require_other_file(output, folder)
    suffixes = parse_suffixes(suffix or ())
    bounds = EditBounds(min_characters, max_characters, min_changed, max_changed)
    tally = Tally()
    edits = release_edits(
        read_release(old, suffixes),
        read_release(new, suffixes),
        name=name,
        old_version=old.resolve().name,
        new_version=new.resolve().name,
        context=_context_bounds(context, context_files, context_characters),
    )
    _write(edit_traces(edits, bounds, tally), output, max_traces, tally)


@corpus_app.command("canitedit")
def canitedit(
    records: Records,
    instruction: Annotated[
        Instruction, typer.Option("--instruction", help="Which one: descriptive or lazy.", metavar="KIND")
    ] = Instruction.DESCRIPTIVE,
    output: Output = STDIN,
    max_traces: MaxTraces = None,
) -> None:
    """Makes a trace of each record of CanItEdit."""
    with _reading(records, output) as (file, bad_lines):
        edits = canitedit_edits(file, bad_lines.hear, instruction.value)
        _write(edit_traces(edits, None, bad_lines.tally), output, max_traces, bad_lines.tally)


@corpus_app.command("blazedit")
def blazedit(records: Records, output: Output = STDIN, max_traces: MaxTraces = None) -> None:
    """Makes a trace of each record of old and new code. Fields may have any of the usual names."""
    with _reading(records, output) as (file, bad_lines):
        edits = blazedit_edits(file, bad_lines.hear)
        _write(edit_traces(edits, None, bad_lines.tally), output, max_traces, bad_lines.tally)


@corpus_app.command("rename")
def rename(traces: Traces, seed: Seed = 0, output: Output = STDIN, max_traces: MaxTraces = None) -> None:
    """Renames two identifiers in the source of each trace."""
    _transform(rename_edit, traces, seed, output, max_traces)


@corpus_app.command("reindent")
def reindent(traces: Traces, seed: Seed = 0, output: Output = STDIN, max_traces: MaxTraces = None) -> None:
    """Wraps a body in the source of each trace in an if."""
    _transform(reindent_edit, traces, seed, output, max_traces)


def _transform(
    make_edit: Callable[[SourceText, random.Random], FileEdit | None],
    traces: str,
    seed: int,
    output: str,
    max_traces: int | None,
) -> None:
    with _reading(traces, output) as (file, bad_lines):
        found = (source_of(trace) for _, trace in read_traces(file, bad_lines.hear))
        sources = (source for source in found if source is not None)
        _write(
            edit_traces(seeded_edits(make_edit, sources, seed), None, bad_lines.tally),
            output,
            max_traces,
            bad_lines.tally,
        )


class _BadLines:
    """Shows the first bad lines and counts all of them."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._display = Display()

    def hear(self, bad_line: BadLine) -> None:
        self.tally.reasons["unreadable"] += 1
        if self.tally.reasons["unreadable"] <= MAX_SHOWN_BAD_LINES:
            self._display.warn(str(bad_line))


@contextlib.contextmanager
def _reading(name: str, output: str) -> Iterator[tuple[BufferedReader, _BadLines]]:
    _require_other_file(output, name)
    with contextlib.ExitStack() as stack:
        try:
            file = sys.stdin.buffer if name == STDIN else stack.enter_context(Path(name).open("rb"))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "not a file name"
            raise InvalidInput(f"can't read {name}: {reason}", param="file", code="unreadable_file") from None
        yield cast(BufferedReader, file), _BadLines()


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


def _context_bounds(is_wanted: bool, max_files: int, max_characters: int) -> ContextBounds | None:
    return ContextBounds(max_files, max_characters) if is_wanted else None


def _write(traces: Iterator[Trace], output: str, max_traces: int | None, tally: Tally) -> None:
    """Nothing is written, and no file is touched, before there is a first trace; a file appears whole."""
    limited = islice(traces, max_traces)
    first = next(limited, None)
    if first is None:
        raise InvalidInput(f"expected edits inside the bounds, got {tally}", code="nothing_found")
    lines = map(format_trace, chain([first], limited))
    if output == STDIN:
        for line in lines:
            write_standard_output(line.decode("utf-8"))
    else:
        _write_file(Path(output), lines)
    Display().say(str(tally))


def _write_file(path: Path, lines: Iterable[bytes]) -> None:
    temporary: str | None = None
    try:
        path = path.resolve()
        if path.exists() and not path.is_file():  # a pipe or device, which must not be replaced by a file
            with path.open("wb") as device:
                device.writelines(lines)
            return
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:64]}.", suffix=".tmp")
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(lines)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise InvalidInput(f"can't write {path}: {error.strerror or error}", param="output") from None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
