"""Standard streams that are closed or full: one line says so, and what was asked for is still done where it can be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lookahead_edit.cli_display import Display, rendered
from tests.replay_command import when_said, write_samples
from tests.shell_command import shell

pytestmark = pytest.mark.skipif(os.name == "nt" or not os.path.exists("/dev/full"), reason="shells of Unix")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], [], ["corpus"], ["replay", "TRACES"]])
@pytest.mark.parametrize(
    ("redirections", "reason"), [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")]
)
def test_output_that_can_not_be_written_is_one_line(
    arguments: list[str], redirections: str, reason: str, tmp_path: Path
) -> None:
    traces = write_samples(tmp_path)
    named = (str(traces) if argument == "TRACES" else argument for argument in arguments)
    done = shell(*named, redirections=redirections)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert line.startswith("error: ")
    assert line.endswith(reason)


@pytest.mark.parametrize(
    "arguments", [["edit", "-", "-i", "x"], ["generate"], ["replay", "-"], ["corpus", "rename", "-"]]
)
def test_a_closed_standard_input_is_an_empty_one(arguments: list[str]) -> None:
    done = shell(*arguments, redirections="<&-")
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert line.startswith("error: expected ")


@pytest.mark.parametrize("redirections", ["2>&-", "2>/dev/full", "<&- >&- 2>&-"])
def test_messages_that_nobody_can_read_change_nothing(redirections: str, tmp_path: Path) -> None:
    path = write_samples(tmp_path)
    path.write_bytes(b"broken\n" + path.read_bytes())
    done = shell("replay", path, "--drafters", "none", "--per-trace", tmp_path / "rows.csv", redirections=redirections)
    has_output = ">&- " not in redirections
    assert done.returncode == (0 if has_output else 2)
    assert ("2 traces" in done.stdout) == has_output
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 7
    assert shell("replay", tmp_path / "none.jsonl", redirections=redirections).returncode == 2


def test_what_is_rendered_is_not_written(capfd: pytest.CaptureFixture[str]) -> None:
    assert rendered("one  ", "", "two", width=20) == "one\n\ntwo\n"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "shown"), [("a\nb", "a\\nb"), ("a\x1b[31mb\rc", "a\\x1b[31mb\\rc"), ("\udcff\u202e", "\\udcff\\u202e")]
)
def test_a_message_is_one_line_whatever_is_in_it(name: str, shown: str, capfd: pytest.CaptureFixture[str]) -> None:
    display = Display()
    display.fail(f"can't read {name}: it is [b]bold[/b]")
    display.warn(name)
    display.say(name)
    assert capfd.readouterr().err == f"error: can't read {shown}: it is [b]bold[/b]\nwarning: {shown}\n{shown}\n"


def test_what_takes_long_says_so_where_no_live_line_is_seen(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    said = when_said(monkeypatch)
    monkeypatch.setattr("lookahead_edit.cli_display.PATIENCE_SECONDS", 600.0)
    for display in (Display(is_long=True), Display(), Display(is_long=True, is_quiet=True)):
        with display.live("what is done in no time"):
            pass
    monkeypatch.setattr("lookahead_edit.cli_display.PATIENCE_SECONDS", 0.0)
    with Display(is_long=True).live("measuring"):
        assert said.wait(timeout=60.0)
    assert capfd.readouterr().err == "measuring …\n"
