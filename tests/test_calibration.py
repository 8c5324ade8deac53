"""What a pass costs is measured in bounded time, stored, found again, and never trusted blindly. No real clock."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import pytest

from lookahead_edit import cli, cli_serve
from lookahead_edit.cli_calibrate import TOO_SLOW, replay_cost
from lookahead_edit.config import SpeculationConfig
from lookahead_edit.cost import CPU_CURVE, CostCurve
from lookahead_edit.editor import Editor
from lookahead_edit.speculation import cost_curve_of, make_policy
from lookahead_edit.targets import calibration as calibration_module
from lookahead_edit.targets.calibration import (
    MAX_SECONDS,
    MIN_WIDTHS,
    WIDTHS,
    calibrate,
    calibration_path,
    machine_load,
    measure_curve,
    stored_curve,
)
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.targets.loading import editor_of
from lookahead_edit.targets.recorded import RecordedTarget
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.types import Row, Verified

PACKED_CPU_CURVE = replace(CPU_CURVE, shares_passes=True)  # where a model's rows can be packed into one pass


class SlowTarget:
    """Passes take what `seconds` says for their width, on a clock of their own; prefill takes a hundredth a token."""

    max_context_tokens = 2048
    vocab_size = 1000

    def __init__(self, seconds: CostCurve, *, factor: float = 1.0) -> None:
        self.time = 0.0
        self.widths: list[int] = []
        self.is_closed = False
        self.num_cached_tokens = 0
        self._seconds = factor * seconds.values(1, 300)

    def verify(self, rows: Sequence[Row]) -> Verified:
        (row,) = rows
        self.widths.append(len(row.draft) + 1)
        num_unread_tokens = len(row.tokens) - 1 - self.num_cached_tokens
        self.num_cached_tokens += num_unread_tokens
        self.time += float(self._seconds[len(row.draft)] + 0.01 * self._seconds[0] * num_unread_tokens)
        return Verified(tokens=[np.zeros(1, dtype=np.int32)])

    def close(self, key: int) -> None:
        self.is_closed = True

    def clock(self) -> float:
        return self.time


@pytest.fixture(autouse=True)
def cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name: str(tmp_path / name))
    loaded(monkeypatch, 0.5)  # whatever else runs on the machine that tests
    return tmp_path / "lookahead-edit"


def ticking() -> Any:
    """A clock on which everything takes a millisecond."""
    ticks = iter(range(10**9))
    return lambda: next(ticks) / 1000


# Measuring.


def test_a_fast_target_is_measured_at_every_width() -> None:
    target = SlowTarget(CPU_CURVE, factor=0.01)
    curve = measure_curve(target, clock=target.clock)
    assert curve is not None
    assert curve.widths == tuple(sorted(WIDTHS))
    assert curve.values(1, 256) == pytest.approx(0.01 * CPU_CURVE.values(1, 256), rel=0.1)
    assert target.num_cached_tokens == 511
    assert target.is_closed


@pytest.mark.parametrize("factor", [0.3, 1.0, 2.0, 3.0])
def test_a_slow_target_is_measured_at_fewer_widths_and_in_time(factor: float) -> None:
    target = SlowTarget(CPU_CURVE, factor=factor)
    curve = measure_curve(target, clock=target.clock)
    assert curve is not None
    assert MIN_WIDTHS <= len(curve.widths) <= len(WIDTHS)
    assert {1, 2, 16, 64} <= set(curve.widths)
    assert target.time <= MAX_SECONDS * 1.1


@pytest.mark.parametrize("factor", [10.0, 100.0])
def test_a_target_that_is_too_slow_is_not_measured(factor: float) -> None:
    target = SlowTarget(CPU_CURVE, factor=factor)
    assert measure_curve(target, clock=target.clock) is None
    assert target.time <= max(MAX_SECONDS, 2 * factor * 0.32)
    assert target.is_closed


def test_widths_take_turns() -> None:
    target = SlowTarget(CPU_CURVE, factor=0.01)
    measure_curve(target, widths=(1, 2, 8, 4), clock=target.clock)
    assert target.widths[-8:] == [1, 2, 8, 4] * 2


def test_a_pass_is_never_dearer_than_as_many_plain_ones() -> None:
    target = SlowTarget(CostCurve(widths=(1, 2, 64), costs=((0.01, 0.05, 0.06),)))
    curve = measure_curve(target, clock=target.clock)
    assert curve is not None
    assert curve.values(1, 2) == pytest.approx([0.01, 0.02])


def test_a_short_context_leaves_out_the_widths_that_do_not_fit() -> None:
    target = SlowTarget(CPU_CURVE, factor=0.01)
    target.max_context_tokens = 40
    curve = measure_curve(target, clock=target.clock)
    assert curve is not None
    assert curve.widths == (1, 2, 4, 8, 16, 32)
    assert target.num_cached_tokens < 8


# Storing.


def test_a_curve_is_measured_once_and_found_again(tiny_model: Any, cache_directory: Path) -> None:
    model = tiny_model("llama")
    assert stored_curve(model) is None
    target = HfTarget(model)
    assert target.cost_curve == PACKED_CPU_CURVE
    first = calibrate(target, clock=ticking())
    assert first is not None
    assert first.is_new
    assert first.path == calibration_path(model)
    assert [path.name for path in (cache_directory / "calibration").iterdir()] == [first.path.name]
    assert target.cost_curve == first.curve == stored_curve(model)
    assert first.curve.shares_passes
    assert first.curve.batch_sizes == (1, 2, 4, 8, 16)
    again = calibrate(HfTarget(model), clock=ticking())
    assert again is not None
    assert (again.is_new, again.curve) == (False, first.curve)
    forced = calibrate(HfTarget(model), force=True, clock=ticking())
    assert forced is not None
    assert forced.is_new


def test_where_rows_can_not_be_packed_no_batch_is_measured(tiny_model: Any) -> None:
    target = HfTarget(tiny_model("mistral"))
    assert target.cost_curve == CPU_CURVE
    calibration = calibrate(target, clock=ticking())
    assert calibration is not None
    assert (calibration.curve.shares_passes, calibration.curve.batch_sizes) == (False, (1,))


def test_editor_and_policy_take_the_stored_curve(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    config = SpeculationConfig(policy="cost")
    calibration = calibrate(HfTarget(model), clock=ticking())
    assert calibration is not None
    monkeypatch.setattr(ByteTokenizer, "eos_token_id", None, raising=False)
    target = editor_of(model, ByteTokenizer()).target
    assert cost_curve_of(target) == calibration.curve
    limit = make_policy(config, cost_curve_of(target)).max_draft_tokens
    assert limit == make_policy(config, calibration.curve).max_draft_tokens != make_policy(config).max_draft_tokens
    assert cost_curve_of(RecordedTarget(lambda prompt: prompt, end_token_id=0)) is None


def test_the_hook_takes_the_stored_curve_and_changes_no_token(
    tiny_model: Any, random_prompt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from lookahead_edit import LookaheadEdit, hook

    model = tiny_model("llama")
    calibration = calibrate(HfTarget(model), clock=ticking())
    assert calibration is not None
    given: list[CostCurve | None] = []

    def make(config: SpeculationConfig, cost_curve: CostCurve | None = None) -> Any:
        given.append(cost_curve)
        return make_policy(config, cost_curve)

    monkeypatch.setattr(hook, "make_policy", make)
    inputs = torch.from_numpy(np.tile(random_prompt.astype(np.int64), (2, 2)))
    plain = model.generate(inputs, max_new_tokens=40, do_sample=False)
    decoder = LookaheadEdit(speculation=SpeculationConfig(policy="cost"))
    assert torch.equal(model.generate(inputs, max_new_tokens=40, do_sample=False, custom_generate=decoder), plain)
    assert given[-1] == calibration.curve


def test_other_models_dtypes_and_threads_have_curves_of_their_own(tiny_model: Any) -> None:
    import torch

    model = tiny_model("llama")
    paths = {calibration_path(model), calibration_path(tiny_model("mistral"))}
    try:
        paths.add(calibration_path(model.to(torch.float64)))
    finally:
        model.to(torch.float32)
    torch.set_num_threads(2)
    paths.add(calibration_path(model))
    torch.set_num_threads(1)
    assert len(paths) == 4
    assert calibration_path(model) in paths


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"curve": {}}', '{"curve": {"widths": [1]}}', "\udce9"])
def test_a_broken_file_is_ignored_and_replaced(tiny_model: Any, content: str) -> None:
    model = tiny_model("llama")
    path = calibration_path(model)
    assert path is not None
    path.parent.mkdir(parents=True)
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert stored_curve(model) is None
    calibration = calibrate(HfTarget(model), clock=ticking())
    assert calibration is not None
    assert calibration.is_new
    assert stored_curve(model) == calibration.curve


def test_without_a_cache_directory_it_is_measured_and_not_stored(tiny_model: Any, cache_directory: Path) -> None:
    cache_directory.write_text("in the way")
    target = HfTarget(tiny_model("llama"))
    calibration = calibrate(target, clock=ticking())
    assert calibration is not None
    assert (calibration.is_new, calibration.path) == (True, None)
    assert target.cost_curve == calibration.curve


def test_a_write_that_fails_leaves_nothing_behind(
    tiny_model: Any, cache_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, destination: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", refuse)
    calibration = calibrate(HfTarget(tiny_model("llama")), clock=ticking())
    assert calibration is not None
    assert calibration.path is None
    assert list((cache_directory / "calibration").iterdir()) == []


# Load.


def loaded(monkeypatch: pytest.MonkeyPatch, average: float | None) -> None:
    load = None if average is None else calibration_module.MachineLoad(average, num_cores=2)
    monkeypatch.setattr(calibration_module, "machine_load", lambda: load)


def test_what_was_measured_on_a_busy_machine_is_measured_again_on_a_quiet_one(
    tiny_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[bool, bool]] = []
    for average in (5.5, 4.0, 1.9, 1.0, 7.0):
        loaded(monkeypatch, average)
        calibration = calibrate(HfTarget(tiny_model("llama")), clock=ticking())
        assert calibration is not None
        found.append((calibration.is_new, calibration.is_doubtful))
    # Still busy: kept for the time being. Quiet: measured again, and kept from then on, whatever runs later.
    assert found == [(True, True), (False, True), (True, False), (False, False), (False, False)]
    assert calibration is not None
    assert calibration.load == calibration_module.MachineLoad(1.9, 2)


def test_where_no_load_is_known_what_was_measured_is_kept(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(monkeypatch, None)
    first, again = (calibrate(HfTarget(tiny_model("llama")), clock=ticking()) for _ in range(2))
    assert first is not None
    assert again is not None
    assert (first.is_new, again.is_new, again.load, again.is_doubtful) == (True, False, None, False)
    assert first.path is not None
    document = json.loads(first.path.read_text("utf-8"))
    del document["load"]  # as an older version wrote it
    first.path.write_text(json.dumps(document), "utf-8")
    loaded(monkeypatch, 1.0)
    older = calibrate(HfTarget(tiny_model("llama")), clock=ticking())
    assert older is not None
    assert not older.is_new


def test_the_machines_load_is_that_of_its_own_cores() -> None:
    load = machine_load()
    assert load is None or (load.average >= 0.0 and load.num_cores == os.cpu_count())
    assert calibration_module.MachineLoad(2.1, 2).is_busy
    assert not calibration_module.MachineLoad(2.0, 2).is_busy


# The command.


def test_replay_reckons_with_c_what_was_measured() -> None:
    cost = replay_cost(64, 3.25)
    assert cost is not None
    assert (1 + 64 * cost) / (1 + cost) == pytest.approx(3.25)
    assert [replay_cost(1, 1.0), replay_cost(2, 2.0), replay_cost(8, 0.9)] == [None, None, 0.0]


def test_the_command_prints_a_table_or_json(
    tiny_model: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    editor = Editor(HfTarget(tiny_model("llama")), ByteTokenizer(), model_name="tiny")
    monkeypatch.setattr("lookahead_edit.cli_calibrate.open_editor", lambda *arguments: editor)
    for arguments, is_new in (([], True), (["--json"], False), (["--json", "--force"], True)):
        with pytest.raises(SystemExit) as exited:
            cli.main(["calibrate", *arguments])
        assert not exited.value.code
        printed = capsys.readouterr()
        path = str(calibration_path(editor.target.model))
        assert ("measured, stored in" if is_new else "found in") in printed.err
        assert path in printed.err.replace("\n", "")
        if arguments:
            document = json.loads(printed.out)
            assert (document["model"], document["path"], document["new"]) == ("tiny", path, is_new)
            assert [row["width"] for row in document["passes"]] == sorted(WIDTHS)
            assert document["passes"][0]["relative"] == 1.0
        else:
            assert printed.out.split()[:4] == ["width", "ms", "relative", "c"]
            assert printed.out.splitlines()[-1].split()[0] == "256"


def test_a_model_that_can_not_be_measured_is_one_line(
    tiny_model: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    editor = Editor(HfTarget(tiny_model("llama")), ByteTokenizer(), model_name="tiny")
    monkeypatch.setattr("lookahead_edit.cli_calibrate.open_editor", lambda *arguments: editor)
    monkeypatch.setattr("lookahead_edit.targets.calibration.measure_curve", lambda *arguments, **options: None)
    with pytest.raises(SystemExit, match="2"):
        cli.main(["calibrate"])
    assert capsys.readouterr().err == f"error: tiny could not be measured: {TOO_SLOW}\n"
    assert editor.target.cost_curve == PACKED_CPU_CURVE


def test_serve_measures_once_where_drafts_go_by_cost(
    tiny_model: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded: list[Editor] = []
    monkeypatch.setattr("lookahead_edit.server.run.serve", lambda load, config: loaded.append(load()))
    monkeypatch.setattr(cli_serve, "SPECULATION", SpeculationConfig(policy="cost"))
    monkeypatch.setattr(
        cli_serve,
        "open_editor",
        lambda *arguments: Editor(HfTarget(tiny_model("llama")), ByteTokenizer(), model_name="tiny"),
    )
    for expected in ("measured what drafts cost on this machine", ""):
        with pytest.raises(SystemExit) as exited:
            cli.main(["serve"])
        assert not exited.value.code
        assert capsys.readouterr().err.partition(" (")[0] == expected
        assert cost_curve_of(loaded[-1].target) == stored_curve(tiny_model("llama")) != PACKED_CPU_CURVE
