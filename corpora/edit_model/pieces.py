"""Where code comes from: files of installed packages, cut into pieces. Knows nothing about edits.

Training and evaluation read different packages, named here; a package that is not installed is skipped.
"""

from __future__ import annotations

import ast
import random
import subprocess
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from corpora.edit_model.parsing import parse_python

TRAIN_PACKAGES = (
    "anyio", "filelock", "fsspec", "gguf", "h11", "httpcore", "huggingface_hub", "hypothesis", "jinja2",
    "markdown_it", "networkx", "packaging", "peft", "platformdirs", "psutil", "pydantic", "pygments", "requests",
    "safetensors", "setuptools", "sortedcontainers", "tqdm", "urllib3", "yaml",
)  # fmt: skip
EVALUATION_PACKAGES = (
    "_pytest", "click", "fastapi", "httpx", "pluggy", "prometheus_client", "rich", "starlette", "typer", "uvicorn",
)  # fmt: skip
# C and C++ headers.
TRAIN_FOLDERS = ("numpy/_core/include",)
EVALUATION_FOLDERS = ("torch/include/ATen/core",)
EVALUATION_NPM_MODULES = (
    "cacache", "debug", "glob", "hosted-git-info", "ini", "lru-cache", "minimatch", "nopt", "pacote", "semver", "tar",
    "which",
)  # fmt: skip
MAX_FILE_BYTES = 200_000
LANGUAGE_OF_SUFFIX = {".py": "python", ".js": "javascript", ".h": "c", ".hpp": "cpp", ".md": "markdown"}
# Vendored copies would leak evaluation packages into training.
SKIPPED_FOLDERS = frozenset(
    {
        "test",
        "tests",
        "testing",
        "_vendor",
        "vendor",
        "site-packages",
        "lib2to3",
        "idlelib",
        "encodings",
        "turtledemo",
        "__pycache__",
    }
)


@dataclass(frozen=True)
class SourceFile:
    """One file that pieces are cut from; `package` names where it is from."""

    path: Path
    language: str
    package: str


@dataclass(frozen=True)
class Piece:
    """A run of whole lines of one file, ending with a line end; the lines around it are kept for range edits."""

    language: str
    text: str
    package: str
    lines_before: tuple[str, ...] = ()
    lines_after: tuple[str, ...] = ()


def npm_root() -> Path | None:
    """The folder of npm's own package, or None where npm is not installed."""
    try:
        found = subprocess.run(["npm", "root", "-g"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    root = Path(found.stdout.strip()) / "npm"
    return root if root.is_dir() else None


def files_below(folder: Path, package: str) -> list[SourceFile]:
    """The readable source files of a folder, in a fixed order; none from vendored packages or tests."""
    found = []
    for path in sorted(folder.rglob("*")):
        language = LANGUAGE_OF_SUFFIX.get(path.suffix)
        if language is None or SKIPPED_FOLDERS.intersection(path.relative_to(folder).parts[:-1]):
            continue
        if path.is_file() and 200 <= path.stat().st_size <= MAX_FILE_BYTES:
            found.append(SourceFile(path, language, package))
    return found


@cache
def source_files(split: str) -> dict[str, list[SourceFile]]:
    """All files of one split (`train` or `evaluation`) by language, in a fixed order."""
    assert split in ("train", "evaluation"), f"Expected train or evaluation, but got {split!r}"
    library = Path(sysconfig.get_paths()["purelib"])
    files: list[SourceFile] = []
    for package in TRAIN_PACKAGES if split == "train" else EVALUATION_PACKAGES:
        files += files_below(library / package, package)
    if split == "train":
        files += files_below(Path(sysconfig.get_paths()["stdlib"]), "stdlib")
    for folder in TRAIN_FOLDERS if split == "train" else EVALUATION_FOLDERS:
        files += files_below(library / folder, folder.split("/")[0])
    root = npm_root()
    if root is not None:
        modules = sorted(path for path in (root / "node_modules").iterdir() if path.is_dir())
        if split == "train":
            files += files_below(root / "lib", "npm")
        for module in modules:
            if (module.name in EVALUATION_NPM_MODULES) == (split == "evaluation"):
                files += files_below(module, f"npm/{module.name}")
    by_language: dict[str, list[SourceFile]] = {}
    for file in files:
        by_language.setdefault(file.language, []).append(file)
    return by_language


@cache
def _read_lines(path: Path) -> tuple[str, ...]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ()
    if "\t" in text or "\f" in text or "\r" in text or not text.isascii():
        return ()
    return tuple(text.split("\n"))


@cache
def _python_blocks(path: Path) -> tuple[tuple[int, int, bool], ...]:
    """(first line, end line, is top level) of every function and class, decorators included; 0-based, half open."""
    tree = parse_python("\n".join(_read_lines(path)))
    if tree is None:
        return ()
    blocks = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
            assert node.end_lineno is not None
            blocks.append((first, node.end_lineno, node.col_offset == 0))
    return tuple(sorted(blocks))


def _cut_python(rng: random.Random, file: SourceFile, limit: int) -> tuple[int, int] | None:
    """A function, a class, several neighbours, or the head of the file, of at most `limit` lines."""
    lines, blocks = _read_lines(file.path), _python_blocks(file.path)
    top = [block for block in blocks if block[2]]
    if not top:
        return None
    if rng.random() < 0.15:
        ends = [end for _, end, _ in top if 8 <= end <= limit]
        return (0, rng.choice(ends)) if ends else None
    first, end, _ = rng.choice(top)
    for next_first, next_end, _ in top:
        # Neighbours join while the whole still fits, so that pieces hold several definitions.
        if (
            next_first >= end
            and next_end - first <= limit
            and not any(line[:1].strip() for line in lines[end:next_first])
        ):
            end = next_end
            if rng.random() < 0.3:
                break
    return first, end


def _cut_lines(rng: random.Random, lines: Sequence[str], limit: int) -> tuple[int, int] | None:
    """A run of lines that starts after a blank line, at an unindented line."""
    starts = [
        number
        for number, line in enumerate(lines)
        if line[:1].strip() and line[0] not in "})]" and (number == 0 or not lines[number - 1].strip())
    ]
    if not starts:
        return None
    first = rng.choice(starts)
    end = min(first + limit, len(lines))
    closes = [
        n for n in range(first + 5, end) if not lines[n].strip() and (n + 1 == len(lines) or lines[n + 1][:1].strip())
    ]
    return (first, rng.choice(closes)) if closes else None


def cut_piece(rng: random.Random, split: str, language: str, limit: int, context: int = 20) -> Piece | None:
    """Cut one piece of 5 to `limit` lines from a random file of the split, or None if this try gave none."""
    files = source_files(split).get(language)
    if not files:
        return None
    file = rng.choice(files)
    lines = _read_lines(file.path)
    if len(lines) < 6:
        return None
    found = _cut_python(rng, file, limit) if language == "python" else _cut_lines(rng, lines, limit)
    if found is None:
        return None
    first, end = found
    text = "\n".join(lines[first:end]) + "\n"
    if not 5 <= end - first <= limit or len(text) > 60 * (end - first) or max(map(len, lines[first:end])) > 160:
        return None
    # A piece that begins or ends within a comment would look like code.
    if text.count("/*") != text.count("*/") and language != "python":
        return None
    return Piece(language, text, file.package, lines[max(0, first - context) : first], lines[end : end + context])
