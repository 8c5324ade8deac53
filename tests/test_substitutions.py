"""What instructions and hunks teach, phrase by phrase."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookahead_edit.drafters.substitutions import MAX_INSTRUCTION_CHARACTERS, from_hunk, from_instruction

FOO_BAR = [("foo", "bar")]
INSTRUCTIONS = [
    *[
        (text, FOO_BAR)
        for text in (
            "Rename foo to bar",
            "rename the variable foo to bar.",
            "rename `foo` to `bar` everywhere",
            "Please rename foo() to bar() in this file",
            "rename function foo as bar",
            "rename foo -> bar",
            "Rename `foo` → `bar`.",
            "rename the foo function to bar",
            "rename all occurrences of foo to bar",
            "Rename the local variable named foo to bar, and nothing else",
            "rename function from foo to bar",
            "In main, rename foo to bar so it reads better",
            "Renaming `foo` into `bar`",
            "`foo` -> `bar`",
            "'foo' => \"bar\"",
            "Change `foo` to `bar`",
            "change the variable name foo to bar",
            "change the name of foo to bar",
            "Replace foo with bar",
            "replace all occurrences of foo by bar",
            'replace every use of "foo" with "bar"',
            "use bar instead of foo",
            "Use `bar` rather than `foo`.",
            "substitute bar for foo",
            "foo should be called bar",
            "foo should be renamed to bar",
            "s/foo/bar/g",
            "Convert `foo` to `bar`",
        )
    ],
    ("Rename old_version to state and major to merged_handle.", [("old_version", "state"), ("major", "merged_handle")]),
    ("Rename a to b, c to d and x1 to y1", [("a", "b"), ("c", "d"), ("x1", "y1")]),
    ("Rename the following:\n- a1 to b1\n- a2 to b2", [("a1", "b1"), ("a2", "b2")]),
    ("a1 -> b1\na2 -> b2", [("a1", "b1"), ("a2", "b2")]),
    ("Rename foo to bar. Then rename x to y.", [("foo", "bar"), ("x", "y")]),
    ("rename foo's argument x to y", [("x", "y")]),
    ("Rename the parameter n in fact to number.", [("n", "number")]),
    ("rename method foo.bar to foo.baz", [("foo.bar", "foo.baz")]),
    ("Replace `x == None` with `x is None`", [("x == None", "x is None")]),
    ("Replace 10 with 20", [("10", "20")]),
    (
        "Rename name to title, value to amount and key to label.",
        [("name", "title"), ("value", "amount"), ("key", "label")],
    ),
    ("rename calls to num_calls", [("calls", "num_calls")]),
    ("rename all calls to foo to bar", [("foo", "bar")]),
    ("Rename a to b", [("a", "b")]),
    ("Replace `print` with `logging.info`", [("print", "logging.info")]),
    *[
        (text, [])
        for text in (
            "",
            "move foo to the top",
            "change the default to 5",
            "add tests to foo",
            "change timeout to 30",
            "change foo to return 5",
            "change foo to accept bar",
            "change foo to be private",
            "convert foo to a class",
            "convert the function to async",
            "replace foo with a loop",
            "replace foo with bar(x)",
            "replace the loop with a comprehension",
            "rename the function to something better",
            "change the color to red",
            "add foo to bar",
            "Change foo so that it returns bar",
            "pass foo to bar",
            "change it to bar",
            "Wrap the body of check in `if not is_closed:`.",
            "Use foo to compute bar",
            "rename foo to foo",
            "rename the function to bar",
            "rename it to bar",
            "rename function to bar",
            "change the name to bar",
        )
    ],
]


@pytest.mark.parametrize(("text", "expected"), INSTRUCTIONS)
def test_an_instruction_says_what_becomes_what(text: str, expected: list[tuple[str, str]]) -> None:
    assert [(found.old, found.new) for found in from_instruction(text)] == expected


@pytest.mark.parametrize(
    "part", ["rename ", "`", "a -> ", "\n- ", "a.b", "rename foo to ", "x to x and ", "$", "`a` ", " the"]
)
def test_a_long_instruction_is_read_at_both_ends(part: str) -> None:
    filler = part * (10_000_000 // len(part))
    assert len(from_instruction(filler)) <= MAX_INSTRUCTION_CHARACTERS
    found = from_instruction("Rename one_a to two_b.\n\n" + filler + ".\n\nRename six_c to ten_d.")
    assert {"one_a", "six_c"} <= {substitution.old for substitution in found}


@pytest.mark.parametrize(
    ("before", "old", "new", "after", "expected"),
    [
        ("x = ", "foo", "bar", "(", [("foo", "bar")]),
        ("my_", "foo", "bar", "_one two", [("my_foo_one", "my_bar_one")]),
        ("", " foo(a", " bar(b", ")", [("foo", "bar"), ("a", "b")]),
        ("(", "a b", "c", ")", [("a b", "c")]),
        ("", "\n    foo", "\n        bar", "", [("foo", "bar")]),
        ("", "foo\nfoo", "bar\nbar(", "", []),
        ("", "foo", "", "", []),
        ("", "", "foo", "", []),
        ("", "(", "[", "", []),
        ("", "foo ", "foo bar ", "", []),
    ],
)
def test_a_hunk_teaches_whole_words(
    before: str, old: str, new: str, after: str, expected: list[tuple[str, str]]
) -> None:
    assert [(found.old, found.new) for found in from_hunk(before, old, new, after)] == expected


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_any_hunk_teaches_only_replacements_in_one_line(before: str, old: str, new: str, after: str) -> None:
    for found in from_hunk(before, old, new, after):
        assert found.old != found.new
        assert found.old
        assert found.new
        assert "\n" not in found.old + found.new
        assert found.old in before + old + after
        assert 0 < found.trust < 1
