"""The command line: what it prints where, its exit status, and that a file is replaced whole or not at all."""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lookahead_edit import __version__, cli, cli_edit, cli_serve
from lookahead_edit.cli_display import Display
from lookahead_edit.editor import Editor
from lookahead_edit.targets.recorded import RecordedTarget
from lookahead_edit.tokenizer import ByteTokenizer

NOBODY = 65534
BEFORE = "".join(f"line_{number} = {number * 7}\n" for number in range(12))
AFTER = BEFORE.replace("line_5 = 35", "line_5 = 36")


@dataclass(frozen=True)
class Outcome:
    status: int
    stdout: bytes
    stderr: str

    @property
    def error(self) -> str:
        """The one line that says what is wrong."""
        (line,) = self.stderr.splitlines()
        assert line.startswith("error: ")
        return line


Run = Callable[..., Outcome]


def answering(answer: str, *, max_context_tokens: int = 100_000) -> Editor:
    tokens = ByteTokenizer().encode(answer, parse_special=False)
    target = RecordedTarget(lambda prompt: tokens, end_token_id=257, max_context_tokens=max_context_tokens)
    return Editor(target, ByteTokenizer(), model_name="logged")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs the command line in this process, with an editor that gives a fixed answer."""

    def run_main(*arguments: str | Path, answer: str | Editor = f"{AFTER}```", stdin: bytes = b"") -> Outcome:
        editor = answering(answer) if isinstance(answer, str) else answer
        for module in (cli, cli_edit):
            monkeypatch.setattr(module, "open_editor", lambda *_: editor)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as exit_info:
            cli.main([str(argument) for argument in arguments])
        captured = capsysbinary.readouterr()
        return Outcome(int(exit_info.value.code or 0), captured.out, captured.err.decode())

    return run_main


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.py"
    path.write_bytes(BEFORE.encode())
    return path


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors that need no model come before one is loaded."""

    def refuse(*_: Any) -> Editor:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(cli_edit, "open_editor", refuse)
    monkeypatch.setattr(cli, "open_editor", refuse)
    monkeypatch.setattr(cli_serve, "open_editor", refuse)


# What is printed.


def test_the_edited_text_goes_to_standard_output_and_figures_elsewhere(run: Run, file: Path) -> None:
    outcome = run("edit", file, "-i", "Add one to line_5.")
    assert (outcome.status, outcome.stdout) == (0, AFTER.encode())
    assert "drafted tokens accepted" in outcome.stderr
    assert file.read_bytes() == BEFORE.encode()


def test_quiet_prints_no_figures(run: Run, file: Path) -> None:
    assert run("edit", file, "-i", "Add one to line_5.", "--quiet").stderr == ""


def test_line_ends_and_byte_order_mark_come_back_as_they_were(run: Run, tmp_path: Path) -> None:
    before = b"\xef\xbb\xbfa = 1\r\nb = 2\nc = 3"
    (tmp_path / "mixed.py").write_bytes(before)
    outcome = run("edit", tmp_path / "mixed.py", "-i", "b is 5", answer="a = 1\nb = 5\nc = 3\n```")
    assert outcome.stdout == before.replace(b"b = 2", b"b = 5")


def test_a_diff_is_what_git_takes(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    outcome = run("edit", "numbers.py", "-i", "Add one to line_5.", "--diff")
    assert b"-line_5 = 35\n+line_5 = 36\n" in outcome.stdout
    subprocess.run(["git", "apply"], input=outcome.stdout, check=True, cwd=file.parent, timeout=60)
    assert file.read_bytes() == AFTER.encode()


@pytest.mark.parametrize("is_inside", [True, False])
def test_a_diff_of_an_absolute_path_is_what_patch_takes(
    run: Run, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_inside: bool
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path if is_inside else tmp_path / "elsewhere")
    outcome = run("edit", file, "-i", "Add one to line_5.", "--diff")
    name = "numbers.py" if is_inside else str(file).lstrip("/")
    assert outcome.stdout.startswith(f"diff --git a/{name} b/{name}\n".encode())
    assert json.loads(run("edit", file, "-i", "Add one.", "--json").stdout)["diff"].encode() == outcome.stdout
    where = [] if is_inside else ["-d", "/"]
    subprocess.run(["patch", "-p1", *where], input=outcome.stdout, check=True, timeout=60)
    assert file.read_bytes() == AFTER.encode()


def test_a_diff_without_a_change_is_empty_and_said_so(run: Run, file: Path) -> None:
    outcome = run("edit", file, "-i", "Nothing.", "--diff", answer=f"{BEFORE}```")
    assert (outcome.status, outcome.stdout) == (0, b"")
    assert outcome.stderr.startswith(f"{file}: no change\n")
    outcome = run("edit", "-", "-i", "Nothing.", answer=f"{BEFORE}```", stdin=BEFORE.encode())
    assert outcome.stdout == BEFORE.encode()
    assert outcome.stderr.startswith("standard input: no change\n")


def test_standard_input_is_edited_too(run: Run) -> None:
    outcome = run("edit", "-", "-i", "Add one to line_5.", stdin=BEFORE.encode())
    assert (outcome.status, outcome.stdout) == (0, AFTER.encode())


def test_json_has_everything(run: Run, file: Path) -> None:
    document = json.loads(run("edit", file, "-i", "Add one to line_5.", "--json").stdout)
    assert document["text"] == AFTER
    assert document["finish_reason"] == "stop"
    assert [edit["newText"] for edit in document["edits"]] == ["6"]
    assert document["diff"].startswith("diff --git")
    assert document["metrics"]["output_tokens"] >= len(AFTER)
    assert document["metrics"]["tokens_per_round"] > 2.0


def test_compare_decodes_plainly_as_well(run: Run, file: Path) -> None:
    outcome = run("edit", file, "-i", "Add one to line_5.", "--compare")
    assert outcome.status == 0
    assert "identical: yes" in outcome.stderr
    plain = next(line for line in outcome.stderr.splitlines() if line.startswith("plain"))
    assert plain.split()[1] == plain.split()[2]  # one token a round


def test_compare_fails_where_the_texts_differ(run: Run, file: Path) -> None:
    answers = iter([f"{AFTER}```", f"{BEFORE}```"])
    tokenizer = ByteTokenizer()
    target = RecordedTarget(lambda prompt: tokenizer.encode(next(answers)), end_token_id=257)
    outcome = run("edit", file, "-i", "Add one.", "--compare", "--json", answer=Editor(target, tokenizer))
    assert outcome.status == 1
    assert "identical: no" in outcome.stderr
    assert json.loads(outcome.stdout)["plain"]["identical"] is False


def test_no_speculation_drafts_nothing(run: Run, file: Path) -> None:
    outcome = run("edit", file, "-i", "Add one.", "--no-speculation", "--json")
    assert json.loads(outcome.stdout)["metrics"]["drafted"] == 0


def test_only_the_range_is_rewritten(run: Run, file: Path) -> None:
    outcome = run("edit", file, "-i", "Add one.", "--range", "6:6", answer="line_5 = 36\n```")
    assert outcome.stdout == AFTER.encode()


def test_an_update_is_merged_without_an_instruction(run: Run, file: Path, tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text("# ... existing code ...\nline_5 = 36\n")
    assert run("edit", file, "--update", snippet).stdout == AFTER.encode()


def test_generate_prints_the_text(run: Run) -> None:
    outcome = run("generate", "Count.", answer="one two three")
    assert (outcome.status, outcome.stdout) == (0, b"one two three\n")
    assert run("generate", "Count.", answer="one two three\n").stdout == b"one two three\n"
    assert run("generate", "Count.", answer="").stdout == b""


def test_generate_reads_files_and_standard_input(run: Run, file: Path) -> None:
    assert run("generate", "--file", file, "--chat", answer="fine").stdout == b"fine\n"
    assert run("generate", "-", stdin=b"Count.", answer="fine").stdout == b"fine\n"
    document = json.loads(run("generate", "x", "--prediction", file, "--json", answer=BEFORE).stdout)
    assert (document["text"], document["finish_reason"]) == (BEFORE, "stop")
    assert document["metrics"]["drafted_by_source"]["prediction"] > 0


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version").stdout.decode() == f"lookahead-edit {__version__}\n"


# What is written.


def test_write_replaces_the_file_and_keeps_its_mode(run: Run, file: Path) -> None:
    file.chmod(0o750)
    outcome = run("edit", file, "-i", "Add one to line_5.", "--write")
    assert (outcome.status, outcome.stdout) == (0, b"")
    assert f"{file}: written, 1 change\n" in outcome.stderr
    assert file.read_bytes() == AFTER.encode()
    assert stat.S_IMODE(file.stat().st_mode) == 0o750
    assert os.listdir(file.parent) == ["numbers.py"]


def test_a_symbolic_link_stays_one(run: Run, file: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.py"
    link.symlink_to("../numbers.py")
    assert run("edit", link, "-i", "Add one.", "--write").status == 0
    assert link.is_symlink()
    assert file.read_bytes() == AFTER.encode()


def test_without_a_change_nothing_is_written(run: Run, file: Path) -> None:
    before = file.stat()
    outcome = run("edit", file, "-i", "Nothing.", "--write", answer=f"{BEFORE}```")
    assert outcome.status == 0
    assert "no change" in outcome.stderr
    assert file.stat().st_ino == before.st_ino


def test_half_an_answer_is_never_written(run: Run, file: Path) -> None:
    outcome = run("edit", file, "-i", "Add one.", "--write", "--max-tokens", "20")
    assert (outcome.status, outcome.stdout) == (2, b"")
    assert "cut off after 20 tokens" in outcome.error
    assert "--max-tokens" in outcome.error
    assert file.read_bytes() == BEFORE.encode()


def test_half_an_answer_is_printed_as_json_only(run: Run, file: Path) -> None:
    outcome = run("edit", file, "-i", "Add one.", "--json", "--max-tokens", "20")
    document = json.loads(outcome.stdout)
    assert outcome.status == 2
    assert (document["finish_reason"], document["truncated"]) == ("length", True)
    assert (document["edits"], document["diff"]) == (None, None)


def test_placeholders_are_not_written_unless_forced(run: Run, file: Path) -> None:
    answer = "line_0 = 1\n# ... rest of the code unchanged ...\n```"
    outcome = run("edit", file, "-i", "Set line_0 to 1.", "--write", answer=answer)
    assert (outcome.status, outcome.stdout) == (2, b"")
    assert outcome.error == (
        f"error: {file} was not written: line 2 stands for code that is missing: # ... rest of the code unchanged ...; "
        "--force writes it all the same"
    )
    assert file.read_bytes() == BEFORE.encode()
    twice = "# ... rest of the code unchanged ...\nline_0 = 1\n# ... rest of the code unchanged ...\n```"
    lines = run("edit", file, "-i", "Set line_0 to 1.", "--write", answer=twice).stderr.splitlines()
    assert [line.partition(" stands")[0] for line in lines[:-1]] == ["warning: line 1", "warning: line 3"]
    assert lines[-1].endswith("was not written, for the reasons above; --force writes it all the same")
    assert run("edit", file, "-i", "Set line_0 to 1.", "--write", "--force", answer=answer).status == 0
    assert file.read_text() == answer.removesuffix("```")


# What can't be served: one line, status 2, no model.

BAD_FILES = {
    "missing.py": (None, "No such file or directory"),
    "binary.py": (b"a = 1\n\0\n", "binary (a NUL byte at offset 6)"),
    "latin1.py": ("größe = 1\n".encode("latin-1"), "has the byte 0xf6 at offset 2"),
    "empty.py": (b"", "is empty"),
    "mark.py": (b"\xef\xbb\xbf", "is empty"),
}


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_refused(tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    content, message = BAD_FILES[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(SystemExit, match="2"):
        cli.main(["edit", str(tmp_path / name), "-i", "Add one."])
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert name in line


BAD_ARGUMENTS = {
    "a directory": ([".", "-i", "x"], "is a directory"),
    "a device": (["/dev/zero", "-i", "x"], "is a device"),
    "no instruction": (
        ["FILE"],
        "expected an instruction (-i TEXT) or a snippet to merge (--update FILE), got neither",
    ),
    "an empty instruction": (["FILE", "-i", " \n"], "expected instruction to say something, got an empty one"),
    "an instruction that is no text": (["FILE", "-i", "\udcff"], "valid UTF-8"),
    "a range outside": (["FILE", "-i", "x", "--range", "5:99"], "12 lines"),
    "a range the wrong way": (["FILE", "-i", "x", "--range", "5:4"], "5:4"),
    "a range that is none": (["FILE", "-i", "x", "--range", "all"], "all"),
    "an unknown drafter": (["FILE", "-i", "x", "--drafter", "psychic"], "suffix"),
    "an impossible temperature": (["FILE", "-i", "x", "--temperature", "-1"], "between 0 and 100"),
    "a missing snippet": (["FILE", "--update", "none.py"], "can't read none.py"),
    "writing to standard input": (["-", "-i", "x", "--write"], "leave out --write"),
    "no tokens": (["FILE", "-i", "x", "--max-tokens", "0"], "--max-tokens"),
    "an unknown option": (["FILE", "--nonsense"], "--nonsense"),
    "no file": ([], "FILE"),
}


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_bad_arguments_are_refused(
    file: Path, name: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, message = BAD_ARGUMENTS[name]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BEFORE.encode())))
    with pytest.raises(SystemExit, match="2"):
        cli.main(["edit", *(str(file) if argument == "FILE" else argument for argument in arguments)])
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert file.read_bytes() == BEFORE.encode()


def test_a_file_longer_than_the_context_is_refused_with_numbers(run: Run, file: Path) -> None:
    outcome = run("edit", file, "-i", "Add one.", answer=answering(AFTER, max_context_tokens=300))
    assert outcome.status == 2
    assert "300" in outcome.error


def test_a_full_context_asks_for_a_range(run: Run, file: Path) -> None:
    editor = answering("x" * 2000, max_context_tokens=600)
    outcome = run("edit", file, "-i", "Add one.", "--max-tokens", "10000", answer=editor)
    assert outcome.status == 2
    assert "context of 600 tokens is full" in outcome.error


@pytest.mark.usefixtures("no_model")
def test_a_missing_instruction_is_told_before_standard_input_is_read(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SystemExit, match="2"):
        cli.main(["edit", "-"])
    assert "got neither" in capfd.readouterr().err


@pytest.mark.usefixtures("no_model")
def test_generate_refuses_an_empty_prompt(capfd: pytest.CaptureFixture[str], file: Path) -> None:
    for arguments, message in ((["  "], "prompt"), (["x", "--file", str(file)], "got both")):
        with pytest.raises(SystemExit, match="2"):
            cli.main(["generate", *arguments])
        assert message in capfd.readouterr().err


def test_a_quiet_display_still_warns(capfd: pytest.CaptureFixture[str]) -> None:
    display = Display(is_quiet=True)
    display.say("figures")
    display.warn("code is missing")
    assert capfd.readouterr().err == "warning: code is missing\n"


def test_ctrl_c_that_hits_a_destructor_still_keeps_the_file(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unlucky(RecordedTarget):
        def close(self, key: int) -> None:
            class Dying:
                def __del__(self) -> None:
                    signal.raise_signal(signal.SIGINT)  # Python prints what is raised here, and goes on

            Dying()
            super().close(key)

    tokens = ByteTokenizer().encode(f"{AFTER}```", parse_special=False)
    editor = Editor(Unlucky(lambda prompt: tokens, end_token_id=257), ByteTokenizer(), model_name="logged")
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    outcome = run("edit", file, "-i", "Do it.", "--write", answer=editor)
    assert len(lost) == 1
    assert (outcome.status, file.read_text()) == (130, BEFORE)
    assert run("edit", file, "-i", "Do it.", "--write").status == 0  # forgotten by the next command
