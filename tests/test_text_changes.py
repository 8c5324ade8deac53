"""Edits and diffs, judged by what applies them: an LSP client's rules, git apply and patch."""

import os
import shutil
import subprocess
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookahead_edit.text_changes import apply_text_edits, text_edits, unified_diff
from lookahead_edit.text_lines import range_to_offsets, splits_unit
from lookahead_edit.types import InvalidInput

NASTY = st.text(alphabet="ab \r\n\f\x00\u2028\ufeffé😀\ud83d\ude00", max_size=30)
SHORT_LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\r\n", "\n", "\r", "d"]), max_size=12).map("".join)
ENCODINGS = st.sampled_from(["utf-16", "utf-8", "utf-32"])

PAIRS = {
    "one line": ("a\nb\nc\n", "a\nB\nc\n"),
    "two hunks": ("".join(f"{n}\n" for n in range(40)), "".join(f"{n * (n not in (3, 30))}\n" for n in range(40))),
    "no final newline": ("a\nb", "a\nB"),
    "final newline added": ("a\nb", "a\nb\n"),
    "final newline removed": ("a\nb\n", "a\nb"),
    "unchanged end without newline": ("a\nb", "A\nb"),
    "crlf": ("a\r\nb\r\nc\r\n", "a\r\nB\r\nnew\r\nc\r\n"),
    "mixed": ("a\r\nb\nc\rd\r\r\ne", "a\r\nB\nc\rd\r\r\nE"),
    "line end changed": ("a\nb\r\n", "a\r\nb\n"),
    "only cr": ("a\rb\rc", "a\rB\rc"),
    "empty before": ("", "a\nb\n"),
    "empty before, no newline": ("", "a"),
    "empty after": ("a\nb\n", ""),
    "empty after, no newline": ("a", ""),
    "bom and unicode": ("\ufeffé\n😀\u2028x\n", "\ufeffé\n😀\u2028y\n"),
    "lines that look like a diff": ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n", "--- a/y\n+++ b/x\n@@ -1 +1 @@\n-\n"),
    "trailing spaces": ("a  \n\tb\n", "a \n\tb\t\n"),
    "nul": ("a\x00b\nc\n", "a\x00b\nC\n"),
    "everything": ("a\nb\n", "c\nd\ne\n"),
}
PATHS = [
    "file.txt",
    "dir/sub dir/a file.txt",
    'quo"te.txt',
    "back\\slash.txt",
    "ünï/💡.txt",
    "tab\tname.txt",
    " lead and trail ",
    "new\nline.txt",
]


def environment():
    return {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}


def git_apply(directory, diff):
    command = ["git", "apply", "-p1", "-"]
    ceiling = {"GIT_CEILING_DIRECTORIES": str(directory.parent)}
    subprocess.run(
        command, cwd=directory, input=diff, check=True, capture_output=True, env={**environment(), **ceiling}
    )


def patch(directory, diff):
    command = ["patch", "-p1", "--batch", "--fuzz=0", "--no-backup-if-mismatch"]
    subprocess.run(command, cwd=directory, input=diff, check=True, capture_output=True, env=environment())


JUDGES = [
    pytest.param(git_apply, marks=pytest.mark.skipif(not shutil.which("git"), reason="needs git")),
    pytest.param(patch, marks=pytest.mark.skipif(not shutil.which("patch"), reason="needs patch")),
]


def judge_diff(judge, directory, before, after, path, **options):
    file = directory / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(before.encode())
    judge(directory, unified_diff(before, after, path, **options).encode())
    assert file.read_bytes() == after.encode()


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("name", PAIRS)
def test_a_diff_applies_to_exactly_the_new_text(judge, name, tmp_path):
    judge_diff(judge, tmp_path, *PAIRS[name], "file.txt")


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("path", PATHS)
def test_a_diff_names_any_path(judge, path, tmp_path):
    judge_diff(judge, tmp_path, "a\nb\n", "a\nB\n", path)


@pytest.mark.parametrize("judge", JUDGES)
def test_random_diffs_apply(judge, tmp_path_factory):
    text = st.text(alphabet="ab\r\n\x00é", max_size=20)

    @settings(max_examples=60, deadline=None)
    @given(st.one_of(SHORT_LINES, text), st.one_of(SHORT_LINES, text), st.integers(1, 3))
    def check(before, after, num_context_lines):
        if before != after:
            directory = tmp_path_factory.mktemp("judge")
            judge_diff(judge, directory, before, after, "f", num_context_lines=num_context_lines)
            shutil.rmtree(directory)

    check()


def test_a_diff_looks_as_git_writes_it():
    before, after = "".join(f"{n}\n" for n in range(9)), "".join(f"{n}\n" for n in range(9) if n != 4) + "end"
    assert unified_diff(before, after, "src/a b.py") == (
        "diff --git a/src/a b.py b/src/a b.py\n"
        "--- a/src/a b.py\t\n"
        "+++ b/src/a b.py\t\n"
        "@@ -2,8 +2,8 @@\n 1\n 2\n 3\n-4\n 5\n 6\n 7\n 8\n+end\n\\ No newline at end of file\n"
    )


@pytest.mark.parametrize(
    ("path", "header"),
    [
        (None, "--- a/file\n"),
        ("", "--- a/file\n"),
        ("/abs/x.py", "--- a/abs/x.py\n"),
        ("./a//x.py", "--- a/a/x.py\n"),
        ("é.py", '--- "a/\\303\\251.py"\n'),
        ('"\\\n', '--- "a/\\"\\\\\\n"\n'),
    ],
)
def test_paths_are_quoted_as_git_does(path, header):
    assert header in unified_diff("a", "b", path)


def test_equal_texts_have_no_diff_and_no_edits():
    assert unified_diff("a\r\nb", "a\r\nb", "x") == ""
    assert text_edits("a\r\nb", "a\r\nb") == []


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-8", "utf-32"])
def test_edits_give_the_new_text(name, encoding):
    before, after = PAIRS[name]
    assert apply_text_edits(before, text_edits(before, after, encoding), encoding) == after


@given(st.one_of(NASTY, SHORT_LINES), st.one_of(NASTY, SHORT_LINES), ENCODINGS)
def test_random_edits_give_the_new_text_and_are_sorted_apart_and_whole(before, after, encoding):
    edits = text_edits(before, after, encoding)
    assert apply_text_edits(before, edits, encoding) == after
    spans = [range_to_offsets(before, edit["range"], encoding) for edit in edits]
    assert all(first[1] < second[0] for first, second in pairwise(spans))
    for (start, end), edit in zip(spans, edits, strict=True):
        assert start < end or edit["newText"]
        assert not splits_unit(before, start)
        assert not splits_unit(before, end)
        beyond = edit["newText"] + before[end:]
        assert not splits_unit(before[:start] + beyond, start)
        assert not splits_unit(beyond, len(edit["newText"]))


def edit(start, end, new_text):
    return {
        "range": {
            "start": {"line": start[0], "character": start[1]},
            "end": {"line": end[0], "character": end[1]},
        },
        "newText": new_text,
    }


@pytest.mark.parametrize(
    ("before", "after", "edits"),
    [
        ("a\nb\nc\n", "a\nnew\nb\nc\n", [edit((1, 0), (1, 0), "new\n")]),
        ("a\nb\nc\n", "a\nc\n", [edit((1, 0), (2, 0), "")]),
        ("x = 1\ny\nz = 1\n", "x = 2\ny\nz = 3\n", [edit((0, 4), (0, 5), "2"), edit((2, 4), (2, 5), "3")]),
        ("😀 = 1\n", "😀 = 2\n", [edit((0, 5), (0, 6), "2")]),
        ("😀\n", "😁\n", [edit((0, 0), (0, 2), "😁")]),
        ("a\nb", "a\r\nb", [edit((0, 1), (1, 0), "\r\n")]),
        ("a\r\nb", "a\nb", [edit((0, 1), (1, 0), "\n")]),
        ("a\rb", "a\r\nb", [edit((0, 1), (1, 0), "\r\n")]),
        ("a", "a\n", [edit((0, 1), (0, 1), "\n")]),
        ("", "a", [edit((0, 0), (0, 0), "a")]),
    ],
)
def test_edits_are_small_but_part_nothing_that_belongs_together(before, after, edits):
    assert text_edits(before, after) == edits


def test_edits_are_applied_in_any_order_and_refused_where_they_overlap():
    first, second = edit((0, 0), (0, 1), "A"), edit((1, 0), (1, 1), "B")
    assert apply_text_edits("a\nb", [second, first]) == "A\nB"
    assert apply_text_edits("a", [edit((0, 0), (0, 0), "1"), edit((0, 0), (0, 0), "2")]) == "12a"
    with pytest.raises(InvalidInput, match="overlap"):
        apply_text_edits("abc", [edit((0, 0), (0, 2), ""), edit((0, 1), (0, 3), "")])


def test_a_large_file_gets_small_edits():
    before = "".join(f"    line {number % 50}\r\n" for number in range(10_000))
    lines = before.splitlines(keepends=True)
    lines[10], lines[9_000:9_002] = "    LINE\r\n", ["    new\r\n"]
    after = "".join(lines)
    edits = text_edits(before, after)
    assert apply_text_edits(before, edits) == after
    assert len(edits) == 2
    assert len(unified_diff(before, after).encode()) < 500
