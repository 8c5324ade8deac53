"""The edit task end to end: a logged answer goes in where the model would write, the edited document comes out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from logged_editor import FILE, edited, logged_editor, target_of
from tiny_models import SHAPE
from tiny_tokenizers import byte_level_tokenizer

import lookahead_edit
from lookahead_edit.config import EditConfig, SamplingConfig, SpeculationConfig, TargetConfig
from lookahead_edit.editor import Editor, EditRequest, EditResult, GenerateRequest, Progress
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.tokenizer import HfTokenizer
from lookahead_edit.types import ContextFile, ContextLengthExceeded, RequestCancelled

START = 256  # of a turn


def test_a_whole_document_is_rewritten() -> None:
    result = edited("a = 1\nb = 2\n", "a = 1\nb = 3\n```", path="x.py")
    assert result.text == "a = 1\nb = 3\n"
    assert (result.finish_reason, result.changed, result.truncated) == ("stop", True, False)
    assert result.before == "a = 1\nb = 2\n"
    assert "-b = 2\n+b = 3\n" in result.diff()
    assert [edit["newText"] for edit in result.edits()] == ["3"]
    assert result.warnings == ()


def test_an_unchanged_answer_changes_nothing() -> None:
    result = edited("a = 1\n", "a = 1\n```")
    assert not result.changed
    assert (result.diff(), result.edits()) == ("", [])


def test_outside_a_range_no_byte_is_touched() -> None:
    text = "\ufeffa = 1\r\nb = 2\nc = 3\r\n\td  "
    start, end = text.index("b"), text.index("c")
    result = edited(text, "b = 5\nnew = 6\n```\n", region=(start, end))
    assert result.text == "\ufeffa = 1\r\nb = 5\nnew = 6\nc = 3\r\n\td  "


@pytest.mark.parametrize(
    ("before", "answer", "after"),
    [
        ("a\r\nb\r\n", "a\nB\nc\n", "a\r\nB\r\nc\r\n"),
        ("a\r\nb\nc\r\n", "a\nB\nc\n", "a\r\nB\nc\r\n"),
        ("\ufeffa\nb\n", "a\nB\n", "\ufeffa\nB\n"),
        ("a\nb", "a\nB\n", "a\nB"),
        ("a\nb\n", "a\nB", "a\nB\n"),
        ("", "a\n", "a\n"),
        ("\ta  \n", "\tB  \n", "\tB  \n"),
    ],
)
def test_line_ends_mark_and_final_newline_are_the_originals(before: str, answer: str, after: str) -> None:
    assert edited(before, answer + ("```" if answer.endswith("\n") else "\n```")).text == after
    assert edited(before, answer).text == after


def test_the_answer_ends_at_its_fence() -> None:
    result = edited("a = 1\n", "a = 2\n```\nI changed a to 2. Here is more:\n```\nx\n```")
    assert result.text == "a = 2\n"
    assert result.finish_reason == "stop"
    assert result.metrics.num_emitted_tokens <= len("a = 2\n```\n")


def test_a_fence_of_the_models_own_is_removed_and_said() -> None:
    result = edited("a = 1\n", "```python\na = 2\n```\n```", path="x.py")
    assert (result.text, result.fence_stripped) == ("a = 2\n", True)


def test_a_file_with_fences_keeps_them() -> None:
    text = "# Title\n\n```sh\nmake\n```\nend\n"
    assert edited(text, text.replace("end", "END") + "````", path="x.md").text == text.replace("end", "END")


def test_a_stop_string_ends_the_answer_and_is_left_out() -> None:
    result = edited("a = 1\nb = 2\n", "a = 5\nSTOP here\n```", stop=("STOP",))
    assert (result.text, result.finish_reason) == ("a = 5\n", "stop")


def test_half_a_file_is_never_a_success() -> None:
    result = edited("a = 1\nb = 2\n", "a = 1\nb = 3\n```", max_tokens=8)
    assert (result.finish_reason, result.truncated) == ("length", True)
    assert result.text == "a = 1\nb \n"
    assert result.metrics.num_emitted_tokens == 8


def test_by_default_an_edit_may_take_half_as_much_again_and_some_more() -> None:
    editor = logged_editor("x" * 1000)
    editor.config = EditConfig(output_tokens_per_region_token=1.5, extra_output_tokens=20)
    assert editor.edit(EditRequest("a" * 99 + "\n", "Do it.")).metrics.num_emitted_tokens == 170


def test_cancelling_between_rounds_frees_the_row() -> None:
    answers = iter([False, False, True])
    editor = logged_editor("x\n" * 50)
    with pytest.raises(RequestCancelled):
        editor.edit(
            EditRequest("a\n", "Do it.", speculation=SpeculationConfig(enabled=False)), lambda: next(answers, True)
        )
    assert not target_of(editor).open_keys
    assert len(target_of(editor).prompts) == 1


def test_closing_the_iterator_frees_the_row() -> None:
    editor = logged_editor(FILE + "```")
    rounds = editor.stream(EditRequest(FILE, "Do it."))
    next(rounds)
    assert target_of(editor).open_keys
    rounds.close()  # type: ignore[attr-defined]
    assert not target_of(editor).open_keys


def test_one_request_after_another_shares_nothing() -> None:
    editor = logged_editor("a = 2\n```")
    first = editor.edit(EditRequest("a = 1\n", "Do it."))
    again = editor.edit(EditRequest("a = 1\n", "Do it."))
    assert first.text == again.text
    assert first.metrics.num_rounds == again.metrics.num_rounds


def test_new_text_is_drafted_from_prediction_and_other_files() -> None:
    new = "def helper(value):\n    return sorted(value, key=len)\n"
    plain = edited("x = 1\n", new + "```").metrics
    for options in ({"prediction": new}, {"context": (ContextFile("b.py", new),)}):
        metrics = edited("x = 1\n", new + "```", **options).metrics
        assert metrics.num_rounds < plain.num_rounds / 2
        assert set(metrics.num_accepted_by_source) & {"prediction", "context"}


@pytest.mark.parametrize("speculation", [SpeculationConfig(), SpeculationConfig(enabled=False)])
@pytest.mark.parametrize(
    "answer", [FILE.replace("= 70\n", "= 71\n") + "```", "é\U0001f600\n" * 9 + "```\n", "", "a\ufffd"]
)
def test_streamed_pieces_add_up_to_the_answer(answer: str, speculation: SpeculationConfig) -> None:
    rounds = list(logged_editor(answer).stream(EditRequest(FILE, "Do it.", speculation=speculation)))
    *progress, result = rounds
    assert isinstance(result, EditResult)
    offset, given = 0, ""
    for one in progress:
        assert isinstance(one, Progress)
        assert one.offset == offset
        offset += len(one.delta)
        given += one.delta
    expected = answer.removesuffix("```\n").removesuffix("```")
    assert given == expected
    assert result.text == (expected + "\n" if expected and not expected.endswith("\n") else expected)
    assert result.metrics.num_rounds == len(progress)


def test_an_edit_of_one_word_is_mostly_copied() -> None:
    answer = FILE.replace("line_20", "total") + "```"
    metrics = edited(FILE, answer).metrics
    assert metrics.tokens_per_round is not None
    assert metrics.tokens_per_round > 15
    assert metrics.num_accepted_by_source["file"] > 0.9 * len(answer)


def test_without_speculation_the_text_is_the_same_and_the_reason_is_given() -> None:
    answer = FILE.replace("line_20", "total") + "```"
    plain = edited(FILE, answer, speculation=SpeculationConfig(enabled=False))
    assert plain.text == edited(FILE, answer).text
    assert plain.metrics.disabled_reason == "speculation is off for this request"
    assert plain.metrics.num_draft_tokens == 0
    assert plain.metrics.tokens_per_round == 1.0
    assert edited(FILE, answer).metrics.disabled_reason is None


def test_a_placeholder_for_code_is_warned_of() -> None:
    (warning,) = edited(FILE, "line_0 = 1\n# ... rest of the code unchanged ...\n```").warnings
    assert warning == "line 2 stands for code that is missing: # ... rest of the code unchanged ..."


def test_plain_generation_ends_at_its_stop_string() -> None:
    editor = logged_editor("one two END three")
    result = editor.generate(GenerateRequest(prompt="Count. ", stop=("END",)))
    assert (result.text, result.finish_reason) == ("one two ", "stop")
    *progress, _ = editor.stream_generate(GenerateRequest(messages=({"role": "user", "content": "Count."},)))
    assert "".join(one.delta for one in progress if isinstance(one, Progress)) == "one two END three"
    assert target_of(editor).prompts[-1][0] == START


# A real model and a real tokenizer, both tiny.


@pytest.fixture(scope="module")
def model() -> Any:
    import transformers as hf

    torch.manual_seed(0)
    config = hf.LlamaConfig(**(SHAPE | {"vocab_size": 300, "pad_token_id": None}), max_position_embeddings=2048)
    made = hf.LlamaForCausalLM(config)
    torch.nn.init.normal_(made.get_output_embeddings().weight, std=1.0)
    made.generation_config = hf.GenerationConfig(bos_token_id=1, pad_token_id=0)
    return made.eval()


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return byte_level_tokenizer()


def test_the_function_edits_with_any_model_and_tokenizer(model: Any, tokenizer: Any) -> None:
    text = "def add(first, second):\n    return first + second\n"
    result = lookahead_edit.edit(model, tokenizer, text, "Do it.", path="add.py", max_tokens=40)
    plain = lookahead_edit.edit(
        model, tokenizer, text, "Do it.", path="add.py", max_tokens=40, speculation=SpeculationConfig(enabled=False)
    )
    assert isinstance(result, EditResult)
    assert result.before == text
    assert (result.text, result.finish_reason) == (plain.text, plain.finish_reason)
    assert result.metrics.num_rounds <= plain.metrics.num_rounds == plain.metrics.num_emitted_tokens


def test_an_edits_tokens_are_those_of_generate(model: Any, tokenizer: Any) -> None:
    editor = Editor(HfTarget(model), HfTokenizer(tokenizer))
    request = EditRequest("x = 1\n", "Do it.", max_tokens=40)
    rounds = [one.round.tokens for one in editor.stream(request) if isinstance(one, Progress)]
    ids = torch.from_numpy(editor.prompt_tokens(request).astype(np.int64))[None]
    output = model.generate(ids, max_new_tokens=40, do_sample=False, eos_token_id=tokenizer.eos_token_id)
    assert np.concatenate(rounds).tolist() == output[0, ids.shape[1] :].tolist()


def test_a_seed_fixes_the_text_with_and_without_drafts(model: Any, tokenizer: Any) -> None:
    sampling = SamplingConfig(temperature=1.0, seed=3)
    texts = {
        lookahead_edit.edit(
            model,
            tokenizer,
            FILE[:200],
            "Do it.",
            sampling=sampling,
            max_tokens=40,
            speculation=SpeculationConfig(enabled=enabled),
        ).text
        for enabled in (True, False)
    }
    assert len(texts) == 1


def test_an_unknown_option_raises(model: Any, tokenizer: Any) -> None:
    message = r"^edit\(\) got an unexpected keyword argument 'temprature', expected one of update, region, path, "
    with pytest.raises(TypeError, match=message):
        lookahead_edit.edit(model, tokenizer, "a\n", "Do it.", temprature=1.0)


def test_the_models_context_limits_prompt_and_file(model: Any, tokenizer: Any) -> None:
    with pytest.raises(ContextLengthExceeded) as caught:
        lookahead_edit.edit(model, tokenizer, FILE * 4, "Do it.")
    assert caught.value.max_context_tokens == 2048


def test_a_request_can_be_cancelled_while_its_prompt_is_read(model: Any, tokenizer: Any) -> None:
    target = HfTarget(model, TargetConfig(prefill_chunk_tokens=16))
    lengths: list[int] = []
    handle = model.register_forward_pre_hook(
        lambda module, arguments, keywords: lengths.append(keywords["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        with pytest.raises(RequestCancelled):
            Editor(target, HfTokenizer(tokenizer)).edit(EditRequest(FILE, "Do it."), lambda: len(lengths) >= 3)
    finally:
        handle.remove()
    assert lengths == [16, 16, 16]
    assert not target._rows
