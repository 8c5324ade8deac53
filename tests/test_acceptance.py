"""Estimated acceptance: bins at their borders, trees and tables against plain Python, and the model that is shipped."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lookahead_edit.acceptance import acceptance_model
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
    has_file = bool(generator.integers(0, 2))
    return {
        "kind": int(generator.integers(0 if has_file else OTHER_CURSOR, WORKSPACE + 1)),
        "has_file": has_file,
        "evidence": int(generator.choice([0, 1, 2, 4, 5, 9, 30, 70, 256])),
        "rate": int(generator.integers(0, kernels.NUM_RATE_BINS)),
    }


def test_each_token_takes_the_entries_its_twin_takes() -> None:
    generator = np.random.default_rng(1)
    entries = np.zeros(8, dtype=np.int32)
    for offset, (before, after) in itertools.product((1, 2, 3, 8, 100, 511), itertools.product(range(6), repeat=2)):
        for _ in range(4):
            arguments = random_arguments(generator)
            kind, has_file, evidence, rate = (arguments[key] for key in ("kind", "has_file", "evidence", "rate"))
            first = int(generator.integers(0, 10))
            kernels.tail_entries(kind, has_file, evidence, offset, before, after, first, rate, entries)
            expected = naive.tail_entries(kind, has_file, evidence, offset, (before, after), first, rate)
            assert entries[: kernels.NUM_TAIL_PARTS].tolist() == flat_entries(expected)


def test_probabilities_are_those_of_the_twin_and_never_rise() -> None:
    generator = np.random.default_rng(2)
    entries, lengths = np.zeros(8, dtype=np.int32), set()
    for _ in range(100):
        table = (generator.normal(0.4, 0.5, kernels.NUM_TAIL_ENTRIES)).astype(np.float32)
        classes = generator.integers(0, kernels.NUM_CLASSES, int(generator.integers(1, 60))).astype(np.int8)
        arguments = random_arguments(generator)
        kind, has_file, evidence, rate = (arguments[key] for key in ("kind", "has_file", "evidence", "rate"))
        first, break_factor = float(generator.random()), float(generator.choice([0.3, 1.0, 3.0]))
        found = np.zeros(len(classes), dtype=np.float32)
        count = kernels.fill_probabilities(
            kind, has_file, evidence, first, classes, rate, break_factor, table, entries, found
        )
        expected = [first]
        for offset in range(1, len(classes)):
            pair = (int(classes[offset - 1]), int(classes[offset]))
            parts = naive.tail_entries(kind, has_file, evidence, offset, pair, min(9, int(first * 10)), rate)
            log_odds = sum(float(table[entry]) for entry in flat_entries(parts))
            expected.append(expected[-1] * max(0.0, 1.0 - break_factor / (1.0 + math.exp(log_odds))))
        likely = [expected[0], *itertools.takewhile(lambda value: value >= kernels.MIN_PROBABILITY, expected[1:])]
        assert count == len(likely)
        assert found[:count].tolist() == pytest.approx(likely, rel=1e-5)
        assert (np.diff(found[:count]) <= 0).all()
        lengths.add(count == len(classes))
    assert lengths == {False, True}


def test_nothing_copied_has_no_probabilities() -> None:
    none, table = np.zeros(0, dtype=np.int8), np.zeros(kernels.NUM_TAIL_ENTRIES, dtype=np.float32)
    entries, found = np.zeros(8, dtype=np.int32), np.zeros(0, dtype=np.float32)
    assert kernels.fill_probabilities(0, True, 9, 0.5, none, 3, 1.0, table, entries, found) == 0


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


def flat_trees(trees: list[Any]) -> tuple[NDArray[Any], ...]:
    """roots, splits, thresholds and children."""
    splits: list[int] = []
    thresholds: list[float] = []
    children: list[list[int]] = []

    def enter(tree: Any) -> int:
        number = len(splits)
        is_leaf = isinstance(tree, float)
        splits.append(kernels.NONE if is_leaf else tree[0])
        thresholds.append(tree if is_leaf else tree[1])
        children.append([0, 0])
        if not is_leaf:
            children[number] = [enter(tree[2]), enter(tree[3])]
        return number

    roots = np.array([enter(tree) for tree in trees], dtype=np.int32)
    return (
        roots,
        np.array(splits, dtype=np.int32),
        np.array(thresholds, dtype=np.float32),
        np.array(children, dtype=np.int32),
    )


def test_trees_are_walked_as_in_plain_python() -> None:
    generator = np.random.default_rng(5)
    for _ in range(30):
        trees = [random_tree(generator, int(generator.integers(0, 5))) for _ in range(int(generator.integers(1, 6)))]
        arrays = flat_trees(trees)
        for features in itertools.product((-1.0, 0.0, 1.0, 2.5), repeat=3):  # thresholds included: left if equal
            log_odds = sum(naive.tree_value(features, tree) for tree in trees)
            found = kernels.first_probability(np.array(features, dtype=np.float32), *arrays)
            assert found == pytest.approx(1.0 / (1.0 + math.exp(-log_odds)), rel=1e-6)


def test_the_shipped_model_fits_the_kernels() -> None:
    model = acceptance_model()
    is_leaf = model.splits == kernels.NONE
    assert len(model.roots) >= 1
    assert (model.splits < NUM_FEATURES).all()
    assert np.isfinite(model.thresholds).all()
    assert np.isfinite(model.tail_log_odds).all()
    inner = np.flatnonzero(~is_leaf)
    assert (model.children[inner] > inner[:, None]).all()  # so every walk ends
    assert (model.children < len(model.splits)).all()
    generator = np.random.default_rng(6)
    for features in generator.normal(3, 20, (50, NUM_FEATURES)).astype(np.float32):
        found = kernels.first_probability(features, model.roots, model.splits, model.thresholds, model.children)
        assert 0.0 < found < 1.0
