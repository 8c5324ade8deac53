"""Logged traffic: one prompt and what the model answered, one JSON object a line. Knows texts only."""

from __future__ import annotations

from dataclasses import dataclass

from lookahead_edit.types import ContextFile


@dataclass(frozen=True, slots=True)
class Trace:
    """A prompt and its answer.

    `source` is the text being edited and stands verbatim in `prompt`; None where nothing is edited. `context` is
    draft-only text: other files of the workspace, that never enter the prompt.
    """

    id: str
    prompt: str
    output: str
    source: str | None = None
    context: tuple[ContextFile, ...] = ()
