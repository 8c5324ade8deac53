"""Files are read strictly, and replaced whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lookahead_edit.cli_files import diff_path, read_text_file, replace_text_file, require_writable
from lookahead_edit.types import InvalidInput

NOBODY = 65534
BEFORE = "".join(f"line_{number} = {number * 7}\n" for number in range(12))
AFTER = BEFORE.replace("line_5 = 35", "line_5 = 36")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.py"
    path.write_bytes(BEFORE.encode())
    return path


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("shop.py", "shop.py"),
        ("./a/../shop.py", "shop.py"),
        ("a/shop.py", "a/shop.py"),
        ("HERE/a/shop.py", "a/shop.py"),
        ("LINK/a/shop.py", "a/shop.py"),
        ("../shop.py", "ROOT/shop.py"),
        ("ROOT/shop.py", "ROOT/shop.py"),
        ("/shop.py", "shop.py"),
        ("HERE-too/shop.py", "HERE-too/shop.py"),
    ],
)
def test_a_diff_names_files_from_here_or_from_the_root(
    tmp_path: Path, name: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path.resolve()
    (root / "here").mkdir()
    (root / "link").symlink_to("here")
    monkeypatch.chdir(root / "here")
    places = {"HERE": root / "here", "LINK": root / "link", "ROOT": root}
    for word, place in places.items():
        name, path = name.replace(word, str(place)), path.replace(word, str(place).lstrip("/"))
    assert diff_path(name) == path


def test_a_file_changed_meanwhile_is_not_overwritten(file: Path) -> None:
    source = read_text_file(str(file))
    file.write_text("something else\n")
    with pytest.raises(InvalidInput, match="changed by someone else"):
        replace_text_file(source, AFTER)
    assert file.read_text() == "something else\n"
    assert os.listdir(file.parent) == ["numbers.py"]


def test_a_failed_rename_leaves_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(InvalidInput, match=r"can't write .*: Operation not permitted"):
        replace_text_file(read_text_file(str(file)), AFTER)
    assert file.read_bytes() == BEFORE.encode()
    assert os.listdir(file.parent) == ["numbers.py"]


def test_no_space_leaves_the_file(file: Path) -> None:
    resource = pytest.importorskip("resource", reason="no limits on file sizes here")
    source = read_text_file(str(file))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(InvalidInput, match="File too large"):
            replace_text_file(source, "x = 1\n" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.read_bytes() == BEFORE.encode()
    assert os.listdir(file.parent) == ["numbers.py"]


@pytest.fixture
def unprivileged() -> Iterator[Callable[[], None]]:
    """Root may write everything, so it becomes somebody else for a while."""
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    yield lambda: os.seteuid(NOBODY) if is_root else None
    if is_root:
        os.seteuid(0)


def test_missing_permissions_are_named_before_the_model_runs(unprivileged: Callable[[], None]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        path = Path(directory, "numbers.py")
        path.write_text(BEFORE)
        path.chmod(0o444)
        source = read_text_file(str(path))
        if os.geteuid() != 0:
            os.chmod(directory, 0o555)
        unprivileged()
        with pytest.raises(InvalidInput, match="the file is read-only"):
            require_writable(source)
        _as_owner(lambda: path.chmod(0o666))
        with pytest.raises(InvalidInput, match="no permission to make a file in"):
            replace_text_file(source, AFTER)
        assert path.read_text() == BEFORE
        _as_owner(lambda: path.chmod(0o000))
        with pytest.raises(InvalidInput, match="Permission denied"):
            read_text_file(str(path))
        _as_owner(lambda: os.chmod(directory, 0o755))
        if os.getuid() == 0:
            os.seteuid(0)


def _as_owner(act: Callable[[], None]) -> None:
    acting = os.geteuid()
    if os.getuid() == 0:
        os.seteuid(0)
    act()
    os.seteuid(acting)


def test_a_pipe_can_be_edited(file: Path) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, BEFORE.encode())
    os.close(write_end)
    try:
        assert read_text_file(f"/dev/fd/{read_end}").text == BEFORE
    finally:
        os.close(read_end)
