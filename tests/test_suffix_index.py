"""The suffix index: sources and their borders, growth, rewind, memory, and what it refuses."""

from __future__ import annotations

import naive
import numpy as np
import pytest

from lookahead_edit.suffix_index import MAX_ENDS, NO_POSITION, Match, SuffixIndex
from lookahead_edit.types import NO_TOKENS, IntArray, InvalidInput, Source, SourceKind

MAX_TOKEN = 2**31 - 1


def tokens_of(*tokens: int) -> IntArray:
    return np.array(tokens, dtype=np.int32)


def own(kind: SourceKind, *tokens: int) -> Source:
    return Source(kind=kind, tokens=tokens_of(*tokens))


def match_of(index: SuffixIndex) -> tuple[int, list[int]]:
    match = index.longest_match()
    return match.length, match.ends.tolist()


def test_empty_prompt_has_no_match() -> None:
    index = SuffixIndex(NO_TOKENS)
    assert match_of(index) == (0, [])
    assert index.copy_longest(NO_POSITION, 8, 0).position == NO_POSITION
    index.append(tokens_of(3))
    assert match_of(index) == (0, [])
    index.append(tokens_of(3))
    assert match_of(index) == (1, [1])


def test_one_token_has_no_match() -> None:
    assert match_of(SuffixIndex(tokens_of(5))) == (0, [])


def test_ends_are_filled_into_an_array_of_the_callers() -> None:
    generator = np.random.default_rng(7)
    ends = np.full(MAX_ENDS, -7, dtype=np.int32)
    index = SuffixIndex(generator.integers(0, 2, 300).astype(np.int32))
    for token in generator.integers(0, 3, 200).tolist():
        index.append(tokens_of(token))
        ends.fill(-7)
        length, count = index.fill_longest_match(ends)
        assert (type(length), type(count)) == (int, int)
        assert (length, ends[:count].tolist()) == match_of(index)
        assert (ends[count:] == -7).all()
    index = SuffixIndex(tokens_of(*[5] * (MAX_ENDS + 9), 6, 5))
    assert index.fill_longest_match(ends)[1] == MAX_ENDS
    assert SuffixIndex(NO_TOKENS).fill_longest_match(ends) == (0, 0)


def test_smallest_and_largest_token_are_found() -> None:
    index = SuffixIndex(tokens_of(0, MAX_TOKEN, 1, 0, MAX_TOKEN))
    assert match_of(index) == (2, [2])
    index.append(tokens_of(MAX_TOKEN))
    assert match_of(index) == (1, [5, 2])


def test_appending_equals_building_at_once_across_growth() -> None:
    generator = np.random.default_rng(3)
    tokens = generator.integers(0, 3, 900).astype(np.int32)
    index = SuffixIndex(tokens[:10])
    sizes = iter(generator.integers(0, 40, 1000).tolist())
    while index.num_tokens < len(tokens):
        start = index.num_tokens
        index.append(tokens[start : start + next(sizes)])
        whole = SuffixIndex(tokens[: index.num_tokens])
        assert match_of(index) == match_of(whole)
    assert index.text.tolist() == tokens.tolist()
    length, ends = naive.longest_match(tokens.tolist())
    assert match_of(index) == (length, ends)


def test_matches_and_copies_stop_at_the_border_of_a_source() -> None:
    sources = [own(SourceKind.PREDICTION, 1, 2, 3), own(SourceKind.CONTEXT, 4, 1, 2)]
    index = SuffixIndex(tokens_of(3, 4, 1), sources)
    # 3 4 1 would run from one source into the next and on, if there were no separators.
    assert match_of(index) == (2, [6])
    copy = index.copy_longest(NO_POSITION, 8, 8)
    assert (copy.tokens.tolist(), copy.match_length, copy.position) == ([2], 2, 6)
    assert copy.kinds.tolist() == [SourceKind.CONTEXT]


def test_two_equal_sources_never_match_beyond_their_end() -> None:
    index = SuffixIndex(tokens_of(8, 9), [own(SourceKind.CONTEXT, 8, 9), own(SourceKind.CONTEXT, 8, 9)])
    assert match_of(index) == (2, [5, 2])
    assert index.copy_longest(NO_POSITION, 8, 8).position == NO_POSITION  # nothing follows either of them


def test_kinds_tell_where_every_token_comes_from() -> None:
    file = Source(kind=SourceKind.FILE, tokens=tokens_of(6, 7), prompt_start=1)
    index = SuffixIndex(tokens_of(5, 6, 7, 8), [own(SourceKind.PREDICTION, 1), own(SourceKind.CONTEXT), file])
    index.append(tokens_of(6))
    assert index.starts == [0, 2, 4]
    assert index.prompt_start == 3
    assert index.text[:3].tolist() == [1, -2, -3]
    expected = ["prediction", "prediction", "context", "prompt", "file", "file", "prompt", "output"]
    assert [SourceKind(kind).label for kind in index.kinds] == expected


def test_a_source_in_the_prompt_is_not_indexed_twice() -> None:
    prompt = np.arange(1000, dtype=np.int32)
    file = Source(kind=SourceKind.FILE, tokens=prompt[100:900], prompt_start=100)
    assert SuffixIndex(prompt, [file]).num_tokens == SuffixIndex(prompt).num_tokens


def test_match_picks_the_occurrence_the_caller_wants() -> None:
    match = Match(length=2, ends=tokens_of(30, 20, 10))
    assert (match.earliest, match.most_recent) == (10, 30)
    assert [match.nearest(position) for position in (0, 10, 11, 30, 31)] == [10, 10, 20, 30, None]
    nothing = Match(length=0, ends=NO_TOKENS)
    assert (nothing.earliest, nothing.most_recent, nothing.nearest(0)) == (None, None, None)


def test_copying_goes_on_periodically_at_the_end_of_the_text() -> None:
    index = SuffixIndex(tokens_of(9, 1, 2, 3, 1, 2, 3))
    copy = index.copy_longest(NO_POSITION, 8, 0)
    assert (copy.position, copy.tokens.tolist()) == (4, [1, 2, 3, 1, 2, 3, 1, 2])


def test_a_refuted_place_needs_a_longer_match() -> None:
    index = SuffixIndex(tokens_of(4, 1, 2, 3, 9, 2))
    assert index.copy_longest(NO_POSITION, 1, 0).position == 3
    index.refute(3, 1)
    assert index.copy_longest(NO_POSITION, 1, 0).position == NO_POSITION
    index.append(tokens_of(8, 1, 2))
    assert index.copy_longest(NO_POSITION, 1, 0).position == 3


def test_a_rewound_index_equals_a_new_one() -> None:
    generator = np.random.default_rng(4)
    tokens = generator.integers(0, 3, 700).astype(np.int32)
    index = SuffixIndex(tokens[:300])
    index.append(tokens[300:])
    for num_tokens in (700, 650, 301, 300, 1, 0):
        index.truncate(num_tokens)
        assert index.num_tokens == num_tokens
        assert match_of(index) == match_of(SuffixIndex(tokens[:num_tokens]))
    index.append(tokens[:50])
    assert match_of(index) == match_of(SuffixIndex(tokens[:50]))


def test_a_rewind_keeps_sources_and_says_what_it_cannot_do() -> None:
    index = SuffixIndex(tokens_of(1, 2), [own(SourceKind.CONTEXT, 5, 6)])
    for num_tokens in (2, 6):
        with pytest.raises(InvalidInput, match="between 3 and 5"):
            index.truncate(num_tokens)
    index.truncate(3)
    index.append(tokens_of(5))
    assert match_of(index) == (1, [1])
    assert index.kinds.tolist() == [SourceKind.CONTEXT] * 3 + [SourceKind.OUTPUT]


@pytest.mark.parametrize(
    "tokens",
    [
        pytest.param(np.array([1, 2], dtype=np.int64), id="int64"),
        pytest.param(np.array([1.0], dtype=np.float32), id="float32"),
        pytest.param(np.zeros((1, 2), dtype=np.int32), id="two dimensions"),
        pytest.param(np.array([1, -1], dtype=np.int32), id="negative"),
        pytest.param([1, 2], id="list"),
    ],
)
def test_anything_but_int32_tokens_is_refused(tokens: IntArray) -> None:
    with pytest.raises(InvalidInput, match="expected prompt"):
        SuffixIndex(tokens)
    with pytest.raises(InvalidInput, match="expected sources"):
        SuffixIndex(tokens_of(1), [Source(kind=SourceKind.CONTEXT, tokens=tokens)])
    with pytest.raises(InvalidInput, match="expected tokens"):
        SuffixIndex(tokens_of(1)).append(tokens)


@pytest.mark.parametrize("prompt_start", [-1, 0, 2, 9])
def test_a_source_that_does_not_stand_in_the_prompt_is_refused(prompt_start: int) -> None:
    file = Source(kind=SourceKind.FILE, tokens=tokens_of(2, 3), prompt_start=prompt_start)
    with pytest.raises(InvalidInput, match="expected the file to stand in the prompt"):
        SuffixIndex(tokens_of(1, 2, 3), [file])


def test_read_only_and_strided_tokens_are_taken() -> None:
    tokens = np.arange(20, dtype=np.int32)
    tokens.flags.writeable = False
    index = SuffixIndex(tokens)
    index.append(tokens[::2])
    assert index.text[20:].tolist() == list(range(0, 20, 2))


WORST = [0, *[1] * 9998, 2]  # has the most states, and the most branches


@pytest.mark.parametrize("tokens", [WORST, [1] * 10_000, list(range(10_000)), [0, 0, 0, 1] * 2500])
def test_memory_is_at_most_100_bytes_a_token_also_after_growth(tokens: list[int]) -> None:
    stream = tokens_of(*tokens)
    index = SuffixIndex(stream[:4000])
    arrays = [array for array in vars(index).values() if isinstance(array, np.ndarray) and array.base is None]
    assert index.num_bytes == sum(array.nbytes for array in arrays)
    while index.num_tokens < len(stream):
        assert 82 * index.num_tokens < index.num_bytes <= 100 * index.num_tokens
        index.append(stream[index.num_tokens : index.num_tokens + 50])
    assert match_of(index) == match_of(SuffixIndex(stream))


@pytest.mark.parametrize("num_tokens", [1, 2, 300, 2000])
def test_the_worst_text_fits_the_arrays(num_tokens: int) -> None:
    tokens = WORST[: num_tokens - 1]
    index = SuffixIndex(tokens_of(*tokens))
    index._build(index.text.copy(), index.kinds.copy(), np.zeros(len(tokens), dtype=np.int8), num_tokens)
    index.append(tokens_of(2))
    assert index.num_tokens == index._capacity_tokens
    assert match_of(index) == (0, [])
    index.append(tokens_of(1, 1))
    assert index.longest_match().length == min(2, max(num_tokens - 2, 1))


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_text_read_in_pieces_is_indexed_as_if_read_at_once(size: int) -> None:
    generator = np.random.default_rng(size)
    prompt, other = (generator.integers(0, 5, number).astype(np.int32) for number in (400, 90))
    sources = [Source(SourceKind.PREDICTION, other), Source(SourceKind.FILE, prompt[30:80].copy(), prompt_start=30)]
    whole, pieces = SuffixIndex(prompt, sources), SuffixIndex(prompt, sources, is_read=False)
    num_calls = 1
    while not pieces.read_on(size):
        num_calls += 1
    assert num_calls == -(-whole.num_tokens // size)
    for index in (whole, pieces):
        index.append(tokens_of(1, 2, 3))
    assert pieces.text.tolist() == whole.text.tolist()
    assert pieces.kinds.tolist() == whole.kinds.tolist()
    assert match_of(pieces) == match_of(whole)
