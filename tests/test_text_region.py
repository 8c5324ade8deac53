"""What the model does not see comes back: line ends, byte order mark, final newline, bytes outside the region."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookahead_edit.text_lines import split_line_end, split_lines, splits_unit
from lookahead_edit.text_region import Region
from lookahead_edit.types import InvalidInput

NASTY = st.text(alphabet="ab \t\r\n\f\x00\u2028\ufeffé😀", max_size=40)
LINE = st.text(alphabet="ab \t\f\u2028", max_size=3)


@st.composite
def regions(draw):
    text = draw(NASTY)
    offsets = [offset for offset in range(len(text) + 1) if not splits_unit(text, offset)]
    start, end = sorted((draw(st.sampled_from(offsets)), draw(st.sampled_from(offsets))))
    return Region.of(text, (start, end))


@given(NASTY)
def test_an_unchanged_answer_gives_the_document_back_byte_for_byte(text):
    region = Region.of(text)
    assert region.apply(region.model_view) == text


@given(regions())
def test_an_unchanged_answer_gives_any_region_back_byte_for_byte(region):
    assert region.restore(region.model_view) == region.body
    assert region.apply(region.model_view) == region.text


@given(regions(), NASTY)
def test_bytes_outside_the_region_are_untouched(region, answer):
    edited = region.apply(answer)
    assert edited.startswith(region.before)
    assert edited.endswith(region.after)
    assert len(edited) >= len(region.before) + len(region.after)


@given(regions())
def test_the_model_sees_whole_lf_lines(region):
    assert "\r" not in region.model_view
    assert region.model_view.endswith("\n") == bool(region.body)


@given(NASTY, st.lists(LINE, max_size=8))
def test_a_document_keeps_bom_and_final_newline_state_whatever_the_answer(text, lines):
    region = Region.of(text)
    edited = region.apply("".join(line + "\n" for line in lines))
    assert edited.startswith("\ufeff") == text.startswith("\ufeff")
    if region.body and edited.removeprefix("\ufeff"):
        assert edited.endswith(("\r", "\n")) == text.endswith(("\r", "\n"))


@given(NASTY, st.lists(LINE, max_size=8))
def test_line_contents_of_the_answer_survive_with_their_spaces(text, lines):
    region = Region.of(text)
    edited = region.restore("".join(line + "\n" for line in lines))
    if not region.ends_with_newline:
        while lines and not lines[-1]:
            lines.pop()
    assert [split_line_end(line)[0] for line in split_lines(edited)] == lines


@pytest.mark.parametrize(
    ("text", "answer", "edited"),
    [
        # Uniform files keep their line end, also for inserted lines.
        ("a\r\nb\r\n", "a\nnew\nb\n", "a\r\nnew\r\nb\r\n"),
        ("a\rb\r", "a\nnew\nb\n", "a\rnew\rb\r"),
        # Mixed ends survive line by line; new lines follow the majority.
        ("a\nb\r\nc\r\nd\r", "a\nb\nnew\nc\nd\n", "a\nb\r\nnew\r\nc\r\nd\r"),
        ("a\nb\r\nc\r\n", "b\nc\n", "b\r\nc\r\n"),
        ("a\nb\nc\r\n", "A\nb\nC\n", "A\nb\nC\r\n"),
        ("a\r\nb\nc\r\n", "a\nB1\nB2\nc\n", "a\r\nB1\r\nB2\r\nc\r\n"),
        # The final newline is neither lost nor added.
        ("a\nb", "a\nB\n", "a\nB"),
        ("a\nb", "a\nb\nc\n\n\n", "a\nb\nc"),
        ("a\r\nb", "b\na\n", "b\r\na"),
        ("a\nb\n", "a\nB", "a\nB\n"),
        ("a\nb\n", "a\nB\n\n", "a\nB\n\n"),
        ("a\n", "", ""),
        ("a", "\n", ""),
        ("", "a\n", "a\n"),
        # Byte order mark.
        ("\ufeffa\n", "b\n", "\ufeffb\n"),
        ("\ufeffa\n", "\ufeffb\n", "\ufeffb\n"),
        ("a\n", "\ufeffb\n", "b\n"),
        ("\ufeff", "b\n", "\ufeffb\n"),
        ("\ufeff\ufeffa\n", "\ufeffb\n", "\ufeff\ufeffb\n"),
        ("\ufeff\ufeff", "\ufeff\n", "\ufeff\ufeff"),
        # Indentation and trailing spaces are the answer's own.
        ("  a  \n\tb\t\n", "    a \n\tb\t\t\n", "    a \n\tb\t\t\n"),
        # An answer with foreign line ends.
        ("a\nb\n", "a\r\nB\r\n", "a\nB\n"),
        # An empty line must not melt into the \r before it.
        ("a\rb\n\nc\n", "a\n\nc\n", "a\r\rc\n"),
    ],
)
def test_documents_keep_what_the_model_does_not_see(text, answer, edited):
    assert Region.of(text).apply(answer) == edited


@pytest.mark.parametrize(
    ("before", "body", "after", "answer", "restored"),
    [
        ("a\n", "b\n", "c", "B\nB2\n", "B\nB2\n"),
        ("a\n", "b", "\nc\n", "B\n", "B"),
        ("a = ", "1", " + 2\n", "3\n", "3"),
        ("a\r\n", "b", "\r\nc\n", "B\nB2\n", "B\r\nB2"),
        ("a\n", "", "b\n", "new\n", "new\n"),
        ("a\r\n", "", "b\r\n", "new\n", "new\r\n"),
        ("f(", "", ")\n", "x\n", "x"),
        ("a\n", "b\n", "c\n", "", ""),
        ("a\r\nb\r\n", "c\nd\n", "e\r\n", "c\nnew\nd\n", "c\nnew\nd\n"),
        ("a\r", "", "\rb", "new\n", "new\r"),
    ],
)
def test_regions_keep_their_own_end(before, body, after, answer, restored):
    region = Region.of(before + body + after, (len(before), len(before + body)))
    assert region.restore(answer) == restored


def test_a_region_at_the_start_never_holds_the_bom():
    region = Region.of("\ufeffa\nb\n", (0, 3))
    assert (region.before, region.body) == ("\ufeff", "a\n")
    assert Region.of("\ufeffa\n", (0, 0)).apply("new\n") == "\ufeffnew\na\n"
    assert Region.of("\ufeffa\n").is_whole_document
    assert not region.is_whole_document


@pytest.mark.parametrize(
    ("text", "offsets", "line_end", "ends_with_newline"),
    [
        ("a\r\nb\nc\r\nd", None, "\r\n", False),
        ("a\nb\r\nc\n", (2, 5), "\r\n", True),
        ("a\r\nb\nc\n", (3, 4), "\n", False),
        ("a\rb", (2, 3), "\r", False),
        ("", None, "\n", True),
        ("a", None, "\n", False),
    ],
)
def test_a_region_knows_its_line_end_and_whether_it_ends_a_line(text, offsets, line_end, ends_with_newline):
    region = Region.of(text, offsets)
    assert (region.line_end, region.ends_with_newline) == (line_end, ends_with_newline)


@pytest.mark.parametrize("offsets", [(-1, 0), (2, 1), (0, 6), (2, 3), (0, 2)])
def test_offsets_that_are_no_region_are_refused(offsets):
    with pytest.raises(InvalidInput) as caught:
        Region.of("a\r\nb\n"[:5], offsets)
    assert caught.value.code == "invalid_range"
    assert any(str(offset) in str(caught.value) for offset in offsets)
