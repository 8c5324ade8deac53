"""No command writes over what it reads, whatever name the file goes by."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from corpus_command import RunCorpus, corpus_command
from replay_command import replay_command, write_samples
from test_corpus_builders import PYTHON

from lookahead_edit.cli_files import is_same_file

SOURCE = "".join(f"def function_{number}(value):\n    return value + {number}\n\n\n" for number in range(8))
TRACE = {"id": "a", "prompt": f"Do it.\n```python\n{SOURCE}```", "output": SOURCE, "source": SOURCE}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "traces.jsonl"
    path.write_text(json.dumps(TRACE) + "\n", "utf-8")
    return path


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes]) -> RunCorpus:
    return corpus_command(capsysbinary)


@pytest.mark.parametrize("command", ["rename", "reindent", "canitedit", "blazedit"])
@pytest.mark.parametrize("kind", ["the same name", "a detour", "a symbolic link", "a hard link"])
def test_a_corpus_is_not_written_over_its_input(file: Path, run: RunCorpus, command: str, kind: str) -> None:
    other = file.with_name("other.jsonl")
    if kind == "a symbolic link":
        other.symlink_to(file)
    elif kind == "a hard link":
        os.link(file, other)
    else:
        other = file if kind == "the same name" else file.parent / ".." / file.parent.name / file.name
    before = file.read_bytes()
    status, traces, error = run(command, file, "-o", other)
    assert (status, traces) == (2, [])
    assert error == f"error: expected --output to be another file than the input, got {other}\n"
    assert file.read_bytes() == before


def test_a_corpus_is_not_written_over_a_file_of_the_folders_that_are_compared(tmp_path: Path, run: RunCorpus) -> None:
    for folder, text in (("old", SOURCE), ("new", SOURCE.replace("value", "number"))):
        (tmp_path / folder / "src").mkdir(parents=True)
        (tmp_path / folder / "src" / "a.py").write_text(text, "utf-8")
    output = tmp_path / "new" / "src" / "a.py"
    status, _, error = run("from-directories", tmp_path / "old", tmp_path / "new", "-o", output, "--max-changed", "1")
    assert (status, "expected --output to be another file" in error) == (2, True)
    assert output.read_text("utf-8") == SOURCE.replace("value", "number")
    for archive in ("old.zip", "new.zip"):
        (tmp_path / archive).write_bytes(b"PK")
        status, _, error = run("from-directories", tmp_path / "old.zip", tmp_path / "new.zip", "-o", tmp_path / archive)
        assert (status, "expected --output to be another file" in error) == (2, True)


def test_a_corpus_may_be_written_over_another_file(file: Path, run: RunCorpus) -> None:
    other = file.with_name("other.jsonl")
    other.write_text("old", "utf-8")
    file.write_text(
        json.dumps({"id": "a", "prompt": f"Do it.\n```python\n{PYTHON}```", "output": "x", "source": PYTHON})
    )
    status, _, error = run("rename", file, "-o", other)
    assert (status, error) == (0, "1 trace\n")
    assert json.loads(other.read_text("utf-8"))["id"] == "a#rename"


def test_standard_input_and_output_are_files_too(file: Path) -> None:
    command = [sys.executable, "-m", "lookahead_edit.cli", "corpus", "rename"]
    before = file.read_bytes()
    with file.open("rb") as stdin:
        finished = subprocess.run(
            [*command, "-", "-o", str(file)], stdin=stdin, capture_output=True, text=True, timeout=120, check=False
        )
    assert (finished.returncode, "another file than the input" in finished.stderr) == (2, True)
    with file.open("ab") as stdout:  # as >> does it: what is written would be read
        finished = subprocess.run(
            [*command, str(file)], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120, check=False
        )
    assert (finished.returncode, "got standard output" in finished.stderr) == (2, True)
    assert file.read_bytes() == before


def test_replay_writes_no_rows_over_traces_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = write_samples(tmp_path)
    before = path.read_bytes()
    run = replay_command(monkeypatch, capsysbinary)
    for options in (["--per-trace", path], ["--per-trace", path, "--limit", "1"]):
        assert (
            run(path, *options).error == f"error: expected --per-trace to be another file than the traces, got {path}"
        )
    with path.open("rb") as stdin:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stdin))
        assert is_same_file(str(path), "-")
        assert not is_same_file(str(path.with_name("other")), "-")
    assert path.read_bytes() == before


def test_terminals_and_pipes_may_be_read_and_written() -> None:
    assert not is_same_file(os.devnull, os.devnull)
