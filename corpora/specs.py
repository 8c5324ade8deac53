"""Reads the specs of this folder: marked sections, and edits written as steps on the lines of a file.

A section starts with a line ``%% NAME``, or ``%% NAME REST``, and holds the lines up to the next one; a blank line
before ``%% edit`` belongs to none. The steps of an edit, each checked to fit, are applied in order::

    %% edit KIND NAME      starts an edit; the lines below are its instruction
    %% update              a lazy snippet that the model is given to merge
    %% old  … %% new  …    these whole lines, which stand there once, become those
    %% after … %% add …    new lines after these, which stand there once
    %% word A => B         the whole word A becomes B, everywhere
    %% each RE => TEXT     every match of a regular expression, in which ^ and $ are those of a line
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MARK = "%% "
PAIRS = {"old": "new", "after": "add"}


class SpecError(ValueError):
    """A spec that doesn't fit its file; the message names the edit."""


@dataclass(frozen=True)
class Section:
    """``%% name rest`` and the lines below, each with its end."""

    name: str
    rest: str
    text: str


@dataclass(frozen=True)
class SpecifiedEdit:
    """An edit with its result."""

    kind: str
    name: str
    instruction: str
    update: str | None
    after: str


def read_sections(text: str) -> list[Section]:
    """The sections of a spec, in order; text before the first is a comment."""
    sections = []
    text = text.replace(f"\n\n{MARK}edit ", f"\n{MARK}edit ")
    for part in re.split(rf"^{re.escape(MARK)}", text, flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        name, _, rest = head.partition(" ")
        sections.append(Section(name, rest.strip(), body))
    return sections


def read_edits(spec: str, before: str) -> Iterator[SpecifiedEdit]:
    """The edits of one spec, each applied to `before`; SpecError where a step doesn't fit."""
    edits: list[list[Section]] = []
    for section in read_sections(spec):
        if section.name == "edit":
            edits.append([])
        elif not edits:
            raise SpecError(f"expected %% edit first, got %% {section.name}")
        edits[-1].append(section)
    for head, *steps in edits:
        kind, _, name = head.rest.partition(" ")
        try:
            update = next((step.text for step in steps if step.name == "update"), None)
            after = _apply([step for step in steps if step.name != "update"], before)
        except SpecError as error:
            raise SpecError(f"{name}: {error}") from None
        yield SpecifiedEdit(kind, name, head.text.strip(), update, after)


def _apply(steps: list[Section], text: str) -> str:
    remaining = iter(steps)
    for step in remaining:
        if step.name in PAIRS:
            partner = next(remaining, None)
            if partner is None or partner.name != PAIRS[step.name]:
                raise SpecError(f"expected %% {PAIRS[step.name]} after %% {step.name}")
            text = _replace_lines(text, step.text, partner.text if step.name == "old" else step.text + partner.text)
        elif step.name == "word":
            word, new_word = _arrow(step.rest)
            text = _replace_all(text, rf"\b{re.escape(word)}\b", new_word.replace("\\", r"\\"))
        elif step.name == "each":
            text = _replace_all(text, *_arrow(step.rest))
        else:
            raise SpecError(f"expected a step, got %% {step.name}")
    return text


def _arrow(rest: str) -> tuple[str, str]:
    before, arrow, after = rest.partition(" =>")
    if not arrow:
        raise SpecError(f"expected A => B, got {rest}")
    return before, after.removeprefix(" ")


def _replace_all(text: str, pattern: str, replacement: str) -> str:
    text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
    if not count:
        raise SpecError(f"expected a match of {pattern}, got none")
    return text


def _replace_lines(text: str, old: str, new: str) -> str:
    starts = [match.start() for match in re.finditer(rf"^{re.escape(old)}", text, re.MULTILINE)] if old else []
    if len(starts) != 1:
        raise SpecError(f"expected these lines once, got them {len(starts)} times: {old!r}")
    return text[: starts[0]] + new + text[starts[0] + len(old) :]
