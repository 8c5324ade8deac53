"""Ctrl-C that can't get lost: Python drops a KeyboardInterrupt that is raised inside of a destructor.

The signal is remembered beside the exception, so that nothing is written after it, wherever it hit.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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
    try:
        yield
    finally:
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
