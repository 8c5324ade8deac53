"""Runs the command line from a shell, with its redirections and limits, and a token for each byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from lookahead_edit import cli, cli_display, cli_replay
from lookahead_edit.tokenizer import ByteTokenizer

cli_display.PATIENCE_SECONDS = 600.0  # kernels may have to be compiled first, which would be told
cli_replay.open_tokenizer = lambda *_: ByteTokenizer()
cli.main(sys.argv[1:])
"""


def shell(
    *arguments: str | Path, redirections: str = "", before: str = "", script: str = SCRIPT
) -> subprocess.CompletedProcess[str]:
    """The command with what bash makes of the redirections; `before` is run first."""
    line = f'{before} exec "$0" -c "$1" "${{@:2}}" {redirections}'
    command = ["bash", "-c", line, sys.executable, script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
