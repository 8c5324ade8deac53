"""`lookahead-edit replay`: what it prints and writes, its exit status, and that a trace's text can do no harm."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from lookahead_edit import cli_plot
from lookahead_edit.cli_display import Display
from lookahead_edit.cli_traces import progress
from lookahead_edit.config import SpeculationConfig
from lookahead_edit.drafters import DRAFTERS
from lookahead_edit.replay_figures import DEFAULT_COSTS
from lookahead_edit.targets.tokenizer_loading import load_tokenizer
from lookahead_edit.traces import Trace, format_trace
from lookahead_edit.types import ModelUnavailable
from tests.replay_command import TRACES, Outcome, Run, replay_command, write_samples
from tests.tiny_tokenizers import byte_level_tokenizer

FIGURES = {
    "drafter",
    "cost",
    "traces",
    "output_tokens",
    "rounds",
    "drafted",
    "accepted",
    "tokens_per_round",
    "acceptance_rate",
    "modelled_speedup",
    "draft_us_per_round",
    "draft_us_p50",
    "draft_us_p95",
    "commit_us_per_round",
    "index_build_us_per_trace",
    "max_index_bytes",
    "drafted_by_source",
    "accepted_by_source",
    "rounds_without_draft",
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    return replay_command(monkeypatch, capsysbinary)


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    return write_samples(tmp_path)


# Figures.


def test_json_is_one_object_with_the_figures_of_each_drafter_and_cost(run: Run, traces: Path) -> None:
    outcome = run(traces, "--drafters", "none,suffix", "--cost", "0.002,0.05", "--json")
    assert (outcome.status, outcome.stderr) == (0, "")
    document = json.loads(outcome.stdout)
    assert {key: value for key, value in document.items() if key != "results"} == {
        "file": str(traces),
        "tokenizer": "default",
        "policy": SpeculationConfig.policy,
        "max_draft_tokens": SpeculationConfig().draft_limit,
        "bad_lines": 0,
    }
    results = document["results"]
    assert [(row["drafter"], row["cost"]) for row in results] == [
        ("none", 0.002),
        ("none", 0.05),
        ("suffix", 0.002),
        ("suffix", 0.05),
    ]
    assert all(set(row) == FIGURES for row in results)
    num_tokens = sum(len(trace.output.encode()) + 1 for trace in TRACES)
    assert [row["output_tokens"] for row in results] == [num_tokens] * 4
    assert results[0]["modelled_speedup"] == 1.0
    suffix = results[3]
    cost = suffix["rounds"] + 0.05 * (suffix["drafted"] + suffix["rounds"])
    assert suffix["modelled_speedup"] == pytest.approx(num_tokens * 1.05 / cost)
    assert suffix["accepted_by_source"]["file"] > 200


def test_the_table_has_a_row_a_drafter_and_a_column_a_cost(run: Run, traces: Path) -> None:
    outcome = run(traces, "--drafters", "none, ngram", "--policy", "match_length")
    assert "2 traces" in outcome.stdout
    assert all(f"c={cost:g}" in outcome.stdout for cost in DEFAULT_COSTS)
    rows = [line.split()[0] for line in outcome.stdout.splitlines() if line.startswith(" ")]
    assert rows[-2:] == ["none", "ngram"]
    assert "%" in outcome.stdout


def test_a_policy_that_knows_the_cost_has_a_row_for_each(
    run: Run, traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lookahead_edit.replay.COST_AWARE_POLICIES", frozenset({"fixed"}))
    arguments = ["--policy", "fixed", "--drafters", "ngram", "--cost", "0.01,0.05"]
    lines = run(traces, *arguments).stdout.splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["ngram", "ngram"]
    assert [line.split()[3] for line in lines[-2:]] == ["0.01", "0.05"]
    assert run(traces, *arguments, "--plot", traces.parent / "aware.svg").status == 0


def test_all_drafters_are_replayed_unless_some_are_named(run: Run, traces: Path) -> None:
    names = [row["drafter"] for row in json.loads(run(traces, "--json", "--cost", "0.01").stdout)["results"]]
    assert names == list(DRAFTERS)
    assert {"edit", "ngram", "none", "suffix"} <= set(names)


def test_standard_input_and_gzip_give_the_same(run: Run, traces: Path) -> None:
    def counted(outcome: Outcome) -> list[dict[str, Any]]:
        timed = {key for key in FIGURES if "_us_" in key}
        results = json.loads(outcome.stdout)["results"]
        return [{key: value for key, value in row.items() if key not in timed} for row in results]

    plain = counted(run(traces, "--json"))
    zipped = traces.parent / "traces.jsonl.gz"
    zipped.write_bytes(gzip.compress(traces.read_bytes()))
    assert counted(run(zipped, "--json")) == plain
    assert counted(run("-", "--json", stdin=traces.read_bytes())) == plain
    assert counted(run("-", "--json", stdin=zipped.read_bytes())) == plain


def test_the_limit_stops_reading(run: Run, traces: Path) -> None:
    traces.write_bytes(traces.read_bytes() + b"broken\n")
    outcome = run(traces, "--json", "--limit", "2", "--drafters", "none", "--cost", "0")
    assert (outcome.status, outcome.stderr) == (0, "")
    assert json.loads(outcome.stdout)["results"][0]["traces"] == 2


def test_a_limit_beyond_any_number_of_the_machine_is_none(run: Run, traces: Path) -> None:
    assert run(traces, "--limit", "9" * 30, "--drafters", "none", "--cost", "0").status == 0
    assert run(traces, "--limit", "9" * 30, "--explain", "#2", "--drafters", "none", "--cost", "0").status == 0


def test_where_there_is_no_terminal_a_line_now_and_then_says_how_far_it_is(
    traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = iter((0.0, 10.0, 40.0, 40.0, 50.0))
    with traces.open("rb") as file, progress(file, Display(), clock=lambda: next(seconds)) as advance:
        for number in range(3):
            list(islice(file, number))
            advance()
    assert re.fullmatch(r"replaying: 2 traces so far \(4\d% of the file\)\n", capsys.readouterr().err)


def test_the_most_that_is_drafted_is_kept(run: Run, traces: Path) -> None:
    def drafted(limit: str) -> int:
        arguments = ["--drafters", "suffix", "--policy", "fixed", "--cost", "0.01", "--max-draft-tokens", limit]
        (row,) = json.loads(run(traces, "--json", *arguments).stdout)["results"]
        return int(row["drafted"])

    assert drafted("0") == 0
    assert 0 < drafted("4") < drafted("400")


# Bad input.


def test_bad_lines_are_warnings_and_the_others_count(run: Run, traces: Path) -> None:
    good = traces.read_bytes()
    traces.write_bytes(b"broken\n" + good + b'{"id": 1}\n' * 30)
    outcome = run(traces, "--json", "--drafters", "none", "--cost", "0")
    document = json.loads(outcome.stdout)
    assert outcome.status == 0
    assert (document["bad_lines"], document["results"][0]["traces"]) == (31, 2)
    lines = outcome.stderr.splitlines()
    assert len(lines) == 21
    assert lines[0] == "warning: line 1: expected JSON, got an error at character 1 (Expecting value)"
    assert lines[1] == "warning: line 4: expected id to be a string, got a number"
    assert lines[-1] == "warning: 11 more bad lines"


@pytest.mark.parametrize("content", [b"", b"\n\n", b"broken\n", b"\x1f\x8bbroken"])
def test_nothing_that_can_be_read_is_an_error(run: Run, traces: Path, content: bytes) -> None:
    traces.write_bytes(content)
    outcome = run(traces)
    assert (outcome.status, outcome.stdout) == (2, "")
    last = outcome.stderr.splitlines()[-1]
    assert last == f"error: expected at least one trace in {traces}, got none"
    assert len(outcome.stderr.splitlines()) == (1 if not content.strip() else 2)


BAD_ARGUMENTS = {
    "no such file": (["none.jsonl"], "can't read none.jsonl: No such file"),
    "a directory": (["."], "expected a file, but . is a directory"),
    "a device": (["/dev/zero"], "is a device"),
    "no traces": ([], "TRACES"),
    "an unknown drafter": (["FILE", "--drafters", "suffix,magic"], "expected drafter to be one of"),
    "no drafter": (["FILE", "--drafters", ""], "expected drafter to be one of"),
    "an unknown policy": (["FILE", "--policy", "hope"], "expected policy to be one of"),
    "a cost that is no number": (["FILE", "--cost", "0.1,cheap"], "got 'cheap'"),
    "a negative cost": (["FILE", "--cost", "-0.1"], "got '-0.1'"),
    "an infinite cost": (["FILE", "--cost", "inf"], "got 'inf'"),
    "a cost that is not a number": (["FILE", "--cost", "nan"], "got 'nan'"),
    "no cost": (["FILE", "--cost", ""], "got ''"),
    "a limit of none": (["FILE", "--limit", "0"], "--limit"),
    "too long drafts": (["FILE", "--max-draft-tokens", "5000"], "between 0 and 4096"),
    "a tokenizer without a name": (["FILE", "--tokenizer", "no good name"], "no such tokenizer"),
    "a directory without a tokenizer": (["FILE", "--tokenizer", "."], "the directory has no tokenizer.json"),
    "a tokenizer of no name": (["FILE", "--tokenizer", ""], "expected tokenizer to say something, got an empty one"),
    "a name of two lines": (["no\nfile"], "can't read no\\nfile: No such file"),
    "no name": ([""], "can't read '': No such file"),
    "a NUL in the name": (["no\0file"], "can't read no\\x00file: not a file name"),
    "a broken tokenizer": (["FILE", "--tokenizer", "FILE"], "no usable tokenizer"),
    "a tokenizer that isn't here": (["FILE", "--tokenizer", "none/such-model"], "'none/such-model' not found"),
    "rows of another kind": (["FILE", "--per-trace", "rows.txt"], "expected --per-trace to end in .jsonl or .csv"),
    "rows nowhere": (["FILE", "--per-trace", "none/rows.csv"], "there is no directory none"),
    "rows over the traces": (["FILE", "--per-trace", "FILE"], "another file than the traces"),
    "a plot of another kind": (["FILE", "--plot", "plot.bmp"], "expected --plot to end in .png or .svg or .pdf"),
    "a page without an explanation": (["FILE", "--html", "page.html"], "expected --explain together with --html"),
}


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_bad_arguments_are_one_line(run: Run, traces: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    arguments, message = BAD_ARGUMENTS[name]
    monkeypatch.chdir(traces.parent)
    before = traces.read_bytes()
    assert message in run(*(str(traces) if argument == "FILE" else argument for argument in arguments)).error
    assert traces.read_bytes() == before
    assert os.listdir(traces.parent) == ["traces.jsonl"]


def test_a_plot_without_matplotlib_names_the_extra(run: Run, traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_plot, "find_spec", lambda name: None)
    assert 'pip install "lookahead-edit[plot]"' in run(traces, "--plot", traces.parent / "plot.png").error


# What is written.


def test_rows_for_each_trace(run: Run, traces: Path) -> None:
    arguments = ["--drafters", "none,suffix", "--cost", "0.01,0.05", "--per-trace"]
    whole = json.loads(run(traces, "--json", *arguments, traces.parent / "rows.jsonl").stdout)["results"]
    rows = [json.loads(line) for line in (traces.parent / "rows.jsonl").read_text().splitlines()]
    assert all(set(row) == FIGURES - {"traces"} | {"line", "id"} for row in rows)
    assert [(row["line"], row["id"]) for row in rows[::4]] == [(1, "first"), (2, "<b>second</b>")]
    for number, total in enumerate(whole):
        assert sum(row["drafted"] for row in rows[number::4]) == total["drafted"]
        assert sum(row["rounds"] for row in rows[number::4]) == total["rounds"]
    run(traces, *arguments, traces.parent / "rows.csv")
    with (traces.parent / "rows.csv").open(newline="") as file:
        cells = list(csv.DictReader(file))
    assert len(cells) == 8
    assert [row["rounds"] for row in cells] == [str(row["rounds"]) for row in rows]
    assert cells[0]["acceptance_rate"] == ""


@pytest.mark.parametrize(("name", "magic"), [("plot.png", b"\x89PNG"), ("plot.svg", b"<?xml"), ("plot.PDF", b"%PDF")])
def test_a_plot_is_drawn(run: Run, traces: Path, name: str, magic: bytes) -> None:
    outcome = run(traces, "--plot", traces.parent / name, "--cost", "0,0.01")
    assert (outcome.status, outcome.stderr) == (0, "")
    assert (traces.parent / name).read_bytes().startswith(magic)


def test_matplotlib_is_imported_only_to_draw() -> None:
    code = "import sys, lookahead_edit.cli; sys.exit(bool({'matplotlib', 'numba', 'torch'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, capture_output=True)


# Tokenizers, interruption.


def test_a_tokenizer_is_loaded_from_a_file_or_a_directory(run: Run, traces: Path, tmp_path: Path) -> None:
    tokenizer = byte_level_tokenizer()
    tokenizer.save_pretrained(tmp_path / "whole")
    (tmp_path / "alone.json").write_text((tmp_path / "whole" / "tokenizer.json").read_text("utf-8"), "utf-8")
    for name in ("whole", "alone.json"):
        outcome = run(traces, "--tokenizer", tmp_path / name, "--json", "--drafters", "none", "--cost", "0")
        expected = sum(len(tokenizer(trace.output)["input_ids"]) + 1 for trace in TRACES)
        assert json.loads(outcome.stdout)["results"][0]["output_tokens"] == expected
        assert load_tokenizer(str(tmp_path / name)).eos_token_ids == {tokenizer.eos_token_id}


def test_a_hub_id_without_a_network_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lookahead_edit.targets.tokenizer_loading.hub_problem", lambda name: "the hub is far away")
    with pytest.raises(ModelUnavailable, match=r"tokenizer 'none/such' not found: .*the hub is far away"):
        load_tokenizer("none/such")


ENDLESS = """
import sys, time
from lookahead_edit import cli, cli_replay
from lookahead_edit.tokenizer import ByteTokenizer

class Slow(ByteTokenizer):
    def encode(self, text, *, parse_special=True):
        print("running", flush=True)
        time.sleep(0.1)
        return super().encode(text, parse_special=parse_special)

cli_replay.open_tokenizer = lambda *_: Slow()
cli.main(sys.argv[1:])
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
def test_interrupting_exits_with_130(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_bytes(format_trace(Trace("a", "x", "y")) * 1000)
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS, "replay", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"running\n"
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert errors.decode() == "interrupted\n"
