"""Which part of a streamed answer came from where: labels follow the text through everything that cleans it."""

from __future__ import annotations

from itertools import chain

from hypothesis import given, settings
from hypothesis import strategies as st

from lookahead_edit.text_answer import AnswerStream
from lookahead_edit.text_pieces import LabelledText

Pieces = list[tuple[str, str]]


def streamed(pieces: Pieces, stops: tuple[str, ...] = (), language: str = "") -> list[Pieces]:
    """What is given out after each piece, and at the end."""
    answer, labelled = AnswerStream("```", language=language, stops=stops), LabelledText("own")
    given = []
    for text, label in pieces:
        labelled.push([(text, label)])
        given.append(labelled.take(answer.push(text)))
    return [*given, labelled.take(answer.finish())]


def merged(*given: Pieces) -> Pieces:
    together: Pieces = []
    for text, label in chain.from_iterable(given):
        if together and together[-1][1] == label:
            together[-1] = (together[-1][0] + text, label)
        elif text:
            together.append((text, label))
    return together


def test_each_piece_has_the_label_it_came_with() -> None:
    given = streamed([("def ", "file"), ("load", "own"), ("_words():\n", "file")])
    assert given == [[("def ", "file")], [("load", "own")], [("_words():\n", "file")], []]


def test_text_that_was_held_back_keeps_its_label() -> None:
    given = streamed([("x = 1", "file"), ("\nEN", "prompt"), ("TER\n", "own")], stops=("\nEND",))
    assert merged(*given) == [("x = 1", "file"), ("\nEN", "prompt"), ("TER\n", "own")]
    assert given[1] == []


def test_indentation_that_waits_for_what_follows_keeps_its_label() -> None:
    given = streamed([("a:\n", "file"), ("    ", "file"), ("b\n", "own")])
    assert merged(*given) == [("a:\n    ", "file"), ("b\n", "own")]


def test_a_fence_around_the_answer_is_left_out() -> None:
    pieces = [("```python\n", "own"), ("import os\n", "file"), ("x = 2\n", "own"), ("```", "file"), ("\n", "own")]
    assert merged(*streamed(pieces, language="python")) == [("import os\n", "file"), ("x = 2\n", "own")]


def test_line_ends_become_one_character_also_where_they_are_split() -> None:
    pieces = [("a\r\n", "file"), ("b\r", "prompt"), ("\nc", "own"), ("\r", "file"), ("d\n", "own")]
    assert merged(*streamed(pieces)) == [
        ("a\n", "file"),
        ("b\n", "prompt"),
        ("c", "own"),
        ("\n", "file"),
        ("d\n", "own"),
    ]


def test_text_that_was_never_decoded_has_the_label_before_it() -> None:
    text = LabelledText("own")
    assert text.take("?") == [("?", "own")]
    text.push([("ab", "file")])
    assert text.take("axb") == [("axb", "file")]


PIECES = st.lists(
    st.tuples(st.text("ab \n\r`é😀", max_size=6), st.sampled_from(["file", "prompt", "own"])), max_size=20
)


@settings(max_examples=300, deadline=None)
@given(PIECES, st.sampled_from([(), ("ab",), ("\n\n", "b b")]))
def test_pieces_are_always_the_text_that_was_given_out(pieces: Pieces, stops: tuple[str, ...]) -> None:
    answer = AnswerStream("```", stops=stops)
    text = "".join(answer.push(text) for text, _ in pieces) + answer.finish()
    assert "".join(text for given in streamed(pieces, stops) for text, _ in given) == text


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.text("ab \n.é😀", max_size=6), st.sampled_from(["file", "own"])), max_size=20))
def test_labels_are_exact_where_nothing_is_left_out(pieces: Pieces) -> None:
    assert merged(*streamed(pieces)) == merged(pieces)
