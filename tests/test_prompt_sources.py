"""The file is found in prompts that say nothing about it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_tokenizers import byte_level_tokenizer, sentencepiece_tokenizer

from lookahead_edit.drafters.vocabulary import Vocabulary
from lookahead_edit.edit_text import build_edit_prompt
from lookahead_edit.prompt_sources import BlockScanner, file_in_prompt
from lookahead_edit.text_region import Region
from lookahead_edit.tokenizer import ByteTokenizer, HfTokenizer
from lookahead_edit.types import SourceKind, Tokenizer

BYTES = ByteTokenizer()
FILE = "def add(a, b):\n    return a + b\n"


def found(text: str, tokenizer: Tokenizer = BYTES) -> str | None:
    prompt = tokenizer.encode(text)
    source = file_in_prompt(prompt, Vocabulary(tokenizer))
    if source is None:
        return None
    assert source.kind == SourceKind.FILE
    assert source.prompt_start is not None
    assert np.array_equal(prompt[source.prompt_start : source.prompt_start + len(source.tokens)], source.tokens)
    return tokenizer.decode(source.tokens)


@pytest.mark.parametrize(
    "prompt",
    [
        f"Rename add.\n```python\n{FILE}```",
        f"```python\n{FILE}```\nRename add.",
        f"Rename add.\r\n~~~ python title=x\r\n{FILE}~~~  \r\nThanks.",
        f"   ```\n{FILE}   ```\n",
        f"One more line: ````md\n````md\n{FILE}````\n",
    ],
)
def test_the_code_block_is_found(prompt: str) -> None:
    assert found(prompt) == FILE


def test_our_own_prompts_file_is_found() -> None:
    prompt = build_edit_prompt(Region.of(FILE), instruction="Rename add.", path="a.py", num_context_lines=20)
    assert found(BYTES.render_chat(prompt.messages, prompt.prefill)) == FILE


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "Rename add to total.",
        f"```python\n{FILE}",
        f"    ```\n{FILE}    ```\n",
        f"``\n{FILE}``\n",
        f"```not `a` fence\n{FILE}```\n",
        f"````\n{FILE}```\n",
        f"```\n{FILE}~~~\n",
        "Run this:\n```\nmake test\n```\n",
    ],
)
def test_what_is_no_closed_block_of_some_length_is_no_file(prompt: str) -> None:
    assert found(prompt) is None


def test_of_several_files_the_last_one_is_taken_but_not_a_short_quote_behind_it() -> None:
    other = FILE.replace("add", "subtract")
    assert found(f"```\n{FILE}```\n```\n{other}```\n") == other
    assert found(f"```\n{FILE * 8}```\nIt says:\n```\nTypeError: add() takes 2 arguments\n```\n") == FILE * 8


def test_a_turn_that_ends_in_an_open_block_takes_nothing_from_the_next_one() -> None:
    cut_off = f"<|im_start|>assistant\n```python\n{FILE}<|im_end|>\n"
    asked = f"<|im_start|>user\n```python\n{FILE * 2}```<|im_end|>\n<|im_start|>assistant\n```python\n"
    assert found(cut_off + asked) == FILE * 2


def test_a_fence_within_a_longer_one_is_text() -> None:
    page = f"# Title\n\n```python\n{FILE}```\n"
    assert found(f"Fix the page.\n````markdown\n{page}````\n") == page


@pytest.mark.parametrize("make", [byte_level_tokenizer, sentencepiece_tokenizer])
def test_tokens_of_several_characters_are_cut_at_the_fences(make: type) -> None:
    tokenizer = HfTokenizer(make())
    text = found(f"Rename add.\n```python\n{FILE * 3}```\n", tokenizer)
    assert text is not None
    assert text.strip() == (FILE * 3).strip()


def naive_blocks(text: str) -> list[str]:
    blocks, marks, lines = [], "", []
    for line in text.split("\n"):
        fence = re.fullmatch(r" {0,3}(`{3,}|~{3,})(.*)", line)
        if marks and fence and fence[1][0] == marks[0] and len(fence[1]) >= len(marks) and not fence[2].strip():
            blocks.append("".join(f"{line}\n" for line in lines))
            marks = ""
        elif marks:
            lines.append(line)
        elif fence and (fence[1][0] != "`" or "`" not in fence[2]):
            marks, lines = fence[1], []
    return blocks


@given(
    st.lists(st.sampled_from(["```", "````", "~~~", "```py", " ", "a", "\n", "\n", "\n", "`", "b\n"]), max_size=24),
    st.integers(1, 9),
)
def test_any_text_in_pieces_of_any_size_has_the_blocks_of_the_obvious_reader(pieces: list[str], size: int) -> None:
    text = "".join(pieces)
    tokens = BYTES.encode(text)
    scanner = BlockScanner(Vocabulary(BYTES))
    for start in range(0, len(tokens), size):
        scanner.feed(tokens[start : start + size])
    assert [BYTES.decode(tokens[block.start : block.end]) for block in scanner.finish()] == naive_blocks(text)


def test_a_line_without_end_takes_no_memory() -> None:
    scanner = BlockScanner(Vocabulary(BYTES))
    for _ in range(100):
        scanner.feed(BYTES.encode("x" * 1000))
    assert len(scanner._line) < 2000
    assert scanner.finish() == []
