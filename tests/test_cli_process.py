"""The command line as a process of its own: exit status, signals, pipes, and the default model end to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

BEFORE = "".join(f"line_{number} = {number * 7}\n" for number in range(12))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.py"
    path.write_bytes(BEFORE.encode())
    return path


def process(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "lookahead_edit.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, timeout=120, **options)


def test_an_unknown_model_is_refused_in_one_line(file: Path) -> None:
    for model, message in (
        ("./none", "no such model: './none' is no directory, GGUF file or hub id"),
        ("none/such-model", "model 'none/such-model' not found"),
        ("no good name", "no such model"),
    ):
        done = process("edit", file, "-i", "x", "--model", model)
        (line,) = done.stderr.decode().splitlines()
        assert done.returncode == 2
        assert line.startswith(f"error: {message}")
        assert done.stdout == b""


def test_serve_refuses_an_unknown_model_in_one_line(tmp_path: Path) -> None:
    for model, message in (
        ("./none", "no such model: './none' is no directory, GGUF file or hub id"),
        (tmp_path, f"can't load {tmp_path}: the directory has no config.json"),
    ):
        done = process("serve", "--port", "0", "--model", model)
        assert (done.returncode, done.stdout, done.stderr.decode()) == (2, b"", f"error: {message}\n")


def test_a_broken_gguf_is_refused_in_one_line(file: Path, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(range(200)))
    done = process("edit", file, "-i", "x", "--model", tmp_path / "model.gguf")
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode == 2
    assert line.startswith(f"error: can't load {tmp_path / 'model.gguf'}: ")


def test_errors_come_before_torch_is_imported(file: Path) -> None:
    code = (
        "import sys, lookahead_edit.cli as cli\n"
        "try: cli.main(['edit', sys.argv[1], '-i', ''])\n"
        "except SystemExit as error: assert error.code == 2\n"
        "assert not {'torch', 'transformers', 'numba'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(file)], check=True, timeout=120, capture_output=True)


SLOW_EDITOR = """
import sys, time
from lookahead_edit import cli, cli_edit
from lookahead_edit.editor import Editor
from lookahead_edit.targets.recorded import RecordedTarget
from lookahead_edit.tokenizer import ByteTokenizer

class Slow(RecordedTarget):
    def verify(self, rows):
        print("running", flush=True)
        time.sleep(0.2)
        return super().verify(rows)

target = Slow(lambda prompt: ByteTokenizer().encode("x" * 5000), end_token_id=257)
cli_edit.open_editor = lambda *_: Editor(target, ByteTokenizer())
cli.main(sys.argv[1:])
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
def test_interrupting_leaves_the_file_and_exits_with_130(file: Path) -> None:
    arguments = ["edit", str(file), "-i", "x", "--write", "--max-tokens", "4000"]
    with subprocess.Popen(
        [sys.executable, "-c", SLOW_EDITOR, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"running\n"
        time.sleep(0.3)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert errors.decode() == "interrupted\n"
    assert file.read_bytes() == BEFORE.encode()
    assert os.listdir(file.parent) == ["numbers.py"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_standard_output_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lookahead_edit.cli", "--version"], stdout=full, stderr=subprocess.PIPE, timeout=120
        )
    assert done.returncode == 2
    assert done.stderr.decode() == "error: can't write to standard output: No space left on device\n"


def test_a_reader_that_went_away_is_no_traceback() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "lookahead_edit.cli", "--version"],
            stdout=write_end,
            stderr=subprocess.PIPE,
            timeout=120,
        )
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.slow
def test_the_default_model_edits_a_file(file: Path) -> None:
    file.write_text("LIMIT = 10\n\n\ndef is_full(items):\n    return len(items) >= LIMIT\n")
    done = process("edit", file, "-i", "Set LIMIT to 25.", "--json", "--compare")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["text"] == file.read_text().replace("10", "25")
    assert document["plain"]["identical"] is True
    assert document["metrics"]["tokens_per_round"] > 2.0


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
@pytest.mark.parametrize("seconds", [0.0, 0.2, 0.6, 1.2, 2.5])
def test_interrupting_an_import_is_one_line_too(file: Path, seconds: float) -> None:
    """Wherever it hits: the command's own packages, torch, transformers, or the model that is loaded."""
    code = "print('begun', flush=True)\nfrom lookahead_edit.cli_start import main\nmain()"
    command = [sys.executable, "-c", "import lookahead_edit\n" + code, "edit", str(file), "-i", "x", "--write"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"begun\n"
        time.sleep(0.05 + seconds)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    assert (running.returncode, errors.decode()) == (130, "interrupted\n")
    assert file.read_bytes() == BEFORE.encode()


def test_what_is_dropped_is_printed_unless_it_is_the_interrupt() -> None:
    """Python prints what a destructor raises, an extension what an import within it does; both then go on."""
    code = """
import signal, sys
from lookahead_edit.cli_interrupt import remembering_interrupts, was_interrupted

class Dropping:
    def __init__(self, fail):
        self.fail = fail

    def __del__(self):
        self.fail()

def printing(fail):
    try:
        fail()
    except BaseException:
        sys.excepthook(*sys.exc_info())  # as PyErr_Print does

def interrupt():
    signal.raise_signal(signal.SIGINT)

with remembering_interrupts():
    Dropping(interrupt)
    printing(interrupt)
    assert was_interrupted()
    Dropping(lambda: 1 / 0)
    printing(lambda: int("no number"))
assert (sys.unraisablehook, sys.excepthook) == (sys.__unraisablehook__, sys.__excepthook__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "KeyboardInterrupt" not in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert "ValueError" in done.stderr


def test_an_error_that_an_interrupt_was_turned_into_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lookahead_edit import cli

    def fail(**_: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise ImportError("initialization failed") from error

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as exit_info:
        cli.main([])
    assert (exit_info.value.code, capsys.readouterr().err) == (130, "interrupted\n")

    def fail_alone(**_: object) -> None:
        raise ImportError("no such package")

    monkeypatch.setattr(cli, "app", fail_alone)
    with pytest.raises(ImportError, match="no such package"):
        cli.main([])
