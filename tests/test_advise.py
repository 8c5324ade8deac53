"""Advice from traces, and the command: which drafter, what gain, where not; bad input as with replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replay_command import FILE, command, write_samples

from lookahead_edit import cli_advise
from lookahead_edit.advise import Adviser
from lookahead_edit.cost import CostCurve
from lookahead_edit.replay_tokens import TokenTrace, tokenize_trace
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.traces import Trace
from lookahead_edit.types import InvalidInput

CURVE = CostCurve.linear(0.01)


def copying() -> TokenTrace:
    """An edit that changes one number."""
    return tokenize_trace(Trace("edit", f"Edit.\n{FILE}", FILE.replace("35", "36"), FILE), ByteTokenizer())


def new_text(num_tokens: int = 200) -> TokenTrace:
    """An output of which nothing stands anywhere."""
    tokens = np.arange(1000, 1000 + num_tokens, dtype=np.int32)
    return TokenTrace("new", np.arange(50, dtype=np.int32), tokens, (), 9)


def advice_for(*traces: TokenTrace, curve: CostCurve = CURVE, **options: Any) -> Any:
    adviser = Adviser(curve, tokenizer=ByteTokenizer(), **options)
    for trace in traces:
        adviser.add(trace)
    return adviser.advice()


def test_copied_traffic_gets_a_drafter_and_its_gain_by_batch_size() -> None:
    advice = advice_for(copying())
    assert advice.drafter == "edit"
    gains = [worth.speed_up for worth in advice.by_batch_size]
    assert gains[0] > 3.0
    assert gains == sorted(gains, reverse=True)
    assert advice.by_batch_size[0].verified_tokens_per_token >= 1.0


def test_new_text_is_advised_against() -> None:
    advice = advice_for(new_text())
    assert advice.drafter is None
    assert advice.max_batch_size is None


def test_a_target_on_which_tokens_cost_passes_is_advised_against() -> None:
    assert advice_for(copying(), curve=CostCurve(widths=(1, 2), costs=((1.0, 2.0),))).drafter is None


def test_outputs_are_told_apart_by_length() -> None:
    advice = advice_for(copying(), new_text(20), new_text(200))
    assert [each.num_traces for each in advice.by_output_length] == [1, 0, 2, 0]
    short, none, _, _ = (each.speed_up for each in advice.by_output_length)
    assert none is None
    assert short is not None
    assert short < 1.02


def test_the_same_traces_give_the_same_advice() -> None:
    assert advice_for(copying(), new_text()) == advice_for(copying(), new_text())


def test_what_a_trace_is_worth_does_not_depend_on_those_before_it() -> None:
    def verified(*traces: TokenTrace) -> dict[Any, float]:
        worths = advice_for(*traces).worths
        return {
            each.choice: each.verified_tokens_per_token * sum(len(trace.output) + 1 for trace in traces)
            for each in worths
        }

    hostile, copied = verified(new_text(400)), verified(copying())
    both = verified(new_text(400), copying())
    assert both == pytest.approx({choice: hostile[choice] + copied[choice] for choice in both})


def test_no_traces_no_advice() -> None:
    with pytest.raises(InvalidInput, match="at least one trace"):
        advice_for()


@pytest.mark.parametrize("options", [{"drafters": ()}, {"lengths": (0,)}, {"batch_sizes": (0,)}])
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="expected"):
        Adviser(CURVE, **options)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Any:
    """The command with a token for each byte."""
    monkeypatch.setattr(cli_advise, "open_tokenizer", lambda name, display: ByteTokenizer())

    return command("advise", monkeypatch, capsysbinary)


def test_the_command_says_what_to_use_where_not_and_what_it_costs(run: Any, tmp_path: Path) -> None:
    outcome = run(write_samples(tmp_path), "--cost", "0.01")
    assert outcome.status == 0
    assert "Use the drafter edit" in outcome.stdout
    assert "latency with compute" in outcome.stdout
    assert "key-value cache is full" in outcome.stdout
    assert max(map(len, outcome.stdout.splitlines())) <= 150


def test_the_document_has_all_figures(run: Any, tmp_path: Path) -> None:
    document = json.loads(run(write_samples(tmp_path), "--cost", "0.01", "--batch", "1,8", "--json").stdout)
    assert [each["choice"]["batch_size"] for each in document["by_batch_size"]] == [1, 8]
    assert [each["batch_size"] for each in document["crossover"]] == [1, 8]
    assert document["drafter"] == "edit"
    assert document["bad_lines"] == 0


def test_the_plot_is_written(run: Any, tmp_path: Path) -> None:
    plot = tmp_path / "advice.png"
    assert run(write_samples(tmp_path), "--cost", "0.01", "--batch", "1,4", "--plot", plot).status == 0
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--cost", "0.01", "--model", "x"), "expected --model or --cost, got both"),
        (("--tokenizer", "x"), "expected --tokenizer together with --cost"),
        (("--cost", "nan"), "expected --cost"),
        (("--cost", "0.01", "--drafters", "best"), "expected drafter to be one of"),
        (("--cost", "0.01", "--batch", "0"), "expected --batch"),
        (("--cost", "0.01", "--batch", "1,99999999999"), "expected --batch"),
        (("--cost", "0.01", "--plot", "a.gif"), "expected --plot to end in"),
    ],
)
def test_bad_options_are_one_line(run: Any, tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    assert said in run(write_samples(tmp_path), *options).error


def test_bad_traces_are_one_line(run: Any, tmp_path: Path) -> None:
    assert "can't read" in run(tmp_path / "none.jsonl", "--cost", "0.01").error
    outcome = run("-", "--cost", "0.01", stdin=b"no json\n")
    assert outcome.status == 2
    assert "at least one trace" in outcome.stderr.splitlines()[-1]
