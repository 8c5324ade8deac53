"""Traces from git histories and releases: what becomes one, what is left out, and one line for what fails."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lookahead_edit import corpus_releases
from lookahead_edit.corpus_edits import FileEdit
from lookahead_edit.corpus_files import ContextBounds
from lookahead_edit.corpus_git import HistoryBounds, git_edits
from lookahead_edit.corpus_packages import parse_release, require_pair
from lookahead_edit.corpus_releases import read_release, release_edits
from lookahead_edit.traces import parse_trace
from lookahead_edit.types import InvalidInput
from tests.corpus_command import RunCorpus, corpus_command

OLD = "".join(f"value_{number} = {number}\n" for number in range(40))
NEW = OLD.replace("value_7 = 7", "value_7 = 70")

# Git


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., str]:
    """Runs git in a new repository that takes nothing from the user's configuration."""
    folder = tmp_path / "repository"
    folder.mkdir()
    names = {
        f"GIT_{role}_{field}": "test@example.org" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")
    }
    environment = {**os.environ, **names, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}

    def run_git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    run_git("init", "--quiet", "--initial-branch=main")
    return run_git


@pytest.fixture
def repository(tmp_path: Path, git: Callable[..., str]) -> Path:
    folder = tmp_path / "repository"

    def commit(message: str, **contents: bytes | None) -> None:
        for path, content in contents.items():
            file = folder / path
            file.parent.mkdir(exist_ok=True)
            file.unlink() if content is None else file.write_bytes(content)
        git("add", "--all")
        git("commit", "--quiet", "-m", message)

    old, new = OLD.encode(), NEW.encode()
    odd = 'src/odd "näme".py'
    first = {"a.py": old, odd: old, "dos.py": old.replace(b"\n", b"\r\n"), "latin.py": b"# \xe9\n" + old}
    commit(
        "Start", **first, **{"bin.py": b"\0" + old, "vendor/v.py": old, "gone.py": old, "src/near.py": b"near = 1\n"}
    )
    commit("Set value_7\n\nIt was too small.\n\nSigned-off-by: A <a@example.org>\n", **{"a.py": new, odd: new})
    commit("Line ends stay", **{"dos.py": new.replace(b"\n", b"\r\n")})
    commit(
        "Nothing to use", **{"latin.py": b"# \xe9\n" + new, "bin.py": b"\0" + new, "vendor/v.py": new, "gone.py": None}
    )
    git("mv", "a.py", "b.py")
    git("commit", "--quiet", "-m", "Rename a file")
    git("checkout", "--quiet", "-b", "side", "HEAD~1")
    commit(":100644 is no file\n\x01nor this", **{"src/near.py": OLD.encode()})
    git("checkout", "--quiet", "main")
    git("merge", "--quiet", "--no-edit", "side")
    return folder


def all_git_edits(
    folder: Path, bounds: HistoryBounds | None = None, **options: Any
) -> tuple[list[FileEdit], Counter[str]]:
    reasons: Counter[str] = Counter()
    return list(git_edits(folder, bounds or HistoryBounds(), reasons, **options)), reasons


def test_each_changed_file_of_a_commit_is_an_edit_with_its_message(repository: Path) -> None:
    edits, reasons = all_git_edits(repository)
    by_path = {edit.path: edit for edit in edits}
    assert set(by_path) == {"a.py", 'src/odd "näme".py', "dos.py", "src/near.py"}
    assert by_path["a.py"].before == OLD
    assert by_path["a.py"].after == NEW
    assert by_path["a.py"].instruction == "Set value_7\n\nIt was too small."
    assert by_path["src/near.py"].instruction == ":100644 is no file\n\x01nor this"
    assert by_path["dos.py"].after == NEW.replace("\n", "\r\n")
    assert len({edit.id for edit in edits}) == len(edits)
    assert reasons == {"not UTF-8 text, too large or empty": 2, "of another kind": 1}


def test_context_comes_from_the_parent_commit(repository: Path) -> None:
    edits, _ = all_git_edits(repository, context=ContextBounds())
    by_path = {edit.path: {file.path: file.text for file in edit.context} for edit in edits}
    odd = 'src/odd "näme".py'
    assert by_path["a.py"][odd] == OLD
    assert by_path["dos.py"]["a.py"] == NEW
    assert next(iter(by_path[odd])) == "src/near.py"
    assert not {"vendor/v.py", "bin.py", "latin.py"} & {path for files in by_path.values() for path in files}


def test_history_can_be_narrowed(repository: Path) -> None:
    assert all_git_edits(repository, HistoryBounds(revisions="HEAD~1"))[0]
    assert [edit.path for edit in all_git_edits(repository, HistoryBounds(max_files_per_commit=1))[0]] != []
    assert all_git_edits(repository, HistoryBounds(max_files_per_commit=1))[1]["in a mass change"] >= 2
    assert all_git_edits(repository, HistoryBounds(since="2099-01-01"))[0] == []
    assert all_git_edits(repository, suffixes=frozenset({".go"}))[0] == []


@pytest.mark.parametrize("since", ["two weeks ago", "3 days ago", "a year ago", "yesterday", "last month"])
def test_a_time_in_the_past_is_taken(repository: Path, since: str) -> None:
    assert all_git_edits(repository, HistoryBounds(since=since))[0]


@pytest.mark.parametrize("since", ["yesteryear", "", "--all", "now", "-5", "two moons ago", "last wednesday week"])
def test_what_git_would_take_for_this_moment_is_refused(repository: Path, since: str) -> None:
    with pytest.raises(InvalidInput, match="or a time such as 'two weeks ago'"):
        all_git_edits(repository, HistoryBounds(since=since))


@pytest.mark.parametrize(
    "since",
    [
        *("2024-13-45", "2023-02-29", "2024/02/30", "2024.00.10", "2024-01-3112", "2024-01-31 25:00"),
        *("2024-01-31T10:61:00", "0000-00-00", "1960-01-01", "2100-01-01", "2024", "2024-01", "20240601"),
        *("30/02/2024", "Feb 30 2024", "Thu, 30 Feb 2024 10:00:00 +0000", " 2024-02-30", "2024-06-01 foo"),
        *("2024-06-01T10", "\uff12\uff10\uff12\uff14-06-01", "2024-W10-1", "2024-06-01T10:00garbage"),
    ],
)
def test_a_date_that_git_takes_for_another_one_is_refused(repository: Path, since: str) -> None:
    with pytest.raises(InvalidInput, match="expected a date that exists, such as 2024-01-31"):
        all_git_edits(repository, HistoryBounds(since=since))


@pytest.mark.parametrize("since", ["2024-02-29", "2024-1-5", "2024/01/31", "2024-01-31 23:59", "2024-01-31T10:00:00Z"])
def test_a_date_that_exists_is_taken(repository: Path, since: str) -> None:
    assert all_git_edits(repository, HistoryBounds(since=since))[0]


def test_the_repository_is_the_one_that_was_named(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path / "other")], check=True, timeout=60)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))  # as within a hook
    assert all_git_edits(repository)[0]
    monkeypatch.delenv("GIT_DIR")
    with pytest.raises(InvalidInput, match=r"expected a commit, but .*other has none"):
        all_git_edits(tmp_path / "other")


def test_a_clone_without_a_history_says_what_is_missing(repository: Path, tmp_path: Path) -> None:
    command = ["git", "clone", "--quiet", "--depth=1", repository.as_uri(), str(tmp_path / "shallow")]
    subprocess.run(command, check=True, timeout=60)
    with pytest.raises(InvalidInput, match=r"shallow clone; git fetch --unshallow"):
        all_git_edits(tmp_path / "shallow")


def test_git_ends_with_the_iterator(repository: Path) -> None:
    edits = git_edits(repository, HistoryBounds(), Counter())
    assert isinstance(edits, Iterator)
    assert next(iter(edits)).path
    edits.close()  # type: ignore[attr-defined]


def test_no_repository_and_no_such_revision_are_one_line(repository: Path, tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(InvalidInput, match=r"expected a git repository, but .* is no folder"):
        all_git_edits(tmp_path / "nowhere")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(InvalidInput, match=r"expected a git repository, but .* is none"):
        all_git_edits(tmp_path)
    for revisions in ("nope", "--output=x", "HEAD --output=x", "", "HEAD\0"):
        with pytest.raises(InvalidInput, match="expected revisions"):
            all_git_edits(repository, HistoryBounds(revisions=revisions))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidInput, match="expected git on the path"):
        all_git_edits(repository)


# Releases


def write_tar(path: Path, files: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo("demo-1.0/link.py")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return path


def write_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


FILES = {"demo/a.py": OLD.encode(), "demo/b.py": b"b = 1\n", "demo/c.bin": b"\0", "../evil.py": b"x = 1\n"}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_tar_archives_lose_their_top_folder_and_dangerous_names(tmp_path: Path, mode: str) -> None:
    files = {name if ".." in name else f"demo-1.0/{name}": data for name, data in FILES.items()}
    assert set(read_release(write_tar(tmp_path / "demo.tar", files, mode))) == {"demo/a.py", "demo/b.py"}


def test_zip_archives_and_folders_keep_the_folders_of_the_package(tmp_path: Path) -> None:
    assert set(read_release(write_zip(tmp_path / "demo.whl", FILES))) == {"demo/a.py", "demo/b.py"}
    folder = tmp_path / "folder"
    for name, data in {**FILES, ".git/x.py": b"x = 1\n"}.items():
        if ".." not in name:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
    (folder / "link.py").symlink_to("/etc/passwd")
    assert set(read_release(folder)) == {"demo/a.py", "demo/b.py"}
    assert set(read_release(folder, frozenset({".bin"}))) == {"demo/c.bin"}


def test_bombs_and_damaged_archives_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = {"demo/big.bin": b"\0" * 3_000_000, "demo/a.py": OLD.encode()}
    assert set(read_release(write_tar(tmp_path / "bomb.tar.gz", bomb))) == {"demo/a.py"}
    monkeypatch.setattr(corpus_releases, "MAX_RELEASE_BYTES", 1_000_000)
    for path in (write_tar(tmp_path / "bomb.tar.gz", bomb), write_zip(tmp_path / "bomb.zip", bomb)):
        assert path.stat().st_size < 10_000
        with pytest.raises(InvalidInput, match=f"expected a release of at most .* got more in {path.name}"):
            read_release(path)
    broken = tmp_path / "broken.tar.gz"
    broken.write_bytes(write_tar(tmp_path / "whole.tar.gz", FILES).read_bytes()[:60])
    (tmp_path / "text.zip").write_text("no archive")
    for path in (broken, tmp_path / "text.zip"):
        with pytest.raises(InvalidInput, match=r"expected an archive, but .* is damaged"):
            read_release(path)
    with pytest.raises(InvalidInput, match=r"can't read .*No such file"):
        read_release(tmp_path / "nothing.zip")


def test_files_of_both_releases_that_differ_are_edits() -> None:
    old = {"a.py": OLD.encode(), "b.py": b"b = 1\n", "gone.py": OLD.encode(), "latin.py": b"\xe9"}
    new = {"a.py": NEW.encode(), "b.py": b"b = 1\n", "new.py": OLD.encode(), "latin.py": b"\xe9\n"}
    versions = {"name": "demo", "old_version": "1.0", "new_version": "1.1"}
    (edit,) = release_edits(old, new, **versions, reasons=Counter(), context=ContextBounds())
    assert (edit.id, edit.instruction) == ("demo/1.0..1.1/a.py", "Update a.py from demo 1.0 to 1.1.")
    assert [file.path for file in edit.context] == ["b.py", "gone.py"]
    assert [edit.context for edit in release_edits(old, new, **versions, reasons=Counter())] == [()]


def test_names_of_releases() -> None:
    assert str(parse_release("Flask==3.0.0")) == "Flask==3.0.0"
    assert parse_release("npm:@a/b@1.0.0-rc.1").version == "1.0.0-rc.1"
    for text in ("flask", "flask>=3", "flask==3.*", "npm:a", "npm:a@latest", "npm:--x@1", "-r==1", "a==1 --pre"):
        with pytest.raises(InvalidInput, match="expected NAME==VERSION or npm:NAME@VERSION"):
            parse_release(text)
    require_pair(parse_release("a==1"), parse_release("A==2"))
    for other in ("b==2", "a==1", "npm:a@2"):
        with pytest.raises(InvalidInput, match="expected two versions of one package"):
            require_pair(parse_release("a==1"), parse_release(other))


# The command line


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes]) -> RunCorpus:
    return corpus_command(capsysbinary)


def test_from_git_writes_traces_and_says_how_many(repository: Path, tmp_path: Path, run: RunCorpus) -> None:
    status, traces, error = run("from-git", repository, "--context", "--max-traces", "2")
    assert (status, len(traces), error.splitlines()[-1][:8]) == (0, 2, "2 traces")
    assert all(trace["context"] for trace in traces)
    output = tmp_path / "traces.jsonl"
    status, traces, _ = run("from-git", repository, "-o", output, "--suffix", "py", "--since", "2000-01-01")
    assert (status, traces) == (0, [])
    assert all(parse_trace(line) for line in output.read_bytes().splitlines())
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert run("from-git", repository, "-o", os.devnull)[0] == 0
    assert not Path(os.devnull).is_file()


def test_numbers_beyond_the_machines_are_no_limit(repository: Path, run: RunCorpus) -> None:
    options = ("--max-traces", "--max-commits", "--max-files-per-commit", "--max-characters", "--context-characters")
    most = [word for option in options for word in (option, "9" * 30)]
    assert len(run("from-git", repository, *most, "--context")[1]) == len(run("from-git", repository)[1]) == 3


@pytest.mark.skipif(os.name == "nt", reason="pipes of Unix")
def test_pipes_and_devices_are_no_releases(tmp_path: Path, run: RunCorpus) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", os.devnull):
        status, _, error = run("from-directories", tmp_path, path)
        assert (status, error) == (2, f"error: expected a folder or an archive, but {path} is a pipe or device\n")


def test_from_directories_compares_archives(tmp_path: Path, run: RunCorpus) -> None:
    old = write_tar(tmp_path / "demo-1.0.tar.gz", {"demo-1.0/a.py": OLD.encode()})
    new = write_zip(tmp_path / "demo-1.1.zip", {"demo-1.1/a.py": NEW.encode()})
    status, (trace,), _ = run("from-directories", old, new, "--name", "demo")
    assert status == 0
    assert trace["source"] == OLD
    assert "Update a.py from demo demo-1.0.tar.gz to demo-1.1.zip." in trace["prompt"]
    status, traces, error = run("from-directories", old, old)
    assert (status, traces) == (2, [])
    assert error == "error: expected edits inside the bounds, got 0 traces; 1 unchanged\n"
    write_tar(old, {"a.py": b"\xff" * 99, "b.py": b"x = 1\n", "d.py": OLD.encode()})
    write_zip(new, {"a.py": OLD.encode(), "c.py": b"x = 1\n", "d.py": NEW.encode()})
    status, (trace,), error = run("from-directories", old, new)
    assert (status, error) == (0, "1 trace; 2 in one release only, 1 not UTF-8 text\n")


def test_where_nothing_is_found_the_limits_are_named(repository: Path, run: RunCorpus) -> None:
    limits = ("--since", "2099-01-01", "--max-commits", "7", "--suffix", ".py", "--max-changed", "0.25")
    status, traces, error = run("from-git", repository, *limits)
    assert (status, traces) == (2, [])
    named = "--since 2099-01-01, --max-commits 7, --max-changed 0.25, --suffix .py"
    assert error == f"error: expected edits inside the bounds ({named}), got 0 traces\n"


def test_from_packages_reads_what_pip_and_npm_fetch(
    tmp_path: Path, run: RunCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"1.0": OLD, "1.1": NEW}
    commands = []

    def fetch(command: list[str], *, cwd: Path, **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        version = command[-1].rpartition("==")[2].rpartition("@")[2]
        write_tar(cwd / "demo.tgz", {"package/a.py": versions[version].encode()})
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr("lookahead_edit.corpus_packages.subprocess.run", fetch)
    monkeypatch.setattr("lookahead_edit.corpus_packages.shutil.which", lambda name: name)
    for old, new in (("demo==1.0", "demo==1.1"), ("npm:demo@1.0", "npm:demo@1.1")):
        status, (trace,), _ = run("from-packages", old, new, "--form", "sdist")
        assert (status, trace["id"]) == (0, "demo/1.0..1.1/a.py")
    assert commands[0][-5:-3] == ["--no-binary", "demo"]
    assert "--ignore-scripts" in commands[2]


@pytest.mark.parametrize(
    ("name", "words", "reason"),
    [
        ("demo==", "ERROR: first\nERROR: none found\n\nhint: see above\n", "ERROR: none found"),
        ("npm:demo@", "npm error code E1\nnpm error none found\nnpm error A complete log\n", "npm error none found"),
        ("demo==", "", "no reason given"),
    ],
)
def test_a_fetch_that_fails_gives_the_reason(
    name: str, words: str, reason: str, run: RunCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", words)

    monkeypatch.setattr("lookahead_edit.corpus_packages.subprocess.run", fail)
    monkeypatch.setattr("lookahead_edit.corpus_packages.shutil.which", lambda program: program)
    status, _, error = run("from-packages", f"{name}1.0", f"{name}1.1")
    assert (status, error) == (2, f"error: can't fetch {name}1.0: {reason}\n")


def test_npm_is_only_needed_for_its_packages(run: RunCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lookahead_edit.corpus_packages.shutil.which", lambda program: None)
    status, _, error = run("from-packages", "npm:demo@1.0", "npm:demo@1.1")
    assert (status, error) == (2, "error: expected npm on the path to fetch npm:demo@1.0, found none\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["from-git", "."], "-o"),
        (["from-packages", "a", "b"], "expected NAME==VERSION"),
        (["from-packages", "a==1", "b==2"], "expected two versions of one package"),
        (["from-git", ".", "--suffix", "*"], "expected a suffix"),
        (["from-git", ".", "--min-changed", "2"], "changed share"),
        (["from-directories", ".", ".", "--name", " "], "expected --name to say something"),
    ],
)
def test_wrong_options_are_one_line(arguments: list[str], message: str, run: RunCorpus, tmp_path: Path) -> None:
    if message == "-o":
        arguments, message = [*arguments, "-o", str(tmp_path / "none" / "x")], "can't write"
        arguments[1] = str(Path(__file__).parent.parent)
    status, traces, error = run(*arguments)
    assert (status, traces, error.count("\n")) == (2, [], 1)
    assert message in error
