"""The bench of targets: every one edits alike, in turn, and ratios stay within a repetition."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_models import make_tiny_model

from benchmarks import bench_targets
from benchmarks.bench_targets import KINDS, Measured, figures, measure
from lookahead_edit.config import TargetConfig
from lookahead_edit.editor import Editor, EditRequest, EditResult
from lookahead_edit.targets.making import make_target
from lookahead_edit.tokenizer import ByteTokenizer


@pytest.fixture(scope="module")
def model() -> Any:
    tiny = make_tiny_model("llama")
    tiny.resize_token_embeddings(260)
    return tiny


def editors(model: Any) -> dict[str, Editor]:
    config = {"deterministic_width": 8}
    return {kind: Editor(make_target(model, TargetConfig(kind=kind, **config)), ByteTokenizer()) for kind in KINDS}


def test_all_targets_edit_all_files_in_every_repetition(model: Any) -> None:
    requests = [EditRequest(f"x = {number}\n", "Set x to 5.", max_tokens=20) for number in range(2)]
    measured = measure(editors(model), requests, 3)
    assert list(measured) == list(KINDS)
    assert all([len(repeat) for repeat in one.seconds] == [2, 2, 2] for one in measured.values())
    assert {one.num_tokens for one in measured.values()} == {120}
    found = figures(measured)
    assert found["dynamic"]["times_as_fast_as_dynamic"] == 1.0
    assert all(one["least"] <= one["times_as_fast_as_dynamic"] <= one["greatest"] for one in found.values())


def test_texts_that_differ_end_the_run(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = editors(model)
    edit = Editor.edit

    def another(self: Editor, request: EditRequest) -> EditResult:
        text = "other" if self is made["static"] else request.text
        return replace(edit(self, request), text=text)

    monkeypatch.setattr(Editor, "edit", another)
    with pytest.raises(SystemExit, match="texts differ between targets"):
        measure(made, [EditRequest("x = 1\n", "Set x to 5.", max_tokens=8)], 1)


def test_ratios_stay_within_a_repetition() -> None:
    measured = {
        "dynamic": Measured([[1.0, 3.0], [2.0, 6.0]], 40, 4),
        "static": Measured([[2.0, 2.0], [1.0, 3.0]], 40, 4),
    }
    static = figures(measured)["static"]
    assert (static["least"], static["greatest"], static["tokens_per_round"]) == (1.0, 2.0, 10.0)


def test_the_command_writes_what_it_prints(
    model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_targets, "load_editor", lambda *arguments, **options: editors(model)["dynamic"])
    path = tmp_path / "targets.json"
    arguments = ["--edits", "server-port", "--all", "--repeats", "1", "--output", str(path)]
    assert bench_targets.main(arguments) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert json.loads(path.read_text(encoding="utf-8")) == printed
    assert list(printed["targets"]) == list(KINDS)
