"""The commits of a git repository as edits, through the git command. Streams: memory doesn't grow with the history.

Nothing is checked out and nothing fetched; file contents are read by their object ids, so names never reach a shell.
"""

from __future__ import annotations

import datetime
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import IO

from lookahead_edit.corpus_edits import FileEdit
from lookahead_edit.corpus_files import ContextBounds, decode_text, is_wanted_path, nearest_context
from lookahead_edit.types import ContextFile, InvalidInput

MAX_BLOB_BYTES = 1024 * 1024
MAX_INSTRUCTION_CHARACTERS = 2000
READ_BYTES = 64 * 1024
GIT_YEARS = range(1970, 2100)
NUM_CACHED_TREES = 2  # a commit's files share one, and history is mostly a line

_HEADER = "\x01"  # begins a commit's message in the log, where a changed file begins with a colon
# `git rev-parse --local-env-vars`, but for those of its configuration.
_LOCAL_VARIABLES = frozenset(
    (
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_DIR",
        "GIT_GRAFT_FILE",
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_INTERNAL_SUPER_PREFIX",
        "GIT_NAMESPACE",
        "GIT_NO_REPLACE_OBJECTS",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_REPLACE_REF_BASE",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    )
)
# git takes anything for a date, and makes some day of it. These two forms mean what they say.
_ISO_DATE = re.compile(
    r"(?P<year>\d{4})[-/](?P<month>\d\d?)[-/](?P<day>\d\d?)"
    r"(?:[T ](?P<hour>\d\d?):(?P<minute>\d\d)(?::(?P<second>\d\d))?(?: ?(?:Z|[+-]\d\d:?\d\d))?)?",
    re.ASCII,
)
_PAST = re.compile(
    r"yesterday|last (?:week|month|year)"
    r"|(?:\d{1,4}|an?|one|two|three|four|five|six|seven|eight|nine|ten) (?:hour|day|week|month|year)s? ago",
    re.ASCII,
)
_REGULAR_MODES = ("100644", "100755")
_TRAILER = re.compile(r"\n(?:[A-Za-z]+(?:-[A-Za-z]+)+|Change-Id|git-svn-id): ?[^\n]*\Z")


@dataclass(frozen=True, slots=True)
class HistoryBounds:
    """Which commits are read, newest first. Merges are never read, nor are renamed, added and deleted files."""

    revisions: str = "HEAD"  # or a range, such as v1.0..v2.0
    since: str | None = None  # a date as git takes it
    max_commits: int = 20_000
    max_files_per_commit: int = 20  # a commit that changes more is a mass change


@dataclass(frozen=True, slots=True)
class _Change:
    path: str
    old_blob: str
    new_blob: str


@dataclass(slots=True)
class _Commit:
    id: str
    parent: str
    message: str
    changes: list[_Change]


def git_edits(
    repository: Path,
    bounds: HistoryBounds,
    reasons: Counter[str],
    *,
    suffixes: frozenset[str] = frozenset(),
    context: ContextBounds | None = None,
) -> Iterator[FileEdit]:
    """One edit for each changed file of each commit: its message, the file before and after.

    `reasons` counts what was left out. Close the iterator to end git early.

    Raises:
        InvalidInput: git is missing, this is no repository, there are no such revisions or no commits before them.
    """
    git = _Git(repository)
    num_changes = 0
    with git.blobs() as blobs:
        for commit in islice(git.commits(bounds), min(bounds.max_commits, sys.maxsize)):
            num_changes += len(commit.changes)
            if len(commit.changes) > bounds.max_files_per_commit:
                reasons["in a mass change"] += len(commit.changes)
                continue
            for change in commit.changes:
                if not is_wanted_path(change.path, suffixes):
                    reasons["of another kind"] += 1
                    continue
                before, after = blobs.text(change.old_blob), blobs.text(change.new_blob)
                if not before or not after:
                    reasons["not UTF-8 text, too large or empty"] += 1
                    continue
                yield FileEdit(
                    id=f"{commit.id[:12]}/{change.path}",
                    before=before,
                    after=after,
                    instruction=_instruction(commit.message),
                    path=change.path,
                    context=_context(git, blobs, commit.parent, change.path, context) if context else (),
                )
    if not num_changes and git.is_shallow():
        raise InvalidInput(
            f"expected a history, but {repository} is a shallow clone; git fetch --unshallow gets the rest of it",
            param="repository",
        )


def _context(git: _Git, blobs: _Blobs, parent: str, path: str, bounds: ContextBounds) -> tuple[ContextFile, ...]:
    tree = git.tree(parent, bounds.max_file_characters)
    return nearest_context(path, tree, lambda other: blobs.text(tree[other]), bounds)


def _instruction(message: str) -> str:
    """The message without the trailers at its end, such as Signed-off-by."""
    text = message.strip()
    while match := _TRAILER.search(text):
        text = text[: match.start()].rstrip()
    return text[:MAX_INSTRUCTION_CHARACTERS].rstrip() or "Edit the file."


class _Git:
    def __init__(self, repository: Path) -> None:
        executable = shutil.which("git")
        if executable is None:
            raise InvalidInput("expected git on the path, found none", param="repository")
        if not repository.is_dir():
            raise InvalidInput(f"expected a git repository, but {repository} is no folder", param="repository")
        self._repository = repository
        self._command = [executable, "-C", str(repository), "-c", "core.quotePath=false", "-c", "log.showSignature=no"]
        # No prompt, no lock beside someone's running git, no fetching of blobs that a partial clone lacks.
        fixed = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}
        # What a hook of git sets would lead it to another repository than the one that was named.
        own = {name: value for name, value in os.environ.items() if name not in _LOCAL_VARIABLES}
        self._environment = {**own, **fixed}
        try:
            self._run("rev-parse", "--git-dir")
        except InvalidInput as error:
            reason = "is none" if "not a git repository" in str(error) else f"can't be read: {error}"
            raise InvalidInput(f"expected a git repository, but {repository} {reason}", param="repository") from None
        self.tree = lru_cache(NUM_CACHED_TREES)(self._tree)

    def commits(self, bounds: HistoryBounds) -> Iterator[_Commit]:
        revisions = bounds.revisions.split()
        if not revisions or any(word.startswith("-") for word in revisions):
            raise InvalidInput(f"expected revisions, got {bounds.revisions!r}", param="revisions")
        try:
            self._run("rev-list", "--max-count=1", *revisions, "--")
        except InvalidInput:
            if bounds.revisions == HistoryBounds().revisions:
                raise InvalidInput(f"expected a commit, but {self._repository} has none", param="repository") from None
            raise InvalidInput(
                f"expected revisions of the repository, got {bounds.revisions!r}", param="revisions"
            ) from None
        if bounds.since is not None:
            self._require_date(bounds.since)
        arguments = ["log", "-z", "--raw", "--no-abbrev", "--no-renames", "--no-merges", "--diff-filter=M"]
        arguments += ["--encoding=UTF-8", f"--format={_HEADER}%H %P%n%B"]
        arguments += [] if bounds.since is None else [f"--since={bounds.since}"]
        with self._open([*arguments, *revisions, "--"]) as process:
            assert process.stdout is not None
            yield from _parse_log(_fields(process.stdout))
            if process.wait() != 0:
                raise InvalidInput(f"git log failed in {self._repository}", param="repository")

    def is_shallow(self) -> bool:
        """Whether history was cut off when it was cloned."""
        return self._run("rev-parse", "--is-shallow-repository").strip() == b"true"

    @staticmethod
    def _require_date(since: str) -> None:
        if not (_PAST.fullmatch(since) or _exists(since)):
            raise InvalidInput(
                f"expected a date that exists, such as 2024-01-31, from {GIT_YEARS[0]} to {GIT_YEARS[-1]}, "
                f"or a time such as 'two weeks ago', got {since!r}",
                param="since",
            )

    @contextmanager
    def blobs(self) -> Iterator[_Blobs]:
        with self._open(["cat-file", "--batch"]) as process:
            yield _Blobs(process)

    def _tree(self, commit: str, max_bytes: int) -> dict[str, str]:
        """Path to object id, of the files worth reading as context."""
        found: dict[str, str] = {}
        for entry in self._run("ls-tree", "-r", "-z", "-l", commit).split(b"\0"):
            head, _, name = entry.partition(b"\t")
            path = os.fsdecode(name)
            if not head:
                continue
            mode, _, blob, size = head.decode("ascii").split()
            if mode in _REGULAR_MODES and is_wanted_path(path) and 0 < int(size) <= 4 * max_bytes:
                found[path] = blob
        return found

    def _run(self, *arguments: str) -> bytes:
        if any("\0" in argument for argument in arguments):
            raise InvalidInput("expected no NUL byte in what is said to git, got one", param="repository")
        finished = subprocess.run([*self._command, *arguments], env=self._environment, capture_output=True, check=False)
        if finished.returncode != 0:
            reason = finished.stderr.decode("utf-8", "replace").strip().partition("\n")[0].removeprefix("fatal: ")
            raise InvalidInput(f"git {arguments[0]} failed: {reason or 'no reason given'}", param="repository")
        return finished.stdout

    @contextmanager
    def _open(self, arguments: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
        with subprocess.Popen(
            [*self._command, *arguments],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                yield process
            finally:
                process.kill()


class _Blobs:
    """One running `git cat-file --batch`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._requests, self._answers = process.stdin, process.stdout

    def text(self, blob: str) -> str | None:
        """None where the object is missing, too large, or no UTF-8 text."""
        self._requests.write(f"{blob}\n".encode("ascii"))
        self._requests.flush()
        header = self._answers.readline().split()
        if len(header) != 3:
            return None
        num_left = int(header[2])
        pieces = []
        is_too_large = num_left > MAX_BLOB_BYTES
        while num_left:
            piece = self._answers.read(min(num_left, READ_BYTES))
            if not piece:
                return None
            num_left -= len(piece)
            if not is_too_large:
                pieces.append(piece)
        self._answers.read(1)  # the newline after the content
        return None if is_too_large else decode_text(b"".join(pieces))


def _exists(date: str) -> bool:
    """Whether a date, and a time behind it, are in the calendar and among what git can tell."""
    match = _ISO_DATE.fullmatch(date)
    if match is None:
        return False
    try:
        day = datetime.date(int(match["year"]), int(match["month"]), int(match["day"]))
        datetime.time(int(match["hour"] or 0), int(match["minute"] or 0), int(match["second"] or 0))
    except ValueError:
        return False
    return day.year in GIT_YEARS


def _fields(stream: IO[bytes]) -> Iterator[bytes]:
    """What stands between NUL bytes."""
    rest = b""
    while piece := stream.read(READ_BYTES):
        *fields, rest = (rest + piece).split(b"\0")
        yield from fields
    if rest:
        yield rest


def _parse_log(fields: Iterator[bytes]) -> Iterator[_Commit]:
    commit: _Commit | None = None
    for field in fields:
        text = field.decode("utf-8", "replace").lstrip("\n")
        if text.startswith(_HEADER):
            if commit is not None:
                yield commit
            head, _, message = text[1:].partition("\n")
            commit_id, *parents = head.split()
            commit = _Commit(commit_id, parents[0] if parents else "", message, [])
        elif text.startswith(":") and commit is not None:
            old_mode, new_mode, old_blob, new_blob, _ = text[1:].split()
            path = next(fields, b"")
            try:
                name = path.decode("utf-8")
            except UnicodeDecodeError:
                continue
            if old_mode in _REGULAR_MODES and new_mode in _REGULAR_MODES:
                commit.changes.append(_Change(name, old_blob, new_blob))
    if commit is not None:
        yield commit
