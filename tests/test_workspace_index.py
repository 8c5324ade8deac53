"""The workspace index against its naive twin, on hostile texts, under threads; and the cache of indices.

Also run with NUMBA_DISABLE_JIT=1, where the random cases are smaller.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import naive
import numpy as np
import pytest

from lookahead_edit import workspace_index
from lookahead_edit.kernels import workspace as kernels
from lookahead_edit.suffix_index import NO_POSITION
from lookahead_edit.types import NO_TOKENS, IntArray, InvalidInput, Source, SourceKind
from lookahead_edit.workspace_index import (
    MAX_LENGTH,
    MAX_LOOKED_AT,
    WorkspaceCache,
    WorkspaceIndex,
    WorkspaceMatch,
)

IS_COMPILED = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
NUM_HOSTILE_TOKENS = 100_000 if IS_COMPILED else 2000


def tokens_of(tokens: Sequence[int]) -> IntArray:
    return np.array(tokens, dtype=np.int32)


def files_of(*files: Sequence[int]) -> list[Source]:
    return [Source(SourceKind.CONTEXT, tokens_of(file), path=f"{number}.py") for number, file in enumerate(files)]


def figures(match: WorkspaceMatch) -> tuple[int, int, int, int]:
    return match.length, match.count, match.num_agreeing, match.position


def expected(text: Sequence[int], tail: Sequence[int], min_count: int = 1) -> tuple[int, int, int, int]:
    length, ends = naive.workspace_match(text, tail, min_count, MAX_LENGTH)
    return length, len(ends), *naive.majority(text, ends, MAX_LOOKED_AT, kernels.MAX_FOLLOWED)


def small_strings(num_values: int, max_length: int) -> Iterator[tuple[int, ...]]:
    yield from itertools.chain.from_iterable(
        itertools.product(range(num_values), repeat=n) for n in range(max_length + 1)
    )


def random_files() -> Iterator[tuple[list[list[int]], np.random.Generator]]:
    generator = np.random.default_rng(0)
    for _ in range(60 if IS_COMPILED else 15):
        vocabulary = generator.integers(0, 2**31 - 1, generator.integers(1, 6), endpoint=True)
        sizes = generator.integers(0, 60 if IS_COMPILED else 25, generator.integers(1, 5))
        yield [generator.choice(vocabulary, size).tolist() for size in sizes], generator


def de_bruijn(num_values: int, order: int) -> list[int]:
    """Every string of `order` values once, by the FKM algorithm: Lyndon words whose length divides `order`."""
    word, sequence = [-1], list[int]()
    while word:
        word[-1] += 1
        if order % len(word) == 0:
            sequence += word
        word = [word[index % len(word)] for index in range(order)]
        while word and word[-1] == num_values - 1:
            word.pop()
    return sequence


def hostile_texts() -> dict[str, IntArray]:
    generator = np.random.default_rng(1)
    num_tokens = NUM_HOSTILE_TOKENS
    run = np.zeros(num_tokens, dtype=np.int32)
    run[num_tokens // 2 :: 41] = 1
    return {
        "one token": np.zeros(num_tokens, dtype=np.int32),
        "period two": (np.arange(num_tokens) % 2).astype(np.int32),
        "run with marks": run,
        "binary de Bruijn": tokens_of(de_bruijn(2, 16 if IS_COMPILED else 10)),
        "de Bruijn of pairs": tokens_of(de_bruijn(300 if IS_COMPILED else 40, 2)),
        "random ids": generator.integers(0, 2**31 - 1, num_tokens).astype(np.int32),
    }


HOSTILE = hostile_texts()


def test_match_equals_its_twin_on_all_small_texts_and_tails() -> None:
    tails = list(small_strings(2, 4 if IS_COMPILED else 3))
    for tokens in small_strings(3, 6 if IS_COMPILED else 3):
        files = [[*group] for is_file, group in itertools.groupby(tokens, lambda token: token < 2) if is_file]
        index = WorkspaceIndex(files_of(*files))
        text = index.text.tolist()
        for tail in tails:
            assert figures(index.longest_match(tokens_of(tail))) == expected(text, tail), (files, tail)


def test_match_equals_its_twin_on_random_files() -> None:
    for files, generator in random_files():
        index = WorkspaceIndex(files_of(*files))
        text = index.text.tolist()
        joined = [token for file in files for token in file]
        for min_count in (1, 2, 5, 64):
            end = int(generator.integers(0, len(joined) + 1))
            tail = [*joined[max(end - 40, 0) : end], *generator.choice([*joined, 1], 2).tolist()][
                : generator.choice(50)
            ]
            assert figures(index.longest_match(tokens_of(tail), min_count)) == expected(text, tail, min_count)


def test_contexts_are_sorted_like_their_twin_at_every_depth() -> None:
    for files, _ in random_files():
        text = WorkspaceIndex(files_of(*files)).text.copy()
        for depth in (1, 2, 8, 32):
            order, *scratch = np.empty((4, len(text)), dtype=np.int32)
            num_ends = kernels.sort_contexts(depth, text, order, *scratch)
            assert order[:num_ends].tolist() == naive.ends_by_context(text.tolist(), depth)


def test_more_occurrences_than_looked_at_are_counted_and_sampled_evenly() -> None:
    generator = np.random.default_rng(2)
    file = generator.choice([1, 2, 3], 1000, p=[0.7, 0.2, 0.1]).tolist()
    index = WorkspaceIndex(files_of(file))
    for tail in ([1], [1, 2], [2, 1, 1]):
        match = index.longest_match(tokens_of([9, *tail]))
        assert figures(match) == expected(index.text.tolist(), [9, *tail])
        assert match.num_agreeing <= match.num_looked_at <= MAX_LOOKED_AT


def test_the_example_of_the_docstring_holds() -> None:
    index = WorkspaceIndex(files_of([5, 6, 7, 5, 6, 8, 5, 6, 7]))
    match = index.longest_match(tokens_of([9, 5, 6]))
    assert match == WorkspaceMatch(length=2, count=3, num_agreeing=2, position=2)
    assert index.longest_match(tokens_of([4])) == WorkspaceMatch()


def test_no_match_and_no_copy_crosses_the_border_of_a_file() -> None:
    index = WorkspaceIndex(files_of([1, 2, 3], [4, 5], [], [1, 2]))
    assert figures(index.longest_match(tokens_of([2, 3, 4]))) == (1, 1, 1, 5)
    assert figures(index.longest_match(tokens_of([2, 3]))) == (0, 0, 0, NO_POSITION)  # nothing follows a file's end
    assert figures(index.longest_match(tokens_of([3, -1, 4]))) == (1, 1, 1, 5)  # a separator matches none
    assert figures(index.longest_match(tokens_of([4, -1]))) == (0, 0, 0, NO_POSITION)
    assert index.text.tolist() == [1, 2, 3, -1, 4, 5, -1, -1, 1, 2, -1]
    assert [index.tokens_from(1, limit).tolist() for limit in (0, 1, 9)] == [[], [2], [2, 3]]
    assert index.tokens_from(9, 9).tolist() == [2]
    assert [index.path_of(position) for position in range(11)] == [
        f"{number}.py" for number in (0, 0, 0, 0, 1, 1, 1, 2, 3, 3, 3)
    ]


def test_nothing_to_index_matches_nothing() -> None:
    for sources in ([], files_of([]), files_of([], [7])):
        index = WorkspaceIndex(sources)
        assert index.longest_match(tokens_of([7])) == WorkspaceMatch()
        assert index.longest_match(NO_TOKENS) == WorkspaceMatch()


def test_smallest_and_largest_token_are_found_and_only_the_last_tokens_are_compared() -> None:
    index = WorkspaceIndex(files_of([0, 2**31 - 1, 0, *range(50), 2**31 - 1, 0]))
    assert figures(index.longest_match(tokens_of([5, 0, 2**31 - 1]))) == (2, 1, 1, 2)
    assert index.longest_match(np.arange(50, dtype=np.int32)).length == MAX_LENGTH


def test_any_view_of_a_tail_is_searched() -> None:
    index = WorkspaceIndex(files_of([1, 2, 3, 4]))
    tail = tokens_of([9, 0, 1, 0, 2, 0])
    tail.flags.writeable = False
    assert figures(index.longest_match(tail[::2])) == (2, 1, 1, 2)
    assert index.longest_match(index.text[:2]).position == 2


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_searched_exactly_in_bounded_memory(name: str) -> None:
    text = HOSTILE[name]
    index = WorkspaceIndex(files_of(text.tolist()))
    assert index.num_bytes <= 8 * index.num_tokens
    generator = np.random.default_rng(3)
    for end in generator.integers(MAX_LENGTH, len(text), 20).tolist():
        match = index.longest_match(text[end - MAX_LENGTH : end])
        assert match.length == MAX_LENGTH
        assert 1 <= match.num_agreeing <= match.num_looked_at <= min(match.count, MAX_LOOKED_AT)
        assert text[match.position - MAX_LENGTH : match.position].tolist() == text[end - MAX_LENGTH : end].tolist()


class CountedReads:
    """Stands for an array, and counts the elements read."""

    def __init__(self, array: IntArray) -> None:
        self.array = array
        self.num_reads = 0

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, position: int) -> int:
        self.num_reads += 1
        return int(self.array[position])


@pytest.mark.skipif(IS_COMPILED, reason="reads are counted in plain Python only")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_search_of_hostile_text_reads_a_bounded_number_of_tokens(name: str) -> None:
    index = WorkspaceIndex(files_of(HOSTILE[name].tolist()))
    most = 0
    for end in range(MAX_LENGTH, index.num_tokens - 1, 97):
        for mark in (None, 0, 5, 20):
            tail = index.text[end - MAX_LENGTH : end].copy()
            if mark is not None:
                tail[mark] = 3
            text = CountedReads(index.text)
            kernels.find_longest(text, index._ends, tail, 1)
            most = max(most, text.num_reads)
    num_steps = 3 * int(np.log2(index.num_tokens) + 2)  # to the place, and to both ends of the range
    assert most <= num_steps * (MAX_LENGTH + 2) + MAX_LOOKED_AT * kernels.MAX_FOLLOWED


def test_threads_share_an_index() -> None:
    index = WorkspaceIndex(files_of(np.random.default_rng(4).integers(0, 4, 3000).tolist()))
    tails = [index.text[end - 20 : end] for end in range(20, 220)]
    alone = [index.longest_match(tail) for tail in tails]
    barrier = Barrier(8)

    def search(_: int) -> list[WorkspaceMatch]:
        barrier.wait()
        return [index.longest_match(tail) for tail in tails]

    with ThreadPoolExecutor(8) as pool:
        assert all(found == alone for found in pool.map(search, range(8)))


def test_text_and_copies_cannot_be_written() -> None:
    index = WorkspaceIndex(files_of([1, 2, 3]))
    for view in (index.text, index.tokens_from(0, 2)):
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 5


@pytest.mark.parametrize(
    "tokens", [np.array([1], dtype=np.int64), tokens_of([-1]), np.zeros((1, 1), dtype=np.int32), [1]]
)
def test_anything_but_int32_tokens_is_refused(tokens: IntArray) -> None:
    sources = [Source(SourceKind.CONTEXT, tokens)]
    with pytest.raises(InvalidInput, match="expected sources"):
        WorkspaceIndex(sources)
    with pytest.raises(InvalidInput, match="expected sources"):
        WorkspaceCache().index(sources)


def test_a_wrong_tail_or_count_is_refused() -> None:
    index = WorkspaceIndex(files_of([1, 2]))
    for tail in (np.array([1], dtype=np.int64), np.zeros((1, 1), dtype=np.int32)):
        with pytest.raises(InvalidInput, match="expected tail"):
            index.longest_match(tail)
    for min_count in (0, 65):
        with pytest.raises(InvalidInput, match="expected min_count from 1 to 64"):
            index.longest_match(tokens_of([1]), min_count)


def test_the_cache_tells_sources_apart_by_paths_and_borders_and_tokens() -> None:
    cache = WorkspaceCache()
    sets = [
        files_of([1, 2, 3]),
        files_of([1, 2], [3]),
        files_of([1, 2, 4]),
        [Source(SourceKind.CONTEXT, tokens_of([1, 2, 3]), path="other.py")],
        [Source(SourceKind.CONTEXT, tokens_of([1, 2, 3]))],
        [],
    ]
    indices = [cache.index(sources) for sources in sets]
    assert len({id(index) for index in indices}) == len(cache) == len(sets)
    assert cache.index(files_of([1, 2, 3])) is indices[0]


def test_the_cache_forgets_what_was_used_longest_ago() -> None:
    cache = WorkspaceCache(max_indices=2)
    first, second = cache.index(files_of([1])), cache.index(files_of([2]))
    assert cache.index(files_of([1])) is first
    cache.index(files_of([3]))
    assert len(cache) == 2
    assert cache.index(files_of([1])) is first
    assert cache.index(files_of([2])) is not second


def test_the_cache_keeps_to_its_bytes() -> None:
    cache = WorkspaceCache(max_bytes=2000)
    for number in range(5):
        cache.index(files_of([number] * 100))
        assert cache.num_bytes <= 2000
    assert len(cache) == 2
    too_large = cache.index(files_of(range(1000)))
    assert len(cache) == 2
    assert cache.index(files_of(range(1000))) is not too_large


def test_threads_that_ask_together_get_one_index() -> None:
    cache = WorkspaceCache()
    sources = files_of(list(range(500)) * 4)
    barrier = Barrier(8)

    def ask(_: int) -> WorkspaceIndex:
        barrier.wait()
        return cache.index(sources)

    with ThreadPoolExecutor(8) as pool:
        assert len({id(index) for index in pool.map(ask, range(8))}) == 1


def test_a_build_that_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(sources: Sequence[Source]) -> WorkspaceIndex:
        raise MemoryError

    cache = WorkspaceCache()
    with monkeypatch.context() as patch:
        patch.setattr(workspace_index, "WorkspaceIndex", fail)
        with pytest.raises(MemoryError):
            cache.index(files_of([1, 2]))
    assert cache.index(files_of([1, 2])).num_tokens == 3
