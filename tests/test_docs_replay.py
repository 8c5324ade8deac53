"""docs/replay.md names the options, the figures and the fields that there are."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from test_cli_help import COMMANDS

from lookahead_edit.replay_figures import ReplayFigures

TEXT = (Path(__file__).parent.parent / "docs" / "replay.md").read_text("utf-8")


def test_every_option_that_is_named_exists() -> None:
    existing = {name for command in COMMANDS.values() for option in command.params for name in option.opts}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", TEXT)) - existing == set()


def test_every_figure_is_explained() -> None:
    assert {field.name for field in fields(ReplayFigures)} - set(re.findall(r"`(\w+)`", TEXT)) == set()


def test_every_builder_of_corpora_is_named() -> None:
    builders = {name for name in COMMANDS if name.startswith("corpus ")}
    assert {name for name in builders if f"`{name} " not in TEXT} == set()
