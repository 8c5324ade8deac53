"""What an exception says of itself: for a log, without its message, which may quote what a client sent; its kind."""

from __future__ import annotations

import traceback
from pathlib import Path

MAX_FRAMES = 12


def describe_failure(error: BaseException) -> str:
    """Its type and where it was raised, innermost call first; also those of what caused it. Never its message.

    Example: ``"KeyError at automaton.py:31 in extend < suffix_index.py:90 in append"``
    """
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    places = [f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in reversed(frames)]
    described = type(error).__name__ + (f" at {' < '.join(places)}" if places else "")
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return described if cause is None else f"{described}, caused by {describe_failure(cause)}"


def is_out_of_memory(error: Exception) -> bool:
    """Python's own error, torch's for a device (which is named so), and the one that torch's CPU allocator raises."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))
    )
