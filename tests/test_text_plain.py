"""Plain text up to the first stop string, however it arrives."""

from __future__ import annotations

import itertools

import pytest

from lookahead_edit.text_answer import find_stop
from lookahead_edit.text_plain import PlainStream


def streamed(pieces: list[str], stops: tuple[str, ...]) -> list[str]:
    stream = PlainStream(stops)
    given = [*map(stream.push, pieces), stream.finish()]
    assert stream.text == "".join(given)
    return given


def test_without_stop_strings_every_piece_is_given_out_at_once() -> None:
    assert streamed(["a", "", "b\n", "```"], ()) == ["a", "", "b\n", "```", ""]


def test_nothing_of_a_stop_string_is_given_out() -> None:
    assert streamed(["one E", "ND two"], ("END",)) == ["one ", "", ""]


def test_what_only_began_like_a_stop_string_is_given_out_later() -> None:
    assert streamed(["one E", "N", "E"], ("END",)) == ["one ", "", "EN", "E"]
    assert streamed(["one EN"], ("END",)) == ["one ", "EN"]


def test_after_a_stop_string_nothing_more_comes() -> None:
    stream = PlainStream(["END"])
    assert stream.push("aENDb") == "a"
    assert stream.is_finished
    assert (stream.push("c"), stream.finish(), stream.text) == ("", "", "a")


def test_an_empty_stop_string_stops_nothing() -> None:
    assert streamed(["ab"], ("",)) == ["ab", ""]


@pytest.mark.parametrize("stops", [("ab",), ("ba", "abb"), ("aab", "b"), ("bab", "ab")])
def test_the_text_does_not_depend_on_how_it_arrives(stops: tuple[str, ...]) -> None:
    for length in range(6):
        for letters in itertools.product("ab", repeat=length):
            text = "".join(letters)
            stop = find_stop(text, stops)
            expected = text if stop is None else text[:stop]
            for cuts in itertools.product((False, True), repeat=max(0, length - 1)):
                borders = [0, *(place for place, is_cut in enumerate(cuts, start=1) if is_cut), length]
                pieces = [text[start:end] for start, end in itertools.pairwise(borders)]
                assert "".join(streamed(pieces, stops)) == expected
