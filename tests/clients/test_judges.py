"""Edits and diffs of random documents, from the server, judged by what editors, git and patch make of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from client_harness import node_script
from hypothesis import given, settings
from hypothesis import strategies as st
from logged_editor import logged_editor
from server_harness import in_process

PATH = "src/a file.py"
CONTENTS = ["", "\t", "x = 1", "\tx = 1", "  y\t= '😀é'  ", "a\u2028b", "\ufeff", "return x", "}", "日本語 👩‍👩‍👧"]
LINE_ENDS = {"lf": ["\n"], "crlf": ["\r\n"], "mixed": ["\n", "\r\n", "\n", "\r"]}


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, str]:
    """A document, and the answer to an edit of it: LF text in which lines were kept, replaced, removed or added."""
    contents = draw(st.lists(st.sampled_from(CONTENTS), max_size=12))
    line_ends = LINE_ENDS[draw(st.sampled_from(sorted(LINE_ENDS)))]
    lines = [content + draw(st.sampled_from(line_ends)) for content in contents]
    has_final_newline = draw(st.booleans())
    document = "".join(lines)
    if not has_final_newline:
        document = document.rstrip("\r\n")
    answer: list[str] = []
    for content in contents:
        change = draw(st.sampled_from(["keep", "keep", "keep", "replace", "remove", "add"]))
        if change in ("keep", "add"):
            answer.append(content)
        if change in ("replace", "add"):
            answer.append(draw(st.sampled_from(CONTENTS)))
    mark = draw(st.sampled_from(["", "", "\ufeff"]))
    return mark + document, "".join(f"{line}\n" for line in answer)


@pytest.fixture(scope="module")
def edit() -> Iterator[Callable[[str, str], dict[str, Any]]]:
    """What the server makes of a document and a model's answer."""
    editor = logged_editor("")
    with in_process(editor) as client:

        def choice_of(document: str, answer: str) -> dict[str, Any]:
            editor.target._output_of = lambda prompt: editor.tokenizer.encode(f"{answer}```")  # type: ignore[attr-defined]
            body = {"input": document, "instruction": "Change it.", "path": PATH, "output": ["text", "edits", "diff"]}
            response = client.post("/v1/edits", json=body)
            assert response.status_code == 200, response.text
            choice: dict[str, Any] = response.json()["choices"][0]
            return choice

        yield choice_of


@pytest.fixture(scope="module")
def editor_judge() -> Iterator[Callable[[str, list[Any]], str]]:
    """Applies edits with the library that language clients are built on."""
    with subprocess.Popen(
        ["node", str(node_script("judge_edits.mjs"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def judge(before: str, edits: list[Any]) -> str:
            print(json.dumps({"before": before, "edits": edits}), file=process.stdin, flush=True)
            text: str = json.loads(process.stdout.readline())
            return text

        yield judge
        process.stdin.close()


@pytest.mark.clients
@given(changes())
@settings(max_examples=200, deadline=None)
def test_edits_applied_by_a_language_client_give_the_text(edit, editor_judge, change):
    document, answer = change
    choice = edit(document, answer)
    assert editor_judge(document, choice["edits"]) == choice["text"]


@pytest.mark.parametrize(
    "command",
    [
        ["git", "apply", "-"],
        ["patch", "--strip=1", "--batch", "--fuzz=0", "--no-backup-if-mismatch"],
    ],
    ids=lambda command: command[0],
)
@given(change=changes())
@settings(max_examples=60, deadline=None)
def test_diff_applied_gives_the_text(edit, command, change):
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    document, answer = change
    choice = edit(document, answer)
    if choice["text"] == document:
        assert choice["diff"] == ""
        return
    with TemporaryDirectory() as directory:
        file = Path(directory) / PATH
        file.parent.mkdir()
        file.write_bytes(document.encode())
        environ = {**os.environ, "GIT_CEILING_DIRECTORIES": str(Path(directory).parent), "LC_ALL": "C"}
        diff = choice["diff"].encode()
        subprocess.run(command, cwd=directory, input=diff, env=environ, check=True, capture_output=True)
        assert file.read_bytes() == choice["text"].encode()
