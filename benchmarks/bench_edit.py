"""What an edit of the benchmark is: a sample file, an instruction, and the one right answer.

An edit states what it replaces in its file, so the expected text is worked out from the file rather than kept beside
it. Knows no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SAMPLES = Path(__file__).resolve().parent / "samples"


@dataclass(frozen=True)
class Change:
    """`old` stands `count` times in the file, and each becomes `new`."""

    old: str
    new: str
    count: int = 1


@dataclass(frozen=True)
class BenchEdit:
    """One edit of a whole sample file."""

    name: str
    kind: str
    path: str  # in the samples folder
    instruction: str
    changes: tuple[Change, ...]

    @property
    def before(self) -> str:
        return (SAMPLES / self.path).read_text(encoding="utf-8")

    @property
    def expected(self) -> str:
        """The right answer. Raises ValueError where a change doesn't stand in the file as often as it says."""
        text = self.before
        for change in self.changes:
            found = text.count(change.old)
            if found != change.count:
                raise ValueError(
                    f"{self.name}: expected {change.count} times {change.old!r} in {self.path}, got {found}"
                )
            text = text.replace(change.old, change.new)
        return text


def edit(
    name: str, kind: str, path: str, instruction: str, *changes: tuple[str, str] | tuple[str, str, int]
) -> BenchEdit:
    """An edit from ``(old, new)`` or ``(old, new, count)`` changes."""
    return BenchEdit(name, kind, path, instruction, tuple(Change(*change) for change in changes))
