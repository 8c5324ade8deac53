"""Line hunks between two texts, and what is built from them: lazy snippets and ranges."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from corpora.edit_model.line_edits import indentation


@dataclass(frozen=True)
class Hunk:
    """Lines `first:end` of the old text became lines `new_first:new_end` of the new one."""

    first: int
    end: int
    new_first: int
    new_end: int


def line_hunks(before: str, after: str) -> list[Hunk]:
    """The changed runs of lines, in order. Example: `line_hunks("a\\nb\\n", "a\\nc\\n")` → `[Hunk(1, 2, 1, 2)]`."""
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    return [Hunk(i1, i2, j1, j2) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal"]


def touched_lines(before: str, after: str) -> set[int]:
    """Lines of `after` that are new, or that stand right beside removed ones."""
    lines: set[int] = set()
    for hunk in line_hunks(before, after):
        lines.update(range(hunk.new_first, hunk.new_end))
        if hunk.new_first == hunk.new_end:
            lines.update((hunk.new_first - 1, hunk.new_first))
    return lines


def lazy_snippet(before: str, after: str, marker: str, context: int) -> str | None:
    """The new lines with `context` lines around them and the marker for the rest; None where that is unclear.

    Removals are left out: a lazy snippet cannot show them. The lines that a kept line is indented under are kept.
    """
    old, new = before.splitlines(), after.splitlines()
    hunks = line_hunks(before, after)
    if not hunks or len(hunks) > 3:
        return None
    keep: set[int] = set()
    for hunk in hunks:
        if hunk.new_first == hunk.new_end:
            return None
        keep.update(range(max(0, hunk.new_first - context), min(len(new), hunk.new_end + context)))
        depth = len(indentation(new[hunk.new_first]))
        for number in range(hunk.new_first - 1, -1, -1):
            line = new[number]
            if line.strip() and len(indentation(line)) < depth:
                keep.add(number)
                depth = len(indentation(line))
    # A gap of one line is no shorter as a marker.
    for number in range(1, len(new) - 1):
        if number - 1 in keep and number + 1 in keep:
            keep.add(number)
    anchors = [number for number in keep if not any(hunk.new_first <= number < hunk.new_end for hunk in hunks)]
    if not any(new[number].strip() and old.count(new[number]) == 1 for number in anchors):
        return None
    snippet: list[str] = []
    is_gap = False
    for number, line in enumerate(new):
        if number in keep:
            snippet.append(line)
            is_gap = False
        elif not is_gap and line.strip():
            snippet.append(indentation(line) + marker)
            is_gap = True
    if len(snippet) > 0.7 * len(new) + 1 or marker not in "\n".join(snippet):
        return None
    return "\n".join(snippet) + "\n"


def region_of(before: str, after: str, margin: tuple[int, int], max_lines: int) -> tuple[int, int, int, int] | None:
    """(first, end) of `before`, then of `after`: the lines that hold all changes; None if more than `max_lines`."""
    hunks = line_hunks(before, after)
    if not hunks:
        return None
    num_old, num_new = len(before.splitlines()), len(after.splitlines())
    first = max(0, hunks[0].first - margin[0])
    end = min(num_old, hunks[-1].end + margin[1])
    new_first = hunks[0].new_first - (hunks[0].first - first)
    new_end = num_new - (num_old - end)
    return (first, end, new_first, new_end) if 0 < end - first <= max_lines else None
