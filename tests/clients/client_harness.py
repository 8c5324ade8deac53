"""Servers for real clients, and the environments these live in; `make test-clients` sets them up."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_harness import wait_until

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parents[1] / ".clients"


def environment(name: str) -> Path:
    """The folder of an environment; skips the test where it isn't set up."""
    folder = ENVIRONMENTS / name
    if not (folder / ".ready").is_file():
        pytest.skip(f"{folder} is not set up: make test-clients")
    return folder


def run_python(name: str, script: str, *arguments: str) -> Any:
    """What a script prints last in the named environment, read as JSON."""
    return _last_line_of([str(environment(name) / "bin/python"), str(HERE / script), *arguments])


def run_node(script: str, *arguments: str) -> Any:
    """The same for Node.js."""
    return _last_line_of(["node", str(node_script(script)), *arguments])


def node_script(name: str) -> Path:
    """The script beside the packages that it imports, which is where Node.js looks for them."""
    return Path(shutil.copy(HERE / name, environment("node")))


def _last_line_of(command: list[str]) -> Any:
    # litellm would ask the network for prices.
    environ = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    finished = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=environ)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


@contextmanager
def default_server() -> Iterator[str]:
    """The address of a server of the default model, in a process of its own."""
    command = [sys.executable, "-m", "lookahead_edit.cli", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            match = re.search(r"http://127\.0\.0\.1:\d+", process.stderr.readline())
            assert match, process.stderr.read()
            wait_until(lambda: httpx.get(f"{match[0]}/health", trust_env=False).status_code == 200, seconds=600)
            yield match[0]
        finally:
            process.terminate()
