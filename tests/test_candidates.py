"""Places to copy from, and what is told about each: against slow twins, and on cases made by hand."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from lookahead_edit.kernels import alignment
from lookahead_edit.kernels import candidates as kernels
from lookahead_edit.kernels.candidates import IN_PREDICTED, IN_TEXT, IN_WORKSPACE
from tests import naive

IS_COMPILED = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
NEWLINE, BLANK_LINE = 0, 1  # the tokens that end a line here
TYPE_NAMES = {
    kernels.LIKELY_END: "likely",
    kernels.NEXT_END: "next",
    kernels.REPLACEMENT_END: "replacement",
    kernels.RESUMED_LINE: "line",
}


def array_of(tokens: Sequence[int]) -> NDArray[np.int32]:
    return np.array(tokens, dtype=np.int32)


def classes_of(tokens: Sequence[int]) -> NDArray[np.int8]:
    return np.array([0 if token in (NEWLINE, BLANK_LINE) else 2 for token in tokens], dtype=np.int8)


@dataclass
class Found:
    """Candidates after `text`, whose output starts at `output_start`; the file stands at `file_start`, if there is one.

    `rows` are (type, array, position, evidence), `features` one row for each of them.
    """

    text: Sequence[int]
    file_start: int = 0
    file: Sequence[int] = ()
    output_start: int = 0
    workspace: Sequence[int] = ()
    found: tuple[int, int, int, int] = (alignment.NONE, 0, 0, 0)
    places: Sequence[int] | None = None
    num_lead_tokens: int = 3
    state: NDArray[np.int64] = field(default_factory=lambda: np.zeros(alignment.NUM_FIELDS, dtype=np.int64))

    def __post_init__(self) -> None:
        text, predicted = array_of(self.text), array_of(self.file)
        if not self.state.any():
            alignment.reset(self.state)
            self.state[alignment.NUM_LEAD_TOKENS] = self.num_lead_tokens
            for end in range(self.output_start + 1, len(text) + 1):
                fared = (0, 0, alignment.NONE, alignment.NONE, False, 0)
                none = array_of([])
                alignment.follow(text[:end].copy(), end - 1, predicted, len(predicted), none, *fared, self.state)
        num_known = max(0, *self.text) + 1
        previous = np.zeros(len(text), dtype=np.int32)
        counts = np.zeros(num_known, dtype=np.int32)
        last_seen, classes = np.full(num_known, -1, dtype=np.int32), classes_of(self.text)
        alignment.enter_tokens(text, 0, previous, last_seen, counts, np.zeros(0, dtype=np.int8), classes)
        length, ends = naive.longest_match(self.text) if self.text[-1] >= 0 else (0, [])
        recent = np.zeros((2, kernels.MAX_RECENT), dtype=np.int32)
        ends = ends[: kernels.MAX_RECENT]
        recent[0, : len(ends)] = ends
        self.candidates = np.zeros((kernels.MAX_CANDIDATES, 4), dtype=np.int64)
        all_features = np.zeros((kernels.MAX_CANDIDATES, kernels.NUM_FEATURES), dtype=np.float32)
        count = kernels.find_candidates(
            text,
            classes,
            length,
            len(ends),
            previous,
            predicted,
            classes_of(self.file),
            np.arange(len(predicted), dtype=np.int32) if self.places is None else array_of(self.places),
            len(predicted),
            self.file_start,
            len(predicted),
            self.output_start,
            counts,
            array_of(self.workspace),
            classes_of(self.workspace),
            np.array(self.found, dtype=np.int64),
            self.state,
            recent,
            self.candidates,
            all_features,
        )
        assert count <= kernels.MAX_CANDIDATES
        self.rows = [tuple(row) for row in self.candidates[:count].tolist()]
        self.features = all_features[:count]

    def position(self, kind: int) -> int | None:
        """Where the candidate of this type is, if there is one."""
        return next((row[2] for row in self.rows if row[0] == kind), None)


def edited(generator: np.random.Generator, num_values: int, size: int) -> tuple[list[int], list[int]]:
    """A file and an output that departs from it."""
    file = generator.integers(0, num_values, size).tolist()
    output = list(file)
    for _ in range(int(generator.integers(1, 4))):
        start, width, num_new = generator.integers(0, [size, 6, 6]).tolist()
        output[start : start + width] = generator.integers(0, 2 * num_values, num_new).tolist()
    return file, output[: int(generator.integers(1, size))]


def test_places_in_the_file_are_those_of_the_twin() -> None:
    generator = np.random.default_rng(1)
    kinds = set()
    for _ in range(500 if IS_COMPILED else 200):
        file, output = edited(generator, int(generator.choice([2, 3, 6, 12, 40])), 40)
        text = [*file, 77, *output]
        found = Found(text, file=file, output_start=len(file) + 1)
        cursor, num_hunk_tokens, *_ = naive.followed(text, len(file) + 1, file)
        own = {row[0]: row[2] for row in found.rows if row[1] == IN_PREDICTED}
        kinds |= set(own)
        if num_hunk_tokens == 0:
            assert own == ({kernels.AT_CURSOR: cursor} if cursor < len(file) else {})
        else:
            expected = naive.near_cursor(text, num_hunk_tokens, file, cursor, lambda token: token <= BLANK_LINE)
            assert {TYPE_NAMES[kind]: position for kind, position in own.items()} == expected
    assert kinds >= {kernels.AT_CURSOR, *TYPE_NAMES} - {kernels.NEXT_END, kernels.RESUMED_LINE}


def test_the_next_place_in_the_file_is_one_where_a_better_one_lies_behind() -> None:
    file = [1, 2, 3, *range(20, 28), 3, 7]
    found = Found([*file, 77, 1, 2, 3, 60, 3], file=file, output_start=len(file) + 1)
    assert found.position(kernels.LIKELY_END) == 3
    assert found.position(kernels.NEXT_END) == 12


def test_the_files_next_line_is_one_where_the_output_begins_a_line() -> None:
    file = [10, 11, 12, NEWLINE, 13, 14, NEWLINE, 15]
    text = [*file, 77, 10, 11, 60, BLANK_LINE]
    assert Found(text, file=file, output_start=len(file) + 1).position(kernels.RESUMED_LINE) == 4
    text[-1] = 61
    assert Found(text, file=file, output_start=len(file) + 1).position(kernels.RESUMED_LINE) is None


def test_places_elsewhere_are_the_occurrences_of_the_longest_suffix() -> None:
    strings = itertools.product(range(3), repeat=6) if IS_COMPILED else itertools.product(range(2), repeat=6)
    for text in map(list, strings):
        found = Found(text)
        length, ends = naive.longest_match(text)
        last_ends = naive.ends_of_suffix(text, 1)
        expected = [] if not ends else [(kernels.MOST_RECENT, ends[0]), (kernels.EARLIEST, ends[-1])]
        expected += [(kernels.MAJORITY, naive.most_voted(text, ends))] if ends else []
        expected += [(kernels.COMMON, naive.most_voted(text, last_ends))] if length > 1 else []
        seen: list[int] = []
        for kind, position in expected:
            assert (found.position(kind) == position) == (position not in seen)
            seen.append(position)
        assert {row[2] for row in found.rows} == set(seen)
        for kind, _, position, evidence in found.rows:
            assert evidence == (length if kind != kernels.COMMON else naive.agreeing_tokens(text, position))


def test_a_place_of_the_file_is_no_candidate_twice() -> None:
    file = [5, 6, 7, 8]
    found = Found([*file, 77, 5, 6], file=file, output_start=5)
    assert [row[:3] for row in found.rows] == [(kernels.AT_CURSOR, IN_PREDICTED, 2)]
    moved = Found([*file, 77, 5, 6], file=file, output_start=5, places=[0, 1, -1, 3])  # replaced: another place
    assert [row[:3] for row in moved.rows] == [
        (kernels.AT_CURSOR, IN_PREDICTED, 2),
        (kernels.MOST_RECENT, IN_TEXT, 2),
    ]


def test_a_separator_is_never_proposed() -> None:
    found = Found([5, 6, -3, 5, 7, 5, 6])
    assert found.position(kernels.MOST_RECENT) is None
    assert all(found.text[position] >= 0 for _, _, position, _ in found.rows)


def test_features_say_what_their_table_says() -> None:
    file = [5, 6, NEWLINE, 7, 8, 9, NEWLINE, 5, 6, 30]
    text = [70, *file, 71, 5, 6, NEWLINE, 7, 60]
    found = Found(text, file_start=1, file=file, output_start=12, workspace=[60, 8, -1], found=(1, 1, 4, 3))
    assert [row[0] for row in found.rows] == [kernels.REPLACEMENT_END, kernels.WORKSPACE]
    in_file, in_workspace = found.features.tolist()
    assert in_file[:7] == [kernels.REPLACEMENT_END, 0, 1, 1, 0, 0, 1]  # … distance, hunk, ends twice, same token
    assert in_file[7:13] == [2, 2, 2, len(text) - 1 - 5, 1, 2]  # classes, distance, in the file, place in the line
    assert in_file[13:19] == [1, 1, -1, -1, 0, 0]  # counts, shares of ends, rejected, aligned
    assert in_file[19] == pytest.approx(1 / 65)
    assert in_file[20:27] == [5, 0, 9, 0, -1, 2, 1]
    assert in_file[27:] == [pytest.approx(20 / 21), 5, 3]  # of the output, what is the file's, and all of it; the lead
    assert in_workspace[:3] == [kernels.WORKSPACE, 1, kernels.FAR]
    assert in_workspace[7] == 2
    assert in_workspace[26:] == in_file[26:]
    assert (in_workspace[10], in_workspace[11], in_workspace[23], in_workspace[24]) == (kernels.FAR, 3, 4, 0.75)


def test_counts_and_shares_are_those_of_the_twin() -> None:
    generator = np.random.default_rng(2)
    for _ in range(200 if IS_COMPILED else 40):
        text = generator.integers(0, 4, int(generator.integers(2, 30))).tolist()
        found = Found(text)
        _, ends = naive.longest_match(text)
        last_ends = naive.ends_of_suffix(text, 1)
        firsts = [text[row[2]] for row in found.rows]
        for token, features in zip(firsts, found.features.tolist(), strict=True):
            assert features[4:7] == [len(ends), len(last_ends), firsts.count(token)]
            assert features[13:15] == [text.count(token), text.count(text[-1])]
            assert features[15] == pytest.approx(sum(text[end] == token for end in ends) / len(ends))
            assert features[16] == pytest.approx(sum(text[end] == token for end in last_ends) / len(last_ends))
            assert features[12] == next(
                (back for back in range(len(text)) if text[-1 - back] <= BLANK_LINE), len(text) - 1
            )
            assert features[25] == text.count(text[-2])


def test_separators_and_huge_tokens_are_not_counted() -> None:
    counts = array_of([3, 4])
    assert [kernels.count_of(token, counts) for token in (0, 1, 2, 2**31 - 1, -1, -9)] == [3, 4, 0, 0, 0, 0]
    found = Found([5, -1, 5], found=(0, 1, 1, 1), workspace=[9])
    assert found.features[0, 25] == 0  # what stands before the only token of the prompt is no token


def test_a_token_that_ends_a_line_is_told_apart_in_the_workspace_too() -> None:
    for token, token_class in ((NEWLINE, 0), (8, 2)):
        found = Found([60], workspace=[60, token, -1], found=(1, 1, 1, 1))
        assert [row[:3] for row in found.rows] == [(kernels.WORKSPACE, IN_WORKSPACE, 1)]
        assert found.features[0, 7] == token_class


def test_whether_the_output_follows_a_file_is_told_and_how_much_of_it_does() -> None:
    file = list(range(10, 40))
    for output, follows, share in (
        (file[:9], 1, 1.0),
        ([*file[:4], *range(50, 90)], 1, 20 / 60),
        (list(range(50, 100)), 0, 16 / 66),
    ):
        found = Found([*file, 77, *output, file[5]], file=file, output_start=len(file) + 1)
        assert set(found.features[:, 26].tolist()) == {follows}
        assert found.features[:, 27].tolist() == pytest.approx(
            [(share * (len(output) + 16)) / (len(output) + 17)] * len(found.rows)
        )
    strange = Found([*file, 77, *file[:9]], file=file, output_start=len(file) + 1, num_lead_tokens=0)
    assert strange.features[0, 26:].tolist() == [1, pytest.approx(9 / 25), 9, 0]
    nothing = Found([5, 6, 7, 5])
    assert set(nothing.features[:, 26].tolist()) == {0}
    long = Found([5] * 600)
    assert set(long.features[:, 28].tolist()) == {400}


def in_workspace_at(position: int, num_agreeing: int = 6) -> NDArray[np.int64]:
    """The state of a sequence that goes on copying from the workspace."""
    state = np.zeros(alignment.NUM_FIELDS, dtype=np.int64)
    alignment.reset(state)
    state[alignment.OTHER] = position
    state[alignment.OTHER_IN_WORKSPACE] = 1
    state[alignment.NUM_OTHER_TOKENS] = num_agreeing
    return state


def test_a_copy_from_the_workspace_goes_on_there() -> None:
    workspace = [60, 61, 62, NEWLINE, -1]
    found = Found([60, 61, 62], workspace=workspace, state=in_workspace_at(3))
    assert found.rows == [(kernels.OTHER_CURSOR, IN_WORKSPACE, 3, 6)]
    (features,) = found.features.tolist()
    assert (features[2], features[7], features[10], features[11]) == (kernels.FAR, 0, kernels.FAR, 3)
    assert (features[21], features[22]) == (6, 0)
    assert (features[23], features[24]) == (0, -1)  # nothing was looked for


def test_a_place_of_the_workspace_is_no_candidate_twice() -> None:
    workspace = [60, 61, 62, 63, -1, 62, 64, -1]
    found = Found([60, 61, 62], workspace=workspace, state=in_workspace_at(3), found=(3, 2, 2, 1))
    assert found.rows == [(kernels.OTHER_CURSOR, IN_WORKSPACE, 3, 6)]
    assert found.features[0, 23:25].tolist() == [2, 0.5]
    elsewhere = Found([60, 61, 62], workspace=workspace, state=in_workspace_at(3), found=(6, 1, 2, 1))
    assert [row[:3] for row in elsewhere.rows] == [
        (kernels.OTHER_CURSOR, IN_WORKSPACE, 3),
        (kernels.WORKSPACE, IN_WORKSPACE, 6),
    ]
    assert elsewhere.features[:, 23].tolist() == [0, 2]
    text = [60, 61, 62, 63, 60, 61, 62]
    state = in_workspace_at(3)
    state[alignment.OTHER_IN_WORKSPACE] = 0  # the same number, of another array
    both = Found(text, workspace=workspace, state=state, found=(3, 3, 1, 1))
    assert {row[:3] for row in both.rows} >= {(kernels.OTHER_CURSOR, IN_TEXT, 3), (kernels.WORKSPACE, IN_WORKSPACE, 3)}


@pytest.mark.parametrize("position", [2, 6])
def test_places_of_the_workspace_are_not_taken_for_the_files(position: int) -> None:
    """They were once looked up among the file's places, which may be fewer."""
    file = [5, 6, 7, 8]
    state = in_workspace_at(position)
    state[alignment.CURSOR] = 4
    found = Found([*file, 77, 5, 6], file=file, output_start=5, workspace=[1, 2, 3, 4, 5, 6, 7, -1], state=state)
    assert [row[:3] for row in found.rows] == [
        (kernels.OTHER_CURSOR, IN_WORKSPACE, position),
        (kernels.MOST_RECENT, IN_TEXT, 2),
    ]
