"""The help of every command: readable on 80 columns, with examples, defaults and the names to choose from."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from lookahead_edit import cli
from lookahead_edit.drafters import DRAFTERS
from lookahead_edit.policy import POLICIES

NAMES = {"drafter": DRAFTERS, "drafters": DRAFTERS, "policy": POLICIES}
COLUMNS = 80


def commands_of(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        yield f"{prefix}{name}", command
        if hasattr(command, "commands"):
            yield from commands_of(command, f"{prefix}{name} ")


COMMANDS = dict(commands_of(typer.main.get_command(cli.app)))


def help_of(command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> str:
    """What a command, such as ``"corpus rename"``, says about itself."""
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    with pytest.raises(SystemExit, match="0"):
        cli.main([*command.split(), "--help"])
    return capfd.readouterr().out


@pytest.mark.parametrize("command", ["edit", "generate", "serve"])
def test_help_has_examples_and_defaults(
    command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    text = " ".join(help_of(command, monkeypatch, capfd).split())
    assert "Example" in text
    assert "default: edit" in text or "default: 8000" in text


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_is_readable_on_80_columns(
    command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    text = help_of(command, monkeypatch, capfd)
    assert max(map(len, text.splitlines())) <= COLUMNS
    shown = text.partition("\nOptions:\n")[2].partition("\n\n")[0]
    starts = [line.strip() for line in shown.splitlines() if line.startswith("  -")]
    assert len(starts) == sum(option.param_type_name == "option" for option in COMMANDS[command].params) + 1
    # An option and its explanation begin on one line, and types such as "<bool>" are nothing to read.
    assert [line for line in starts if "  " not in line or "<" in line.partition("  ")[0]] == []


def test_every_command_is_introduced_by_a_whole_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = help_of("", monkeypatch, capfd).partition("\nCommands:\n")[2].splitlines()
    assert len(lines) == sum(" " not in name for name in COMMANDS)
    assert [line for line in lines if not line.endswith(".") or line.endswith("...")] == []


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_names_to_choose_from_are_listed(command: str) -> None:
    for option in COMMANDS[command].params:
        missing = [name for name in NAMES.get(option.name, ()) if name not in option.help]
        assert missing == [], f"--{option.name}"


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys, lookahead_edit.cli as cli\n"
        "try: cli.main(['edit', '--help'])\n"
        "except SystemExit as error: assert not error.code\n"
        "assert not {'torch', 'transformers', 'numba', 'fastapi'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, capture_output=True)
