"""Options that are given more than once are refused by every command, but for flags and what is made to be repeated;
memory that runs out is one line."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from lookahead_edit import cli, cli_edit
from lookahead_edit.cli_command import Command


def commands_of(group: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, *names, name)
        else:
            yield (*names, name), command


COMMANDS = dict(commands_of(typer.main.get_command(cli.app)))


def run(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as exit_info:
        cli.main(list(map(str, arguments)))
    return int(exit_info.value.code or 0)


@pytest.mark.parametrize("names", sorted(COMMANDS), ids=" ".join)
def test_every_option_of_one_value_is_refused_twice(names: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(COMMANDS[names], Command)
    single = [
        option
        for option in COMMANDS[names].params
        if option.param_type_name == "option" and not option.is_flag and not option.multiple
    ]
    assert single
    for option in single:
        assert run(*names, option.opts[0], "1", "between", option.opts[-1], "2") == 2
        printed = capsys.readouterr()
        lists = "; several values go with commas between" if "commas" in option.help else ""
        assert (printed.out, printed.err) == ("", f"error: expected {option.opts[0]} once, got it 2 times{lists}\n")


def test_costs_are_a_list_with_commas_and_not_the_last_of_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("replay", "traces.jsonl", "--cost", "0.01", "--cost=0.05") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "error: expected --cost once, got it 2 times; several values go with commas between"


def test_flags_and_options_of_many_values_may_be_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("edit", tmp_path / "none.py", "-i", "x", "-q", "--quiet", "--diff", "--diff") == 2
    assert "No such file" in capsys.readouterr().err
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True, timeout=60)
    assert run("corpus", "from-git", tmp_path, "--suffix", ".py", "--suffix", ".ts") == 2
    assert "has none" in capsys.readouterr().err
    repeatable = {option.opts[0] for command in COMMANDS.values() for option in command.params if option.multiple}
    assert repeatable == {"--suffix", "--cors-origin", "--engine-option"}


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_memory_that_runs_out_is_one_line(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def run_out(*_: object) -> None:
        raise error

    file = tmp_path / "a.py"
    file.write_text("x = 1\n", encoding="utf-8")

    monkeypatch.setattr(cli_edit, "open_editor", run_out)
    with pytest.raises(SystemExit, match="2"):
        cli.main(["edit", str(file), "-i", "Add one."])
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: memory ran out")
