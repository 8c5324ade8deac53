"""Where the command begins: Ctrl-C is one line from here on, also while packages are imported."""

from __future__ import annotations

import sys

from lookahead_edit.cli_interrupt import ending, remembering_interrupts, was_interrupted
from lookahead_edit.cli_streams import fill_closed_streams


def main() -> None:
    """Runs `lookahead_edit.cli.main`."""
    fill_closed_streams()
    with remembering_interrupts(is_last=True):
        try:
            from lookahead_edit.cli import main as run_command
        except BaseException:  # an interrupted import may fail in any way
            if not was_interrupted():
                raise
            sys.stderr.write(f"{ending().line}\n")
            sys.exit(ending().status)
        run_command()
