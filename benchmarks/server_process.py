"""`lookahead-edit serve` in a process of its own, for benchmarks that are its clients."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def server_process(model: str | None, options: Sequence[str], log: Path) -> Iterator[tuple[str, int]]:
    """Address and process id of a server that has loaded its model; what it says goes to `log`.

    Raises:
        RuntimeError: it ended before that.
    """
    command = [sys.executable, "-m", "lookahead_edit.cli", "serve", "--port", "0", *options]
    command += ["--model", model] if model else []
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(command, stderr=file)
    try:
        while not (ready := re.search(r"^ready: (\S+)", log.read_text(encoding="utf-8"), re.MULTILINE)):
            if process.poll() is not None:
                raise RuntimeError(f"expected a server, got {log.read_text(encoding='utf-8')}")
            time.sleep(0.2)
        yield ready[1], process.pid
    finally:
        process.terminate()
        process.wait(timeout=60)
