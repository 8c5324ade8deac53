"""What `serve` says of the cost of drafts before it serves: measured, doubtful, or not to be measured here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from lookahead_edit import cli_serve
from lookahead_edit.cli_calibrate import TOO_SLOW
from lookahead_edit.cost import CPU_CURVE
from lookahead_edit.editor import Editor
from lookahead_edit.targets import calibration
from lookahead_edit.targets.calibration import MachineLoad
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.targets.recorded import RecordedTarget
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.types import NO_TOKENS, ModelUnavailable, UnsupportedModel

QUIET, BUSY = MachineLoad(0.1, 2), MachineLoad(7.0, 2)
Serve = Callable[[], list[str]]


@pytest.fixture
def serve(
    tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Serve:
    """The lines on standard error, with a cache directory of one's own and a target of a tiny model."""
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name: str(tmp_path / name))
    monkeypatch.setattr(calibration, "machine_load", lambda: QUIET)
    monkeypatch.setattr(calibration, "measure_curve", lambda *arguments, **options: CPU_CURVE)
    editor = Editor(HfTarget(tiny_model("mistral")), ByteTokenizer(), model_name="tiny")

    def lines() -> list[str]:
        cli_serve.calibrate_for_serving(editor)
        return capsys.readouterr().err.splitlines()

    return lines


def test_what_is_measured_is_said_once(serve: Serve) -> None:
    (line,) = serve()
    assert line.startswith("measured what drafts cost on this machine (")
    assert serve() == []


def test_what_was_measured_on_a_busy_machine_is_doubted_whenever_it_is_used(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "machine_load", lambda: BUSY)
    measured, doubt = serve()
    assert measured.startswith("measured what drafts cost")
    assert doubt.startswith("warning: what drafts cost is not sure: ")
    assert serve() == [doubt]  # stored, and still as doubtful


def test_what_cannot_be_measured_is_warned_of(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "measure_curve", lambda *arguments, **options: None)
    assert serve() == [f"warning: what drafts cost could not be measured, so typical costs count: {TOO_SLOW}"]


def raising(error: Exception) -> Callable[..., None]:
    def measure(*arguments: Any, **options: Any) -> None:
        raise error

    return measure


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_no_memory_to_measure_with_is_no_reason_not_to_serve(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(calibration, "measure_curve", raising(error))
    assert serve() == ["warning: what drafts cost could not be measured, so typical costs count: memory ran out"]


def test_a_model_that_cannot_be_verified_is_not_served(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "measure_curve", raising(UnsupportedModel("it forgets its state")))
    with pytest.raises(UnsupportedModel):
        serve()


def test_what_cannot_be_kept_is_said_each_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise ModelUnavailable("no cache directory")

    monkeypatch.setattr(calibration, "cache_directory", nowhere)
    for _ in range(2):
        (line,) = serve()
        assert line.endswith("; there is no cache directory to keep it in")


def test_an_engine_that_has_ways_of_its_own_is_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    target = RecordedTarget(lambda prompt: NO_TOKENS, end_token_id=257)
    cli_serve.calibrate_for_serving(Editor(target, ByteTokenizer()))
    assert capsys.readouterr().err == ""
