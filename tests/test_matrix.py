"""The matrix's methods and what is run of them: every method writes plain's text, and nothing is measured twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import make_tiny_model

from benchmarks import matrix_choice
from benchmarks.forwards import ForwardLog
from benchmarks.matrix_choice import Choice, choose_right, chosen_tasks, writes_answer
from benchmarks.matrix_costs import weight_bytes
from benchmarks.matrix_methods import (
    Bench,
    Method,
    draft_tokens_of,
    early_exit_layers,
    run_method,
    supports_early_exit,
)
from benchmarks.matrix_plan import EVERY_METHOD, PROFILES, Group, Profile
from benchmarks.matrix_run import first_difference, run_profile
from benchmarks.matrix_store import IDENTITY, ResultsFile, read_results
from benchmarks.matrix_workloads import CODE_EDITS, WORKLOADS, Item, MatrixTask, make_tasks, read_items
from lookahead_edit.config import EditConfig, SamplingConfig
from lookahead_edit.cost import CostCurve
from lookahead_edit.targets.draft_model import model_drafter_factory
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.tokenizer import ByteTokenizer

HEADER = dict.fromkeys(IDENTITY, "x")
NUM_TOKENS = 12


@pytest.fixture
def bench(tiny_model: Any) -> Bench:
    """A tiny model whose draft model is another tiny one, of the same vocabulary."""
    model, draft = tiny_model("llama"), tiny_model("qwen2")
    drafters = model_drafter_factory(draft, model)
    return Bench(model, ByteTokenizer(), HfTarget(model), NUM_TOKENS, draft, drafters, can_exit_early=True)


@pytest.fixture
def task(random_prompt: Any) -> MatrixTask:
    return MatrixTask("random", np.concatenate([random_prompt, random_prompt]), ())


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("method", sorted({each for each in EVERY_METHOD if each.length in ("auto", 2, 16)}, key=str))
def test_every_method_writes_the_text_of_plain_decoding(method: Method, bench: Bench, task: MatrixTask) -> None:
    _, plain = run_method(bench, Method("plain"), task, SamplingConfig())
    run, tokens = run_method(bench, method, task, SamplingConfig())
    assert tokens == plain
    assert run.num_tokens == NUM_TOKENS
    assert 0 < run.num_rounds <= NUM_TOKENS
    drafts_with_a_model = method.name in ("model", "assisted", "early_exit")
    assert (run.draft_flops > 0.0) == drafts_with_a_model or method.name == "combined"
    assert 0 <= run.num_accepted_tokens <= run.num_draft_tokens
    assert 0.0 < run.prefill_seconds <= run.first_token_seconds <= run.seconds
    assert run.weight_bytes == weight_bytes(bench.model) + method.needs_draft_model * weight_bytes(bench.draft_model)


@pytest.mark.parametrize("method", [Method("ngram", 4), Method("suffix", 2), Method("model", 3)])
def test_passes_tell_of_drafts_what_the_engine_counts(method: Method, bench: Bench, task: MatrixTask) -> None:
    """Of transformers' methods nothing else is known."""
    with ForwardLog(bench.model) as log:
        run, tokens = run_method(bench, method, task, SamplingConfig())
    passes = log.forwards[:-1]  # the last one only sees how much the cache holds of a token
    told = draft_tokens_of(passes, len(task.prompt), len(tokens))
    assert told == (run.num_draft_tokens, run.num_accepted_tokens)
    assert told[0] > 0


def test_an_assistant_drafts_as_if_it_had_never_been_asked_before(bench: Bench, task: MatrixTask) -> None:
    before = bench.draft_model.generation_config.to_dict()
    runs = [run_method(bench, Method("assisted"), task, SamplingConfig())[0] for _ in range(3)]
    assert len({(run.num_rounds, run.num_draft_tokens, run.num_accepted_tokens) for run in runs}) == 1
    assert bench.draft_model.generation_config.to_dict() == before


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_an_early_exit_drafts_so_many_tokens_with_a_part_of_the_layers(bench: Bench, task: MatrixTask) -> None:
    short, _ = run_method(bench, Method("early_exit", 2), task, SamplingConfig())
    long, _ = run_method(bench, Method("early_exit", 8), task, SamplingConfig())
    assert short.num_draft_tokens / short.num_rounds <= 2 < long.num_draft_tokens / long.num_rounds
    assert short.draft_seconds is not None
    assert 0.0 < short.draft_seconds < short.seconds
    assert bench.model.config.num_hidden_layers == 3
    plain, _ = run_method(bench, Method("plain"), task, SamplingConfig())
    assert plain.cache_bytes < short.cache_bytes < 2 * plain.cache_bytes


def test_only_a_model_that_can_be_left_early_is_left_early(tiny_model: Any) -> None:
    assert supports_early_exit(tiny_model("llama"))
    assert early_exit_layers(tiny_model("llama")) == 1
    # It runs all its layers, whatever its configuration says later on.
    model = tiny_model("gpt2")
    assert not supports_early_exit(model)
    assert not replace(Bench(model, ByteTokenizer(), HfTarget(model), 4)).can_run(Method("early_exit", 2))


def test_auto_goes_by_the_curve_that_it_is_given(bench: Bench, task: MatrixTask) -> None:
    dear = replace(bench, cost_curve=CostCurve(widths=(1, 2), costs=((1.0, 50.0),)))
    assert run_method(dear, Method("edit"), task, SamplingConfig())[0].num_draft_tokens == 0


def test_methods_that_keep_the_seed_write_one_sampled_text(bench: Bench, task: MatrixTask) -> None:
    sampling = SamplingConfig(temperature=0.7, seed=3)
    kept = (Method("none"), Method("ngram", 4), Method("suffix"), Method("edit", 8))
    assert all(method.keeps_seed for method in kept)
    assert len({tuple(run_method(bench, method, task, sampling)[1]) for method in kept}) == 1
    assert not Method("model", 4).keeps_seed


def test_operations_of_plain_decoding_are_those_of_the_formula(bench: Bench, task: MatrixTask) -> None:
    run, _ = run_method(bench, Method("plain"), task, SamplingConfig())
    num_weights = sum(parameter.numel() for parameter in bench.model.parameters())
    num_weights -= bench.model.get_input_embeddings().weight.numel()
    num_prompt_tokens = len(task.prompt)
    expected = sum(
        2 * num_weights + 4 * 3 * 32 * (num_prompt_tokens + number) for number in range(1, NUM_TOKENS)
    )  # 3 layers, 4 heads of 8; the first token comes with the prompt
    assert run.target_flops == pytest.approx(expected)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_workload_has_prompts_of_the_wanted_length(workload: str) -> None:
    tokenizer = ByteTokenizer()
    items = read_items(workload)
    assert len(items) >= 6
    for made in make_tasks(items, tokenizer, 9000, 3):
        assert 0.95 * 9000 <= len(made.prompt) <= 1.25 * 9000
        for source in made.sources:
            assert source.prompt_start is not None
            end = source.prompt_start + len(source.tokens)
            assert np.array_equal(made.prompt[source.prompt_start : end], source.tokens)
    assert len({made.name for made in make_tasks(items, tokenizer, 512, 3)}) == 3


def test_prose_and_code_edits_share_no_item() -> None:
    assert not {item.id for item in read_items("code edits")} & {item.id for item in read_items("prose edits")}


def test_a_run_measures_what_is_missing_and_nothing_twice(
    bench: Bench, task: MatrixTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.matrix_run.make_tasks", lambda *arguments: [task])
    methods = (Method("plain"), Method("none"), Method("edit"))
    group = Group("open chat", 512, 0.0, methods, num_tasks=1, max_tokens=NUM_TOKENS)
    profile = Profile("tiny", (group,), num_repeats=2)
    path = tmp_path / "results.jsonl"
    run_profile(bench, profile, ResultsFile(path, HEADER))
    first = path.read_bytes()
    run_profile(bench, profile, ResultsFile(path, HEADER))
    assert path.read_bytes() == first
    rows = read_results(path).rows
    assert len(rows) == 6
    assert all(each["is_equal"] for each in rows)
    assert len({each["tokens_digest"] for each in rows}) == 1


def test_edits_are_those_that_the_model_gets_right(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    items = [Item(f"edit {number}", (), "", f"file {number // 3}", "x" * 10) for number in range(12)]
    right = {"edit 1", "edit 6", "edit 10"}
    monkeypatch.setattr(matrix_choice, "make_task", lambda item, *rest: MatrixTask(item.id, np.arange(3), ()))
    monkeypatch.setattr(matrix_choice, "writes_answer", lambda bench, item, task: item.id in right)
    choice, tasks = choose_right(bench, items, 512, 2)
    # One of each file, then a second one of each: 0, 3, 6, 9, 1.
    assert choice == Choice(("edit 6", "edit 1"), 5, 2)
    assert [task.name for task in tasks] == list(choice.names)
    assert [task.name for task in chosen_tasks(bench, items, 512, choice)] == list(choice.names)


def test_without_enough_right_answers_wrong_ones_are_taken(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    items = [Item(f"edit {number}", (), "", str(number), "x") for number in range(100)]
    monkeypatch.setattr(matrix_choice, "make_task", lambda item, *rest: MatrixTask(item.id, np.arange(3), ()))
    monkeypatch.setattr(matrix_choice, "writes_answer", lambda bench, item, task: item.id == "edit 9")
    choice, _ = choose_right(bench, items, 512, 2)
    assert choice == Choice(("edit 9", "edit 0"), 16, 1)


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("x = 2\n```<|im_end|>", True),
        ("x = 2\n```\n<|im_end|>", True),
        ("x = 2\n```", False),
        ("x = 3\n```<|im_end|>", False),
    ],
)
def test_right_is_the_whole_answer_ended_by_the_model(
    text: str, is_right: bool, bench: Bench, task: MatrixTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = bench.tokenizer.encode(text).tolist()
    monkeypatch.setattr(matrix_choice, "run_method", lambda *arguments: (None, tokens))
    assert writes_answer(bench, Item("edit", (), "", None, "x = 2\n```"), task) is is_right


def test_the_items_of_edits_have_one_right_answer() -> None:
    items = {item.id: item for item in read_items(CODE_EDITS)}
    item = items["words-rename-function"]
    assert item.answer is not None
    assert item.answer.endswith("\n```")
    assert "def load_words(path):" in item.answer
    assert item.source is not None
    assert item.source in item.messages[-1]["content"]
    assert item.prefill == "```python\n"


def test_edits_are_asked_for_as_the_models_own_editor_does() -> None:
    items = {item.id: item for item in read_items(CODE_EDITS, EditConfig(file_first=True))}
    assert items["words-rename-function"].messages[-1]["content"].endswith("to load_words.")


def test_a_run_that_goes_on_takes_the_edits_that_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_tiny_model("llama")
    model.resize_token_embeddings(260)
    bench = Bench(model, ByteTokenizer(), HfTarget(model), 0)
    group = Group(CODE_EDITS, 512, 0.0, (Method("none"), Method("edit")), num_tasks=1, max_tokens=4)
    path = tmp_path / "results.jsonl"
    told: list[str] = []
    run_profile(bench, Profile("tiny", (group,), num_repeats=1), ResultsFile(path, HEADER), told.append)
    assert "which does the model get right?" in "\n".join(told)
    choice = read_results(path).choices[CODE_EDITS, 512]
    assert (len(choice.names), choice.num_tried, choice.num_right) == (1, 8, 0)
    told.clear()
    run_profile(bench, Profile("tiny", (group,), num_repeats=2), ResultsFile(path, HEADER), told.append)
    assert "right?" not in "\n".join(told)
    assert {row["task"] for row in read_results(path).rows} == set(choice.names)


def test_the_profiles_have_what_they_promise() -> None:
    full = PROFILES["full"].groups
    assert len(full) == 5 * 3 * 2
    assert {Method("model", length) for length in range(2, 9)} <= set(full[0].methods)
    assert {
        Method(name, length) for name in ("ngram", "suffix", "edit", "combined") for length in (1, 64, "auto")
    } <= set(full[0].methods)
    assert {group.workload for group in PROFILES["quick"].groups} == set(WORKLOADS)
    assert {method.name for method in full[0].methods} >= {"assisted", "early_exit", "prompt_lookup", "none"}
    at_once = PROFILES["quick"].groups[0]
    lengths = {method.length for method in at_once.methods if method.name == "edit"}
    assert (at_once.max_tokens, lengths) == (256, {64, "auto"})
    of_lengths = PROFILES["lengths"].groups[0].methods
    assert [method.length for method in of_lengths if method.name == "model"] == list(range(2, 9))


def test_the_first_difference_is_where_a_text_leaves_the_other() -> None:
    assert first_difference([1, 2], [1, 2]) is None
    assert first_difference([1, 3, 4], [1, 2, 4]) == 1
    assert first_difference([1], [1, 2]) == 1


def test_a_method_without_its_draft_model_is_left_out(bench: Bench) -> None:
    without = Bench(bench.model, bench.tokenizer, bench.target, NUM_TOKENS)
    assert [without.can_run(Method(name)) for name in ("plain", "assisted", "model", "combined", "edit")] == [
        *(True, False, False, False),
        True,
    ]
