"""Where the text and the figures meet: on a terminal, in pipes and in files, seen from a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = b"one two three"  # no line end
SCRIPT = """
import sys
from lookahead_edit import cli, cli_edit
from lookahead_edit.editor import Editor
from lookahead_edit.targets.recorded import RecordedTarget
from lookahead_edit.tokenizer import ByteTokenizer

class Target(RecordedTarget):
    def verify(self, rows):
        if "--no-speculation" in sys.argv:
            self.num_rounds = getattr(self, "num_rounds", 0) + 1
            if self.num_rounds > 5:
                raise KeyboardInterrupt
        return super().verify(rows)

target = Target(lambda prompt: ByteTokenizer().encode("one two three"), end_token_id=257)
cli.open_editor = cli_edit.open_editor = lambda *_: Editor(target, ByteTokenizer())
cli.main(sys.argv[1:])
"""


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", SCRIPT, *map(str, arguments)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file.txt"
    path.write_bytes(TEXT)
    return path


@pytest.fixture(params=["generate", "edit"])
def arguments(request: pytest.FixtureRequest, file: Path) -> list[str]:
    return {"generate": ["generate", "Count."], "edit": ["edit", str(file), "-i", "Nothing."]}[request.param]


class Terminal:
    """A pseudo-terminal; `read` gives what was written to it after `process` has ended."""

    def __init__(self) -> None:
        pty = pytest.importorskip("pty", reason="no terminals here")
        self.reader, self.writer = pty.openpty()

    def read(self, process: subprocess.Popen[bytes]) -> bytes:
        os.close(self.writer)
        shown = b""
        while True:
            try:
                piece = os.read(self.reader, 65536)
            except OSError:  # what Linux answers once nobody holds the other end
                piece = b""
            if not piece:
                break
            shown += piece
        os.close(self.reader)
        process.wait(60)
        return shown.replace(b"\r\n", b"\n")


def without_live_line(shown: bytes) -> bytes:
    """Without the codes that draw and erase the moving line."""
    return shown.rpartition(b"\x1b[2K")[2].rpartition(b"\x1b[?25h")[2]


def test_on_a_terminal_the_figures_have_a_line_of_their_own(arguments: list[str]) -> None:
    terminal = Terminal()
    with subprocess.Popen(command(*arguments), stdout=terminal.writer, stderr=terminal.writer) as process:
        lines = terminal.read(process).splitlines()
    assert process.returncode == 0
    assert any(line.endswith(TEXT) for line in lines[:-1])
    assert b" tokens in " in lines[-1]
    assert TEXT not in lines[-1]


def test_on_a_terminal_a_quiet_text_still_ends_its_line(arguments: list[str]) -> None:
    terminal = Terminal()
    with subprocess.Popen(command(*arguments, "-q"), stdout=terminal.writer, stderr=terminal.writer) as process:
        assert terminal.read(process) == TEXT + b"\n"


def test_a_pipe_gets_the_text_of_a_file_as_it_is_and_the_figures_begin_a_line(file: Path) -> None:
    terminal = Terminal()
    edit = command("edit", file, "-i", "Nothing.")
    with subprocess.Popen(edit, stdout=subprocess.PIPE, stderr=terminal.writer) as process:
        shown = without_live_line(terminal.read(process))
        assert process.stdout is not None
        assert process.stdout.read() == TEXT
    assert shown.startswith(b"\n")
    assert b" tokens in " in shown


def test_a_file_gets_the_text_and_the_terminal_no_empty_line(tmp_path: Path, arguments: list[str]) -> None:
    terminal = Terminal()
    with (
        open(tmp_path / "out", "wb") as output,
        subprocess.Popen(command(*arguments), stdout=output, stderr=terminal.writer) as process,
    ):
        shown = without_live_line(terminal.read(process))
    assert (tmp_path / "out").read_bytes() == (TEXT if arguments[0] == "edit" else TEXT + b"\n")
    assert not shown.startswith(b"\n")
    assert b" tokens in " in shown


def test_text_and_figures_in_one_file_are_parted_by_a_line_end(tmp_path: Path, arguments: list[str]) -> None:
    with open(tmp_path / "out", "wb") as output:
        subprocess.run(command(*arguments), stdout=output, stderr=subprocess.STDOUT, check=True, timeout=120)
    first, *rest = (tmp_path / "out").read_bytes().splitlines()
    assert first == TEXT
    assert b" tokens in " in rest[-1]
    with open(tmp_path / "out", "wb") as output:
        subprocess.run(command(*arguments, "-q"), stdout=output, stderr=subprocess.STDOUT, check=True, timeout=120)
    assert (tmp_path / "out").read_bytes() == (TEXT if arguments[0] == "edit" else TEXT + b"\n")


def test_two_pipes_get_what_is_theirs(arguments: list[str]) -> None:
    done = subprocess.run(command(*arguments), capture_output=True, check=True, timeout=120)
    assert done.stdout == (TEXT if arguments[0] == "edit" else TEXT + b"\n")
    assert not done.stderr.startswith(b"\n")


def test_an_interruption_has_a_line_of_its_own_too() -> None:
    terminal = Terminal()
    arguments = ["generate", "Count.", "--no-speculation"]
    with subprocess.Popen(command(*arguments), stdout=terminal.writer, stderr=terminal.writer) as process:
        lines = terminal.read(process).splitlines()
    assert process.returncode == 130
    assert lines[-2:] == [TEXT[: len(lines[-2])], b"interrupted"]
    assert 0 < len(lines[-2]) < len(TEXT)
