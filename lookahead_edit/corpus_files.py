"""Which files people write, and which of them may serve as context. Knows paths and texts, not where they come from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from lookahead_edit.edit_text import language_of
from lookahead_edit.types import ContextFile, InvalidInput

MAX_LINE_CHARACTERS = 1000  # longer lines are minified code or data
NUM_HEADER_CHARACTERS = 2000  # where a generator signs its work

_FOREIGN_FOLDER = re.compile(
    r"node_modules|bower_components|site-packages|\.yarn|_?vendor(?:ed)?|third[_-]?party|extern(?:al)?|dist|build"
    r"|bundled|gen|_*generated_*",
    re.IGNORECASE,
)
_FOREIGN_NAME = re.compile(
    r"(?:.*\.(?:lock|lockb|map|svg|ipynb)|.*[.-]min\.\w+|.*[.-]lock\.(?:json|yaml)|npm-shrinkwrap\.json|go\.sum"
    r"|.*\.pb\.\w+|.*_pb2(?:_grpc)?\.pyi?|.*\.(?:generated|gen|bundle)\.\w+|.*_generated\.\w+)",
    re.IGNORECASE,
)
_GENERATED = re.compile(
    r"@generated|\bdo not (?:edit|modify)\b|\b(?:auto-?|automatically |machine[- ])generated\b"
    r"|\bgenerated (?:automatically|by)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ContextBounds:
    """How much of the other files goes along with a trace."""

    max_files: int = 8
    max_characters: int = 60_000  # together
    max_file_characters: int = 30_000

    def __post_init__(self) -> None:
        if min(self.max_files, self.max_characters, self.max_file_characters) < 0:
            raise InvalidInput(f"expected bounds of at least 0, got {self}", param="context")


def decode_text(data: bytes) -> str | None:
    """The text with its line ends, or None where this is no UTF-8 text."""
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def is_wanted_path(path: str, suffixes: frozenset[str] = frozenset()) -> bool:
    """Whether people write and edit such files: a known language, or one of `suffixes`, nothing vendored or locked.

    >>> is_wanted_path("src/app.py"), is_wanted_path("dist/app.js"), is_wanted_path("package-lock.json")
    (True, False, False)
    """
    pure = PurePosixPath(path)
    has_language = pure.suffix.lower() in suffixes if suffixes else bool(language_of(path))
    is_foreign = _FOREIGN_NAME.fullmatch(pure.name) or any(map(_FOREIGN_FOLDER.fullmatch, pure.parts[:-1]))
    # A name that can't be printed can't stand in an instruction.
    return has_language and not is_foreign and path.isprintable()


def why_not_source(path: str | None, text: str) -> str | None:
    """What speaks against a text as something that people edit by hand."""
    if _GENERATED.search(text[:NUM_HEADER_CHARACTERS]):
        return "generated"
    is_prose = language_of(path) in ("markdown", "rst", "text", "latex")
    if not is_prose and any(len(line) > MAX_LINE_CHARACTERS for line in text.split("\n")):
        return "minified"
    return None


def parse_suffixes(suffixes: Iterable[str]) -> frozenset[str]:
    """Lower-case suffixes with their dot; raises InvalidInput for what is none.

    >>> sorted(parse_suffixes(["py", ".TS,js"]))
    ['.js', '.py', '.ts']
    """
    words = [word.strip().lower() for suffix in suffixes for word in suffix.split(",")]
    for word in words:
        if not re.fullmatch(r"\.?[a-z0-9_+-]+", word):
            raise InvalidInput(f"expected a suffix such as .py, got {word!r}", param="suffix")
    return frozenset("." + word.removeprefix(".") for word in words)


def nearest_context(
    path: str, others: Iterable[str], read: Callable[[str], str | None], bounds: ContextBounds
) -> tuple[ContextFile, ...]:
    """The files nearest to `path`, within the bounds: same folder first, then by shared folders, same suffix first.

    `read` gives a file's text, or None for what can't be used; it is called for the files that may get in only.
    """
    files: list[ContextFile] = []
    num_characters = num_refused = 0
    for other in sorted(others, key=lambda other: _distance(path, other)):
        if len(files) == bounds.max_files or num_refused > 4 * bounds.max_files:
            break
        if other == path:
            continue
        text = read(other)
        fits = text and len(text) <= min(bounds.max_file_characters, bounds.max_characters - num_characters)
        if not text or not fits or why_not_source(other, text):
            num_refused += 1
            continue
        files.append(ContextFile(other, text))
        num_characters += len(text)
    return tuple(files)


def _distance(path: str, other: str) -> tuple[int, bool, str]:
    folders, other_folders = path.split("/")[:-1], other.split("/")[:-1]
    num_shared = 0
    for folder, other_folder in zip(folders, other_folders, strict=False):
        if folder != other_folder:
            break
        num_shared += 1
    num_steps = len(folders) + len(other_folders) - 2 * num_shared
    return num_steps, PurePosixPath(path).suffix != PurePosixPath(other).suffix, other
