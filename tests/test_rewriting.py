"""Copies of a file under replaced words and moved lines, against replacing in its text."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookahead_edit.drafters.rewriting import Rewriter, Rewritten
from lookahead_edit.tokenizer import ByteTokenizer, HfTokenizer
from lookahead_edit.types import IntArray, Tokenizer
from tests.tiny_tokenizers import byte_level_tokenizer, sentencepiece_tokenizer

NAMES = ("bytes", "byte-level", "SentencePiece")
WORDS = ("add", "first", "total", "a", "foo_bar", "price2", "é", "x")
BETWEEN = (
    " ",
    "  ",
    "(",
    ")",
    ", ",
    " = ",
    ".",
    '"',
    "\n",
    "\n    ",
    "\n\n        ",
    "\n\t",
    "\r\n",
    "-",
    "→",
    "(self, ",
)


@cache
def made(name: str) -> Tokenizer:
    if name == "bytes":
        return ByteTokenizer()
    return HfTokenizer(byte_level_tokenizer() if name == "byte-level" else sentencepiece_tokenizer())


codes = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(BETWEEN)), max_size=40).map(
    lambda pairs: "".join(word + between for word, between in pairs)
)


def text_of(tokenizer: Tokenizer, tokens: IntArray) -> str:
    return b"".join(tokenizer.token_bytes(token) or b"\xff" for token in tokens.tolist()).decode()


def renamed(text: str, old: str, new: str) -> str:
    """Python's whole words, but that all that isn't ASCII is a letter."""
    return re.sub(rf"(?<![\w→]){re.escape(old)}(?![\w→])", new, text)


def follow(rewriter: Rewriter, rewritten: Rewritten) -> None:
    """From each place of a draft, copying gives the rest of it."""
    for index, position in enumerate(rewritten.positions.tolist()):
        if position >= 0:
            rest = rewritten.tokens[index + 1 :]
            assert rewriter.copy(position, len(rest)).tokens.tolist() == rest.tolist()


def whole(rewriter: Rewriter, position: int = 0) -> Rewritten:
    return rewriter.copy(position, 10_000)


@settings(deadline=None)
@given(
    name=st.sampled_from(NAMES), text=codes, old=st.sampled_from(WORDS), new=st.sampled_from(("y", "count_of", "Add"))
)
def test_a_renamed_file_reads_as_if_its_text_had_been_replaced(name: str, text: str, old: str, new: str) -> None:
    tokenizer = made(name)
    file = tokenizer.encode(text)
    rewriter = Rewriter(tokenizer, file)
    rewriter.learn_from_instruction(f"Rename {old} to {new}.")
    rewritten = whole(rewriter)
    assert text_of(tokenizer, rewritten.tokens) == renamed(text_of(tokenizer, file), old, new)
    assert rewritten.tokens.tolist() == tokenizer.encode(renamed(text, old, new)).tolist()
    assert rewriter.is_active == (renamed(text, old, new) != text)
    follow(rewriter, rewritten)


@settings(deadline=None)
@given(name=st.sampled_from(NAMES), text=codes, data=st.data())
def test_several_rules_and_a_shift_of_lines_work_together(name: str, text: str, data: st.DataObject) -> None:
    tokenizer = made(name)
    text = f"head\n    start\n{text}"
    file = tokenizer.encode(text)
    rewriter = Rewriter(tokenizer, file)
    pairs = [
        (old, f"{old}_{number}") for number, old in enumerate(data.draw(st.lists(st.sampled_from(WORDS), unique=True)))
    ]
    rewriter.learn_from_instruction("Rename " + ", ".join(f"{old} to {new}" for old, new in pairs))
    at = 1 + next(at for at in range(len(file)) if text_of_prefix(tokenizer, file[: at + 1]).endswith("start"))
    output_start = data.draw(st.sampled_from(("        ", "", "  ", "\t", "\t    ")))
    rewriter.set_line(at - 1, output_start)
    rewritten = whole(rewriter, at)
    expected = text_of(tokenizer, file[at:])
    for old, new in pairs:
        expected = renamed(expected, old, new)
    assert text_of(tokenizer, rewritten.tokens) == shifted(expected, output_start)
    follow(rewriter, rewritten)
    assert len(rewritten.tokens) == len(rewritten.positions) == len(rewritten.factors)


def text_of_prefix(tokenizer: Tokenizer, tokens: IntArray) -> str:
    return b"".join(tokenizer.token_bytes(token) or b"" for token in tokens.tolist()).decode(errors="replace")


def shifted(text: str, output_start: str) -> str:
    """`text` follows a line that begins with four blanks in the file, and with `output_start` in the output."""
    lines = text.split("\n")
    for number, line in enumerate(lines[1:], 1):
        body = line.lstrip(" \t\r")
        indent = line[: len(line) - len(body)]
        if not body:
            continue
        if len(indent) < 4 and not line.startswith("#"):
            break
        if len(indent) >= 4:
            if "    ".endswith(output_start):
                indent = indent[: len(output_start) - 4]
            elif output_start.endswith("    "):
                indent = indent + output_start[:-4]
            elif indent.strip(" ") == "" and len(indent) % 4 == 0:
                indent = output_start * (len(indent) // 4)
            lines[number] = indent + body
    return "\n".join(lines)


def plain(text: str = "x = foo(1)\n    foo = x\n") -> tuple[Tokenizer, IntArray, Rewriter]:
    tokenizer = made("bytes")
    file = tokenizer.encode(text)
    return tokenizer, file, Rewriter(tokenizer, file)


def read(rewriter: Rewriter, position: int = 0, max_tokens: int = 10_000) -> str:
    return text_of(made("bytes"), rewriter.copy(position, max_tokens).tokens)


def hunk(rewriter: Rewriter, file: IntArray, old: str, new: str) -> None:
    """The first `old` of the file becomes `new`."""
    text = text_of(made("bytes"), file)
    start = len(text[: text.index(old)].encode())
    rewriter.learn_hunk(start, start + len(old.encode()), made("bytes").encode(new))


def test_without_rules_a_copy_is_a_slice_of_the_file() -> None:
    tokenizer, file, _ = plain()
    for rewriter in (Rewriter(None, file), Rewriter(tokenizer, file)):
        rewritten = rewriter.copy(3, 5)
        assert np.shares_memory(rewritten.tokens, file)
        assert (rewritten.tokens == file[3:8]).all()
        assert rewritten.positions.tolist() == [4, 5, 6, 7, 8]
        assert rewritten.factors.tolist() == [1] * 5
        assert rewritten.tokens.dtype == rewritten.positions.dtype == np.int32
        assert rewritten.factors.dtype == np.float32
        assert len(rewriter.copy(len(file), 5).tokens) == len(rewriter.copy(0, 0).tokens) == 0
        assert len(rewriter.copy(0, 5000).tokens) == len(rewriter.copy(0, 5000).factors) == len(file)


def test_without_a_tokenizer_nothing_is_learned() -> None:
    _, file, _ = plain()
    rewriter = Rewriter(None, file)
    rewriter.learn_from_instruction("rename foo to bar")
    rewriter.learn_hunk(4, 7, file[:2])
    rewriter.set_line(0, "    ")
    assert not rewriter.is_active
    assert rewriter.copy(0, 100).tokens.tolist() == file.tolist()


def test_a_replacement_says_where_it_ends_and_how_far_it_is_trusted() -> None:
    _, _, rewriter = plain("f(foo) + 1")
    rewriter.learn_from_instruction("rename foo to quux")
    rewritten = rewriter.copy(1, 8)
    assert text_of(made("bytes"), rewritten.tokens) == "(quux) +"
    assert rewritten.positions.tolist() == [2, -1, -1, -1, 5, 6, 7, 8]
    assert rewritten.factors.tolist() == pytest.approx([1, 0.9, 1, 1, 1, 1, 1, 1])


def test_a_replacement_is_likelier_where_those_of_its_rule_before_it_are_right() -> None:
    _, _, rewriter = plain("foo = foo(foo, bar, foo, bar)")
    rewriter.learn_from_instruction("rename foo to quux, replace bar with spam")
    rewritten = whole(rewriter)
    starts = [replacement.start for replacement in rewritten.replacements]
    expected = [3.6 / 4, 4.6 / 5, 5.6 / 6, 2 / 4, 6.6 / 7, 3 / 5]  # each rule counts its own
    assert rewritten.factors[starts].tolist() == pytest.approx(expected)
    assert (np.delete(rewritten.factors, starts) == 1).all()
    first_two = rewriter.copy(0, starts[2])
    rewriter.observe(first_two, len(first_two.tokens), None)
    rest = rewriter.copy(int(first_two.positions[-1]), 100)  # what has come true is as likely as it was drafted to be
    starts = [replacement.start for replacement in rest.replacements]
    assert rest.factors[starts].tolist() == pytest.approx(expected[2:])


@pytest.mark.parametrize("new", ["f", "foo_and_more", "oof", "foofoo", "x foo y", "fo"])
def test_a_copy_holds_as_many_tokens_as_were_asked_for(new: str) -> None:
    _, _, rewriter = plain("foo = foo(foo)\n" * 50)
    rewriter.learn_from_instruction(f"rename foo to `{new}`")
    expected = text_of(made("bytes"), made("bytes").encode(f"{new} = {new}({new})\n" * 50))
    for max_tokens in (0, 1, 2, 3, 7, 64, 600):
        assert read(rewriter, 0, max_tokens) == expected[:max_tokens]
        assert len(rewriter.copy(0, max_tokens).positions) == min(max_tokens, len(expected))


HUNKS = [
    ("x = foo(1)\ny = foo", "foo", "bar", "x = bar(1)\ny = bar"),
    ("a = foo_one\nfoo_one", "_one", "_two", "a = foo_two\nfoo_two"),
    ("a = foo(1, two)\nfoo(2, two)", "foo(1, two", "bar(1, six", "a = bar(1, six)\nbar(2, six)"),
    ("a.b.foo(1)\na.b.foo", "a.b", "self", "self.foo(1)\nself.foo"),
    ("old style, old style", "ld style", "ther kind of", "other kind of, other kind of"),
    ("foo bar", "foo", "foo(1)\nfoo", "foo bar"),  # more than a line
    ("foo bar foo", "foo", "", "foo bar foo"),
    ("foo = foo", "foo", "foo", "foo = foo"),
    ("a 5 b 5", "5", "6", "a 5 b 5"),  # too little to believe in at once
    ("if a: if b:", "if", "elif", "if a: if b:"),
    ("foo \ud800 foo", "foo \ud800", "bar", "foo \ud800 foo"),
]


@pytest.mark.parametrize(("text", "old", "new", "expected"), HUNKS)
def test_a_short_replacement_in_a_line_is_repeated(text: str, old: str, new: str, expected: str) -> None:
    tokenizer = made("bytes")
    file = tokenizer.encode(text)
    rewriter = Rewriter(tokenizer, file)
    start = len(text[: text.index(old)].encode("utf-8", "surrogatepass"))
    rewriter.learn_hunk(start, start + len(old.encode("utf-8", "surrogatepass")), tokenizer.encode(new))
    assert whole(rewriter).tokens.tolist() == tokenizer.encode(expected).tolist()


def test_what_stayed_before_a_hunk_makes_it_less_likely_to_go_on() -> None:
    _, file, rewriter = plain("foo foo foo foo (foo) foo foo")
    hunk(rewriter, file, "(foo)", "(bar)")
    assert not rewriter.is_active
    hunk(rewriter, file, "(foo)", "(bar)")
    hunk(rewriter, file, "(foo)", "(bar)")
    assert read(rewriter) == "bar bar bar bar (bar) bar bar"


def test_a_rule_that_fails_twice_sleeps_until_its_hunk_is_seen_again() -> None:
    _, file, rewriter = plain("foo = foo(foo)")
    rewriter.learn_from_instruction("rename foo to bar")
    trust = rewriter.copy(0, 8).factors[0]
    rewriter.observe(rewriter.copy(0, 8), 0, int(file[0]))
    assert rewriter.copy(0, 8).factors[0] < trust
    rewriter.observe(rewriter.copy(0, 8), 8, None)
    assert rewriter.is_active
    for _ in range(2):
        rewriter.observe(rewriter.copy(0, 1), 0, int(file[0]))
    assert not rewriter.is_active
    assert read(rewriter) == "foo = foo(foo)"
    hunk(rewriter, file, "foo", "bar")
    assert read(rewriter) == "bar = bar(bar)"


def test_what_wasnt_reached_says_nothing_about_a_rule() -> None:
    _, file, rewriter = plain("x = foo(1)")
    rewriter.learn_from_instruction("rename foo to bar")
    trust = rewriter.copy(0, 8).factors.min()
    for _ in range(3):
        rewriter.observe(rewriter.copy(0, 8), 2, int(file[0]))
        rewriter.observe(rewriter.copy(0, 8), 8, None)
    assert rewriter.copy(0, 8).factors.min() > trust
    assert rewriter.is_active


def test_longer_words_go_first_and_new_ones_arent_replaced_again() -> None:
    _, _, rewriter = plain("foo.x foo x")
    rewriter.learn_from_instruction("rename foo to x, x to foo, `foo.x` to `foo.foo`")
    assert read(rewriter) == "foo.foo x foo"


BLOCK = "def f():\n    if a:\n        b\n\n        c\n#if\n    d\n\ndef g():\n    e\n"


def test_a_shift_ends_with_its_block_and_skips_blank_lines() -> None:
    _, file, rewriter = plain(BLOCK)
    start = BLOCK.index("if a")
    rewriter.set_line(start, "        ")
    assert read(rewriter, start) == "if a:\n            b\n\n            c\n#if\n        d\n\ndef g():\n    e\n"
    rewriter.set_line(BLOCK.index("b\n"), " " * 12)  # as expected: nothing changes
    assert read(rewriter, BLOCK.index("d\n") - 5) == "\n        d\n\ndef g():\n    e\n"
    rewriter.set_line(BLOCK.index("b\n"), " " * 8)
    assert not rewriter.is_active
    assert read(rewriter, start) == text_of(made("bytes"), file)[start:]


def test_a_block_moves_to_the_left_too() -> None:
    _, _, rewriter = plain(BLOCK)
    start = BLOCK.index("b\n")
    rewriter.set_line(start, "    ")
    assert read(rewriter, start) == "b\n\n    c\n#if\n    d\n\ndef g():\n    e\n"


@pytest.mark.parametrize(
    ("text", "output_start", "expected"),
    [
        ("\ta\n\t\tb\n\t    c\n", "\t\t", "a\n\t\t\tb\n\t    \tc\n"),
        ("\ta\n\t\tb\n", "    ", "a\n        b\n"),
        ("\t\ta\n\t\t\tb\n", "    ", "a\n      b\n"),
        ("    a\n        b\n", "\t", "a\n\t\tb\n"),
        ("a\n  b\n", "\t", "a\n  \tb\n"),
        ("    a\r\n    b\r\n", "  ", "a\r\n  b\r\n"),
    ],
)
def test_tabs_and_blanks_are_moved_as_the_first_line_was(text: str, output_start: str, expected: str) -> None:
    _, _, rewriter = plain(text)
    rewriter.set_line(text.index("a"), output_start)
    assert read(rewriter, text.index("a")) == expected


def test_a_shift_that_fails_twice_is_dropped() -> None:
    _, file, rewriter = plain(BLOCK)
    rewriter.set_line(BLOCK.index("if a"), "        ")
    for _ in range(2):
        rewritten = rewriter.copy(BLOCK.index("if a"), 20)
        rewriter.observe(rewritten, rewritten.replacements[0].start, int(file[0]))
    assert not rewriter.is_active


def test_tokens_without_text_and_broken_characters_stay_as_they_are() -> None:
    tokenizer = made("bytes")
    parts = [tokenizer.encode("foo = "), [257], [0xE2, 0x82], tokenizer.encode(" foo, "), [300, -1], [0xC3]]
    file = np.concatenate([np.asarray(part, np.int32) for part in parts])
    rewriter = Rewriter(tokenizer, file)
    rewriter.learn_from_instruction("rename foo to bar")
    rewriter.set_line(0, "\t")
    rewritten = whole(rewriter)
    follow(rewriter, rewritten)
    expected = np.concatenate([tokenizer.encode("bar"), file[3:9], tokenizer.encode(" bar"), file[13:]])
    assert rewritten.tokens.tolist() == expected.tolist()


@pytest.mark.parametrize(
    "text", ["foo " * 20_000, "foo," * 20_000, "foo\n" * 20_000, "f" * 80_000, "    foo\n" * 9_000]
)
def test_hostile_files_are_copied_right(text: str) -> None:
    _, _, rewriter = plain(text)
    rewriter.learn_from_instruction("rename foo to bar, `foo foo` to `foo`, `oo` to ``, `o` to `o`, `foo,foo` to `a b`")
    rewriter.set_line(text.find("foo") if "foo" in text else 0, " " * 8)
    position = len(text) // 2
    rewritten = rewriter.copy(position, 300)
    follow(rewriter, rewritten)
    assert len(rewritten.tokens) == 300


def test_empty_files_and_empty_instructions_are_no_error() -> None:
    for tokenizer in (None, made("bytes")):
        rewriter = Rewriter(tokenizer, np.zeros(0, np.int32))
        rewriter.learn_from_instruction("")
        rewriter.learn_from_instruction("rename \ud800 to b and a to `\udfff`")
        rewriter.learn_hunk(0, 0, np.zeros(0, np.int32))
        rewriter.set_line(0, "  ")
        assert len(rewriter.copy(0, 9).tokens) == 0


@pytest.mark.slow
def test_the_default_models_tokens_are_those_of_the_renamed_text(default_model: tuple[Any, Any]) -> None:
    tokenizer = HfTokenizer(default_model[1])
    text = "def f(count):\n    if count:\n        self.count=[count]\n\n    return count.value, -count\n" * 9
    rewriter = Rewriter(tokenizer, tokenizer.encode(text))
    rewriter.learn_from_instruction("Rename `count` to `num_items`.")
    expected = tokenizer.encode(re.sub(r"\bcount\b", "num_items", text))
    rewritten = whole(rewriter)
    assert rewritten.tokens.tolist() == expected.tolist()
    follow(rewriter, rewritten)
