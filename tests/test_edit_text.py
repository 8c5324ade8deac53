"""The prompt, to the letter: models are trained on these words."""

import doctest
import importlib

import pytest

from lookahead_edit.edit_text import build_edit_prompt, fence_for, language_of
from lookahead_edit.text_region import Region
from lookahead_edit.types import InvalidInput


def prompt_for(text, offsets=None, **options):
    return build_edit_prompt(Region.of(text, offsets), num_context_lines=20, **options)


def test_a_whole_file_is_shown_as_lf_text_in_one_block():
    prompt = prompt_for("\ufeffx = 1\r\ny = 2", instruction="Set x to 3.", path="a.py")
    assert prompt.messages == [
        {"role": "system", "content": "You edit files. Answer with the whole edited file in one code block."},
        {"role": "user", "content": "Set x to 3.\n```python\nx = 1\ny = 2\n```"},
    ]
    assert prompt.prefill == "```python\n"
    assert prompt.region_text == "x = 1\ny = 2\n"


def test_an_update_takes_the_place_of_the_instruction():
    prompt = prompt_for("x = 1\n", update="x = 2\r\n# ... existing code ...", language="python")
    assert prompt.user == ("Apply this update:\n```python\nx = 2\n# ... existing code ...\n```\n```python\nx = 1\n```")
    assert prompt.region_text == "x = 1\n"
    both = prompt_for("x = 1\n", instruction="Carefully.", update="x = 2\n", language="python")
    assert both.user == "Carefully.\nApply this update:\n```python\nx = 2\n```\n```python\nx = 1\n```"


def test_the_instruction_may_stand_behind_the_file_and_the_file_is_the_last_block():
    prompt = prompt_for("x = 1\n", instruction="Set x to 3.", path="a.py", file_first=True)
    assert prompt.user == "```python\nx = 1\n```\nSet x to 3."
    assert prompt.region_text == "x = 1\n"
    both = prompt_for("x = 1\n", instruction="Carefully.", update="x = 2\n", language="python", file_first=True)
    assert both.user == "Apply this update:\n```python\nx = 2\n```\n```python\nx = 1\n```\nCarefully."
    part = prompt_for("a\nb\nc\n", (2, 4), instruction="Go.", file_first=True)
    assert part.user.startswith("Lines before:\n```\na\n```\n")
    assert part.user.endswith("Edit only these lines:\n```\nb\n```\nGo.")
    for each in (prompt, both, part):
        assert each.user[each.region_start : each.region_end] == each.region_text


def test_of_two_edits_of_a_file_the_prompts_begin_alike_as_far_as_the_file_does():
    first = prompt_for("x = 1\ny = 2\n", instruction="Set y to 3.", file_first=True)
    second = prompt_for("x = 1\ny = 3\n", instruction="Rename x.", file_first=True)
    assert first.user[: len("```\nx = 1\ny = ")] == second.user[: len("```\nx = 1\ny = ")]


def test_a_range_is_shown_between_the_lines_around_it():
    prompt = prompt_for("\ufeffa\r\nb\r\nc\r\n", (4, 7), instruction="Rename b.", path="x.toml")
    assert prompt.system == "You edit files. Answer with the edited lines in one code block."
    assert prompt.user == (
        "Rename b.\nLines before:\n```toml\na\n```\nLines after:\n```toml\nc\n```\n"
        "Edit only these lines:\n```toml\nb\n```"
    )
    assert prompt.prefill == "```toml\n"
    assert prompt.region_text == "b\n"


def test_context_is_bounded_and_partial_lines_are_shown_as_lines():
    text = "11\n22\n33\n4x4\n55\n66\n77\n"
    prompt = build_edit_prompt(Region.of(text, (10, 11)), num_context_lines=2, instruction="Go.")
    assert prompt.user == (
        "Go.\nLines before:\n```\n33\n4\n```\nLines after:\n```\n4\n55\n```\nEdit only these lines:\n```\nx\n```"
    )
    none = build_edit_prompt(Region.of("a\nb\nc\n", (2, 4)), num_context_lines=0, instruction="Go.")
    assert none.user.startswith("Go.\nLines before:\n```\n```\nLines after:\n```\n```\n")


def test_an_empty_document_is_an_empty_block():
    prompt = prompt_for("", instruction="Write a greeting.", path="a.md")
    assert prompt.user == "Write a greeting.\n```markdown\n```"
    assert prompt.region_text == ""
    assert prompt_for("\ufeff", instruction="Write.").user == "Write.\n```\n```"


@pytest.mark.parametrize(
    ("texts", "fence"),
    [(("",), "```"), (("a `b` ``c``",), "```"), (("```sh\n```",), "````"), (("x", "`````"), "``````"), ((), "```")],
)
def test_the_fence_is_longer_than_any_in_the_text(texts, fence):
    assert fence_for(*texts) == fence


def test_fences_in_file_and_update_are_no_end_of_the_block():
    prompt = prompt_for("```sh\nls\n```\n", instruction="Sort.", path="README.md", update="````\n")
    assert prompt.fence == "`````"
    assert prompt.prefill == "`````markdown\n"
    assert prompt.user.endswith("`````markdown\n```sh\nls\n```\n`````")
    stream = prompt.answer_stream(stops=["STOP"])
    assert stream.push("```sh\nls -l\n```\n`````") + stream.finish() == "```sh\nls -l\n```\n"


def test_answers_are_cleaned_with_what_the_prompt_knows():
    stream = prompt_for("x = 1\n", instruction="Set x to 2.", path="a.py").answer_stream()
    assert stream.push("```python\nx = 2\n```") + stream.finish() == "x = 2\n"
    assert stream.answer.fence_stripped


@pytest.mark.parametrize(
    ("path", "language", "expected"),
    [
        ("src/a.py", None, "python"),
        ("A.PY", None, "python"),
        ("a.test.tsx", None, "tsx"),
        ("C:\\src\\main.RS", None, "rust"),
        ("Dockerfile", None, "dockerfile"),
        ("notes.txt", None, "text"),
        ("a.py", "c++", "c++"),
        ("a.unknown", None, ""),
        ("py", None, ""),
        (None, None, ""),
        (None, "", ""),
    ],
)
def test_the_language_is_what_was_said_or_what_the_name_says(path, language, expected):
    assert language_of(path, language) == expected


@pytest.mark.parametrize("language", ["two words", "a\nb", "```", "x" * 65, "<|im_end|>"])
def test_a_language_that_would_break_the_fence_is_refused(language):
    with pytest.raises(InvalidInput) as caught:
        language_of(None, language)
    assert caught.value.param == "language"


@pytest.mark.parametrize("instruction", [None, "", " \n"])
def test_an_edit_without_a_task_is_refused(instruction):
    with pytest.raises(InvalidInput, match="instruction or an update") as caught:
        prompt_for("a", instruction=instruction)
    assert (caught.value.code, caught.value.param) == ("missing_field", "instruction")


@pytest.mark.parametrize(
    "name",
    ["edit_text", "text_align", "text_answer", "text_changes", "text_lines", "text_placeholders", "text_region"],
)
def test_examples_in_docstrings_hold(name):
    results = doctest.testmod(importlib.import_module(f"lookahead_edit.{name}"))
    assert results.attempted
    assert not results.failed
