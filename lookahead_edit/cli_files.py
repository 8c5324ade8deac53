"""Reads and writes the files of the command line: strictly, and all or nothing. Knows no model.

Every failure is an InvalidInput of one line; a file is either replaced whole or left as it was.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from typing import BinaryIO, TextIO

from lookahead_edit.text_lines import BOM
from lookahead_edit.types import InvalidInput

STDIN = "-"


@dataclass(frozen=True, slots=True)
class TextFile:
    """A text as it was read: `text` has every byte of `data`, line ends and byte order mark included."""

    name: str  # as the caller wrote it; "-" is standard input
    data: bytes
    text: str

    @property
    def path(self) -> str | None:
        return None if self.name == STDIN else self.name

    @property
    def label(self) -> str:
        """What messages call it."""
        return label_of(self.name)

    @property
    def diff_path(self) -> str | None:
        """The path that a diff names; None for standard input. See `diff_path`."""
        return None if self.name == STDIN else diff_path(self.name)


def read_text_file(name: str, *, may_be_empty: bool = False) -> TextFile:
    """Reads a UTF-8 text file, or standard input for ``"-"``.

    Raises:
        InvalidInput: missing, unreadable, a directory or device, binary, not UTF-8, or empty.
    """
    label = label_of(name)
    data = sys.stdin.buffer.read() if name == STDIN else _read_bytes(name)
    if b"\0" in data:
        raise _unreadable(f"expected a text file, but {label} is binary (a NUL byte at offset {data.index(0)})")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _unreadable(
            f"expected UTF-8, but {label} has the byte 0x{data[error.start]:02x} at offset {error.start}"
        ) from None
    if not may_be_empty and not text.removeprefix(BOM):
        raise _unreadable(f"expected a text, but {label} is empty")
    return TextFile(name, data, text)


def _read_bytes(name: str) -> bytes:
    path = Path(name)
    try:
        mode = path.stat().st_mode
        # A pipe is welcome: <(command) gives one.
        kind = "a directory" if stat.S_ISDIR(mode) else "a device or socket"
        if stat.S_ISREG(mode) or stat.S_ISFIFO(mode):
            return path.read_bytes()
    except OSError as error:
        raise _unreadable(f"can't read {label_of(name)}: {reason_of(error)}") from None
    except ValueError:  # a NUL in the name
        raise _unreadable(f"can't read {name}: not a file name") from None
    raise _unreadable(f"expected a file, but {name} is {kind}")


def diff_path(name: str) -> str:
    """The name of a file in a diff: git and patch take neither absolute names nor ``..``.

    From the current directory (``patch -p1``) where the file lies inside it, else from the root (``patch -p1 -d /``).

    Example: in ``/home/ann``, ``/home/ann/shop.py`` is ``"shop.py"`` and ``../bob/shop.py`` is ``"home/bob/shop.py"``.
    """
    directory, absolute = Path.cwd(), Path(os.path.abspath(name))
    if not absolute.is_relative_to(directory):
        # The working directory has no symbolic links in it, the name that was given may.
        absolute = absolute.parent.resolve() / absolute.name
    inside = absolute.is_relative_to(directory)
    return absolute.relative_to(directory if inside else absolute.anchor).as_posix()


def is_same_file(output: str, source: str) -> bool:
    """Whether writing `output` would change what is read from `source`; ``-`` are standard output and input.

    Only regular files are: a terminal or a pipe can be both.
    """
    written, read = _status(output, sys.stdout), _status(source, sys.stdin)
    if written is None or read is None or not stat.S_ISREG(written.st_mode):
        return False
    return os.path.samestat(written, read)


def _status(name: str, stream: TextIO) -> os.stat_result | None:
    """None where there is no such file, or the stream is none of the system's."""
    with suppress(OSError, ValueError):
        return os.fstat(stream.fileno()) if name == STDIN else os.stat(name)
    return None


def require_writable(file: TextFile) -> None:
    """Says before the model runs that `replace_text_file` could not succeed."""
    if file.name == STDIN:
        raise InvalidInput("expected a file to write to, but standard input was read; leave out --write", param="write")
    target = Path(file.name).resolve()
    if not target.is_file():
        raise _unwritable(f"can't write {file.name}: not a regular file")
    if not _may(target, os.W_OK):
        raise _unwritable(f"can't write {file.name}: the file is read-only")
    if not _may(target.parent, os.W_OK | os.X_OK):
        raise _unwritable(f"can't write {file.name}: no permission to make a file in {target.parent}")


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def replace_text_file(file: TextFile, text: str) -> None:
    """Replaces the file's content in one step; mode and, where allowed, owner are kept, symbolic links followed.

    Raises:
        InvalidInput: no space, no permission, or the file was changed since it was read. It is untouched then.
    """
    require_writable(file)
    target = Path(file.name).resolve()
    try:
        with _file_beside(target) as output:
            output.write(text.encode("utf-8"))
            output.flush()
            status = target.stat()
            with suppress(PermissionError, AttributeError):
                os.chown(output.name, status.st_uid, status.st_gid)
            os.chmod(output.name, stat.S_IMODE(status.st_mode))
            os.fsync(output.fileno())
            output.close()
            if target.read_bytes() != file.data:
                raise _unwritable(f"{file.name} was changed by someone else in the meantime; it was not written")
            os.replace(output.name, target)
        _sync_directory(target.parent)
    except OSError as error:
        raise _unwritable(f"can't write {file.name}: {reason_of(error)}") from None


def require_place(name: str, *, param: str) -> None:
    """Says before anything is worked out that `whole_file` could not succeed. Raises InvalidInput, naming `param`."""
    if not name:
        raise InvalidInput("expected the name of a file to write, got an empty one", param=param)
    path, reason = Path(name), ""
    try:
        status = None
        with suppress(FileNotFoundError, NotADirectoryError):
            status = path.stat()
        if status is not None and stat.S_ISDIR(status.st_mode):
            reason = "it is a directory"
        elif status is not None and not stat.S_ISREG(status.st_mode):
            reason = "" if _may(path, os.W_OK) else "no permission"
        elif not path.parent.is_dir():
            reason = f"there is no directory {path.parent}"
        elif not _may(Path(os.path.realpath(name)).parent, os.W_OK | os.X_OK):
            reason = f"no permission to make a file in {path.parent}"
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else "not a file name"
    if reason:
        raise InvalidInput(f"can't write {name}: {reason}", param=param, code="unwritable_file")


@contextmanager
def whole_file(name: str, *, param: str) -> Iterator[BinaryIO]:
    """A file that is there, with what the block wrote, once the block has ended well; else all is as it was.

    Mode bits of a file that was there are kept, symbolic links followed, pipes and devices written to as they are.
    Raises InvalidInput, which names `param`, where the file can't be written.
    """
    try:
        path = Path(os.path.realpath(name))  # unlike resolve, says nothing of a link that leads to itself
        if path.exists() and not path.is_file():
            with path.open("wb") as device:
                yield device
            return
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666 & ~_umask()
        with _file_beside(path) as file:
            yield file
            file.close()
            os.chmod(file.name, mode)
            os.replace(file.name, path)
    except (OSError, ValueError) as error:
        if not isinstance(error, OSError) and "\0" not in name:
            raise
        reason = reason_of(error) if isinstance(error, OSError) else "not a file name"
        raise InvalidInput(f"can't write {name}: {reason}", param=param, code="unwritable_file") from None


@contextmanager
def _file_beside(path: Path) -> Iterator[BufferedWriter]:
    """An empty file in the same directory, gone at the end unless it took the place of `path` by then."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:64]}.", suffix=".tmp")
    try:
        with open(temporary, "wb", opener=lambda *_: descriptor) as file:
            yield file
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def write_standard_output(text: str) -> None:
    """Bytes as they are, so that line ends survive; raises InvalidInput where they can't be written.

    A reader that went away (``| head``) raises BrokenPipeError.
    """
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()
    except OSError as error:
        abandon_standard_output()
        if isinstance(error, BrokenPipeError):
            raise
        raise _unwritable(f"can't write to standard output: {reason_of(error)}") from None


def abandon_standard_output() -> None:
    """Nothing more is written: what is still buffered would fail again at exit, with a message of Python's own."""
    with suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _sync_directory(directory: Path) -> None:
    """Makes the rename last; a system that can't open directories is no reason to fail."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def label_of(name: str) -> str:
    """What messages call a file."""
    return "standard input" if name == STDIN else name or "''"


def _unreadable(message: str) -> InvalidInput:
    return InvalidInput(message, param="file", code="unreadable_file")


def _unwritable(message: str) -> InvalidInput:
    return InvalidInput(message, param="file", code="unwritable_file")


def reason_of(error: OSError) -> str:
    """What the system says."""
    return error.strerror or str(error) or type(error).__name__
