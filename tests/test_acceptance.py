"""Estimated acceptance: bins at their borders, trees and tables against plain Python, and the model that is shipped."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lookahead_edit.acceptance import AcceptanceModel, acceptance_model
from lookahead_edit.kernels import acceptance as kernels
from lookahead_edit.kernels.candidates import NUM_FEATURES, OTHER_CURSOR, WORKSPACE
from tests import naive

SHAPES = (
    (kernels.NUM_TYPES, kernels.NUM_EVIDENCE_BINS),
    (kernels.NUM_GROUPS, kernels.NUM_CLASSES, kernels.NUM_CLASSES),
    (kernels.NUM_GROUPS, kernels.NUM_EVIDENCE_BINS, kernels.NUM_OFFSET_BINS),
    (kernels.NUM_FIRST_BINS, kernels.NUM_OFFSET_BINS),
    (kernels.NUM_GROUPS, kernels.NUM_RATE_BINS, 4),
    (kernels.NUM_CLASSES, kernels.NUM_EVIDENCE_BINS),
)


def flat_entries(entries: list[tuple[int, ...]]) -> list[int]:
    """Places in the table, its parts one after the other."""
    starts = np.cumsum([0, *(math.prod(shape) for shape in SHAPES)]).tolist()
    return [
        start + int(np.ravel_multi_index(entry, shape))
        for start, entry, shape in zip(starts, entries, SHAPES, strict=False)
    ]


def test_the_table_has_room_for_all_parts_and_types() -> None:
    assert sum(math.prod(shape) for shape in SHAPES) == kernels.NUM_TAIL_ENTRIES
    assert len(SHAPES) == kernels.NUM_TAIL_PARTS
    assert kernels.FIRST_CURSOR_LESS_TYPE == OTHER_CURSOR
    assert kernels.NUM_CURSOR_LESS_TYPES == WORKSPACE + 1 - OTHER_CURSOR
    assert kernels.NUM_TYPES == WORKSPACE + 1 + kernels.NUM_CURSOR_LESS_TYPES


def test_evidence_bins_begin_where_they_should() -> None:
    firsts = [next(number for number in range(300) if kernels.evidence_bin(number) == index) for index in range(12)]
    assert firsts == [0, 1, 2, 3, 4, 5, 7, 10, 16, 32, 64, 128]
    for evidence in [*range(300), 10**6]:
        assert kernels.evidence_bin(evidence) == naive.evidence_bin(evidence)


def test_offset_bins_are_octaves() -> None:
    assert [kernels.offset_bin(offset) for offset in (0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 5000)] == [
        *(0, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7)
    ]


@pytest.mark.parametrize(
    ("num_breaks", "num_tokens", "expected"),
    [(0, 0, 3), (0, 60, 2), (0, 61, 1), (0, 180, 1), (0, 181, 0), (0, 10**6, 0), (1, 0, 4), (1, 1, 3), (3, 0, 5)],
)
def test_rate_bins_are_octaves_around_the_usual_rate(num_breaks: int, num_tokens: int, expected: int) -> None:
    assert kernels.rate_bin(num_breaks, num_tokens) == expected
    assert 0 <= kernels.rate_bin(num_breaks + 10**6, num_tokens) < kernels.NUM_RATE_BINS


def random_arguments(generator: np.random.Generator) -> dict[str, Any]:
    return {
        "kind": int(generator.integers(0, WORKSPACE + 1)),
        "follows_file": bool(generator.integers(0, 2)),
        "evidence": int(generator.choice([0, 1, 2, 4, 5, 9, 30, 70, 256])),
        "rate": int(generator.integers(0, kernels.NUM_RATE_BINS)),
    }


def test_each_token_takes_the_entries_its_twin_takes() -> None:
    generator = np.random.default_rng(1)
    entries = np.zeros(8, dtype=np.int32)
    for offset, (before, after) in itertools.product((1, 2, 3, 8, 100, 511), itertools.product(range(6), repeat=2)):
        for _ in range(4):
            arguments = random_arguments(generator)
            kind, follows, evidence, rate = arguments.values()
            first = int(generator.integers(0, 10))
            kernels.tail_entries(kind, follows, evidence, offset, before, after, first, rate, entries)
            expected = naive.tail_entries(kind, follows, evidence, offset, (before, after), first, rate)
            assert entries[: kernels.NUM_TAIL_PARTS].tolist() == flat_entries(expected)


def test_candidates_of_the_file_have_one_row_whether_it_is_followed_or_not_and_others_have_two() -> None:
    rows: dict[int, set[int]] = {}
    entries = np.zeros(8, dtype=np.int32)
    for kind, follows in itertools.product(range(WORKSPACE + 1), (True, False)):
        kernels.tail_entries(kind, follows, 0, 1, 0, 0, 0, 0, entries)
        rows.setdefault(kind, set()).add(int(entries[0]) // kernels.NUM_EVIDENCE_BINS)
    assert [len(rows[kind]) for kind in range(WORKSPACE + 1)] == [1] * OTHER_CURSOR + [2] * (
        WORKSPACE + 1 - OTHER_CURSOR
    )
    assert set.union(*rows.values()) == set(range(kernels.NUM_TYPES))


def test_bins_end_where_those_of_the_twin_do() -> None:
    for evidence, offset in itertools.product([*range(0, 135), 200, 256], [*range(0, 20), 31, 32, 63, 64, 65, 200]):
        limit = offset + 200
        assert min(kernels.bin_end(evidence, offset), limit) == naive.bin_end(evidence, offset, limit)
    assert kernels.bin_end(256, 64) >= 4096  # no draft is longer


def expected_probabilities(
    classes: NDArray[np.int8], table: NDArray[np.float32], first: float, break_factor: float, **arguments: Any
) -> list[float]:
    """Token by token, each with all entries of its own."""
    kind, follows, evidence, rate = (arguments[key] for key in ("kind", "follows_file", "evidence", "rate"))
    expected = [first]
    for offset in range(1, len(classes)):
        pair = (int(classes[offset - 1]), int(classes[offset]))
        parts = naive.tail_entries(kind, follows, evidence, offset, pair, min(9, int(first * 10)), rate)
        log_odds = sum(float(table[entry]) for entry in flat_entries(parts))
        expected.append(expected[-1] * max(0.0, 1.0 - break_factor / (1.0 + math.exp(log_odds))))
    return [first, *itertools.takewhile(lambda value: value >= kernels.MIN_PROBABILITY, expected[1:])]


def test_probabilities_are_those_of_the_twin_and_never_rise_also_where_a_start_is_there_already() -> None:
    generator = np.random.default_rng(2)
    entries, lengths, num_filled_ones = np.zeros(8, dtype=np.int32), set(), set()
    for mean_log_odds in [0.4, 0.8, 1.5] * 30:
        table = generator.normal(mean_log_odds, 0.5, kernels.NUM_TAIL_ENTRIES).astype(np.float32)
        odds = np.exp(table, dtype=np.float64)
        classes = generator.integers(0, kernels.NUM_CLASSES, int(generator.integers(1, 200))).astype(np.int8)
        arguments = random_arguments(generator)
        kind, follows, evidence, rate = arguments.values()
        first, break_factor = float(generator.random()), float(generator.choice([0.3, 1.0, 3.0]))
        likely = expected_probabilities(classes, table, first, break_factor, **arguments)
        whole = np.zeros(len(classes), dtype=np.float32)
        for num_filled in (0, 1, len(likely), *generator.integers(0, len(likely) + 1, 3).tolist()):
            found = np.zeros(len(classes), dtype=np.float32)
            found[:num_filled] = whole[:num_filled]
            count = kernels.fill_probabilities(
                kind, follows, evidence, first, classes, rate, break_factor, odds, entries, num_filled, found
            )
            whole = found if num_filled == 0 else whole
            assert count == len(likely)
            assert found[:count].tolist() == pytest.approx(likely, rel=1e-5)
            assert found[:num_filled].tolist() == whole[:num_filled].tolist()
            assert (np.diff(found[:count]) <= 0).all()
            num_filled_ones.add(min(num_filled, 40))
        lengths.add(len(likely) == len(classes))
    assert lengths == {False, True}
    assert len(num_filled_ones) > 20


def test_nothing_copied_has_no_probabilities() -> None:
    none, table = np.zeros(0, dtype=np.int8), np.ones(kernels.NUM_TAIL_ENTRIES)
    entries, found = np.zeros(8, dtype=np.int32), np.zeros(0, dtype=np.float32)
    assert kernels.fill_probabilities(0, True, 9, 0.5, none, 3, 1.0, table, entries, 0, found) == 0


def random_tree(generator: np.random.Generator, depth: int) -> Any:
    if depth == 0 or generator.random() < 0.2:
        return float(np.float32(generator.normal()))
    threshold = float(np.float32(generator.integers(0, 4)))
    return (
        int(generator.integers(0, 3)),
        threshold,
        random_tree(generator, depth - 1),
        random_tree(generator, depth - 1),
    )


def whole_trees(trees: list[Any], depth: int, generator: np.random.Generator) -> tuple[NDArray[Any], ...]:
    """columns, thresholds and leaves; below a leaf that comes early both sides are that leaf, whatever is asked for."""
    columns = generator.integers(0, 3, (len(trees), 2**depth - 1)).astype(np.uint8)
    thresholds = generator.integers(0, 4, columns.shape).astype(np.float32)
    leaves = np.zeros((len(trees), 2**depth), dtype=np.float32)

    def enter(number: int, tree: Any, node: int) -> None:
        if node >= columns.shape[1]:
            leaves[number, node - columns.shape[1]] = tree
            return
        left = right = tree
        if not isinstance(tree, float):
            columns[number, node], thresholds[number, node], left, right = tree
        enter(number, left, 2 * node + 1)
        enter(number, right, 2 * node + 2)

    for number, tree in enumerate(trees):
        enter(number, tree, 0)
    return columns, thresholds, leaves


def test_trees_are_walked_as_in_plain_python() -> None:
    generator = np.random.default_rng(5)
    for _ in range(30):
        depth = int(generator.integers(0, 6))
        trees = [random_tree(generator, depth) for _ in range(int(generator.integers(1, 6)))]
        arrays = whole_trees(trees, depth, generator)
        for features in itertools.product((-1.0, 0.0, 1.0, 2.5), repeat=3):  # thresholds included: left if equal
            log_odds = sum(naive.tree_value(features, tree) for tree in trees)
            found = kernels.first_probability(np.array(features, dtype=np.float32), *arrays)
            assert found == pytest.approx(1.0 / (1.0 + math.exp(-log_odds)), rel=1e-6)


def test_nothing_is_greater_than_infinity() -> None:
    columns, thresholds = np.zeros((1, 3), dtype=np.uint8), np.full((1, 3), np.inf, dtype=np.float32)
    leaves = np.array([[-1.0, 5.0, 6.0, 7.0]], dtype=np.float32)
    for feature in (-np.inf, 0.0, 9999.0, np.inf):
        found = kernels.first_probability(np.array([feature], dtype=np.float32), columns, thresholds, leaves)
        assert found == pytest.approx(1.0 / (1.0 + math.exp(1.0)))


@pytest.mark.parametrize(
    "change",
    [
        {"leaves": np.zeros((2, 3), np.float32)},
        {"leaves": np.zeros((2, 8), np.float32)},
        {"columns": np.zeros((1, 3), np.uint8)},
        {"thresholds": np.zeros((2, 1), np.float32)},
        {"tail_log_odds": np.zeros(kernels.NUM_TAIL_ENTRIES - 1, np.float32)},
    ],
    ids=["no power of two", "one level more", "a tree less", "a level less", "another table"],
)
def test_a_model_of_another_shape_is_noticed_at_once(change: dict[str, NDArray[Any]]) -> None:
    arrays: dict[str, Any] = {
        "columns": np.zeros((2, 3), np.uint8),
        "thresholds": np.zeros((2, 3), np.float32),
        "leaves": np.zeros((2, 4), np.float32),
        "tail_log_odds": np.zeros(kernels.NUM_TAIL_ENTRIES, np.float32),
    }
    AcceptanceModel(**arrays)
    with pytest.raises(AssertionError):
        AcceptanceModel(**{**arrays, **change})


def test_the_shipped_model_fits_the_kernels() -> None:
    model = acceptance_model()
    assert len(model.leaves) >= 1
    assert (model.columns.dtype, model.thresholds.dtype, model.leaves.dtype) == (np.uint8, np.float32, np.float32)
    assert all(array.flags.c_contiguous for array in (model.columns, model.thresholds, model.leaves))
    assert (model.columns < NUM_FEATURES).all()
    assert not np.isnan(model.thresholds).any()  # but infinite where a tree ends early
    assert np.isfinite(model.leaves).all()
    assert np.isfinite(model.tail_log_odds).all()
    generator = np.random.default_rng(6)
    for features in generator.normal(3, 20, (50, NUM_FEATURES)).astype(np.float32):
        found = kernels.first_probability(features, model.columns, model.thresholds, model.leaves)
        assert 0.0 < found < 1.0
