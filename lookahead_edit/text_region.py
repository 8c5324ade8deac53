"""The part of a document that is rewritten: what the model sees of it, and what its answer becomes.

`Region.restore` is the inverse of `Region.model_view`: the model sees plain LF text, the document keeps its line
ends, byte order mark and final-newline state. Bytes outside the region are never touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from lookahead_edit.text_align import changed_hunks
from lookahead_edit.text_lines import (
    BOM,
    majority_line_end,
    split_line_end,
    split_lines,
    splits_unit,
    to_lf,
    with_final_newline,
)
from lookahead_edit.types import InvalidInput


@dataclass(frozen=True)
class Region:
    """``text[start:end]``, to be rewritten. Make it with `Region.of`, which keeps a byte order mark outside."""

    text: str
    start: int
    end: int

    @classmethod
    def of(cls, text: str, offsets: tuple[int, int] | None = None) -> Region:
        """The region between two character offsets, or the whole document.

        Raises InvalidInput where the offsets are outside the text, reversed, or part a ``\\r\\n``.
        """
        start, end = offsets if offsets is not None else (0, len(text))
        if not 0 <= start <= end <= len(text):
            expected = f"offsets with 0 <= start <= end <= {len(text)}"
            raise InvalidInput(f"expected {expected}, got {start} and {end}", param="range", code="invalid_range")
        for offset in (start, end):
            if splits_unit(text, offset):
                raise InvalidInput(
                    f"expected offsets that part no \\r\\n or surrogate pair, got {offset}",
                    param="range",
                    code="invalid_range",
                )
        num_bom = len(BOM) if text.startswith(BOM) else 0
        return cls(text, max(start, num_bom), max(end, num_bom))

    @property
    def before(self) -> str:
        return self.text[: self.start]

    @property
    def body(self) -> str:
        return self.text[self.start : self.end]

    @property
    def after(self) -> str:
        return self.text[self.end :]

    @property
    def is_whole_document(self) -> bool:
        return self.before in ("", BOM) and self.end == len(self.text)

    @cached_property
    def model_view(self) -> str:
        """The region as LF text that ends in a newline; empty where the region is."""
        return with_final_newline(to_lf(self.body))

    @cached_property
    def line_end(self) -> str:
        """For inserted lines: the region's commonest, else the document's, else ``\\n``."""
        return majority_line_end(self.body) or majority_line_end(self.text) or "\n"

    @property
    def ends_with_newline(self) -> bool:
        """Whether the edited region ends a line, as the original does.

        An empty region does where it stands at the start of a line: what is inserted there are whole lines.
        """
        starts_line = self.before in ("", BOM) or self.before.endswith(("\n", "\r"))
        return self.body.endswith(("\n", "\r")) if self.body else starts_line

    def restore(self, answer: str) -> str:
        """What replaces the region. ``region.restore(region.model_view) == region.body``, byte for byte.

        Lines that are still there keep their line ends, also when changed in place (as many lines as before between
        two unchanged ones); other lines get `line_end`. The final newline is there if it was there before. An empty
        answer deletes the region.

        >>> Region.of("a\\r\\nb\\nc\\r\\n").restore("a\\nB\\nnew\\nc\\n")
        'a\\r\\nB\\r\\nnew\\r\\nc\\r\\n'
        >>> Region.of("a\\r\\nb").restore("a\\nB\\n")
        'a\\r\\nB'
        """
        if self.before in ("", BOM) and not self.body.startswith(BOM):
            answer = answer.removeprefix(BOM)
        contents = [split_line_end(line)[0] for line in split_lines(answer)]
        if not self.ends_with_newline:
            while contents and not contents[-1]:
                contents.pop()
        line_ends = self._line_ends(contents)
        if contents and not self.ends_with_newline:
            line_ends[-1] = ""
        pieces = []
        last = self.before[-1:]
        for index, content in enumerate(contents):
            # An empty line ended by \n would melt into a line ended by \r before it.
            if last == "\r" and not content and line_ends[index] == "\n":
                line_ends[index] = "\r"
            pieces += [content, line_ends[index]]
            last = line_ends[index][-1:]
        if last == "\r" and self.after.startswith("\n") and contents:
            pieces.append("\n")
        return "".join(pieces)

    def apply(self, answer: str) -> str:
        """The whole document with the region rewritten."""
        return self.before + self.restore(answer) + self.after

    def _line_ends(self, contents: list[str]) -> list[str]:
        old = [split_line_end(line) for line in split_lines(self.body)]
        line_ends = [self.line_end] * len(contents)

        def keep(old_start: int, new_start: int, num_lines: int) -> None:
            for number in range(num_lines):
                line_ends[new_start + number] = old[old_start + number][1] or self.line_end

        old_end = new_end = 0
        for hunk in changed_hunks([content for content, _ in old], contents):
            keep(old_end, new_end, hunk.before_start - old_end)
            if hunk.before_end - hunk.before_start == hunk.after_end - hunk.after_start:
                keep(hunk.before_start, hunk.after_start, hunk.before_end - hunk.before_start)
            old_end, new_end = hunk.before_end, hunk.after_end
        keep(old_end, new_end, len(old) - old_end)
        return line_ends
