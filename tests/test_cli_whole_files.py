"""Files that commands write: there once they are whole, else as they were; refused before the work where possible."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from corpus_command import RunCorpus, corpus_command
from replay_command import Run, replay_command, write_samples
from shell_command import shell

from lookahead_edit.cli_files import require_place, whole_file
from lookahead_edit.types import InvalidInput

NOBODY = 65534


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    return replay_command(monkeypatch, capsysbinary)


@pytest.fixture
def run_corpus(capsysbinary: pytest.CaptureFixture[bytes]) -> RunCorpus:
    return corpus_command(capsysbinary)


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    return write_samples(tmp_path)


FULL_DISK = "ulimit -f 1;"  # no file may grow beyond 1 KiB: what a full disk does, without one


def left_over(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".")]


def test_a_file_appears_whole_and_keeps_its_mode_and_its_links(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to("file")
    with whole_file(str(link), param="output") as opened:
        opened.write(b"new")
        assert file.read_text() == "old"
    assert (file.read_text(), link.is_symlink()) == ("new", True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, InvalidInput, ValueError])
def test_what_goes_wrong_in_the_middle_leaves_the_file(tmp_path: Path, error: type[BaseException]) -> None:
    file = tmp_path / "file"
    file.write_text("old")

    def write_half() -> None:
        with whole_file(str(file), param="output") as opened:
            opened.write(b"half")
            raise error("expected more, got half")

    with pytest.raises(error):
        write_half()
    assert (file.read_text(), os.listdir(tmp_path)) == ("old", ["file"])


PLACES = {
    "": "an empty one",
    "a\0b": "not a file name",
    "x" * 300: "File name too long",
    "none/x": "there is no directory none",
    "folder": "it is a directory",
    "file/x": "there is no directory file",
    "loop": "symbolic links",
}


@pytest.mark.parametrize("name", PLACES)
def test_a_place_where_nothing_can_be_written_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InvalidInput, match=PLACES[name]):
        require_place(name, param="output")
    require_place("new", param="output")
    require_place(os.devnull, param="output")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root becomes somebody else")
def test_a_folder_of_somebody_else_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.seteuid(NOBODY)
    try:
        with pytest.raises(InvalidInput, match=r"(?i)permission"):
            require_place("x", param="output")
        require_place(os.devnull, param="output")
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.name == "nt", reason="limits of Unix")
@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "plot.png", "plot.svg", "page.html"])
def test_a_full_disk_leaves_what_was_there(traces: Path, name: str) -> None:
    file = traces.with_name(name)
    file.write_text("old")
    option = {"rows": "--per-trace", "plot": "--plot", "page": "--html"}[file.stem]
    # Kernels that aren't kept yet would find the disk full first.
    assert shell("replay", traces, "--drafters", "none,ngram").returncode == 0
    options = [option, str(file), *(["--explain", "#1"] if option == "--html" else [])]
    done = shell("replay", traces, "--drafters", "none,ngram", *options, before=FULL_DISK)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"error: can't write {file}: File too large"
    assert (file.read_text(), left_over(traces.parent)) == ("old", [])


@pytest.mark.skipif(os.name == "nt", reason="limits of Unix")
def test_a_full_disk_leaves_the_corpus_that_was_there(tmp_path: Path) -> None:
    for folder, value in (("old", "7"), ("new", "70")):
        (tmp_path / folder).mkdir()
        for number in range(20):
            (tmp_path / folder / f"{number}.py").write_text(f"a = {value}\n" + "b = 1\n" * 15)
    output = tmp_path / "corpus.jsonl"
    output.write_text("old")
    folders = tmp_path / "old", tmp_path / "new"
    done = shell("corpus", "from-directories", *folders, "-o", output, before=FULL_DISK)
    assert (done.returncode, done.stderr) == (2, f"error: can't write {output}: File too large\n")
    assert (output.read_text(), left_over(tmp_path)) == ("old", [])


def test_a_replay_of_nothing_leaves_the_rows_that_were_there(run: Run, traces: Path) -> None:
    rows = traces.with_name("rows.csv")
    rows.write_text("old")
    traces.write_bytes(b"broken\n")
    assert run(traces, "--per-trace", rows).status == 2
    assert (rows.read_text(), left_over(traces.parent)) == ("old", [])


@pytest.mark.parametrize("name", ["a\0b", "x" * 300])
def test_names_that_are_none_are_one_line(run: Run, run_corpus: RunCorpus, traces: Path, name: str) -> None:
    for option, suffix in (("--per-trace", ".csv"), ("--plot", ".png"), ("--html", ".html")):
        more = ["--explain", "#1"] if option == "--html" else []
        assert run(traces, option, name + suffix, *more).error.startswith("error: can't write ")
    status, _, error = run_corpus("rename", traces, "-o", name)
    assert (status, error.count("\n"), error[:18]) == (2, 1, "error: can't write")


def test_where_no_directory_takes_compiled_kernels_a_line_says_what_to_do(traces: Path) -> None:
    script = (
        "from numba.core.caching import CacheImpl; CacheImpl._locator_classes = []; "  # none of them has found a place
        "from lookahead_edit.cli import main; main()"
    )
    done = shell("replay", traces, "--drafters", "ngram", script=script)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: no directory for compiled kernels can be written to; name")
