"""Runs Python that nobody has read, as far away as a process of one's own can be: for the tests of data sets.

A directory of its own that is removed, no environment, limits on time, memory, files and processes, and no network
where the system lets an ordinary process leave it (Linux with user namespaces). No protection against malice: that
takes a container.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

MAX_SECONDS = 20
MAX_MEMORY_BYTES = 2 * 1024**3
MAX_FILE_BYTES = 16 * 1024**2
MAX_PROCESSES = 64
# The limits are set by the process itself, before it reads a line of what is run.
LAUNCHER = f"""
import runpy
try:
    import resource
    limits = {{
        "RLIMIT_CPU": {MAX_SECONDS}, "RLIMIT_AS": {MAX_MEMORY_BYTES}, "RLIMIT_FSIZE": {MAX_FILE_BYTES},
        "RLIMIT_NPROC": {MAX_PROCESSES}, "RLIMIT_CORE": 0,
    }}
    for name, limit in limits.items():
        hard = resource.getrlimit(getattr(resource, name))[1]
        limit = limit if hard < 0 else min(limit, hard)
        resource.setrlimit(getattr(resource, name), (limit, limit))
except ImportError:
    pass
runpy.run_path("program.py", run_name="__main__")
"""


def run_python(program: str, *, max_seconds: float = MAX_SECONDS) -> bool:
    """Whether the program ends by itself, in time and without an error."""
    with tempfile.TemporaryDirectory() as folder:
        # Undecodable text is a program that fails.
        (Path(folder) / "program.py").write_bytes(program.encode("utf-8", "surrogatepass"))
        process = subprocess.Popen(
            [*_without_network(), sys.executable, "-I", "-c", LAUNCHER],
            cwd=folder,
            env={
                "PATH": os.defpath,
                "HOME": folder,
                "TMPDIR": folder,
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(timeout=max_seconds) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            # Also what it started and left behind.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@cache
def _without_network() -> tuple[str, ...]:
    """What begins a command that sees no network; nothing where the system doesn't allow it."""
    command = ("unshare", "--user", "--map-root-user", "--net")
    if shutil.which("unshare") is None:
        return ()
    tried = subprocess.run([*command, "true"], capture_output=True, check=False)
    return command if tried.returncode == 0 else ()
