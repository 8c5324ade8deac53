"""Ctrl-C that can't get lost: Python drops a KeyboardInterrupt that is raised inside of a destructor.

The signal is remembered beside the exception, so that nothing is written after it, wherever it hit. What Python and
extensions print of an exception that they drop is left out where it is this one.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

EXIT_INTERRUPTED = 130

_was_interrupted = threading.Event()


@contextmanager
def remembering_interrupts() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt inside of this block, as ever, and is remembered too; main thread only."""
    _was_interrupted.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _remember)
    show_dropped, show_printed = sys.unraisablehook, sys.excepthook

    def show_unless_interrupt(unraisable: UnraisableHookArgs) -> None:
        # Whoever has a hook of his own hears of everything.
        is_pythons = show_dropped is sys.__unraisablehook__
        if not (is_pythons and issubclass(unraisable.exc_type, KeyboardInterrupt)):
            show_dropped(unraisable)

    def print_unless_interrupt(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        # Extensions print what happens while they import something, and go on with an error of their own. typer has a
        # hook too, which ends in the one that it found when it was imported: this one, in the command's first block.
        if not issubclass(kind, KeyboardInterrupt):
            show_printed(kind, error, traceback)

    sys.unraisablehook, sys.excepthook = show_unless_interrupt, print_unless_interrupt
    try:
        yield
    finally:
        sys.unraisablehook, sys.excepthook = show_dropped, show_printed
        signal.signal(signal.SIGINT, before)


def was_interrupted() -> bool:
    """Whether Ctrl-C was pressed since the latest block began, whatever became of the exception."""
    return _was_interrupted.is_set()


def raise_if_interrupted() -> None:
    """Raises KeyboardInterrupt if there was one that got lost."""
    if was_interrupted():
        raise KeyboardInterrupt


def _remember(number: int, frame: FrameType | None) -> None:
    _was_interrupted.set()
    raise KeyboardInterrupt
