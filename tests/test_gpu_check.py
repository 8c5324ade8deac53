"""The check of a GPU runs through on a CPU, in a tiny shape; on a GPU its exactness cases are tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import gpu_check
from benchmarks.gpu_stages import EXACTNESS_CASES, METHODS, ExactnessCase, check_exactness, spread
from benchmarks.shapes import SMALL


def test_the_rehearsal_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--out", str(tmp_path / "results"), "--rehearse"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out.splitlines()[-1])
    assert json.loads((tmp_path / "results" / "gpu_check.json").read_text()) == document
    assert document["rehearsal"]
    assert document["goals"] == {"exact": True}
    assert [report["bug"] for report in document["exactness"]] == [False] * len(gpu_check.REHEARSAL.exactness_cases)
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


def test_a_run_out_of_time_leaves_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_check.Check, "measure_and_replay", lambda self, traces, tokenizer: None)
    assert gpu_check.main(["--out", str(tmp_path), "--rehearse", "--max-seconds", "0"]) == 1
    document = json.loads((tmp_path / "gpu_check.json").read_text())
    assert document["exactness"] == []
    assert document["goals"] == {"exact": None}
    assert document["stages"]["exactness"] >= 0.0


def test_without_a_gpu_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert gpu_check.main(["--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "error: expected a CUDA device, got none; --rehearse runs on a CPU\n"


def test_traces_are_spread_evenly() -> None:
    assert list(spread(range(10), 4)) == [0, 2, 5, 7]
    assert list(spread(range(3), 9)) == [0, 1, 2]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", EXACTNESS_CASES, ids=lambda case: case.name)
def test_targets_are_exact_on_a_gpu(case: ExactnessCase) -> None:
    report = check_exactness(case, SMALL, device="cuda", num_prompt_tokens=(40, 1000), num_tokens=100)
    assert not report["bug"], report["verdict"]
