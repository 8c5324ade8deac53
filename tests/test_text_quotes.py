"""Verbatim quotes: every reported span is equal text, and none is missed that the naive twin finds."""

from __future__ import annotations

import itertools
import os
import random

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_kernels import Automaton, random_strings, small_strings

from lookahead_edit.kernels import quotes as kernels
from lookahead_edit.text_quotes import Quote, find_quotes

IS_COMPILED = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
TIDE = "Here the mill turns with the tide, twice a day, as it did in 1800."


def check(text: str, sources: list[str], quotes: list[Quote]) -> None:
    """What must be true of any answer."""
    for quote in quotes:
        assert text[quote.start : quote.end] == sources[quote.source][quote.source_start : quote.source_end]
        assert quote.start < quote.end
    assert all(before.end <= after.start for before, after in itertools.pairwise(quotes))


def quoted(text: str, sources: list[str], min_words: int = 5) -> list[str]:
    quotes = find_quotes(text, sources, min_words=min_words)
    check(text, sources, quotes)
    return [text[quote.start : quote.end] for quote in quotes]


def test_a_quote_is_found_with_its_source_and_place() -> None:
    text = "As the guide says, the mill turns with the tide, twice a day. And it is old."
    (quote,) = find_quotes(text, ["Another text altogether.", TIDE])
    assert quote == Quote(19, 60, 1, 5, 46)
    check(text, ["", TIDE], [quote])


def test_fewer_words_than_asked_for_are_no_quote() -> None:
    assert quoted("He saw the mill turns with.", [TIDE]) == []
    assert quoted("He saw the mill turns with.", [TIDE], min_words=4) == ["the mill turns with"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("windmill turns with the tide today", ["turns with the tide"]),
        ("the mill turns with the tides", ["the mill turns with the"]),
        ("the mill turns  with the tide", []),  # two blanks are not one
        ("the mill turns with\nthe tide", ["the mill turns with"]),
        ("The mill turns with the tide", ["mill turns with the tide"]),
    ],
)
def test_quotes_are_whole_words_and_equal_to_the_last_blank(text: str, expected: list[str]) -> None:
    assert quoted(text, [TIDE], min_words=4) == expected


def test_blanks_at_either_end_do_not_belong_to_a_quote() -> None:
    assert quoted("x  the mill turns with the tide  y", ["  the mill turns with the tide  "]) == [
        "the mill turns with the tide"
    ]


def test_the_longest_stretch_is_taken_whole_and_the_rest_beside_it() -> None:
    sources = ["one two three four five six", "four five six seven eight nine ten"]
    text = "one two three four five six seven eight nine ten"
    assert quoted(text, sources, 3) == ["one two three", "four five six seven eight nine ten"]


def test_of_equally_long_stretches_the_first_in_the_text_is_taken() -> None:
    assert quoted("a b c d e", ["a b c", "c d e"], 3) == ["a b c"]


def test_an_edit_shows_what_was_kept_in_its_order() -> None:
    line = "    total = total + price * count\n"
    before = f"def first():\n{line}\n\ndef second():\n{line}\n\ndef third():\n{line}"
    after = before.replace("second", "another")
    quotes = find_quotes(after, [before])
    check(after, [before], quotes)
    assert [quote.source_start - quote.start for quote in quotes] == [0, -1]
    assert sum(quote.end - quote.start for quote in quotes) == len(after) - len("another") - 2  # a blank, the line end


def test_a_repeated_sentence_is_found_where_the_quote_before_leads_to() -> None:
    again = "we will see it again tomorrow"
    source = f"{again}. First the birds came back over the bay, and {again}. Then {again}."
    text = f"First the birds came back over the bay! So {again}!"
    _, second = find_quotes(text, [source])
    assert second.source_start == source.index(again, 10)


def test_the_first_source_is_named_where_several_have_the_quote() -> None:
    assert [quote.source for quote in find_quotes("the mill turns with the tide", ["none", TIDE, TIDE])] == [1]


@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        ("他写道磨坊随着潮水转动。", "这里磨坊随着潮水转动。一天两次。", "磨坊随着潮水转动。"),
        ("वह कहता है चक्की ज्वार के साथ घूमती है", "यहाँ चक्की ज्वार के साथ घूमती है", "चक्की ज्वार के साथ घूमती है"),
        (
            "so I don\u2019t think it\u2019s late",
            "I don\u2019t think it\u2019s late!",
            "I don\u2019t think it\u2019s late",
        ),
        ("😀 the tide 😀 turns the mill here", "a tide 😀 turns the mill here", "tide 😀 turns the mill here"),
    ],
)
def test_words_are_those_of_the_script(text: str, source: str, expected: str) -> None:
    assert quoted(text, [source]) == [expected]


def test_nothing_is_quoted_across_the_border_of_two_sources() -> None:
    assert quoted("one two three four five six", ["one two three", "four five six"], 4) == []


@pytest.mark.parametrize(
    ("text", "sources"), [("", ["a b c d e"]), ("a b c d e", []), ("a b c d e", ["", ""]), ("", [])]
)
def test_where_there_is_no_text_there_is_no_quote(text: str, sources: list[str]) -> None:
    assert find_quotes(text, sources) == []


WORDS = st.lists(st.sampled_from(["a", "b", "c", " ", "."]), max_size=12)


@settings(max_examples=300 if IS_COMPILED else 60, deadline=None)
@given(WORDS, st.lists(WORDS, min_size=1, max_size=2), st.integers(1, 3))
def test_quotes_are_those_of_the_naive_twin(text: list[str], sources: list[list[str]], min_words: int) -> None:
    # One character a unit: letters that touch would be one word.
    joined, others = "".join(text), ["".join(source) for source in sources]
    if any(a.isalpha() and b.isalpha() for part in [text, *sources] for a, b in itertools.pairwise(part)):
        return
    if "  " in joined or any("  " in other for other in others):
        return
    quotes = find_quotes(joined, others, min_words=min_words)
    check(joined, others, quotes)
    assert [(quote.start, quote.end) for quote in quotes] == naive.quotes(text, sources, min_words)


UNITS = st.text(alphabet="ab \n.,é\u0301漢字ไทย😀'", max_size=80)


@settings(max_examples=300 if IS_COMPILED else 60, deadline=None)
@given(UNITS, st.lists(UNITS, max_size=3), st.integers(1, 4))
def test_every_reported_span_is_equal_text_whatever_the_script(text: str, sources: list[str], min_words: int) -> None:
    check(text, sources, find_quotes(text, sources, min_words=min_words))


def test_a_text_is_quoted_whole_from_itself() -> None:
    generator = random.Random(0)
    text = "".join(generator.choice(["tide ", "mill ", "\n", "1800, ", "漢", "don't "]) for _ in range(2000))
    (quote,) = find_quotes(text, [text])
    assert text[quote.start : quote.end] == text.strip()


def test_the_outcome_does_not_depend_on_the_run() -> None:
    generator = random.Random(0)
    words = ["the", "mill", "tide"]
    text, source = (" ".join(generator.choice(words) for _ in range(500)) for _ in range(2))
    assert find_quotes(text, [source]) == find_quotes(text, [source])


def looked_up(tokens: list[int], query: list[int]) -> tuple[list[int], list[int]]:
    index = Automaton([*tokens, -1])
    lengths, matched = np.empty((2, len(query)), dtype=np.int32)
    kernels.look_up(
        np.array(query, dtype=np.int32),
        len(index.text),
        index.text,
        index.states,
        index.edges,
        index.slots,
        lengths,
        matched,
    )
    return lengths.tolist(), [
        int(kernels.choose_end(state, length, 0, index.states, 1000)) if length else 0
        for state, length in zip(matched.tolist(), lengths.tolist(), strict=True)
    ]


def test_the_kernel_finds_the_longest_match_at_every_unit_of_small_texts() -> None:
    texts = [string for string in small_strings() if len(string) <= (6 if IS_COMPILED else 4)]
    for tokens in texts[:: 11 if IS_COMPILED else 17]:
        for query in texts[:: 13 if IS_COMPILED else 29]:
            lengths, ends = looked_up(list(tokens), list(query))
            for end in range(1, len(query) + 1):
                found = max(
                    length
                    for length in range(end + 1)
                    if not length or naive.places_of(tokens, query[end - length : end])
                )
                assert lengths[end - 1] == found
                if found:
                    assert ends[end - 1] == naive.places_of(tokens, query[end - found : end])[0] + found


def test_the_kernel_finds_the_occurrence_after_the_cursor() -> None:
    for tokens in random_strings(20):
        index = Automaton([*tokens, -1])
        for end, length in ((len(tokens), 1), (len(tokens) // 2, min(2, len(tokens) // 2))):
            if not length:
                continue
            part = tokens[end - length : end]
            lengths, matched = np.empty((2, length), dtype=np.int32)
            query = np.array(part, dtype=np.int32)
            kernels.look_up(
                query, len(index.text), index.text, index.states, index.edges, index.slots, lengths, matched
            )
            places = naive.places_of(tokens, part)
            for cursor in {0, places[-1], places[len(places) // 2] + 1, len(tokens)}:
                expected = min((place for place in places if place >= cursor), default=places[0])
                chosen = kernels.choose_end(int(matched[-1]), length, cursor, index.states, 10_000)
                assert chosen == expected + length
