"""Two releases of one project as edits: a folder or archive each, read without unpacking anything to disk."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import stat
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path, PurePosixPath
from typing import IO, Any

from lookahead_edit.corpus_edits import FileEdit
from lookahead_edit.corpus_files import ContextBounds, decode_text, is_wanted_path, nearest_context
from lookahead_edit.types import InvalidInput

MAX_FILE_BYTES = 1024 * 1024  # larger files are no source code, and are left out
MAX_RELEASE_BYTES = 512 * 1024 * 1024  # unpacked; more is refused as a bomb
MAX_RELEASE_FILES = 100_000

# "package" is what npm writes; a wheel's only folder is a part of the path.
_RELEASE_FOLDER = re.compile(r"package|.+-v?[0-9].*")
_COMPRESSIONS: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}
_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, NotImplementedError)


def read_release(path: Path, suffixes: frozenset[str] = frozenset()) -> dict[str, bytes]:
    """Path to content of the files that people write; an archive's top folder is left out of the paths.

    Nothing is written to disk, so names such as ``../x`` do no harm; links and devices are skipped.

    Raises:
        InvalidInput: missing, no folder and no archive, damaged, or larger than the bounds once unpacked.
    """
    _require_regular(path)
    try:
        files = dict(_read_folder(path, suffixes) if path.is_dir() else _read_archive(path, suffixes))
    except _DAMAGED as error:
        raise InvalidInput(f"expected an archive, but {path.name} is damaged: {error}", param="release") from None
    except OSError as error:
        raise InvalidInput(f"can't read {path}: {error.strerror or error}", param="release") from None
    tops = {name.partition("/")[0] for name in files}
    if not path.is_dir() and len(tops) == 1 and _RELEASE_FOLDER.fullmatch(tops.pop()):
        return {name.partition("/")[2]: data for name, data in files.items()}
    return files


def release_edits(
    old: Mapping[str, bytes],
    new: Mapping[str, bytes],
    *,
    name: str,
    old_version: str,
    new_version: str,
    reasons: Counter[str],
    context: ContextBounds | None = None,
) -> Iterator[FileEdit]:
    """The text files that stand in both releases and differ, by path. The instruction says no more than that.

    `reasons` counts what was left out.
    """
    if num_alone := len(old.keys() ^ new.keys()):
        reasons["in one release only"] += num_alone
    texts: dict[str, str | None] = {}

    def read(path: str) -> str | None:
        if path not in texts:
            texts[path] = decode_text(old[path])
        return texts[path]

    for path in sorted(old.keys() & new.keys()):
        if old[path] == new[path]:
            reasons["unchanged"] += 1
            continue
        before, after = read(path), decode_text(new[path])
        if before is None or after is None:
            reasons["not UTF-8 text"] += 1
            continue
        yield FileEdit(
            id=f"{name}/{old_version}..{new_version}/{path}",
            before=before,
            after=after,
            instruction=f"Update {path} from {name} {old_version} to {new_version}.",
            path=path,
            context=nearest_context(path, old, read, context) if context else (),
        )


def _require_regular(path: Path) -> None:
    """Pipes and devices never end, or can't be read twice."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise InvalidInput(f"can't read {path}: {error.strerror or error}", param="release") from None
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise InvalidInput(f"expected a folder or an archive, but {path} is a pipe or device", param="release")


def _read_folder(root: Path, suffixes: frozenset[str]) -> Iterator[tuple[str, bytes]]:
    num_files = num_bytes = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in sorted(names):
            path = Path(folder, name)
            relative = path.relative_to(root).as_posix()
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode) or not _is_wanted(relative, status.st_size, suffixes):
                continue
            num_files, num_bytes = num_files + 1, num_bytes + status.st_size
            _require_bounds(root, num_files, num_bytes)
            yield relative, path.read_bytes()


def _read_archive(path: Path, suffixes: frozenset[str]) -> Iterator[tuple[str, bytes]]:
    if zipfile.is_zipfile(path):
        yield from _read_zip(path, suffixes)
        return
    with path.open("rb") as file:
        head = file.read(6)
        file.seek(0)
        opener = next((opener for magic, opener in _COMPRESSIONS.items() if head.startswith(magic)), None)
        with opener(file) if opener else nullcontext(file) as opened:
            yield from _read_tar(path, opened, suffixes)


def _read_zip(path: Path, suffixes: frozenset[str]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        # zipfile never gives more of a member than its header says, so the headers can be trusted here.
        _require_bounds(path, len(members), sum(member.file_size for member in members))
        for member in members:
            kind = stat.S_IFMT(member.external_attr >> 16)
            is_encrypted = bool(member.flag_bits & 1)
            if member.is_dir() or kind not in (0, stat.S_IFREG) or is_encrypted:
                continue
            if _is_wanted(member.filename, member.file_size, suffixes):
                yield member.filename, archive.read(member)


def _read_tar(path: Path, opened: IO[bytes], suffixes: frozenset[str]) -> Iterator[tuple[str, bytes]]:
    num_files = 0
    with tarfile.open(fileobj=_Bounded(opened, path), mode="r|") as archive:
        for member in archive:
            num_files += 1
            _require_bounds(path, num_files, 0)
            if not member.isreg() or not _is_wanted(member.name, member.size, suffixes):
                continue
            content = archive.extractfile(member)
            assert content is not None
            yield member.name.removeprefix("./"), content.read()


class _Bounded(io.RawIOBase):
    """Refuses to give more than a release may hold: headers of tar members may lie, what is read does not."""

    def __init__(self, opened: IO[bytes], path: Path) -> None:
        self._opened = opened
        self._path = path
        self._num_bytes = 0

    def read(self, size: int = -1) -> bytes:
        _require_bounds(self._path, 0, self._num_bytes + max(size, 0))
        data = self._opened.read(size if size >= 0 else MAX_RELEASE_BYTES)
        self._num_bytes += len(data)
        return data


def _is_wanted(name: str, num_bytes: int, suffixes: frozenset[str]) -> bool:
    return 0 < num_bytes <= MAX_FILE_BYTES and ".." not in PurePosixPath(name).parts and is_wanted_path(name, suffixes)


def _require_bounds(path: Path, num_files: int, num_bytes: int) -> None:
    if num_files > MAX_RELEASE_FILES or num_bytes > MAX_RELEASE_BYTES:
        raise InvalidInput(
            f"expected a release of at most {MAX_RELEASE_FILES} files and {MAX_RELEASE_BYTES} bytes, "
            f"got more in {path.name}",
            param="release",
        )
