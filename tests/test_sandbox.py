"""What a data set's tests may do: pass, fail, and nothing to the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import sandbox
from benchmarks.sandbox import run_python


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
