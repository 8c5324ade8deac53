"""SIGTERM and SIGHUP end a command as Ctrl-C does: what it was writing is cleared away, and one line says why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from server_harness import wait_until
from test_corpus_builders import trace_line

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of Unix")

COMMAND = [
    sys.executable,
    "-c",
    "from lookahead_edit.cli_start import main; main()",
    "corpus",
    "rename",
    "-",
    "--output",
]


@pytest.fixture(autouse=True)
def hangups_that_are_not_ignored() -> Iterator[None]:
    """Under nohup, whose children ignore them too, as without it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@contextmanager
def writing(output: Path, *, before: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A command that has begun to write its file, and waits for more to read. bash runs `before` first."""
    command = ["bash", "-c", f'{before} exec "$@"', "bash", *COMMAND, str(output)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(trace_line("a"))
            process.stdin.flush()
            wait_until(lambda: process.poll() is not None or hidden(output.parent))
            yield process
        finally:
            process.kill()


def hidden(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".")]


@pytest.mark.parametrize(
    ("number", "status", "line"),
    [
        (signal.SIGINT, 130, b"interrupted\n"),
        (signal.SIGTERM, 143, b"terminated\n"),
        (signal.SIGHUP, 129, b"hung up\n"),
    ],
)
def test_a_signal_leaves_no_half_of_a_file(number: signal.Signals, status: int, line: bytes, tmp_path: Path) -> None:
    output = tmp_path / "renames.jsonl"
    output.write_text("what was there")
    with writing(output) as process:
        assert hidden(tmp_path)
        process.send_signal(number)
        # Standard input stays open: the signal itself ends it.
        assert process.wait(60) == status
        assert process.stderr is not None
        assert process.stderr.read() == line
    assert os.listdir(tmp_path) == ["renames.jsonl"]
    assert output.read_text() == "what was there"


def test_a_second_signal_changes_nothing_about_the_end(tmp_path: Path) -> None:
    output = tmp_path / "renames.jsonl"
    with writing(output) as process:
        for _ in range(20):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.002)
        assert process.wait(60) == 143
        assert process.stderr is not None
        assert process.stderr.read() == b"terminated\n"
    assert os.listdir(tmp_path) == []


def test_little_is_imported_before_signals_are_heard() -> None:
    code = "import sys, lookahead_edit.cli_start; print([name for name in ('numpy', 'typer') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n")


def test_a_command_under_nohup_goes_on(tmp_path: Path) -> None:
    output = tmp_path / "renames.jsonl"
    with writing(output, before="trap '' HUP;") as process:
        process.send_signal(signal.SIGHUP)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, b"1 trace\n")
    assert os.listdir(tmp_path) == ["renames.jsonl"]


def test_programs_that_embed_the_command_keep_their_handlers() -> None:
    code = """
import signal
from lookahead_edit.cli_interrupt import ending, hangups_as_terminations, remembering_interrupts, was_interrupted

def own(number, frame):
    got.append(number)

got = []
signal.signal(signal.SIGTERM, own)
with remembering_interrupts():
    signal.raise_signal(signal.SIGTERM)
    assert got == [signal.SIGTERM] and not was_interrupted()
    with hangups_as_terminations():
        signal.raise_signal(signal.SIGHUP)
        assert got == [signal.SIGTERM] * 2
    try:
        signal.raise_signal(signal.SIGHUP)
    except KeyboardInterrupt:
        assert (ending().status, ending().line) == (129, "hung up")
assert signal.getsignal(signal.SIGTERM) is own
assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""
    reset = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    done = subprocess.run([sys.executable, "-c", reset + code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
