"""The difference between two texts, as LSP TextEdits and as a unified diff. Knows nothing of prompts and models.

An editor counts ``\\r`` as a line end, git and patch do not; each form splits the text its own way.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypedDict

from lookahead_edit.text_align import Hunk, changed_hunks, common_prefix_length
from lookahead_edit.text_lines import (
    LinePositions,
    PositionEncoding,
    Range,
    split_lines,
    splits_unit,
)
from lookahead_edit.types import InvalidInput

DEFAULT_PATH = "file"

_NEWLINE_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_NEEDS_QUOTES = re.compile(r"[^ !#-\[\]-~]| \Z")
_ESCAPES = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}


class TextEdit(TypedDict):
    """As in LSP; `range` refers to the text before any edit."""

    range: Range
    newText: str


def text_edits(before: str, after: str, encoding: PositionEncoding = "utf-16") -> list[TextEdit]:
    """Edits that turn `before` into `after`: sorted, not overlapping, at most one for each run of changed lines.

    An edit is cut to the characters that differ, but never parts a ``\\r\\n`` or a surrogate pair.

    >>> text_edits("a = 1\\nb = 2\\n", "a = 1\\nb = 3\\n")
    [{'range': {'start': {'line': 1, 'character': 4}, 'end': {'line': 1, 'character': 5}}, 'newText': '3'}]
    """
    positions = LinePositions(before, encoding)
    before_lines, after_lines = split_lines(before), split_lines(after)
    before_starts, after_starts = _starts(before_lines), _starts(after_lines)
    edits: list[TextEdit] = []
    for hunk in changed_hunks(before_lines, after_lines):
        start, end = before_starts[hunk.before_start], before_starts[hunk.before_end]
        after_start, after_end = after_starts[hunk.after_start], after_starts[hunk.after_end]
        prefix = common_prefix_length(before[start:end], after[after_start:after_end])
        while splits_unit(before, start + prefix) or splits_unit(after, after_start + prefix):
            prefix -= 1
        start, after_start = start + prefix, after_start + prefix
        suffix = common_prefix_length(before[start:end][::-1], after[after_start:after_end][::-1])
        while splits_unit(before, end - suffix) or splits_unit(after, after_end - suffix):
            suffix -= 1
        edits.append(
            {
                "range": {"start": positions.position(start), "end": positions.position(end - suffix)},
                "newText": after[after_start : after_end - suffix],
            }
        )
    return edits


def apply_text_edits(before: str, edits: Iterable[TextEdit], encoding: PositionEncoding = "utf-16") -> str:
    """What an LSP client makes of `edits`: all ranges refer to `before`, inserts at one place keep their order.

    Raises InvalidInput for a range outside the text and for edits that overlap.
    """
    positions = LinePositions(before, encoding)
    replacements = sorted(
        ((*positions.offsets(edit["range"]), edit["newText"]) for edit in edits),
        key=lambda replacement: replacement[:2],
    )
    pieces = []
    cursor = 0
    for start, end, new_text in replacements:
        if start < cursor:
            raise InvalidInput(
                f"expected edits that do not overlap, got one that starts at character {start}, before {cursor}",
                param="edits",
            )
        pieces += [before[cursor:start], new_text]
        cursor = end
    return "".join([*pieces, before[cursor:]])


def unified_diff(before: str, after: str, path: str | None = None, *, num_context_lines: int = 3) -> str:
    """A diff that ``git apply`` and ``patch -p1`` turn into exactly `after`; empty where nothing changed.

    The file is changed in place: an empty `before` or `after` is an empty file, not a missing one.
    """
    if before == after:
        return ""
    before_lines, after_lines = _NEWLINE_LINE.findall(before), _NEWLINE_LINE.findall(after)
    old_name, new_name = _diff_names(path)
    pieces = [
        f"diff --git {old_name} {new_name}\n",
        f"--- {_ended(old_name)}\n",
        f"+++ {_ended(new_name)}\n",
    ]
    for group in _groups(changed_hunks(before_lines, after_lines), num_context_lines):
        lead = min(num_context_lines, group[0].before_start)
        trail = min(num_context_lines, len(before_lines) - group[-1].before_end)
        before_start, before_end = group[0].before_start - lead, group[-1].before_end + trail
        after_start, after_end = group[0].after_start - lead, group[-1].after_end + trail
        old, new = _span(before_start, before_end), _span(after_start, after_end)
        pieces.append(f"@@ -{old} +{new} @@\n")
        cursor = before_start
        for hunk in group:
            pieces += _marked(" ", before_lines[cursor : hunk.before_start])
            pieces += _marked("-", before_lines[hunk.before_start : hunk.before_end])
            pieces += _marked("+", after_lines[hunk.after_start : hunk.after_end])
            cursor = hunk.before_end
        pieces += _marked(" ", before_lines[cursor:before_end])
    return "".join(pieces)


def _starts(lines: Sequence[str]) -> list[int]:
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    return starts


def _groups(hunks: Sequence[Hunk], num_context_lines: int) -> Iterator[list[Hunk]]:
    """Hunks whose context would touch, together."""
    group: list[Hunk] = []
    for hunk in hunks:
        if group and hunk.before_start - group[-1].before_end > 2 * num_context_lines:
            yield group
            group = []
        group.append(hunk)
    if group:
        yield group


def _span(start: int, end: int) -> str:
    """Start and count as the format wants them: an empty span is named by the line before it."""
    return f"{start + 1 if end > start else start},{end - start}"


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"


def _diff_names(path: str | None) -> tuple[str, str]:
    # git refuses absolute names and those with "." or empty parts.
    name = posixpath.normpath(path or DEFAULT_PATH).lstrip("/")
    name = DEFAULT_PATH if name in ("", ".") else name
    return _quoted(f"a/{name}"), _quoted(f"b/{name}")


def _quoted(name: str) -> str:
    """git's C-style quotes, where the name has anything but plain ASCII; patch wants them for a last blank too."""
    if not _NEEDS_QUOTES.search(name):
        return name
    letters = []
    for byte in name.encode("utf-8", "surrogatepass"):
        if byte in _ESCAPES:
            letters.append("\\" + _ESCAPES[byte])
        else:
            letters.append(chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}")
    return '"' + "".join(letters) + '"'


def _ended(name: str) -> str:
    """Without the tab, git and patch take what follows a blank for a timestamp."""
    return name + "\t" if " " in name and not name.startswith('"') else name
