"""Runs `lookahead-edit corpus` in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from lookahead_edit import cli

# Exit status, the traces on standard output, and standard error.
RunCorpus: TypeAlias = Callable[..., tuple[int, list[dict[str, Any]], str]]


def corpus_command(capsysbinary: pytest.CaptureFixture[bytes]) -> RunCorpus:
    """For a fixture ``run``, called as ``run("from-git", path)``."""

    def run_main(*arguments: object) -> tuple[int, list[dict[str, Any]], str]:
        with pytest.raises(SystemExit) as exit_info:
            cli.main(["corpus", *map(str, arguments)])
        captured = capsysbinary.readouterr()
        traces = [json.loads(line) for line in captured.out.splitlines()]
        return int(exit_info.value.code or 0), traces, captured.err.decode()

    return run_main
