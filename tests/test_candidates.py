"""Places to copy from and which of them is drafted: against slow twins, and on cases made by hand."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lookahead_edit.cost import CostCurve, run_costs
from lookahead_edit.kernels import acceptance, alignment, choice
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
EVEN_ODDS = (  # roots, splits, thresholds and children of a tree that is a single leaf
    np.zeros(1, dtype=np.int32),
    np.array([acceptance.NONE], dtype=np.int32),
    np.zeros(1, dtype=np.float32),
    np.zeros((1, 2), dtype=np.int32),
)


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
    state: NDArray[np.int64] = field(default_factory=lambda: np.zeros(alignment.NUM_FIELDS, dtype=np.int64))

    def __post_init__(self) -> None:
        text, predicted = array_of(self.text), array_of(self.file)
        if not self.state.any():
            alignment.reset(self.state)
            for end in range(self.output_start + 1, len(text) + 1):
                follow = (0, 0, alignment.NONE, alignment.NONE, 0, self.state)
                alignment.follow(text[:end].copy(), end - 1, predicted, len(predicted), *follow)
        num_known = max(0, *self.text) + 1
        previous = np.zeros(len(text), dtype=np.int32)
        counts = np.zeros(num_known, dtype=np.int32)
        alignment.enter_tokens(text, 0, previous, np.full(num_known, -1, dtype=np.int32), counts)
        length, ends = naive.longest_match(self.text) if self.text[-1] >= 0 else (0, [])
        recent = np.zeros((2, kernels.MAX_RECENT), dtype=np.int32)
        ends = ends[: kernels.MAX_RECENT]
        recent[0, : len(ends)] = ends
        self.candidates = np.zeros((kernels.MAX_CANDIDATES, 4), dtype=np.int64)
        all_features = np.zeros((kernels.MAX_CANDIDATES, kernels.NUM_FEATURES), dtype=np.float32)
        count = kernels.find_candidates(
            text,
            classes_of(self.text),
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
        cursor, num_hunk_tokens, _ = naive.followed(text, len(file) + 1, file)
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
    assert in_workspace[:3] == [kernels.WORKSPACE, 1, kernels.FAR]
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


def test_copies_end_at_the_border_of_their_source() -> None:
    tokens, classes = np.zeros(6, dtype=np.int32), np.zeros(6, dtype=np.int8)

    def copied(array: int, position: int) -> list[int]:
        candidates = np.array([[0, array, position, 0]], dtype=np.int64)
        text, predicted, workspace = array_of([1, 2, -1, 3, 4, 5]), array_of([6, 7, 8]), array_of([9, 9, -1, 9])
        count = choice.copy_candidate(
            candidates,
            0,
            text,
            len(text),
            classes_of(text.tolist()),
            predicted,
            classes_of(predicted.tolist()),
            len(predicted),
            workspace,
            tokens,
            classes,
        )
        return tokens[:count].tolist()

    assert copied(IN_PREDICTED, 1) == [7, 8]
    assert copied(IN_TEXT, 0) == [1, 2]
    assert copied(IN_TEXT, 4) == [4, 5, 4, 5, 4, 5]  # what repeats itself may go on doing so
    assert copied(IN_TEXT, 5) == [5] * 6
    assert copied(IN_WORKSPACE, 1) == [9]
    assert copied(IN_WORKSPACE, 3) == [9]  # not past the end of the array


def tail_of(odds_by_type: dict[int, float]) -> NDArray[np.float32]:
    """Log odds of the later tokens, by the candidate's type alone."""
    table = np.zeros(acceptance.NUM_TAIL_ENTRIES, dtype=np.float32)
    by_type = table[: acceptance.NUM_TYPES * acceptance.NUM_EVIDENCE_BINS].reshape(acceptance.NUM_TYPES, -1)
    for kind, log_odds in odds_by_type.items():
        by_type[kind] = log_odds
    return table


def chosen(
    rows: list[tuple[int, int, int, int]],
    text: list[int],
    predicted: list[int],
    tail: dict[int, float],
    firsts: dict[int, float] | None = None,
    factors: list[float] | None = None,
) -> tuple[int | None, list[int], list[float]]:
    """(type, tokens, probabilities) of what is drafted; `firsts` are log odds of the first token, by type."""
    candidates = np.zeros((kernels.MAX_CANDIDATES, 4), dtype=np.int64)
    features = np.zeros((kernels.MAX_CANDIDATES, kernels.NUM_FEATURES), dtype=np.float32)
    for index, row in enumerate(rows):
        candidates[index] = row
        features[index, 0] = row[0]
    trees: tuple[Any, ...] = EVEN_ODDS
    if firsts is not None:
        (low, low_odds), (_, high_odds) = sorted(firsts.items())
        trees = (
            np.zeros(1, dtype=np.int32),
            array_of([0, -1, -1]),
            np.array([low, low_odds, high_odds], dtype=np.float32),
            array_of([1, 2, 0, 0, 0, 0]).reshape(3, 2),
        )
    costs = CostCurve.linear(0.01).values(1, 128)
    tokens, classes = np.zeros(64, dtype=np.int32), np.zeros(64, dtype=np.int8)
    probabilities = np.zeros(64, dtype=np.float32)
    best, count, first = choice.choose(
        len(rows),
        candidates,
        features,
        array_of(text),
        len(text),
        classes_of(text),
        array_of(predicted),
        classes_of(predicted),
        np.ones(len(predicted), dtype=np.float32) if factors is None else np.array(factors, dtype=np.float32),
        len(predicted),
        array_of([]),
        3,
        1.0,
        *trees,
        tail_of(tail),
        costs,
        run_costs(costs),
        tokens,
        classes,
        probabilities,
    )
    if best == alignment.NONE:
        assert count == 0
        assert 0.0 < first < 1.0
        return None, [], []
    assert first == pytest.approx(probabilities[0] / (1.0 if factors is None else factors[int(candidates[best, 2])]))
    return int(candidates[best, 0]), tokens[:count].tolist(), probabilities[:count].tolist()


FILE = list(range(10, 40))


def test_of_candidates_with_one_first_token_the_one_that_goes_further_is_drafted() -> None:
    text = [*FILE[:5], 99, 98, 97]
    cursor, recent = (kernels.AT_CURSOR, IN_PREDICTED, 0, 9), (kernels.MOST_RECENT, IN_TEXT, 0, 3)
    tail = {kernels.AT_CURSOR: 3.0, kernels.MOST_RECENT: 1.0}
    for rows in ([cursor, recent], [recent, cursor]):
        kind, tokens, probabilities = chosen(rows, text, FILE, tail)
        assert (kind, tokens) == (kernels.AT_CURSOR, FILE)
        assert probabilities == sorted(probabilities, reverse=True)


def test_one_first_token_has_one_probability_the_highest() -> None:
    text = [*FILE[:5], 99]
    rows = [(kernels.AT_CURSOR, IN_PREDICTED, 0, 9), (kernels.MOST_RECENT, IN_TEXT, 0, 3)]
    tail = {kernels.AT_CURSOR: 3.0, kernels.MOST_RECENT: 1.0}
    kind, _, probabilities = chosen(rows, text, FILE, tail, {kernels.AT_CURSOR: -1.0, kernels.MOST_RECENT: 2.0})
    assert kind == kernels.AT_CURSOR  # for how far it goes, not for its own first token
    assert probabilities[0] == pytest.approx(1 / (1 + np.exp(-2.0)))


def saved(probabilities: list[float]) -> float:
    """What the best length of such a draft saves, by the slow twin of the cost rule."""
    costs = CostCurve.linear(0.01).values(1, 128)
    nodes = [2.0**octave * (1 + step / 8) for octave in range(13) for step in range(8)] + [2.0**13]
    table = run_costs(costs)
    if not probabilities:
        return 0.0
    found = naive.draft_costs(probabilities, costs.tolist(), lambda mean: float(np.interp(1 + mean, nodes, table)))
    return found[0] - min(found)


def test_of_different_first_tokens_the_one_that_saves_more_is_drafted() -> None:
    generator = np.random.default_rng(3)
    rows = [(kernels.AT_CURSOR, IN_PREDICTED, 0, 9), (kernels.MOST_RECENT, IN_TEXT, 0, 3)]
    kinds, likelier_ones = set(), set()
    for _ in range(30):
        firsts, tail = ({row[0]: float(generator.normal(1.5, 1.5)) for row in rows} for _ in range(2))
        alone = [chosen([row], [50, 51, 52, 53], FILE, tail, firsts) for row in rows]
        gains = [saved(probabilities) for _, _, probabilities in alone]
        if abs(gains[0] - gains[1]) < 1e-3:
            continue
        kind, tokens, probabilities = chosen(rows, [50, 51, 52, 53], FILE, tail, firsts)
        assert (kind, tokens, probabilities) == alone[gains.index(max(gains))]
        kinds.add(kind)
        likelier_ones.add(probabilities[:1] == max(part[:1] for _, _, part in alone))
    assert (kinds, likelier_ones) == ({kernels.AT_CURSOR, kernels.MOST_RECENT}, {False, True})


def test_what_saves_nothing_is_not_drafted() -> None:
    rows = [(kernels.AT_CURSOR, IN_PREDICTED, 0, 0)]
    hopeless = {kernels.AT_CURSOR: -9.0, kernels.MOST_RECENT: -9.0}
    assert chosen(rows, [50], FILE, {}, hopeless)[0] is None


def test_equal_candidates_are_one() -> None:
    rows = [(kernels.MOST_RECENT, IN_TEXT, 0, 3)] * 3
    assert chosen(rows, [50, 51], [], {})[1][:3] == [50, 51, 50]


def test_trust_in_replaced_words_lowers_what_follows_them() -> None:
    rows = [(kernels.AT_CURSOR, IN_PREDICTED, 0, 9)]
    tail = {kernels.AT_CURSOR: 4.0}
    factors = [1.0] * len(FILE)
    _, _, plain = chosen(rows, [50], FILE, tail)
    factors[3] = 0.5
    _, _, lowered = chosen(rows, [50], FILE, tail, factors=factors)
    assert lowered[:3] == plain[:3]
    assert lowered[3:] == pytest.approx([0.5 * probability for probability in plain[3:]])


def test_what_is_hopeless_after_many_replaced_words_is_cut() -> None:
    rows = [(kernels.AT_CURSOR, IN_PREDICTED, 0, 9)]
    _, tokens, probabilities = chosen(rows, [50], FILE, {kernels.AT_CURSOR: 4.0}, factors=[0.5] * len(FILE))
    assert 1 <= len(tokens) < len(FILE)
    assert probabilities[-1] >= acceptance.MIN_PROBABILITY
