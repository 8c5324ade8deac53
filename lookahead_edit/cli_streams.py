"""Standard streams that somebody closed (``>&-``): Python leaves them out, and the next file opened takes their number.

What is opened in their place acts as a closed one should: nothing to read, output that fails, messages that get lost.
"""

from __future__ import annotations

import os
import sys

# Number, name, how the null device is opened in its place; for output so that writing fails, as into a closed stream.
_STREAMS = (
    (0, "stdin", os.O_RDONLY, "r"),
    (1, "stdout", os.O_RDONLY, "w"),
    (2, "stderr", os.O_WRONLY, "w"),
)


def fill_closed_streams() -> None:
    """Gives each standard stream that is closed one that acts like it; the others are left as they are."""
    for number, name, flags, mode in _STREAMS:
        if getattr(sys, name) is None:
            null = os.open(os.devnull, flags)
            if null != number and not _is_open(number):
                os.dup2(null, number)
                os.close(null)
                null = number
            setattr(sys, name, open(null, mode, encoding="utf-8", errors="backslashreplace", closefd=False))  # noqa: SIM115


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
