"""What a tokenizer can't write is not lost: lines that were copied come back with every character they had."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logged_editor import logged_editor
from server_harness import in_process
from tiny_tokenizers import byte_level_tokenizer

from lookahead_edit.editor import EditRequest, EditResult
from lookahead_edit.text_unwritable import UnwritableCharacters, WrittenText
from lookahead_edit.tokenizer import HfTokenizer
from lookahead_edit.types import InvalidInput


def written(text: str) -> str:
    """As by a tokenizer that composes characters, has no token for U+0004, and breaks U+40000."""
    return unicodedata.normalize("NFC", text).replace("\x04", "").replace("\U00040000", "\ufffd\ufffd")


def characters_of(text: str, update: str | None = None) -> UnwritableCharacters:
    snippet = None if update is None else WrittenText(update, written(update))
    return UnwritableCharacters(WrittenText(text, written(text)), snippet, first_line=10)


LINES = st.lists(st.text(alphabet="ab \x04e\u0301\U00040000", max_size=5), max_size=6)


@given(LINES)
def test_a_copy_comes_back_as_it_was(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    assert characters_of(text).put_back(written(text)) == (text, [])


@given(LINES, st.lists(st.tuples(st.integers(0, 6), st.text(alphabet="xyz", min_size=1, max_size=5)), max_size=3))
def test_lines_between_new_ones_come_back_as_they_were(lines: list[str], inserted: list[tuple[int, str]]) -> None:
    edited = [*lines]
    for place, line in inserted:
        edited.insert(place, line)
    text, after = ("".join(f"{line}\n" for line in some) for some in (lines, edited))
    restored, warnings = characters_of(text).put_back(written(after))
    assert warnings == []
    # Which of two lines that are written alike was there first, nobody can tell: but none of them is lost.
    assert sorted(restored) == sorted(after)
    if len({written(line) for line in lines}) == len(lines):
        assert restored == after


@pytest.mark.parametrize(
    ("line", "answered", "restored"),
    [
        ("a = 'x\x04y'", "b = 'xy'", "b = 'x\x04y'"),
        ("\x04a = 1", "a = 2", "\x04a = 2"),
        ("a = 1\x04", "b = 1", "b = 1\x04"),
        ("cafe\u0301 au lait", "caf\xe9 noir", "cafe\u0301 noir"),
        ("cafe\u0301 au lait", "cafe au lait", "cafe au lait"),  # the model saw the accent, and took it away
        ("s = '\U00040000'", "text = '\ufffd\ufffd'", "text = '\U00040000'"),
    ],
)
def test_a_changed_line_keeps_what_stands_where_nothing_was_changed(line: str, answered: str, restored: str) -> None:
    text = f"first\n{line}\nlast\n"
    assert characters_of(text).put_back(f"first\n{answered}\nlast\n") == (f"first\n{restored}\nlast\n", [])


def test_a_line_that_was_moved_or_repeated_is_whole() -> None:
    text = "one\x04 = 1\ntwo = 2\nthree = 3\n"
    assert characters_of(text).put_back("two = 2\nthree = 3\none = 1\n")[0] == "two = 2\nthree = 3\none\x04 = 1\n"
    assert characters_of(text).put_back("one = 1\none = 1\ntwo = 2\nthree = 3\n")[0].count("one\x04 = 1\n") == 2


def test_a_line_that_was_taken_out_is_no_loss() -> None:
    assert characters_of("one\x04 = 1\ntwo = 2\n").put_back("two = 2\n") == ("two = 2\n", [])


def test_a_character_whose_surroundings_are_half_there_is_refused_by_name() -> None:
    message = r"^expected an answer that leaves line 11 as it is around U\+0004, which the model's tokenizer can't wri"
    for answer in ("a\nsep = 'x'\n", "a\nsep = '|'.strip()\n"):
        with pytest.raises(InvalidInput, match=message):
            characters_of("a\nsep = '\x04'\n").put_back(answer)


def test_a_character_that_went_with_all_around_it_is_warned_of() -> None:
    text, warnings = characters_of("a\nseparator = x\x04y\n").put_back("a\nseparator = \n")
    assert text == "a\nseparator = \n"
    assert warnings == [
        "line 11 has U+0004, which the model's tokenizer can't write: the answer leaves it out with the text around it"
    ]


def test_of_lines_that_are_written_alike_none_may_go() -> None:
    with pytest.raises(InvalidInput, match=r"line 11 as it is around U\+0004"):
        characters_of("a\n\x04\n\nb\n").put_back("a\nb\n")


def test_an_answer_that_was_cut_off_is_never_refused() -> None:
    assert characters_of("a\x04\nsep = '\x04'\n").put_back("a\nsep = 'x", is_cut_off=True) == ("a\x04\nsep = 'x", [])


def test_a_text_whose_lines_are_lost_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"got 3 lines of which it makes 1$"):
        UnwritableCharacters(WrittenText("a\nb\n", "a b "))


def test_lines_of_an_update_are_whole_too_or_warned_of() -> None:
    characters = characters_of("a = 1\nb = 2\n", "a = '\x04'\n# ...\nc = '\x04\x04'\n")
    text, warnings = characters.put_back("a = ''\nb = 2\nd = ''\n")
    assert text == "a = '\x04'\nb = 2\nd = ''\n"
    assert warnings == ["line 3 of the update has U+0004 U+0004, which the model's tokenizer can't write"]


# End to end, with a tokenizer of transformers that drops U+0004 and composes accents.

TEXT = "\ufefftotal = 1\r\nsep = '\x04'\nname = 'cafe\u0301'\r\nlast = '\x04'"


@pytest.fixture(scope="module")
def tokenizer() -> HfTokenizer:
    from tokenizers import normalizers

    made: Any = byte_level_tokenizer()
    steps = [normalizers.NFC(), normalizers.Replace("\x04", "")]
    made.backend_tokenizer.normalizer = normalizers.Sequence(steps)
    return HfTokenizer(made)


def edit(answer: str, tokenizer: HfTokenizer, **options: Any) -> EditResult:
    return logged_editor(answer, tokenizer, vocab_size=300).edit(EditRequest(TEXT, "Do it.", **options))


def test_an_edit_loses_no_byte_of_the_lines_it_leaves_alone(tokenizer: HfTokenizer) -> None:
    result = edit("total = 2\nsep = ''\nname = 'caf\xe9'\nlast = ''\n```", tokenizer)
    assert result.text == TEXT.replace("total = 1", "total = 2")
    assert [change["newText"] for change in result.edits()] == ["2"]
    assert result.warnings == ()


def test_so_does_one_of_some_lines(tokenizer: HfTokenizer) -> None:
    start = TEXT.index("name")
    result = edit("name = 'th\xe9'\nlast = ''\n```", tokenizer, region=(start, len(TEXT)))
    assert result.text == TEXT.replace("cafe\u0301", "the\u0301")


def test_an_edit_that_changes_something_that_it_can_not_see_is_refused_with_the_line(tokenizer: HfTokenizer) -> None:
    with pytest.raises(InvalidInput, match=r"line 4 as it is around U\+0004"):
        edit("total = 1\nsep = ''\nname = 'caf\xe9'\nlast = '|'\n```", tokenizer)
    with in_process(logged_editor("total = 1\nsep = '|'\n```", tokenizer, vocab_size=300)) as client:
        answer = client.post("/v1/edits", json={"input": TEXT, "instruction": "Do it."})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_value"
    assert "U+0004" in answer.json()["error"]["message"]
