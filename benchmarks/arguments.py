"""Types of the benches' command-line arguments: what can't be used is refused in one line, before anything runs."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import NoReturn

from benchmarks.edit_set import chosen_edits

EXIT_REFUSED = 2


def positive_int(text: str) -> int:
    """At least one of something."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return number


def positive_float(text: str) -> float:
    """A number above 0, and not without end."""
    number = _number(text)
    if not 0.0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return number


def duration(text: str) -> float:
    """Seconds or minutes; with none, nothing is begun."""
    return positive_float(text) if _number(text) else 0.0


def edit_name(text: str) -> str:
    """A part of the name of an edit of the benchmark's set."""
    try:
        chosen_edits([text])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def require_folder(folder: Path) -> None:
    """Makes it where it isn't there. Exits in one line where that can't be, or where nothing can be written in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        refuse(f"{folder}: {error.strerror or error}")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def refuse(message: str) -> NoReturn:
    """Ends the bench with one line."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(EXIT_REFUSED)
