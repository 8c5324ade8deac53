"""The benchmark matrix: every method writes plain's text, results are never mixed, ratios stay within repetitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import matrix, matrix_methods
from benchmarks.matrix_methods import Bench, Method, run_method
from benchmarks.matrix_plan import EVERY_METHOD, PROFILES, Group, Profile
from benchmarks.matrix_run import first_difference, run_profile
from benchmarks.matrix_store import IDENTITY, ResultsFile, ResultsMismatch, read_results
from benchmarks.matrix_tables import auto_line, cell_rows, equality_of, groups_of, plot_speed_ups, speed_up
from benchmarks.matrix_workloads import WORKLOADS, MatrixTask, make_tasks, read_items
from lookahead_edit.config import SamplingConfig
from lookahead_edit.targets.draft_model import model_drafter_factory
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.tokenizer import ByteTokenizer

HEADER = dict.fromkeys(IDENTITY, "x")
NUM_TOKENS = 12


@pytest.fixture
def bench(tiny_model: Any) -> Bench:
    """A tiny model whose draft model is another tiny one, of the same vocabulary."""
    model, draft = tiny_model("llama"), tiny_model("qwen2")
    return Bench(model, ByteTokenizer(), HfTarget(model), NUM_TOKENS, draft, model_drafter_factory(draft, model))


@pytest.fixture
def task(random_prompt: Any) -> MatrixTask:
    return MatrixTask("random", np.concatenate([random_prompt, random_prompt]), ())


@pytest.mark.parametrize("method", sorted({each for each in EVERY_METHOD if each.length in ("auto", 2, 16)}, key=str))
def test_every_method_writes_the_text_of_plain_decoding(method: Method, bench: Bench, task: MatrixTask) -> None:
    _, plain = run_method(bench, Method("plain"), task, SamplingConfig())
    run, tokens = run_method(bench, method, task, SamplingConfig())
    assert tokens == plain
    assert run.num_tokens == NUM_TOKENS
    assert 0 < run.num_rounds <= NUM_TOKENS
    assert (run.draft_flops > 0.0) == (method.name in ("model", "assisted")) or method.name == "combined"


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


def row(method: str, seconds: float, repetition: int = 0, **changes: Any) -> dict[str, Any]:
    plain = {
        **{"workload": "code edits", "context": 512, "temperature": 0.0, "task": "a", "repetition": repetition},
        **{"method": method.split()[0], "draft_length": "auto", "label": method, "num_prompt_tokens": 9},
        **{"num_tokens": 10, "num_rounds": 5, "seconds": seconds, "first_token_seconds": 0.1, "verify_seconds": 0.1},
        **{"draft_seconds": None, "correction_seconds": None, "num_draft_tokens": None, "num_accepted_tokens": None},
        **{"target_flops": 1e9, "draft_flops": 0.0, "cache_bytes": 1, "index_bytes": 0, "is_equal": True},
    }
    return plain | changes


def test_an_interrupted_file_goes_on_after_its_last_whole_turn(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    results = ResultsFile(path, HEADER)
    results.add_turn([row("plain", 2.0), row("edit auto", 1.0)])
    results.add_turn([row("plain", 2.0, 1), row("edit auto", 1.0, 1)])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])  # the disk was full, or the power failed

    again = ResultsFile(path, HEADER)
    assert again.done == {("code edits", 512, 0.0, "a", 0)}
    again.add_turn([row("plain", 3.0, 1), row("edit auto", 1.0, 1)])
    _, rows = read_results(path)
    assert [(each["label"], each["seconds"], each["repetition"]) for each in rows] == [
        ("plain", 2.0, 0),
        ("edit auto", 1.0, 0),
        ("plain", 3.0, 1),
        ("edit auto", 1.0, 1),
    ]


@pytest.mark.parametrize("name", IDENTITY)
def test_results_of_another_commit_model_or_machine_are_not_mixed_in(name: str, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    ResultsFile(path, HEADER)
    before = path.read_bytes()
    with pytest.raises(ResultsMismatch, match=f"the same {name} in .*--output"):
        ResultsFile(path, HEADER | {name: "y"})
    assert path.read_bytes() == before


def test_another_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text('{"note": 1}\n', encoding="utf-8")
    with pytest.raises(ResultsMismatch, match="something else"):
        ResultsFile(path, HEADER)
    assert path.read_text(encoding="utf-8") == '{"note": 1}\n'


def test_a_run_measures_what_is_missing_and_nothing_twice(
    bench: Bench, task: MatrixTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.matrix_run.make_tasks", lambda *arguments: [task])
    group = Group("code edits", 512, 0.0, (Method("plain"), Method("none"), Method("edit")), num_tasks=1)
    profile = Profile("tiny", (group,), num_repeats=2, max_tokens=NUM_TOKENS)
    path = tmp_path / "results.jsonl"
    run_profile(bench, profile, ResultsFile(path, HEADER))
    first = path.read_bytes()
    run_profile(bench, profile, ResultsFile(path, HEADER))
    assert path.read_bytes() == first
    _, rows = read_results(path)
    assert len(rows) == 6
    assert all(each["is_equal"] for each in rows)
    assert len({each["tokens_digest"] for each in rows}) == 1


def test_speed_ups_are_ratios_within_a_repetition() -> None:
    methods = groups_of([row("plain", 10.0), row("edit auto", 5.0), row("plain", 40.0, 1), row("edit auto", 10.0, 1)])
    spread = speed_up(methods["code edits", 512, 0.0], "edit auto")
    assert (spread.least, spread.greatest) == (2.0, 4.0)


@pytest.mark.parametrize(("seconds", "verdict"), [(10.2, "kept"), (10.4, "BROKEN")])
def test_auto_is_compared_with_the_faster_way_without_drafts(seconds: float, verdict: str) -> None:
    key = ("code edits", 512, 0.0)
    methods = groups_of([row("plain", 12.0), row("none", 10.0), row("edit auto", seconds)])[key]
    line = auto_line(key, methods)
    assert line is not None
    assert verdict in line
    assert line.endswith("as fast as none")


def test_tables_say_where_texts_differ_and_where_only_the_distribution_is_promised(tmp_path: Path) -> None:
    assert equality_of([row("edit auto", 1.0), row("edit auto", 1.0, is_equal=False)]) == "NO"
    assert equality_of([row("model 4", 1.0, is_equal=None)]) == "same distribution"
    rows = [row("plain", 2.0), row("edit auto", 1.0), row("edit 4", 1.5), row("edit 16", 1.2)]
    cells = cell_rows(groups_of(rows)["code edits", 512, 0.0])
    assert [cell[0] for cell in cells] == ["plain", "edit 4", "edit 16", "edit auto"]
    plot_speed_ups(rows, tmp_path / "matrix.png", title="t")
    assert (tmp_path / "matrix.png").read_bytes().startswith(b"\x89PNG")


def test_the_profiles_have_what_they_promise() -> None:
    full = PROFILES["full"].groups
    assert len(full) == 5 * 3 * 2
    assert {Method("model", length) for length in range(2, 9)} <= set(full[0].methods)
    assert {
        Method(name, length) for name in ("ngram", "suffix", "edit", "combined") for length in (1, 64, "auto")
    } <= set(full[0].methods)
    assert {group.workload for group in PROFILES["quick"].groups} == set(WORKLOADS)


def test_bad_input_is_one_line_and_leaves_results_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results.jsonl"
    assert matrix.main(["--output", str(path), "--model", str(tmp_path / "none")]) == matrix.EXIT_FAILED
    assert matrix.main(["--tables", "--output", str(path)]) == matrix.EXIT_FAILED
    path.write_text("{}\n", encoding="utf-8")
    assert matrix.main(["--tables", "--output", str(path)]) == matrix.EXIT_FAILED
    lines = [line for line in capsys.readouterr().err.splitlines() if line]
    assert len(lines) == 3
    assert all(line.startswith("error: ") for line in lines)
    assert path.read_text(encoding="utf-8") == "{}\n"


def test_tables_are_made_of_the_file_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results.jsonl"
    header = HEADER | {"weight_bytes": 1, "draft_weight_bytes": 0}
    ResultsFile(path, header).add_turn([row("plain", 2.0), row("edit auto", 1.0, is_equal=False)])
    assert matrix.main(["--tables", "--markdown", "--output", str(path)]) == matrix.EXIT_UNEQUAL
    printed = capsys.readouterr().out
    assert "| edit auto | 2.00 |" in printed
    assert "auto never slower than plain by more than 3%: kept on code edits" in printed
    assert json.loads(printed.splitlines()[-1])["num_unequal"] == 1


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
    assert matrix_methods.weight_bytes(bench.model) > 0
