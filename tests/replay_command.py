"""Runs `lookahead-edit replay` in this process, on two small traces, one of them with an output that means harm."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from lookahead_edit import cli, cli_replay
from lookahead_edit.cli_display import Display
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.traces import Trace, format_trace

FILE = "".join(f"line_{number} = {number * 7}\n" for number in range(12))
HOSTILE = "</pre><script>alert('1')</script>&amp;\x1b[2J\x00\t\"é☕\ufffd\r\u202e<b title='x'>"
TRACES = [
    Trace("first", f"Edit.\n{FILE}", FILE.replace("35", "36"), FILE),
    Trace("<b>second</b>", f"Edit.\n{FILE}", FILE + HOSTILE, FILE),
]


class Outcome:
    def __init__(self, status: int, stdout: str, stderr: str) -> None:
        self.status, self.stdout, self.stderr = status, stdout, stderr

    @property
    def error(self) -> str:
        """The one line that says what is wrong."""
        (line,) = self.stderr.splitlines()
        assert line.startswith("error: ")
        assert (self.status, self.stdout) == (2, "")
        return line


Run = Callable[..., Outcome]


def write_samples(directory: Path) -> Path:
    """TRACES, as a file."""
    path = directory / "traces.jsonl"
    path.write_bytes(b"".join(map(format_trace, TRACES)))
    return path


def replay_command(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    """The command with a token for each byte, unless a tokenizer is named."""
    open_tokenizer = cli_replay.open_tokenizer

    def open_bytes(name: str | None, display: Display) -> Any:
        return ByteTokenizer() if name is None else open_tokenizer(name, display)

    monkeypatch.setattr(cli_replay, "open_tokenizer", open_bytes)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return command("replay", monkeypatch, capsysbinary)


def command(name: str, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs a command of the command line in this process, which says nothing of what takes long."""
    # Kernels may have to be compiled first.
    monkeypatch.setattr("lookahead_edit.cli_display.PATIENCE_SECONDS", 600.0)

    def run_main(*arguments: str | Path, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin))))
        with pytest.raises(SystemExit) as exit_info:
            cli.main([name, *map(str, arguments)])
        captured = capsysbinary.readouterr()
        return Outcome(int(exit_info.value.code or 0), captured.out.decode(), captured.err.decode())

    return run_main


def when_said(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Set by the first line that the command says."""
    said, say = Event(), Display.say

    def tell(display: Display, line: str) -> None:
        say(display, line)
        said.set()

    monkeypatch.setattr(Display, "say", tell)
    return said
