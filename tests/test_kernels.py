"""Kernels against their naive twins. Also run with NUMBA_DISABLE_JIT=1, where the random cases are smaller."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import naive
import numpy as np
import pytest

from lookahead_edit.kernels import automaton, ngram, suffix

IS_COMPILED = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
MAX_RANDOM_TOKENS = 400 if IS_COMPILED else 60


@dataclass
class Automaton:
    """The arrays of an automaton that has read `tokens`, sized to the stated bounds."""

    tokens: Sequence[int]

    def __post_init__(self) -> None:
        num_tokens = len(self.tokens)
        self.text = np.array(self.tokens, dtype=np.int32)
        self.states = np.empty(13 * num_tokens + 5, dtype=np.int32)
        self.edges = np.empty((num_tokens, 4), dtype=np.int32)
        self.slots = np.empty(2 * num_tokens, dtype=np.int32)
        self.counts = np.empty(3, dtype=np.int64)
        automaton.clear(self.states, self.slots, self.counts)
        automaton.append_tokens(num_tokens, self.text, self.states, self.edges, self.slots, self.counts)

    def find_longest(
        self, max_ends: int = 64, max_scan_length: int = 64, max_scanned: int = 1000
    ) -> tuple[int, list[int]]:
        ends = np.empty(max_ends, dtype=np.int32)
        borders = np.empty(max_scan_length, dtype=np.int32)
        length, count = suffix.find_longest(self.text, self.states, self.counts, max_scanned, ends, borders)
        return length, ends[:count].tolist()


def small_strings() -> Iterator[tuple[int, ...]]:
    yield from itertools.chain.from_iterable(itertools.product(range(2), repeat=n) for n in range(1, 10))
    yield from itertools.chain.from_iterable(itertools.product(range(3), repeat=n) for n in range(1, 7))


def random_strings(num_strings: int = 60) -> Iterator[list[int]]:
    generator = np.random.default_rng(0)
    for _ in range(num_strings):
        num_tokens = int(generator.integers(1, MAX_RANDOM_TOKENS))
        vocabulary = generator.integers(0, 2**31 - 1, generator.integers(1, 9), endpoint=True)
        yield generator.choice(vocabulary, num_tokens).tolist()


def fibonacci_word(num_tokens: int) -> list[int]:
    before, word = [0], [0, 1]
    while len(word) < num_tokens:
        before, word = word, word + before
    return word[:num_tokens]


REPETITIVE = {
    "one token": [7] * 150,
    "period two": [0, 1] * 75,
    "period seven with a fault": [*([1, 2, 3, 4, 5, 6, 7] * 10), 9, *([1, 2, 3, 4, 5, 6, 7] * 10)],
    "Fibonacci word": fibonacci_word(150),
    "run between marks": [0, *([1] * 148), 2],
    "long run after a mark": [*([5] * 80), 6, *([5] * 40)],
}


def test_longest_match_equals_its_twin_on_all_small_strings() -> None:
    for tokens in small_strings():
        assert Automaton(tokens).find_longest() == naive.longest_match(tokens), tokens


def test_longest_match_equals_its_twin_on_random_strings() -> None:
    for tokens in random_strings():
        length, ends = naive.longest_match(tokens)
        assert Automaton(tokens).find_longest(max_ends=MAX_RANDOM_TOKENS) == (length, ends)


@pytest.mark.parametrize("name", REPETITIVE)
def test_longest_match_equals_its_twin_after_every_token_of_repetitive_texts(name: str) -> None:
    tokens = REPETITIVE[name]
    for num_tokens in range(1, len(tokens) + 1, 1 if IS_COMPILED else 13):
        assert Automaton(tokens[:num_tokens]).find_longest(max_ends=200) == naive.longest_match(tokens[:num_tokens])


def test_more_ends_than_asked_for_gives_the_most_recent_ones() -> None:
    for tokens in [*random_strings(20), *REPETITIVE.values()]:
        length, ends = naive.longest_match(tokens)
        assert Automaton(tokens).find_longest(max_ends=3) == (length if len(ends) <= 3 else min(length, 64), ends[:3])


def test_more_ends_than_asked_for_compares_no_more_than_the_scan_length() -> None:
    tokens = [1, 2, 3, 4, 5] * 4 + [9] + [1, 2, 3, 4, 5] * 4 + [8] + [1, 2, 3, 4, 5] * 2
    assert naive.longest_match(tokens)[0] == 10
    assert Automaton(tokens).find_longest(max_ends=2, max_scan_length=4) == (4, naive.ends_of_suffix(tokens, 4)[:2])


def test_a_short_look_back_still_gives_one_true_end() -> None:
    tokens = [1, 2, 3] * 5 + [4] * 30 + [2]
    assert Automaton(tokens).find_longest(max_ends=3, max_scanned=32) == (1, [14])
    length, ends = Automaton(tokens).find_longest(max_ends=3, max_scanned=10)
    assert length == 1
    assert len(ends) == 1
    assert ends[0] in naive.longest_match(tokens)[1]


def test_scan_equals_its_twin_for_every_length() -> None:
    borders, ends = np.empty(64, dtype=np.int32), np.empty(1000, dtype=np.int32)
    for tokens in [*random_strings(10), *REPETITIVE.values()]:
        text = np.array(tokens, dtype=np.int32)
        for length in range(1, min(len(tokens), 64), 1 if IS_COMPILED else 9):
            count = suffix.scan_ends(text, len(text), length, len(text), ends, borders)
            assert ends[:count].tolist() == naive.ends_of_suffix(tokens, length)


def test_automaton_stays_within_its_bounds_and_the_tree_lists_every_state_once() -> None:
    for tokens in [*random_strings(20), *REPETITIVE.values()]:
        index = Automaton(tokens)
        num_clones = int(index.counts[automaton.NUM_CLONES])
        assert num_clones < len(tokens)
        assert index.counts[automaton.NUM_EDGES] <= len(tokens)
        states = [*range(len(tokens) + 1), *range(-1 - num_clones, -1)]
        seen = []
        for state in states:
            child = index.states[automaton.row_of(state) + automaton.CHILD]
            while child != automaton.NONE:
                assert index.states[automaton.row_of(child) + automaton.LINK] == state
                assert automaton.length_of(child, index.states) > automaton.length_of(state, index.states)
                seen.append(int(child))
                child = index.states[automaton.row_of(child) + automaton.SIBLING]
        assert sorted([automaton.ROOT, *seen]) == sorted(states)


def random_places() -> Iterator[tuple[list[int], list[int], int]]:
    """Texts of five stretches of random kinds, some closed by a separator, with a position in them."""
    generator = np.random.default_rng(1)
    for _ in range(200 if IS_COMPILED else 40):
        tokens: list[int] = []
        kinds: list[int] = []
        for stretch in range(5):
            num_tokens = int(generator.integers(1, 12))
            tokens += generator.integers(0, 3, num_tokens).tolist()
            kinds += [int(generator.integers(0, 5))] * num_tokens
            if generator.random() < 0.3:
                tokens[-1] = -1 - stretch
        tokens[-1] = 1
        yield tokens, kinds, int(generator.integers(0, len(tokens)))


def test_near_place_equals_its_twin() -> None:
    for tokens, kinds, cursor in random_places():
        text, kind_array = np.array(tokens, dtype=np.int32), np.array(kinds, dtype=np.int8)
        assert suffix.find_near(text, kind_array, len(text), cursor) == naive.near(tokens, kinds, cursor)


def test_chosen_place_equals_its_twin() -> None:
    generator = np.random.default_rng(2)
    ends, borders = np.empty(64, dtype=np.int32), np.empty(64, dtype=np.int32)
    for tokens, kinds, position in random_places():
        refuted = generator.integers(0, 4, len(tokens)).tolist()
        index = Automaton(tokens)
        marks = (np.array(kinds, dtype=np.int8), np.array(refuted, dtype=np.int8))
        for cursor in (position, automaton.NONE):
            chosen = suffix.choose_end(index.text, *marks, index.states, index.counts, cursor, ends, borders)
            assert chosen == naive.place(tokens, kinds, refuted, cursor)


def test_copied_tokens_equal_their_twin() -> None:
    for tokens, kinds, end in random_places():
        if tokens[end] < 0:
            continue
        text, kind_array = np.array(tokens, dtype=np.int32), np.array(kinds, dtype=np.int8)
        for limit, overrun in ((1, 0), (8, 0), (40, 0), (40, 4)):
            copied, sources = np.empty(limit, dtype=np.int32), np.empty(limit, dtype=np.int8)
            count = suffix.copy_tokens(text, kind_array, len(text), end, overrun, copied, sources)
            positions = naive.copied(tokens, kinds, end, limit, overrun)
            assert copied[:count].tolist() == [tokens[position] for position in positions]
            assert sources[:count].tolist() == [kinds[position] for position in positions]


def test_ngram_equals_its_twin() -> None:
    for tokens in [*itertools.islice(small_strings(), 600), *random_strings(20)]:
        text = np.array([*tokens, 99], dtype=np.int32)  # what stands past the end isn't read
        for longest, shortest in ((3, 1), (2, 2), (5, 3), (1, 1)):
            assert ngram.find_ngram(text, len(tokens), longest, shortest) == naive.ngram(tokens, longest, shortest)
