"""Lines end at \\n, \\r\\n and \\r only; positions count units of the client's encoding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookahead_edit.text_lines import (
    LinePositions,
    majority_line_end,
    parse_line_range,
    range_to_offsets,
    split_line_end,
    split_lines,
    splits_unit,
    to_lf,
)
from lookahead_edit.types import InvalidInput

NASTY = st.text(alphabet="ab \r\n\f\v\x00\x1c\x85\u2028\u2029\ufeffé€😀", max_size=40)


def span(start: tuple[int, int], end: tuple[int, int]) -> dict[str, dict[str, int]]:
    return {
        "start": {"line": start[0], "character": start[1]},
        "end": {"line": end[0], "character": end[1]},
    }


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("a", ["a"]),
        ("a\nb\r\nc\rd", ["a\n", "b\r\n", "c\r", "d"]),
        ("\r\r\n\n", ["\r", "\r\n", "\n"]),
        ("a\fb\vc\x1cd\x85e\u2028f\u2029g\x00h\n", ["a\fb\vc\x1cd\x85e\u2028f\u2029g\x00h\n"]),
    ],
)
def test_only_lf_crlf_and_cr_end_a_line(text, lines):
    assert split_lines(text) == lines


@given(NASTY)
def test_lines_add_up_to_the_text_and_lf_text_has_as_many(text):
    lines = split_lines(text)
    assert "".join(lines) == text
    assert all(split_line_end(line)[1] in ("\n", "\r\n", "\r") for line in lines[:-1])
    assert [content for content, _ in map(split_line_end, lines)] == [
        content for content, _ in map(split_line_end, split_lines(to_lf(text)))
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", None), ("a", None), ("a\r\nb\nc\r\n", "\r\n"), ("a\rb\nc", "\r"), ("\n\r\n", "\n"), ("\r\n\n", "\r\n")],
)
def test_the_commonest_line_end_wins_and_of_equals_the_first(text, expected):
    assert majority_line_end(text) == expected


@pytest.mark.parametrize(
    ("encoding", "characters"), [("utf-16", [0, 1, 2, 4, 5]), ("utf-8", [0, 1, 3, 7, 8]), ("utf-32", [0, 1, 2, 3, 4])]
)
def test_columns_count_units_of_the_encoding(encoding, characters):
    positions = LinePositions("first\naé😀b", encoding)
    for index, character in enumerate(characters):
        assert positions.position(6 + index) == {"line": 1, "character": character}
        assert positions.offset(1, character) == 6 + index


@given(NASTY, st.sampled_from(["utf-16", "utf-8", "utf-32"]))
def test_every_offset_has_a_position_that_leads_back_to_it(text, encoding):
    positions = LinePositions(text, encoding)
    for offset in range(len(text) + 1):
        if not splits_unit(text, offset):
            position = positions.position(offset)
            assert positions.offset(position["line"], position["character"]) == offset


@given(NASTY, st.sampled_from(["utf-16", "utf-8", "utf-32"]), st.data())
def test_positions_may_be_asked_for_in_any_order(text, encoding, data):
    offsets = [offset for offset in range(len(text) + 1) if not splits_unit(text, offset)]
    expected = {offset: LinePositions(text, encoding).position(offset) for offset in offsets}
    positions = LinePositions(text, encoding)
    for offset in data.draw(st.lists(st.sampled_from(offsets), max_size=20)):
        assert positions.position(offset) == expected[offset]


class Counted(LinePositions):
    """Counts the characters that it counted the units of."""

    num_counted = 0

    def _num_units(self, text):
        self.num_counted += len(text)
        return super()._num_units(text)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8"])
def test_no_character_of_a_long_line_is_counted_again_and_again(encoding):
    text = "é😀" * 50_000
    positions = Counted(text, encoding)
    width = {"utf-16": 3, "utf-8": 6}[encoding]
    assert positions.offset(0, 40_000 * width) == 80_000
    assert positions.num_counted <= len(text)
    positions.num_counted = 0
    for offset in range(0, len(text), 1000):
        assert positions.position(offset) == {"line": 0, "character": offset // 2 * width}
    assert positions.num_counted <= len(text)


def test_a_character_past_the_line_means_its_end_before_the_line_end():
    assert range_to_offsets("ab\r\ncd", span((0, 99), (1, 99))) == (2, 6)
    assert range_to_offsets("é\n", span((0, 0), (0, 7)), "utf-8") == (0, 1)


def test_a_final_newline_makes_an_empty_last_line():
    assert range_to_offsets("a\n", span((0, 0), (1, 0))) == (0, 2)
    assert range_to_offsets("", span((0, 0), (0, 0))) == (0, 0)


@pytest.mark.parametrize(
    ("text", "text_range", "encoding", "words"),
    [
        ("a\nb", span((0, 0), (2, 0)), "utf-16", ["0 to 1", "got 2"]),
        ("a\nb", span((-1, 0), (1, 0)), "utf-16", ["0 to 1", "got -1"]),
        ("a", span((0, -1), (0, 0)), "utf-16", ["at least 0", "got -1"]),
        ("ab", span((0, 2), (0, 1)), "utf-16", ["0:2", "got 0:1"]),
        ("a\nb", span((1, 0), (0, 1)), "utf-16", ["1:0", "got 0:1"]),
        ("😀", span((0, 1), (0, 2)), "utf-16", ["line 0", "got 1", "U+1F600", "utf-16"]),
        ("é", span((0, 0), (0, 1)), "utf-8", ["line 0", "got 1", "U+00E9"]),
        ("a", {"start": {"line": 0, "character": 0}}, "utf-16", ["start and end"]),
        ("a", span((0, 0), (0, True)), "utf-16", ["whole numbers", "end"]),
        ("a", {"start": {"line": 0}, "end": {"line": 0, "character": 0}}, "utf-16", ["start"]),
        ("a", [0, 1], "utf-16", ["start and end"]),
    ],
)
def test_a_range_outside_the_text_is_refused_with_numbers(text, text_range, encoding, words):
    with pytest.raises(InvalidInput) as caught:
        range_to_offsets(text, text_range, encoding)
    assert (caught.value.code, caught.value.param) == ("invalid_range", "range")
    for word in words:
        assert word in str(caught.value)


def test_an_unknown_encoding_is_refused():
    with pytest.raises(InvalidInput, match="utf-7") as caught:
        LinePositions("", "utf-7")
    assert caught.value.param == "position_encoding"


def test_a_line_range_covers_whole_lines_with_their_ends():
    text = "a\r\nb\rc\nd"
    assert text[slice(*parse_line_range("1:1", text))] == "a\r\n"
    assert text[slice(*parse_line_range("2:3", text))] == "b\rc\n"
    assert text[slice(*parse_line_range("1:4", text))] == text


@pytest.mark.parametrize(
    "spec", ["0:1", "3:2", "1:5", "5:5", "1", "1:", ":1", "a:b", "-1:2", "1:2:3", "", " 1:2", "1:\n2"]
)
def test_a_line_range_that_does_not_fit_is_refused_with_numbers(spec):
    with pytest.raises(InvalidInput, match="4 lines") as caught:
        parse_line_range(spec, "a\nb\nc\nd\n")
    assert caught.value.code == "invalid_range"
    assert spec in str(caught.value)
