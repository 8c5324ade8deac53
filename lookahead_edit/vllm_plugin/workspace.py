"""Files and folders that all requests may copy from, read and tokenized once, when the engine starts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from lookahead_edit.types import InvalidInput, Source, SourceKind, Tokenizer

MAX_FILE_BYTES = 1_000_000  # larger ones are data, or made by programs
_SKIPPED_FOLDERS = {"node_modules", "__pycache__", "build", "dist", "target", "venv"}


def read_workspace(paths: Sequence[str], tokenizer: Tokenizer, max_tokens: int) -> list[Source]:
    """The text files at these paths and below, in order, until `max_tokens` are read.

    Hidden and built files, binary ones and those of more than MAX_FILE_BYTES are left out.

    Raises:
        InvalidInput: a path that isn't there.
    """
    sources: list[Source] = []
    num_left = max_tokens
    for path in _files(paths):
        text = _text_of(path)
        if text is None:
            continue
        tokens = tokenizer.encode(text, parse_special=False)[:num_left]
        if len(tokens):
            sources.append(Source(SourceKind.CONTEXT, tokens, path=str(path)))
            num_left -= len(tokens)
        if num_left <= 0:
            break
    return sources


def _files(paths: Sequence[str]) -> Iterator[Path]:
    for given in paths:
        path = Path(given).expanduser()
        if path.is_file():
            yield path
        elif path.is_dir():
            for folder, folders, names in os.walk(path):
                folders[:] = sorted(name for name in folders if name not in _SKIPPED_FOLDERS and name[0] != ".")
                yield from (Path(folder, name) for name in sorted(names) if name[0] != ".")
        else:
            raise InvalidInput(f"expected a file or folder as the workspace, got {given!r}", param="workspace")


def _text_of(path: Path) -> str | None:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return None
        content = path.read_bytes()
        return None if b"\0" in content else content.decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
