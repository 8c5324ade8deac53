"""Lines that begin with other blanks than in the file: by how much, and how far it goes.

Knows a file's lines; knows no tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lookahead_edit.drafters.file_text import FileText


@dataclass(frozen=True, slots=True)
class Shift:
    """The lines between `after` and `before`, both not among them, begin with `new` instead of `old` blanks.

    Where one is empty, the other is added or removed; where both aren't, each `old` becomes a `new`.
    """

    after: int
    before: int
    old: bytes
    new: bytes

    def moved(self, indent: bytes) -> bytes:
        """What a line begins with that begins with `indent` in the file.

        Example:
            >>> Shift(0, 9, b"", b"    ").moved(b"\t"), Shift(0, 9, b"\t", b"  ").moved(b"\t\t")
            (b'\t    ', b'    ')
        """
        if self.old and self.new:
            num_units = len(indent) // len(self.old)
            return self.new * num_units if indent == self.old * num_units else indent
        return indent[: max(len(indent) - len(self.old), 0)] + self.new

    def edits(self, text: FileText, low: int, high: int) -> Iterator[tuple[int, int, bytes]]:
        """The lines that begin at the bytes `low` to `high`: first and last byte of their blanks, and the new ones.

        Blank lines stay, and so do those further to the left than the block.
        """
        first, last = text.line_starts.searchsorted((low, high)).tolist()
        least = len(text.indent(self.after))
        for line in range(max(first, self.after + 1), min(last, self.before)):
            indent = text.indent(line)
            if len(indent) >= least and not text.is_blank[line]:
                moved = self.moved(indent)
                if moved != indent:
                    start = int(text.line_starts[line])
                    yield start, start + len(indent), moved


def shift_after(text: FileText, line: int, output_start: bytes) -> Shift | None:
    """What follows from `line` beginning with `output_start` in the output; None where it begins so in the file too."""
    old, new = text.indent(line), output_start
    if old == new:
        return None
    if new.endswith(old) or old.endswith(new):
        old, new = old[: max(len(old) - len(new), 0)], new[: max(len(new) - len(old), 0)]
    else:
        old, new = _units(old, new)
    return Shift(line, text.block_end(line), old, new)


def _units(old: bytes, new: bytes) -> tuple[bytes, bytes]:
    """For each tab of several, say, the same number of blanks; else the whole."""
    for num_units in (len(old), len(new)):
        old_unit, new_unit = old[: len(old) // num_units], new[: len(new) // num_units]
        if old == old_unit * num_units and new == new_unit * num_units:
            return old_unit, new_unit
    return old, new
