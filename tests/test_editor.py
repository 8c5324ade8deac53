"""The edit task end to end: a logged answer goes in where the model would write, the edited document comes out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SHAPE
from tiny_tokenizers import STRIPPING, byte_level_tokenizer

import lookahead_edit
from lookahead_edit.config import EditConfig, SamplingConfig, SpeculationConfig, TargetConfig
from lookahead_edit.editor import ContextFile, Editor, EditRequest, EditResult, GenerateRequest, Progress
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.targets.recorded import RecordedTarget
from lookahead_edit.tokenizer import ByteTokenizer, HfTokenizer
from lookahead_edit.types import (
    ContextLengthExceeded,
    IntArray,
    InvalidInput,
    RequestCancelled,
    Row,
    Source,
    SourceKind,
    Tokenizer,
    Verified,
)

BYTES = ByteTokenizer()
START, END = 256, 257
FILE = "".join(f"line_{number} = {number * 7}\n" for number in range(40))


class LoggedTarget(RecordedTarget):
    """Answers every prompt with `answer`; keeps prompts, and which rows are open."""

    def __init__(self, answer: str, tokenizer: Tokenizer = BYTES, **options: Any) -> None:
        tokens = tokenizer.encode(answer, parse_special=False)
        (end_token_id,) = tokenizer.eos_token_ids
        super().__init__(lambda prompt: tokens, end_token_id=end_token_id, **options)
        self.prompts: list[IntArray] = []
        self.open_keys: set[int] = set()

    def verify(self, rows: Sequence[Row]) -> Verified:
        for row in rows:
            if len(row.tokens) == row.num_prompt_tokens:
                self.prompts.append(row.tokens.copy())
                self.open_keys.add(row.key)
        return super().verify(rows)

    def close(self, key: int) -> None:
        super().close(key)
        self.open_keys.discard(key)


def logged_editor(answer: str, tokenizer: Tokenizer = BYTES, **options: Any) -> Editor:
    return Editor(LoggedTarget(answer, tokenizer, **options), tokenizer)


def edited(text: str, answer: str, instruction: str | None = "Do it.", **options: Any) -> EditResult:
    editor = logged_editor(answer)
    result = editor.edit(EditRequest(text, instruction, **options))
    assert isinstance(editor.target, LoggedTarget)
    assert not editor.target.open_keys
    return result


def prompt_of(editor: Editor, request: EditRequest) -> str:
    editor.edit(request)
    assert isinstance(editor.target, LoggedTarget)
    return bytes(int(token) for token in editor.target.prompts[-1] if token < START).decode()


def sources_of(editor: Editor, request: EditRequest) -> tuple[IntArray, tuple[Source, ...]]:
    _, prompt = editor._edit_prompt(request)
    return prompt.tokens, prompt.sources


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
        editor.edit(EditRequest("a\n", "Do it.", speculation=SpeculationConfig(enabled=False)), lambda: next(answers))
    assert isinstance(editor.target, LoggedTarget)
    assert not editor.target.open_keys
    assert len(editor.target.prompts) == 1


def test_closing_the_iterator_frees_the_row() -> None:
    editor = logged_editor(FILE + "```")
    rounds = editor.stream(EditRequest(FILE, "Do it."))
    next(rounds)
    assert isinstance(editor.target, LoggedTarget)
    assert editor.target.open_keys
    rounds.close()  # type: ignore[attr-defined]
    assert not editor.target.open_keys


def test_one_request_after_another_shares_nothing() -> None:
    editor = logged_editor("a = 2\n```")
    first = editor.edit(EditRequest("a = 1\n", "Do it."))
    again = editor.edit(EditRequest("a = 1\n", "Do it."))
    assert first.text == again.text
    assert first.metrics.num_rounds == again.metrics.num_rounds


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


def test_new_text_is_drafted_from_prediction_and_other_files() -> None:
    new = "def helper(value):\n    return sorted(value, key=len)\n"
    plain = edited("x = 1\n", new + "```").metrics
    for options in ({"prediction": new}, {"context": (ContextFile("b.py", new),)}):
        metrics = edited("x = 1\n", new + "```", **options).metrics
        assert metrics.num_rounds < plain.num_rounds / 2
        assert set(metrics.num_accepted_by_source) & {"prediction", "context"}


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


@pytest.mark.parametrize("instruction", [None, "", "  \n"])
def test_an_empty_instruction_is_refused(instruction: str | None) -> None:
    editor = logged_editor("x")
    for call in (editor.check, editor.edit):
        with pytest.raises(InvalidInput) as caught:
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
    assert isinstance(editor.target, LoggedTarget)
    assert editor.target.prompts[-1][0] == START


@pytest.mark.parametrize(
    "options", [{}, {"prompt": "a", "messages": ({"role": "user", "content": "a"},)}, {"prompt": ""}]
)
def test_plain_generation_needs_one_prompt(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        logged_editor("x").check(GenerateRequest(**options))


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
    with pytest.raises(TypeError, match="temprature"):
        lookahead_edit.edit(model, tokenizer, "a\n", "Do it.", temprature=1.0)


def test_the_models_context_limits_prompt_and_file(model: Any, tokenizer: Any) -> None:
    with pytest.raises(ContextLengthExceeded) as caught:
        lookahead_edit.edit(model, tokenizer, FILE * 4, "Do it.")
    assert caught.value.max_context_tokens == 2048


def test_a_request_can_be_cancelled_while_its_prompt_is_read(model: Any, tokenizer: Any) -> None:
    target = HfTarget(model, TargetConfig(prefill_chunk_tokens=16))
    calls = itertools.count()
    lengths: list[int] = []
    handle = model.register_forward_pre_hook(
        lambda module, arguments, keywords: lengths.append(keywords["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        with pytest.raises(RequestCancelled):
            Editor(target, HfTokenizer(tokenizer)).edit(EditRequest(FILE, "Do it."), lambda: next(calls) >= 3)
    finally:
        handle.remove()
    assert lengths == [16, 16, 16]
    assert not target._states
