"""The rows of vLLM's batch, recognised again from step to step: they move, leave and come back, mostly without a name.

Knows tokens and nothing of drafts. A row that is taken for another one costs a bad draft, never a wrong text; so a few
hundred of its tokens are compared each step, and not all of them: 2 µs a row.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lookahead_edit.types import IntArray

NUM_HEAD_TOKENS = 32
NUM_TAIL_TOKENS = 64
NUM_WANDERING_TOKENS = 1024  # compared besides, a different part each step, so that no difference stays unnoticed
MAX_ABSENT_STEPS = 64  # after which a row that left without a word is forgotten

_next_key = itertools.count(1)


class Row:
    """The tokens of one sequence as they were at the end of its latest step.

    Args:
        tokens: int32[num_tokens], copied.
    """

    def __init__(self, tokens: IntArray) -> None:
        self.key = next(_next_key)
        self.name: Hashable = None  # the engine's, where it tells
        self.last_step = 0
        self._tokens = np.empty(max(256, len(tokens) + len(tokens) // 4), dtype=np.int32)
        self._tokens[: len(tokens)] = tokens
        self.num_tokens = len(tokens)
        self._num_checked = 0  # where the wandering part goes on

    @property
    def tokens(self) -> IntArray:
        """int32[num_tokens], a view."""
        return self._tokens[: self.num_tokens]

    @property
    def fingerprint(self) -> tuple[int, bytes]:
        """Differs between sequences, mostly."""
        return fingerprint(self.tokens)

    def append(self, tokens: IntArray) -> None:
        """Takes over what the engine added."""
        needed = self.num_tokens + len(tokens)
        if needed > len(self._tokens):
            larger = np.empty(needed + needed // 4, dtype=np.int32)
            larger[: self.num_tokens] = self.tokens
            self._tokens = larger
        self._tokens[self.num_tokens : needed] = tokens
        self.num_tokens = needed

    def begins(self, tokens: IntArray) -> bool:
        """Whether `tokens`, int32[num_tokens], begin with this row's, as far as is looked at."""
        if len(tokens) < self.num_tokens:
            return False
        start = self._num_checked if self._num_checked < self.num_tokens else 0
        parts = (
            slice(0, min(NUM_HEAD_TOKENS, self.num_tokens)),
            slice(max(0, self.num_tokens - NUM_TAIL_TOKENS), self.num_tokens),
            slice(start, min(start + NUM_WANDERING_TOKENS, self.num_tokens)),
        )
        self._num_checked = parts[2].stop
        return all(np.array_equal(self._tokens[part], tokens[part]) for part in parts)


def fingerprint(tokens: IntArray) -> tuple[int, bytes]:
    """The length and the last tokens of a sequence, int32[num_tokens]."""
    return len(tokens), tokens[max(0, len(tokens) - NUM_TAIL_TOKENS) :].tobytes()


@dataclass(frozen=True, slots=True)
class Seen:
    """A row of the engine's batch in one step: all its tokens, and how many of them are new."""

    tokens: IntArray  # int32[num_tokens], a view into the engine's buffer
    num_new_tokens: int
    name: Hashable = None

    @property
    def num_known_tokens(self) -> int:
        return len(self.tokens) - self.num_new_tokens


class RowTracker:
    """Finds each row of a step among those of the steps before, wherever it stood there.

    By the engine's name for it where there is one, else by its fingerprint before the step's new tokens; in both cases
    its tokens are compared, and a row that fits none is new.

    Args:
        max_rows: remembered at most, besides those of the present step.
    """

    def __init__(self, max_rows: int = 256) -> None:
        self._max_rows = max_rows
        self._rows: dict[int, Row] = {}  # by key, the ones seen last at the end
        self._step = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def track(self, seen: Sequence[Seen]) -> list[tuple[Row, bool]]:
        """A row for each that is seen, and whether it is new; nothing is appended to it yet."""
        self._step += 1
        by_name = {row.name: row for row in self._rows.values() if row.name is not None}
        by_fingerprint: dict[tuple[int, bytes], list[Row]] = {}
        by_head: dict[bytes, list[Row]] = {}
        if any(each.name is None for each in seen):
            for row in self._rows.values():
                by_fingerprint.setdefault(row.fingerprint, []).append(row)
                by_head.setdefault(row.tokens[:NUM_HEAD_TOKENS].tobytes(), []).append(row)
        claimed: set[int] = set()
        tracked = []
        for each in seen:
            if each.name is not None:
                named = by_name.get(each.name)
                candidates = [] if named is None else [named]
            else:
                candidates = by_fingerprint.get(fingerprint(each.tokens[: each.num_known_tokens]), [])
            found = self._first_that_fits(candidates, each, claimed)
            if found is None and each.name is None:  # steps in between that nobody told us about
                same_beginning = by_head.get(each.tokens[:NUM_HEAD_TOKENS].tobytes(), [])
                longest_first = sorted(same_beginning, key=lambda row: -row.num_tokens)
                found = self._first_that_fits(longest_first, each, claimed)
            row = found or self._make(each, replacing=by_name.get(each.name))
            claimed.add(row.key)
            row.last_step = self._step
            self._rows.pop(row.key, None)
            self._rows[row.key] = row
            tracked.append((row, found is None))
        self._forget(len(seen))
        return tracked

    def keep_only(self, names: Sequence[Hashable]) -> None:
        """Forgets rows whose names the engine doesn't know any more."""
        known = set(names)
        self._rows = {key: row for key, row in self._rows.items() if row.name is None or row.name in known}

    def _make(self, each: Seen, replacing: Row | None) -> Row:
        if replacing is not None:
            self._rows.pop(replacing.key, None)
        row = Row(each.tokens[: each.num_known_tokens])
        row.name = each.name
        return row

    def _first_that_fits(self, candidates: Sequence[Row], each: Seen, claimed: set[int]) -> Row | None:
        return next((row for row in candidates if row.key not in claimed and row.begins(each.tokens)), None)

    def _forget(self, num_present: int) -> None:
        num_absent = len(self._rows) - num_present
        for row in list(self._rows.values())[:num_absent]:
            if num_absent > self._max_rows or self._step - row.last_step > MAX_ABSENT_STEPS:
                del self._rows[row.key]
                num_absent -= 1
