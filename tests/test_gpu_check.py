"""The check of a GPU runs through on a CPU, in a tiny shape; on a GPU its exactness cases are tests."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu_check
from benchmarks.gpu_stages import COMPILED_CASES, EXACTNESS_CASES, METHODS, ExactnessCase, check_exactness, spread
from benchmarks.shapes import SMALL

PATIENT_REHEARSAL = ("--rehearse", "--max-seconds", "3600")  # a busy machine leaves no stage out


def test_the_rehearsal_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--out", str(tmp_path / "results"), *PATIENT_REHEARSAL]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out.splitlines()[-1])
    assert json.loads((tmp_path / "results" / "gpu_check.json").read_text()) == document
    assert document["rehearsal"]
    assert document["goals"] == {"exact": True}
    assert [(report["case"], report["bug"]) for report in document["exactness"]] == [
        ("static, float32", False),
        ("deterministic, float32", False),
        ("deterministic, bfloat16, compiled on a GPU", False),
    ]
    assert document["warnings"] == document["errors"] == []
    assert list(document["stages"]) == ["exactness", "passes", "edits", "exactness of compiled passes"]
    assert [found["context_tokens"] for found in document["passes"]] == [64, 600]
    for found in document["passes"]:
        assert [each["width"] for each in found["passes"]] == [1, 8, 32]
        assert all(0.0 < each["fraction_of_roofline"] < 1.0 for each in found["passes"])
    edits = document["edits"]
    assert list(edits) == list(METHODS)
    assert len({each["tokens"] for each in edits.values()}) == 1
    assert edits["plain"]["rounds"] == edits["plain"]["tokens"]
    assert edits["plain"]["times_plain"] == pytest.approx(1.0)
    assert edits["edit"]["rounds"] < edits["hf_lookup"]["rounds"] < edits["plain"]["rounds"]
    assert all(0.0 < each["outside_forward"] < 1.0 for each in edits.values())


def test_a_run_out_of_time_leaves_what_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--out", str(tmp_path), "--rehearse", "--max-seconds", "0"]) == 1
    document = json.loads((tmp_path / "gpu_check.json").read_text())
    assert document["exactness"] == document["passes"] == document["errors"] == []
    assert document["goals"] == {"exact": None}
    assert document["stages"]["exactness"] >= 0.0
    assert "Traceback" not in capsys.readouterr().err


def test_a_stage_that_fails_is_named_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure = gpu_check.measure_passes

    def fail(target: Any, num_context_tokens: int, *arguments: Any) -> Any:
        logging.getLogger("lookahead_edit.targets").warning("passes are slow here")
        if num_context_tokens == 600:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nand a long tale")
        return measure(target, num_context_tokens, *arguments)

    monkeypatch.setattr(gpu_check, "measure_passes", fail)
    assert gpu_check.main(["--out", str(tmp_path), *PATIENT_REHEARSAL]) == 1
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert document["errors"] == [
        {"stage": "passes", "error": "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"}
    ]
    assert document["warnings"] == ["passes are slow here"] * 3
    assert [found["context_tokens"] for found in document["passes"]] == [64]
    assert document["edits"]["edit"]["rounds"] > 0
    assert document["goals"] == {"exact": True}


def test_goals_are_judged_by_what_a_gpu_would_have_measured(tmp_path: Path) -> None:
    check = gpu_check.Check(gpu_check.FULL, tmp_path, 1.0)
    check.judge()
    assert set(check.document["goals"].values()) == {None}
    check.document["exactness"] = [{"bug": False}] * 8
    check.document["passes"] = [
        {"context_tokens": length, "passes": [{"fraction_of_roofline": fraction}]}
        for length, fraction in ((2048, 0.5), (16_384, 0.4), (2048, 0.7), (16_384, 0.5))
    ]
    check.document["edits"] = {"edit": {"times_plain": 9.0, "outside_forward": 0.2}}
    check.judge()
    assert list(check.document["goals"].values()) == [True, True, False, True]


def test_without_a_gpu_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert gpu_check.main(["--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "error: expected a CUDA device, got none; --rehearse runs on a CPU\n"


def test_a_tokenizer_that_is_not_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert gpu_check.main(["--out", str(tmp_path), "--tokenizer", str(tmp_path)]) == 2
    error = f"error: can't load {tmp_path}: the directory has no tokenizer.json"
    assert capsys.readouterr().err.startswith(error)


def test_traces_are_spread_evenly() -> None:
    assert list(spread(range(10), 4)) == [0, 2, 5, 7]
    assert list(spread(range(3), 9)) == [0, 1, 2]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", EXACTNESS_CASES + COMPILED_CASES, ids=lambda case: case.name)
def test_targets_are_exact_on_a_gpu(case: ExactnessCase) -> None:
    report = check_exactness(case, SMALL, device="cuda", num_prompt_tokens=(40, 1000), num_tokens=100)
    assert not report["bug"], report["verdict"]
