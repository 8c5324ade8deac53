"""The matrix's results: never mixed, never lost, compared with each other, and shown as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import matrix
from benchmarks.matrix_choice import Choice
from benchmarks.matrix_compare import compare_results
from benchmarks.matrix_load import read_load
from benchmarks.matrix_store import IDENTITY, ResultsFile, ResultsMismatch, read_results
from benchmarks.matrix_tables import (
    COLUMNS,
    auto_line,
    cell_rows,
    equality_of,
    groups_of,
    heading,
    ideal_line,
    plot_speed_ups,
    speed_up,
)

HEADER = dict.fromkeys(IDENTITY, "x") | {"profile": "quick"}
SHOWN = HEADER | {"gpu": None, "weight_bytes": 1, "draft_weight_bytes": 0}


def row(method: str, seconds: float, repetition: int = 0, **changes: Any) -> dict[str, Any]:
    plain = {
        **{"workload": "code edits", "context": 512, "temperature": 0.0, "task": "a", "repetition": repetition},
        **{"method": method.split()[0], "draft_length": "auto", "label": method, "num_prompt_tokens": 9},
        **{"num_tokens": 10, "num_rounds": 5, "seconds": seconds, "first_token_seconds": 0.1, "verify_seconds": 0.1},
        **{"draft_seconds": None, "correction_seconds": None, "num_draft_tokens": 8, "num_accepted_tokens": 5},
        **{"target_flops": 1e9, "draft_flops": 0.0, "cache_bytes": 1, "index_bytes": 0, "is_equal": True},
        **{"prefill_seconds": 0.1, "weight_bytes": 5e6, "max_tokens": 64, "tokens_digest": "d"},
    }
    return plain | changes


def test_an_interrupted_file_goes_on_after_its_last_whole_turn(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    results = ResultsFile(path, HEADER)
    results.add_turn([row("plain", 2.0), row("edit auto", 1.0)])
    results.add_turn([row("plain", 2.0, 1), row("edit auto", 1.0, 1)])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])  # the disk was full, or the power failed
    results.close()

    again = ResultsFile(path, HEADER)
    assert again.done == {("code edits", 512, 0.0, "a", 0)}
    again.add_turn([row("plain", 3.0, 1), row("edit auto", 1.0, 1)])
    rows = read_results(path).rows
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


def test_two_runs_do_not_write_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first = ResultsFile(path, HEADER)
    with pytest.raises(ResultsMismatch, match="the only run that writes"):
        ResultsFile(path, HEADER)
    first.close()
    ResultsFile(path, HEADER)


@pytest.mark.parametrize("num_bytes", [0, 1, 9, 40])
def test_a_file_that_was_cut_off_in_its_first_line_is_begun_anew(num_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    ResultsFile(path, HEADER)
    whole = path.read_bytes()
    path.write_bytes(whole[:num_bytes])
    ResultsFile(path, HEADER)
    assert path.read_bytes() == whole


def test_results_of_one_profile_are_not_shown_as_those_of_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.jsonl"
    ResultsFile(path, SHOWN | {"profile": "canitedit"})
    for arguments in (["--tables"], ["--tables", "--profile", "lengths"], ["--compare", str(path), str(path)]):
        assert matrix.main([*arguments, "--output", str(path)]) == matrix.EXIT_FAILED
    assert matrix.main(["--tables", "--canitedit", str(path), "--output", str(path)]) == 0
    path.write_text('{"kind": "header"}\n', encoding="utf-8")
    assert matrix.main(["--tables", "--output", str(path)]) == matrix.EXIT_FAILED
    lines = [line for line in capsys.readouterr().err.splitlines() if line]
    assert len(lines) == 4
    assert all(line.startswith("error: ") for line in lines)


def test_another_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text('{"note": 1}\n', encoding="utf-8")
    with pytest.raises(ResultsMismatch, match="something else"):
        ResultsFile(path, HEADER)
    assert path.read_text(encoding="utf-8") == '{"note": 1}\n'


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


def test_what_a_draft_model_would_gain_that_is_always_right_follows_from_what_its_rounds_cost() -> None:
    plain = row("plain", 10.0, num_rounds=11, verify_seconds=10.0)  # a second a round
    drafting = row(
        "model 4", 9.0, draft_length=4, num_rounds=5, draft_seconds=2.5, verify_seconds=6.0
    )  # 0.5 and 1.5 s a round
    key = ("code edits", 512, 0.0)
    line = ideal_line(key, groups_of([plain, drafting, row("model auto", 9.0)])[key])
    assert line is not None
    assert line.endswith("times plain 2.5 with 4")
    assert ideal_line(key, groups_of([plain, row("model auto", 9.0)])[key]) is None


def test_tables_say_where_texts_differ_and_where_only_the_distribution_is_promised(tmp_path: Path) -> None:
    assert equality_of([row("edit auto", 1.0), row("edit auto", 1.0, is_equal=False)]) == "NO"
    assert equality_of([row("model 4", 1.0, is_equal=None)]) == "same distribution"
    rows = [row("plain", 2.0), row("edit auto", 1.0), row("edit 4", 1.5), row("edit 16", 1.2)]
    cells = cell_rows(groups_of(rows)["code edits", 512, 0.0])
    assert all(len(cell) == len(COLUMNS) for cell in cells)
    assert [cell[0] for cell in cells] == ["plain", "edit 4", "edit 16", "edit auto"]
    plot_speed_ups(rows, tmp_path / "matrix.png", title="t")
    assert (tmp_path / "matrix.png").read_bytes().startswith(b"\x89PNG")


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
    ResultsFile(path, SHOWN).add_turn([row("plain", 2.0), row("edit auto", 1.0, is_equal=False)])
    none = ["--server", str(tmp_path / "none.json")]
    assert matrix.main(["--tables", "--markdown", "--output", str(path), *none]) == matrix.EXIT_UNEQUAL
    printed = capsys.readouterr().out
    assert "python -m benchmarks.bench_server measures it" in printed
    assert "| edit auto | 2.00 |" in printed
    assert "auto never slower than plain by more than 3%: kept on code edits" in printed
    assert json.loads(printed.splitlines()[-1])["num_unequal"] == 1


def test_throughput_by_concurrency_is_joined_from_the_servers_bench(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, server = tmp_path / "results.jsonl", tmp_path / "server.json"
    ResultsFile(path, SHOWN).add_turn([row("plain", 2.0), row("edit auto", 1.0)])
    figures = {"requests_per_second": 0.1, "p50_seconds": 3.0, "p95_seconds": 4.0, "mean_queue_seconds": 0.5}
    rows = [
        {"mode": mode, "concurrency": clients, "tokens_per_second": speed, **figures}
        for mode, clients, speed in (("auto", 1, 80.0), ("off", 1, 10.0), ("off", 16, 30.0), ("auto", 16, 90.0))
    ]
    document = {"model": "x", "edits": ["a", "b"], "rows": rows, "environment": {"cpu": "other", "gpu": None}}
    server.write_text(json.dumps(document), encoding="utf-8")
    assert matrix.main(["--tables", "--markdown", "--output", str(path), "--server", str(server)]) == 0
    printed = capsys.readouterr().out
    assert "2 whole-file edits" in printed
    assert "measured with another cpu other" in printed
    assert [line.split("|")[1:5] for line in printed.splitlines() if line.startswith(("| 1 ", "| 16 "))] == [
        [" 1 ", " off ", " 10.0 ", " 1.00 "],
        [" 1 ", " auto ", " 80.0 ", " 8.00 "],
        [" 16 ", " off ", " 30.0 ", " 1.00 "],
        [" 16 ", " auto ", " 90.0 ", " 3.00 "],
    ]


def test_the_servers_stored_results_can_be_joined() -> None:
    assert read_load(matrix.RESULTS / "server.json") is not None


def test_a_heading_says_how_many_edits_were_tried() -> None:
    key = ("code edits", 512, 0.0)
    methods = groups_of([row("plain", 1.0)])[key]
    assert "1 prompt (2 of 5 tried were answered right), at most 64 tokens" in heading(
        key, methods, Choice(("a",), 5, 2)
    )


def test_a_choice_outlives_the_run_that_made_it(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    ResultsFile(path, HEADER).add_choice(("code edits", 512), Choice(("a", "b"), 5, 2))
    assert ResultsFile(path, HEADER).choices == {("code edits", 512): Choice(("a", "b"), 5, 2)}


def two_files(tmp_path: Path, second: list[dict[str, Any]], **header: Any) -> tuple[Path, Path]:
    paths = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    first = [row("plain", 10.0), row("edit auto", 5.0)]
    again = [row("plain", 10.4, 1), row("edit auto", 5.0, 1)]
    results = ResultsFile(paths[0], HEADER)
    results.add_turn(first)
    results.add_turn(again)
    others = ResultsFile(paths[1], HEADER | header)
    for number in range(0, len(second), 2):
        others.add_turn(second[number : number + 2])
    return paths


def test_a_second_run_with_the_same_counts_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = [row("plain", 12.0), row("edit auto", 5.9), row("plain", 12.0, 1), row("edit auto", 5.8, 1)]
    paths = two_files(tmp_path, second)
    assert matrix.main(["--compare", *map(str, paths)]) == 0
    printed = capsys.readouterr().out
    assert "4 runs in both, 0 in one only: the same tokens, rounds and acceptance" in printed
    assert "1 speed-ups: 1 within the spread" in printed
    assert json.loads(printed.splitlines()[-1])["num_apart"] == 0


def test_a_ratio_beyond_the_spread_is_named(tmp_path: Path) -> None:
    paths = two_files(tmp_path, [row("plain", 10.0), row("edit auto", 2.0)])
    compared = compare_results(read_results(paths[0]), read_results(paths[1]), paths)
    assert compared.is_same
    assert compared.num_missing == 2
    assert compared.apart == ["edit auto on code edits, 512 tokens, T = 0: 2.04 (2.00..2.08), then 5.00"]


@pytest.mark.parametrize("name", ["tokens_digest", "num_rounds", "num_draft_tokens", "num_accepted_tokens"])
def test_another_count_is_a_difference(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = two_files(tmp_path, [row("plain", 10.0), row("edit auto", 5.0, **{name: 4})])
    assert matrix.main(["--compare", *map(str, paths)]) == matrix.EXIT_UNEQUAL
    printed = capsys.readouterr().out
    assert "1 DIFFER" in printed
    assert f"edit auto on code edits, 512 tokens, T = 0, a, repetition 1: {name} " in printed


def test_files_of_other_models_or_commits_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = two_files(tmp_path, [row("plain", 10.0), row("edit auto", 5.0)], commit="y")
    assert matrix.main(["--compare", *map(str, paths)]) == matrix.EXIT_FAILED
    assert "error: expected files of the same commit, got 'x' and 'y' in" in capsys.readouterr().err


def test_files_without_a_run_in_common_do_not_agree(tmp_path: Path) -> None:
    paths = two_files(tmp_path, [])
    compared = compare_results(read_results(paths[0]), read_results(paths[1]), paths)
    assert not compared.is_same
    assert compared.lines()[0] == "no run in common"


def test_too_little_memory_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory: you tried")

    monkeypatch.setattr(matrix, "load_editor", refuse)
    assert matrix.main(["--output", str(tmp_path / "results.jsonl")]) == matrix.EXIT_FAILED
    assert capsys.readouterr().err.strip() == matrix.NO_MEMORY


def test_too_little_disk_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "MIN_FREE_BYTES", 2**60)
    assert matrix.main(["--output", str(tmp_path / "results.jsonl")]) == matrix.EXIT_FAILED
    assert capsys.readouterr().err.startswith("error: expected 64 MB of free disk")
    assert not (tmp_path / "results.jsonl").exists()
