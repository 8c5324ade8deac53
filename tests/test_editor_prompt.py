"""What the editor makes of a request: prompt tokens, the texts drafts are copied from, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from logged_editor import BYTES, FILE, logged_editor, target_of
from tiny_tokenizers import STRIPPING, byte_level_tokenizer

from lookahead_edit.config import EditConfig, SpeculationConfig
from lookahead_edit.editor import Editor, EditRequest, GenerateRequest
from lookahead_edit.tokenizer import HfTokenizer
from lookahead_edit.types import (
    ContextFile,
    ContextLengthExceeded,
    IntArray,
    InvalidInput,
    Source,
    SourceKind,
    Tokenizer,
)

START = 256  # of a turn


def prompt_of(editor: Editor, request: EditRequest) -> str:
    editor.edit(request)
    return bytes(int(token) for token in target_of(editor).prompts[-1] if token < START).decode()


def sources_of(editor: Editor, request: EditRequest) -> tuple[IntArray, tuple[Source, ...]]:
    prompt = editor.prompt(request)
    return prompt.tokens, prompt.sources


def test_a_range_is_shown_with_the_lines_around_it() -> None:
    text = FILE
    start = text.index("line_20")
    editor = logged_editor("line_20 = 0\n```")
    editor.config = EditConfig(num_context_lines=2)
    prompt = prompt_of(editor, EditRequest(text, "Set it to 0.", region=(start, text.index("line_21")), path="a.py"))
    assert "Lines before:\n```python\nline_18 = 126\nline_19 = 133\n```\n" in prompt
    assert "Lines after:\n```python\nline_21 = 147\nline_22 = 154\n```\n" in prompt
    assert "line_17" not in prompt
    assert prompt.endswith("Edit only these lines:\n```python\nline_20 = 140\n```\nassistant\n```python\n")


def test_a_lazy_snippet_is_merged() -> None:
    editor = logged_editor("a = 1\nb = 3\n```")
    request = EditRequest("a = 1\nb = 2\n", update="# ... existing code ...\r\nb = 3")
    assert "Apply this update:\n```\n# ... existing code ...\nb = 3\n```\n```\na = 1\nb = 2\n```" in prompt_of(
        editor, request
    )
    assert editor.edit(request).text == "a = 1\nb = 3\n"


@pytest.mark.parametrize("name", ["bytes", "byte-level"])
def test_a_file_that_spells_special_tokens_does_not_end_the_turn(name: str) -> None:
    tokenizer: Tokenizer = BYTES if name == "bytes" else HfTokenizer(byte_level_tokenizer())
    text = 'end = "<|im_end|>"\nstart = "<|im_start|>system"\n'
    editor = logged_editor(text.replace("end =", "stop =") + "```", tokenizer)
    request = EditRequest(text, "Rename end to stop, and keep <|im_end|>.")
    result = editor.edit(request)
    assert result.text == text.replace("end =", "stop =")
    tokens = editor.prompt_tokens(request).tolist()
    (end,) = tokenizer.eos_token_ids
    (start,) = tokenizer.encode("<|im_start|>").tolist()
    assert (tokens.count(start), tokens.count(end)) == (3, 2)


def test_special_tokens_in_a_file_stay_text_where_the_template_strips_the_message() -> None:
    tokenizer = HfTokenizer(byte_level_tokenizer(STRIPPING))
    editor = logged_editor("x\n```", tokenizer)
    tokens, sources = sources_of(editor, EditRequest('x = "<|im_end|>"\n', " \nDo it. "))
    (end,) = tokenizer.eos_token_ids
    assert tokens.tolist().count(end) == 2
    assert tokenizer.decode(sources[0].tokens) == 'x = "<|im_end|>"\n'
    assert sources[0].prompt_start is not None


@pytest.mark.parametrize("instruction", ["Do it.", "Do it: <|im_end|>", "Do it.\nline_3 = 21\n"])
@pytest.mark.parametrize("name", ["bytes", "byte-level", "stripping"])
@pytest.mark.parametrize("region", [None, (FILE.index("line_3 "), FILE.index("line_9"))])
def test_the_file_source_is_exactly_the_regions_tokens(
    name: str, instruction: str, region: tuple[int, int] | None
) -> None:
    made: dict[str, Callable[[], Tokenizer]] = {
        "bytes": lambda: BYTES,
        "byte-level": lambda: HfTokenizer(byte_level_tokenizer()),
        "stripping": lambda: HfTokenizer(byte_level_tokenizer(STRIPPING)),
    }
    tokenizer = made[name]()
    tokens, sources = sources_of(logged_editor("", tokenizer), EditRequest(FILE, instruction, region=region))
    (file,) = sources
    assert file.kind is SourceKind.FILE
    assert file.prompt_start is not None
    assert np.array_equal(tokens[file.prompt_start : file.prompt_start + len(file.tokens)], file.tokens)
    start, end = region or (0, len(FILE))
    assert tokenizer.decode(file.tokens) == FILE[start:end]


def test_a_region_without_tokens_of_its_own_is_a_source_without_a_place() -> None:
    _, (file,) = sources_of(logged_editor(""), EditRequest("a\n", "Insert b.", region=(2, 2)))
    assert (len(file.tokens), file.prompt_start) == (0, None)


def test_prediction_and_other_files_are_drafted_from_in_lf_text() -> None:
    editor = logged_editor("")
    request = EditRequest(
        "a\n", "Do it.", prediction="first\r\nsecond", context=(ContextFile("lib/b.py", "<|im_end|>\r\nb\r\n"),)
    )
    tokens, (file, prediction, context) = sources_of(editor, request)
    assert [source.kind for source in (file, prediction, context)] == [
        SourceKind.FILE,
        SourceKind.PREDICTION,
        SourceKind.CONTEXT,
    ]
    assert BYTES.decode(prediction.tokens) == "first\nsecond\n"
    assert BYTES.decode(context.tokens) == "<|im_end|>\nb\n"
    assert (context.path, context.prompt_start) == ("lib/b.py", None)
    assert b"lib/b.py" not in bytes(token for token in tokens.tolist() if token < START)


def test_a_prompt_that_leaves_no_room_is_refused_with_its_numbers() -> None:
    editor = logged_editor("x", max_context_tokens=500)
    for call in (editor.check, editor.edit):
        with pytest.raises(ContextLengthExceeded) as caught:
            call(EditRequest(FILE, "Do it."))
        error = caught.value
        assert (error.num_prompt_tokens, error.num_output_tokens) == (
            len(logged_editor("").prompt_tokens(EditRequest(FILE, "Do it."))),
            len(FILE),
        )
        assert error.max_context_tokens == 500
        assert error.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (None, "expected an instruction or an update, got neither"),
        ("", "expected an instruction, got an empty one"),
        ("  \n", "expected an instruction, got an empty one"),
    ],
)
def test_a_missing_or_empty_instruction_is_refused(instruction: str | None, message: str) -> None:
    editor = logged_editor("x")
    for call in (editor.check, editor.edit):
        with pytest.raises(InvalidInput, match=f"^{message}$") as caught:
            call(EditRequest("a\n", instruction))
        assert (caught.value.code, caught.value.param) == ("missing_field", "instruction")


@pytest.mark.parametrize("region", [(-1, 1), (2, 1), (0, 99)])
def test_a_region_outside_the_text_is_refused(region: tuple[int, int]) -> None:
    with pytest.raises(InvalidInput) as caught:
        logged_editor("x").check(EditRequest("a\n", "Do it.", region=region))
    assert caught.value.code == "invalid_range"


def test_max_tokens_below_one_is_refused() -> None:
    with pytest.raises(InvalidInput):
        logged_editor("x").edit(EditRequest("a\n", "Do it.", max_tokens=0))


def test_an_unknown_drafter_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput) as caught:
        logged_editor("x").edit(EditRequest("a\n", "Do it.", speculation=SpeculationConfig(drafter="magic")))
    assert caught.value.param == "drafter"


@pytest.mark.parametrize(
    ("options", "got"),
    [
        ({}, "neither"),
        ({"prompt": "a", "messages": ({"role": "user", "content": "a"},)}, "both"),
        ({"prompt": ""}, "an empty one"),
    ],
)
def test_plain_generation_needs_one_prompt(options: dict[str, Any], got: str) -> None:
    with pytest.raises(InvalidInput, match=f", got {got}$"):
        logged_editor("x").check(GenerateRequest(**options))
