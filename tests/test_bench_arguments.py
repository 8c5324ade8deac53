"""What a bench can't use on its command line is one line, before anything is loaded."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks import bench_targets, matrix
from benchmarks.arguments import duration, edit_name, positive_float, positive_int, require_folder


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "1.5"])
def test_a_count_is_at_least_one(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected a whole number of at least 1, got"):
        positive_int(text)
    assert positive_int("3") == 3


@pytest.mark.parametrize("text", ["0", "-1", "x", "nan", "inf"])
def test_a_number_is_above_none_but_a_run_may_have_no_time_at_all(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected a number above 0, got"):
        positive_float(text)
    assert positive_float("0.5") == duration("0.5") == 0.5
    assert duration("0") == 0.0


def test_an_unknown_edit_is_answered_with_those_that_are_known() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected part of an edit's name, got 'nothing'; known: "):
        edit_name("nothing")
    assert edit_name("words") == "words"


def test_a_folder_that_cannot_be_written_to_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_folder(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(SystemExit, match="2"):
        require_folder(tmp_path / "file")
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize(
    "arguments",
    [["--limit", "1"], ["--max-tokens", "9"], ["--threads", "0"], ["--plot", "x.bmpx"], ["--plot", "none/x.png"]],
)
def test_the_matrix_refuses_before_it_measures(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        matrix.main(arguments)
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--edits", "nothing"], ["--limit", "0"], ["--repeats", "0"]])
def test_so_do_other_benches(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        bench_targets.main(arguments)
    assert "error: " in capsys.readouterr().err
