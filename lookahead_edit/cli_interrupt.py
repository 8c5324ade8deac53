"""Ctrl-C that can't get lost: Python drops a KeyboardInterrupt that is raised inside of a destructor.

The signal is remembered beside the exception, so that nothing is written after it, wherever it hit. What Python and
extensions print of an exception that they drop is left out where it is this one. SIGTERM and SIGHUP, which would end
Python on the spot and leave half-written files behind, are raised the same way.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

EXIT_INTERRUPTED = 130  # 128 and the signal's number, as shells have it


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command ends that a signal ended."""

    status: int
    line: str  # what it says


# Windows has no SIGHUP.
_ENDINGS = {
    number: Ending(128 + number, line)
    for name, line in (("SIGINT", "interrupted"), ("SIGTERM", "terminated"), ("SIGHUP", "hung up"))
    if (number := getattr(signal, name, None)) is not None
}

SECONDS_APART = 1.0  # what comes sooner after another one is the same wish

_received: list[int] = []  # signals since the latest block began
_heard = [0.0]  # when the latest one that raised came


@contextmanager
def remembering_interrupts(*, is_last: bool = False) -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt inside of this block, as ever, and is remembered too; main thread only.

    So do SIGTERM and SIGHUP where nobody ignores them, as nohup does, or has a handler of his own. Behind a block that
    `is_last` the process ends, and where a signal was why, further ones don't change how.
    """
    _received.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, _remember)
        for number in _ENDINGS
        if number == signal.SIGINT or signal.getsignal(number) is signal.SIG_DFL
    }
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
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if is_last and was_interrupted() else handler)


@contextmanager
def hangups_as_terminations() -> Iterator[None]:
    """SIGHUP acts as SIGTERM inside of this block, for programs in it that handle only the latter."""
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is None or signal.getsignal(hangup) is not _remember:
        yield
        return
    signal.signal(hangup, lambda number, frame: signal.raise_signal(signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(hangup, _remember)


def was_interrupted() -> bool:
    """Whether a signal was to end the command since the latest block began, whatever became of the exception."""
    return bool(_received)


def ending() -> Ending:
    """Of the first such signal; that of Ctrl-C where there was none."""
    return _ENDINGS[_received[0] if _received else signal.SIGINT]


def raise_if_interrupted() -> None:
    """Raises KeyboardInterrupt if there was one that got lost."""
    if was_interrupted():
        raise KeyboardInterrupt


def _remember(number: int, frame: FrameType | None) -> None:
    is_repeated = bool(_received) and time.monotonic() - _heard[0] < SECONDS_APART
    _received.append(number)
    if not is_repeated:
        _heard[0] = time.monotonic()
        raise KeyboardInterrupt
