"""Fences, stop strings and broken UTF-8 never reach the text, however the answer is cut into pieces."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookahead_edit.edit_text import fence_for
from lookahead_edit.text_answer import Answer, AnswerStream, clean_answer, find_stop, held_back_length
from lookahead_edit.text_region import Region

PIECES = st.lists(
    st.sampled_from(
        ["`", "``", "```", "````", "```python", "```markdown", "```py", "\n", "\n\n", "\r\n", "\r", " ", "x", "é", "~"]
    ),
    max_size=14,
)
STOPS = st.lists(st.text(alphabet="`x\n\r ", min_size=1, max_size=4), max_size=3)


def check_every_way_to_stream(raw, cuts, **options):
    """Streamed and whole answers are the same, and what was given out adds up."""
    whole = clean_answer(raw, "```", **options)
    ends = sorted({*cuts, len(raw)})
    pieces = [raw[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    for chunks in (pieces, list(raw)):
        stream = AnswerStream("```", **options)
        deltas = [stream.push(chunk) for chunk in chunks]
        deltas.append(stream.finish())
        assert "".join(deltas) == whole.text
        assert stream.answer == whole
        assert stream.is_finished
        assert stream.push("more") == stream.finish() == ""
    return whole


@settings(max_examples=200)
@given(
    PIECES.map("".join),
    st.lists(st.integers(0, 40), max_size=4),
    st.sampled_from(["", "python", "markdown"]),
    st.booleans(),
    STOPS,
)
def test_streamed_and_whole_answers_are_the_same(raw, cuts, language, starts_with_fence, stops):
    check_every_way_to_stream(
        raw,
        [cut for cut in cuts if cut < len(raw)],
        language=language,
        starts_with_fence=starts_with_fence,
        stops=stops,
    )


@settings(max_examples=200)
@given(
    st.one_of(PIECES.map("".join), st.text(alphabet="a`#~ \t\r\n\f\u2028", max_size=30)),
    st.sampled_from(["", "python", "markdown"]),
    st.sampled_from(["", "\n", "\nDone.\n", " ", "\n```\n"]),
)
def test_a_region_that_is_copied_comes_back_whole_whatever_fences_it_holds(text, language, chatter):
    view = Region.of(text).model_view
    fence = fence_for(text)
    answer = clean_answer(
        view + fence + chatter,
        fence,
        language=language,
        starts_with_fence=view.lstrip().startswith("```"),
    )
    if view:
        assert answer == Answer(view, is_closed=True, fence_stripped=False)
    elif not chatter.strip():
        assert answer.text == ""


@pytest.mark.parametrize(
    ("raw", "text", "is_closed"),
    [
        ("x = 2\n```", "x = 2\n", True),
        ("x = 2\n```\n", "x = 2\n", True),
        ("x = 2\n``` \t\nI changed x.\n```\ny\n```", "x = 2\n", True),
        ("x = 2\n`````\nmore", "x = 2\n", True),
        ("x = 2\n", "x = 2\n", False),
        ("x = 2", "x = 2", False),
        ("x = 2```", "x = 2", True),
        ("x = 2``` \n\n", "x = 2", True),
        ("x = 2```\nmore\n```", "x = 2```\nmore\n", True),
        ("x = 2```\n```", "x = 2```\n", True),
        ("a ```code```", "a ```code```", False),
        ("x = 2\n  ```", "x = 2\n  ```", False),
        ("x = 2\n``", "x = 2\n``", False),
        ("```", "", True),
        ("```\n", "", True),
        ("", "", False),
        ("\n\n```", "\n\n", True),
        ("  x\t \n\n```", "  x\t \n\n", True),
        ("a\r\nb\r\n```\r\n", "a\nb\n", True),
        ("a\rb\r", "a\nb\n", False),
        # A block that the answer opens is closed by its own fence.
        ("Text\n```sh\nls\n```\nmore\n```", "Text\n```sh\nls\n```\nmore\n", True),
        ("Text\n```sh\nls\n```", "Text\n```sh\nls\n```", False),
    ],
)
def test_the_closing_fence_ends_the_answer(raw, text, is_closed):
    answer = check_every_way_to_stream(raw, [])
    assert answer == Answer(text, is_closed, fence_stripped=False)


@pytest.mark.parametrize(
    ("raw", "language", "text"),
    [
        ("```python\nx = 2\n```", "python", "x = 2\n"),
        ("```python\nx = 2\n```\n```", "python", "x = 2\n"),
        ("```py\nx = 2\n```\n\n", "python", "x = 2\n"),
        ("```\nx = 2\n```\n", "python", "x = 2\n"),
        ("```python\nx = 2\n", "python", "x = 2\n"),
        ("````python\nx = 2\n````\n```\nchatter", "python", "x = 2\n"),
        ("```markdown\n# Title\n```sh\nls\n```\n```\n", "markdown", "# Title\n```sh\nls\n```\n"),
        ("```md\n# Title\n```", "markdown", "# Title\n"),
    ],
)
def test_a_fence_of_the_models_own_around_the_whole_answer_is_removed(raw, language, text):
    answer = check_every_way_to_stream(raw, [], language=language)
    assert answer.text == text
    assert answer.fence_stripped


@pytest.mark.parametrize(
    ("raw", "language", "starts_with_fence", "text"),
    [
        ("```sh\nls\n```\nText\n```", "markdown", False, "```sh\nls\n```\nText\n"),
        ("```sh\nls\n```\nText\n```", "", False, "```sh\nls\n```\nText\n"),
        ("```\nls\n```\nText\n```", "", False, "```\nls\n```\nText\n"),
        ("```sh\nls\n```\n```", "markdown", False, "```sh\nls\n```\n"),
        ("```sh\nls\n```\n```", "", True, "```sh\nls\n```\n"),
        ("x\n```sh\nls\n```\n```", "", False, "x\n```sh\nls\n```\n"),
    ],
)
def test_fences_that_belong_to_the_text_stay(raw, language, starts_with_fence, text):
    answer = check_every_way_to_stream(raw, [], language=language, starts_with_fence=starts_with_fence)
    assert answer.text == text
    assert not answer.fence_stripped


def test_a_longer_fence_leaves_shorter_ones_alone():
    raw = "```sh\nls\n```\n````\nDone."
    assert clean_answer(raw, "````", language="markdown").text == "```sh\nls\n```\n"
    raw = "```markdown\n# Title\n```\n````"
    assert clean_answer(raw, "````", language="markdown").text == "# Title\n"
    assert clean_answer(raw, "````", language="markdown", starts_with_fence=True).text == raw[:-4]


def test_text_is_given_out_as_soon_as_it_is_certain():
    stream = AnswerStream("```", language="python", stops=["END"])
    deltas = [stream.push(piece) for piece in ["x", " = `1`", " + 2\n", "`", "`y", "\n``", "`", "\n", "more"]]
    assert deltas == ["x", " = `1", "` + 2\n", "", "``y", "\n", "", "", ""]
    assert stream.is_finished
    assert [AnswerStream("```", stops=["END"]).push(text) for text in ("x E", "x EN", "x ENx")] == ["x ", "x ", "x ENx"]


@given(st.text(alphabet="a\n`é€😀\ufffd", max_size=12))
def test_broken_utf8_is_held_back_until_it_is_whole(text):
    stream = AnswerStream("```")
    data = text.encode()
    deltas = [stream.update(data[:end].decode(errors="replace")) for end in range(len(data) + 1)]
    deltas.append(stream.finish(text))
    assert "".join(deltas) == clean_answer(text, "```").text


def test_what_stays_broken_is_given_out_at_the_end():
    stream = AnswerStream("```")
    assert stream.update("a\ufffd") == "a"
    assert stream.update("a\ufffd\ufffd") == ""
    assert stream.finish("a\ufffd\ufffd") == "\ufffd\ufffd"


@pytest.mark.parametrize(
    ("text", "stops", "expected"),
    [
        ("abc", [], None),
        ("abc", [""], None),
        ("abc", ["d"], None),
        ("abcabc", ["c", "bc"], 1),
        ("abcd", ["abcd", "bc"], 1),
        ("xENDyEND", ["END"], 1),
    ],
)
def test_the_stop_string_that_is_complete_first_counts(text, stops, expected):
    assert find_stop(text, stops) == expected


@pytest.mark.parametrize(
    ("text", "stops", "expected"), [("ab", ["bc"], 1), ("ab", ["abc", "b!"], 2), ("ab", [], 0), ("ab", ["c"], 0)]
)
def test_the_longest_beginning_of_a_stop_string_is_held_back(text, stops, expected):
    assert held_back_length(text, stops) == expected


def test_a_stop_string_ends_the_answer_across_pieces():
    stream = AnswerStream("```", stops=["\n\nEND"])
    assert [stream.push(piece) for piece in ("a\n", "\nE", "ND more", "x")] == ["a", "", "", ""]
    assert stream.answer == Answer("a", is_closed=True, fence_stripped=False, is_stopped=True)
