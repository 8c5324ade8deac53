"""The default model's training tasks: deterministic, with one right answer each, held-out packages apart."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from corpora.edit_model import pieces
from corpora.edit_model.config_edits import config_task
from corpora.edit_model.examples import encode_task
from corpora.edit_model.hunks import Hunk, lazy_snippet, line_hunks, region_of
from corpora.edit_model.kinds import KIND_WEIGHTS, KINDS, PYTHON_ONLY, apply_kind
from corpora.edit_model.multi import shifted_line
from corpora.edit_model.names import rename
from corpora.edit_model.parsing import parse_python
from corpora.edit_model.pieces import Piece
from corpora.edit_model.prompts import fence_for, file_prompt, quote_prompt, range_prompt
from corpora.edit_model.quotes import QUOTE_KINDS, paragraphs
from corpora.edit_model.tasks import MERGE_KINDS, Task, make_task

PYTHON = Piece(
    "python",
    '''import os
import sys


class Store:
    """Keep rows."""

    def __init__(self, root: str, limit=10):
        self.root = root
        self.limit = limit

    def path_of(self, name: str) -> str:
        """Where a row is kept."""
        full = os.path.join(self.root, name)
        return full

    def clear(self):
        self.rows = []
        print("cleared", self.rows)


def describe(store, width):
    text = "a store of rows"
    return text.ljust(width)
''',
    "made up",
)
JAVASCRIPT = Piece(
    "javascript",
    """const path = require('path')

// walk the tree
function walk (folder, depth) {
  const names = list(folder)
  console.log('walking', depth)
  return names.map((entry) => path.join(folder, entry))
}

module.exports = walk
""",
    "made up",
)
SENTENCES = [
    "The parser reads one statement at a time.",
    "A frame keeps the local names of a call.",
    "Every module is loaded once only.",
    "Signals interrupt the main thread.",
]


def edits_of(kind: str, piece: Piece, count: int = 25) -> list[tuple[str, str]]:
    """(instruction, text after) of the edits that many seeds give."""
    drawn = [apply_kind(random.Random(seed), kind, piece) for seed in range(count)]
    return [(edit.instruction, edit.after) for edit in drawn if edit is not None]


def test_training_and_evaluation_read_different_packages() -> None:
    assert not set(pieces.TRAIN_PACKAGES) & set(pieces.EVALUATION_PACKAGES)


def test_vendored_copies_of_packages_are_not_read(tmp_path: Path) -> None:
    for name in ("own.py", "_vendor/rich/table.py", "deep/vendor/click.py", "test/test_own.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("value = 1\n" * 40, encoding="utf-8")
    assert [file.path.name for file in pieces.files_below(tmp_path, "own")] == ["own.py"]


@pytest.fixture
def small_split(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Evaluation from one package only: the whole split takes seconds to read."""
    monkeypatch.setattr(pieces, "EVALUATION_PACKAGES", ("click",))
    monkeypatch.setattr(pieces, "EVALUATION_FOLDERS", ())
    monkeypatch.setattr(pieces, "npm_root", lambda: None)
    pieces.source_files.cache_clear()
    paragraphs.cache_clear()
    yield
    pieces.source_files.cache_clear()
    paragraphs.cache_clear()


@pytest.mark.usefixtures("small_split")
def test_a_task_depends_on_split_seed_and_index_only() -> None:
    first = [make_task("evaluation", 5, index) for index in range(6)]
    again = [make_task("evaluation", 5, index) for index in reversed(range(6))]
    assert first == again[::-1]
    assert first != [make_task("evaluation", 6, index) for index in range(6)]
    assert {task.package for task in first} <= {"click", "made up", "evaluation"}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_has_a_weight_and_finds_a_place(kind: str) -> None:
    assert KIND_WEIGHTS[kind] > 0
    pieces_to_try = [PYTHON] if kind in PYTHON_ONLY else [PYTHON, JAVASCRIPT]
    assert any(edits_of(kind, piece) for piece in pieces_to_try)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_python_that_parses_before_parses_after(kind: str) -> None:
    for instruction, after in edits_of(kind, PYTHON):
        assert parse_python(after) is not None, instruction
        assert after != PYTHON.text
        assert after.endswith("\n")


@pytest.mark.parametrize("piece", [PYTHON, JAVASCRIPT], ids=lambda piece: piece.language)
def test_a_rename_leaves_no_trace_of_the_old_name(piece: Piece) -> None:
    for instruction, after in edits_of("rename", piece, count=60):
        words_before, words_after = set(re.findall(r"\w+", piece.text)), set(re.findall(r"\w+", after))
        (old,) = words_before - words_after
        (new,) = words_after - words_before
        assert old in instruction
        assert new in instruction
        assert old.lower() not in after.lower().replace(new.lower(), "")
        assert after.replace(new, old) == piece.text


def test_names_in_strings_comments_or_longer_words_are_not_renamed() -> None:
    text = (
        'def take(rows, row_count):\n    total = 0\n    label = "label"\n    # width\n    width = 1\n    return total\n'
    )
    drawn = [rename(random.Random(seed), Piece("python", text, "made up")) for seed in range(40)]
    renamed = {
        word for edit in drawn if edit for word in set(re.findall(r"\w+", text)) - set(re.findall(r"\w+", edit.after))
    }
    assert renamed == {"take", "total", "row_count", "rows"}


def test_literals_are_changed_only_where_they_stand_once() -> None:
    piece = Piece(
        "python", "first = 10\nsecond = 10\nthird = 7\nname = 'north'\nother = 'north'\nlast = 'south'\n", "made up"
    )
    for _, after in edits_of("number", piece) + edits_of("string", piece):
        (hunk,) = line_hunks(piece.text, after)
        assert hunk.first in (2, 5)


def test_configuration_edits_change_few_lines() -> None:
    made = [config_task(random.Random(seed)) for seed in range(80)]
    languages = set()
    for piece, edit in filter(None, made):
        languages.add(piece.language)
        assert len(line_hunks(piece.text, edit.after)) == 1
    assert languages == {"json", "yaml", "toml", "ini", "css", "bash"}


def test_hunks_and_regions_hold_all_changes() -> None:
    before, after = "a\nb\nc\nd\ne\n", "a\nB\nc\nd\nnew\ne\n"
    assert line_hunks(before, after) == [Hunk(1, 2, 1, 2), Hunk(4, 4, 4, 5)]
    assert region_of(before, after, (0, 0), max_lines=10) == (1, 4, 1, 5)
    assert region_of(before, after, (5, 5), max_lines=10) == (0, 5, 0, 6)
    assert region_of(before, after, (0, 0), max_lines=2) is None
    assert shifted_line(5, [Hunk(1, 1, 1, 3)]) == 7


def test_a_lazy_snippet_shows_the_change_its_scope_and_the_marker() -> None:
    lines = PYTHON.text.splitlines()
    number = lines.index("        self.rows = []")
    after = "\n".join([*lines[: number + 1], "        self.size = 0", *lines[number + 1 :]]) + "\n"
    assert lazy_snippet(PYTHON.text, after, "# ... existing code ...", context=1) == (
        "# ... existing code ...\n"
        "class Store:\n"
        "    # ... existing code ...\n"
        "    def clear(self):\n"
        "        self.rows = []\n"
        "        self.size = 0\n"
        '        print("cleared", self.rows)\n'
        "# ... existing code ...\n"
    )


def test_a_lazy_snippet_cannot_show_a_removal() -> None:
    assert lazy_snippet("a = 1\nb = 2\nc = 3\n", "a = 1\nc = 3\n", "# ... existing code ...", context=1) is None
    assert set(MERGE_KINDS) <= set(KINDS)


@pytest.mark.parametrize("kind", sorted(QUOTE_KINDS))
def test_quotes_stand_word_for_word_in_the_text(kind: str) -> None:
    function, _ = QUOTE_KINDS[kind]
    for seed in range(20):
        made = function(random.Random(seed), list(SENTENCES))
        if made is None:
            continue
        _, text, answer = made
        quotes = re.findall(r'"(.*?)"(?:\n|$)', answer)
        assert len(quotes) == len(answer.splitlines())
        assert all(text.count(quote) == 1 for quote in quotes)


def test_prompts_have_the_fixed_form() -> None:
    prompt, fence = file_prompt("Rename a to b.", "python", "a = 1\n")
    assert fence == "```"
    assert prompt == (
        "<|im_start|>system\nYou edit files. Answer with the whole edited file in one code block.<|im_end|>\n"
        "<|im_start|>user\nRename a to b.\n```python\na = 1\n```<|im_end|>\n<|im_start|>assistant\n```python\n"
    )
    prompt, _ = range_prompt("Remove b.", "python", [], "b = 1\n", ["c = 2"])
    assert (
        "\nLines before:\n```python\n```\nLines after:\n```python\nc = 2\n```\nEdit only these lines:\n```python\nb"
        in prompt
    )
    assert quote_prompt("Quote it.", "Text.").endswith("Quote it.\n\nText.<|im_end|>\n<|im_start|>assistant\n")
    assert fence_for("text\n```js\nx\n```\n") == "````"


def test_a_trimmed_example_keeps_the_change_and_loses_a_part_of_the_unchanged_tail() -> None:
    class Characters:
        def encode(self, text: str) -> list[int]:
            return [ord(character) for character in text]

    before = "alpha\nbeta\n" + "gamma\n" * 20
    answer = "alpha\nXY\n" + "gamma\n" * 20 + "`."  # fence and end of turn are two tokens
    task = Task("edit", "rename", "text", "", before, "", "prompt", answer, "")
    assert encode_task(task, Characters()).answer == [ord(character) for character in answer]
    lengths = set()
    for seed in range(30):
        example = encode_task(task, Characters(), random.Random(seed))
        text = "".join(map(chr, example.answer))
        assert answer.startswith(text)
        assert text.startswith("alpha\nXY\n")
        lengths.add(len(text))
    assert min(lengths) < 60 < max(lengths) == len(answer)
