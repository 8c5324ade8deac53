"""The matrix's results: JSON lines that are never mixed and never lost. The first says what was measured and where.

A *turn* is every method of a group (workload, context, temperature) on one prompt, one after the other: what a ratio is
taken over. Its lines are written together when it is over, so an interrupted run goes on with the turn it was in.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.matrix_choice import Choice
from benchmarks.trace_sets import source_fingerprint

HEADER_BEGIN = b'{"kind": "header"'
ROOT = Path(__file__).resolve().parent.parent
MEASURED_FOLDERS = ("lookahead_edit", "benchmarks", "corpora")
# What has to be the same for figures to stand in one table.
IDENTITY = (
    *("profile", "commit", "code", "model", "weights", "dtype", "device", "draft_model", "draft_weights"),
    *("max_tokens", "records"),  # where the task is a data set
    *("cpu", "num_cpus", "num_threads", "gpu", "system", "python", "torch", "transformers", "numba", "numpy"),
)
Turn = tuple[str, int, float, str, int]  # workload, context tokens, temperature, task, repetition
Cell = tuple[str, int]  # workload, context tokens


class ResultsMismatch(Exception):
    """The file holds results that these must not be mixed with, or no results at all."""


def commit() -> str | None:
    """The checked-out commit; None outside a repository."""
    command = ["git", "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def code_fingerprint() -> str:
    """Of everything whose change would change a figure, committed or not."""
    return source_fingerprint(path for folder in MEASURED_FOLDERS for path in (ROOT / folder).rglob("*.py"))


@dataclass(frozen=True)
class Results:
    """What a file holds: the runs of whole turns, each once."""

    header: dict[str, Any]
    rows: list[dict[str, Any]]
    choices: dict[Cell, Choice]


class ResultsFile:
    """Appends turns, and knows which are there.

    Args:
        path: made where it doesn't exist.
        header: what is measured and where; all of IDENTITY.

    Raises:
        ResultsMismatch: the file is not one of results, or of others, or another run writes to it. It stays as it is.
        OSError: it can't be read or written.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self.path = path
        self.header = dict(header)
        self.done: set[Turn] = set()
        self.choices: dict[Cell, Choice] = {}
        self._unlock = weakref.finalize(self, os.close, _locked(path))
        if _is_torn_header(path.read_bytes()):
            os.truncate(path, 0)
            self._append([{"kind": "header", **header}])
        else:
            found = read_results(path)
            for name in IDENTITY:
                if found.header.get(name) != header.get(name):
                    got = f"{found.header.get(name)!r}, now {header.get(name)!r}"
                    raise ResultsMismatch(
                        f"expected results of the same {name} in {path}, got those of {got}: "
                        "name another file with --output, or remove that one"
                    )
            self.header, self.choices = found.header, found.choices
            self.done = {turn_of(row) for row in found.rows}
            self._drop_torn_end()

    def close(self) -> None:
        """Lets other runs write to the file."""
        self._unlock()

    def add_choice(self, cell: Cell, choice: Choice) -> None:
        """Writes which tasks a cell has, so that a run that goes on takes the same."""
        self._append([{"kind": "choice", "workload": cell[0], "context": cell[1], **asdict(choice)}])
        self.choices[cell] = choice

    def add_turn(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Writes the runs of one turn, all or none of them that anybody will read."""
        self._append([{"kind": "run", "num_runs_in_turn": len(rows), **row} for row in rows])
        self.done.add(turn_of(rows[0]))

    def _append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        with self.path.open("ab") as file:
            file.write(b"".join(json.dumps(row, allow_nan=False).encode() + b"\n" for row in rows))
            file.flush()
            os.fsync(file.fileno())

    def _drop_torn_end(self) -> None:
        """A line that was cut off while it was written; the next would be glued to it."""
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            with self.path.open("r+b") as file:
                file.truncate(len(whole))


def _locked(path: Path) -> int:
    """A descriptor of the file, which is made where it doesn't exist; until it is closed, nobody else gets one.

    Two runs would disturb each other's times, and count each other's turns twice.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ResultsMismatch(f"expected to be the only run that writes to {path}, got another one at work") from None
    return descriptor


def _is_torn_header(content: bytes) -> bool:
    """Whether the file's first line was cut off while it was written, or never begun, so that nothing is in it yet."""
    return b"\n" not in content and content[: len(HEADER_BEGIN)] == HEADER_BEGIN[: len(content)]


def turn_of(row: Mapping[str, Any]) -> Turn:
    """The turn a run belongs to."""
    return row["workload"], row["context"], row["temperature"], row["task"], row["repetition"]


def read_results(path: Path, profile: str | None = None) -> Results:
    """What the file holds, but for turns that were cut off.

    Raises:
        ResultsMismatch: the file isn't one of results, or not of this profile, where one is named.
        OSError: it can't be read.
    """
    lines = path.read_bytes().split(b"\n")[:-1]
    try:
        header, *rows = [json.loads(line) for line in lines]
        assert header["kind"] == "header"
        assert all(name in header for name in IDENTITY)
        choices = {
            (row["workload"], row["context"]): Choice(tuple(row["names"]), row["num_tried"], row["num_right"])
            for row in rows
            if row["kind"] == "choice"
        }
        turns: dict[Turn, dict[tuple[str, Any], dict[str, Any]]] = {}
        for row in rows:
            if row["kind"] == "run":
                turns.setdefault(turn_of(row), {})[row["method"], row["draft_length"]] = row
        whole = [runs for runs in turns.values() if len(runs) == next(iter(runs.values()))["num_runs_in_turn"]]
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise ResultsMismatch(f"expected a file of the matrix's results, got something else in {path}") from error
    if profile is not None and header["profile"] != profile:
        raise ResultsMismatch(f"expected results of {profile} in {path}, got those of {header['profile']}")
    return Results(header, [row for runs in whole for row in runs.values()], choices)
