"""What the commands that read JSON lines share: opening them, showing how far they are, naming the bad lines."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from itertools import islice
from typing import TypeVar, cast

from lookahead_edit.cli_display import Display, counted
from lookahead_edit.cli_files import STDIN, label_of
from lookahead_edit.replay_tokens import TokenTrace, tokenize_trace
from lookahead_edit.text_json_lines import BadLine
from lookahead_edit.traces import read_traces
from lookahead_edit.types import InvalidInput, Tokenizer

Item = TypeVar("Item")

MAX_SHOWN_BAD_LINES = 20
MAKING_READY = "making the drafters ready, which compiles them the first time"
SECONDS_BETWEEN_LINES = 30.0  # of progress, where there is no terminal to draw a bar on


@contextmanager
def opened_traces(name: str) -> Iterator[BufferedReader]:
    """The file, or standard input for ``-``; raises InvalidInput where it can't be read."""
    if name == STDIN:
        yield cast(BufferedReader, sys.stdin.buffer)
        return
    try:
        mode = os.stat(name).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            kind = "a directory" if stat.S_ISDIR(mode) else "a device or socket"
            raise InvalidInput(f"expected a file, but {name} is {kind}", param="traces", code="unreadable_file")
        file = open(name, "rb")  # noqa: SIM115
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if isinstance(error, InvalidInput):
            raise
        reason = getattr(error, "strerror", None) or "not a file name"
        raise InvalidInput(f"can't read {label_of(name)}: {reason}", param="traces", code="unreadable_file") from None
    with file:
        yield file


@contextmanager
def progress(
    file: BufferedReader, display: Display, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[], None]]:
    """What it yields is called after each trace: a bar over the file's bytes; a line now and then if on no terminal."""
    num_bytes = _size_of(file)
    if display.is_quiet:
        yield lambda: None
    elif not display.console.is_terminal:
        yield _line_by_line(file, num_bytes, display, clock)
    else:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("replaying"), BarColumn(), TextColumn("{task.fields[num_traces]} traces"))
        with Progress(*columns, TimeRemainingColumn(), console=display.console, transient=True) as bar:
            task = bar.add_task("", total=num_bytes, num_traces=0)
            num_traces = 0

            def advance() -> None:
                nonlocal num_traces
                num_traces += 1
                bar.update(task, num_traces=num_traces, completed=file.tell() if num_bytes is not None else None)

            yield advance


def _size_of(file: BufferedReader) -> int | None:
    """None where that isn't known beforehand: a pipe, or nothing of the system's."""
    with suppress(OSError):
        status = os.fstat(file.fileno())
        return status.st_size if stat.S_ISREG(status.st_mode) else None
    return None


def _line_by_line(
    file: BufferedReader, num_bytes: int | None, display: Display, clock: Callable[[], float]
) -> Callable[[], None]:
    num_traces, said = 0, clock()

    def advance() -> None:
        nonlocal num_traces, said
        num_traces += 1
        if clock() - said >= SECONDS_BETWEEN_LINES:
            said = clock()
            share = f" ({file.tell() / num_bytes:.0%} of the file)" if num_bytes else ""
            display.say(f"replaying: {counted(num_traces, 'trace')} so far{share}")

    return advance


def at_most(items: Iterator[Item], limit: int | None) -> Iterator[Item]:
    """So many of them, all for None; `islice` takes no number beyond the machine's."""
    return islice(items, None if limit is None else min(limit, sys.maxsize))


def token_traces(
    file: BufferedReader, tokenizer: Tokenizer, bad_lines: BadLines, *, label: str, limit: int | None
) -> Iterator[tuple[int, TokenTrace]]:
    """Line numbers and traces, as tokens, so many at most; `bad_lines` hears of the others.

    Raises InvalidInput at the end if there were none; `label` is what the file is called then.
    """
    num_traces = 0
    for line_number, trace in read_traces(file, bad_lines.add):
        try:
            tokens = tokenize_trace(trace, tokenizer)
        except InvalidInput as error:
            bad_lines.add(BadLine(line_number, str(error)))
            continue
        yield line_number, tokens
        num_traces += 1
        if num_traces == limit:
            break
    bad_lines.finish()
    if not num_traces:
        raise InvalidInput(f"expected at least one trace in {label}, got none", param="traces")


class BadLines:
    """Reports bad lines, the first few one by one."""

    def __init__(self, display: Display) -> None:
        self.num_lines = 0
        self._display = display

    def add(self, bad_line: BadLine) -> None:
        """Counts one."""
        self.num_lines += 1
        if self.num_lines <= MAX_SHOWN_BAD_LINES:
            self._display.warn(str(bad_line))

    def finish(self) -> None:
        """Tells of those that were not shown."""
        num_more = self.num_lines - MAX_SHOWN_BAD_LINES
        if num_more > 0:
            self._display.warn(f"{counted(num_more, 'more bad line')}")
