"""What a data set's tests may do: pass, fail, and nothing to the machine. And task quality, judged by such tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import sandbox
from benchmarks.matrix_quality import Judged, print_quality, read_records
from benchmarks.sandbox import run_python
from lookahead_edit.types import InvalidInput


@pytest.mark.parametrize(
    ("program", "passes"),
    [
        ("assert 1 + 1 == 2\n", True),
        ("assert 1 + 1 == 3\n", False),
        ("this is no Python\n", False),
        ("import sys\nsys.exit(3)\n", False),
        ("'\udcff'\n", False),
        ("if __name__ == '__main__':\n    open('own file', 'w').write('x')\n", True),
        ("open('large', 'wb').write(bytes(64 * 1024**2))\n", False),
        ("x = bytearray(8 * 1024**3)\n", False),
        ("import os\nassert 'SECRET' not in os.environ\n", True),
    ],
)
def test_a_program_passes_by_ending_without_an_error(
    program: str, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "x")
    assert run_python(program) is passes


def test_a_program_that_does_not_end_fails() -> None:
    assert not run_python("while True:\n    pass\n", max_seconds=0.5)


@pytest.mark.skipif(not sandbox._without_network(), reason="this system lets no ordinary process leave its network")
def test_a_program_has_no_network() -> None:
    # Even loopback is down in a network of its own.
    assert run_python("import socket\ntry:\n    socket.create_connection(('127.0.0.1', 9), 1)\n"
                      "except OSError as error:\n    assert error.errno == 101, error\n")  # fmt: skip


def test_the_folder_is_gone_afterwards(tmp_path: Path) -> None:
    found = tmp_path / "where"
    assert run_python(f"import os\nopen({str(found)!r}, 'w').write(os.getcwd())\n")
    assert not Path(found.read_text(encoding="utf-8")).exists()


def test_records_without_tests_are_named_by_their_line(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    whole = dict.fromkeys(("id", "before", "after", "tests", "instruction_descriptive"), "x")
    path.write_text(json.dumps(whole) + "\n\n" + json.dumps(whole | {"id": 2}) + "\n", encoding="utf-8")
    assert len(read_records(path)) == 2
    path.write_text(json.dumps(whole) + '\n{"id": 1}\n', encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"line 2 .* before, after, tests"):
        read_records(path)
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="got none"):
        read_records(path)


def test_quality_counts_only_where_the_tests_run_here(capsys: pytest.CaptureFixture[str]) -> None:
    found = [Judged("a", True, True, True, True), Judged("b", False, True, False, False)]
    assert print_quality(found, "m", is_markdown=True) == 0
    assert "| 2 | 1 | 1 | 1 | 0 |" in capsys.readouterr().out
    assert print_quality([Judged("a", True, True, True, False)], "m", is_markdown=False) == 1
