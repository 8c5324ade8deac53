"""The table of all kinds of edit, how often each is drawn, and drawing one that fits a piece."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from corpora.edit_model.edit import Edit, EditKind
from corpora.edit_model.line_edits import BRACE_FUNCTION_KINDS, LINE_KINDS
from corpora.edit_model.literals import change_number, change_string
from corpora.edit_model.made_up import made_up_piece
from corpora.edit_model.names import rename
from corpora.edit_model.pieces import Piece, cut_piece
from corpora.edit_model.python_bodies import BODY_KINDS
from corpora.edit_model.python_signatures import SIGNATURE_KINDS
from corpora.edit_model.python_view import parses

KINDS: dict[str, EditKind] = {
    "rename": rename,
    "number": change_number,
    "string": change_string,
    **LINE_KINDS,
    **BODY_KINDS,
    **SIGNATURE_KINDS,
    **BRACE_FUNCTION_KINDS,
}
KIND_WEIGHTS = {
    "rename": 22, "number": 4, "string": 5, "insert line": 6, "remove line": 3, "replace line": 2, "comment": 2,
    "comment out": 1, "first or last line": 2, "line at start": 5, "line at end": 4, "docstring": 5,
    "replace docstring": 2, "replace body": 4, "wrap body": 5, "new parameter": 5, "change default": 2, "retype": 3,
    "remove definition": 4, "move definition": 1.5, "decorator": 2, "new function": 2, "insert import": 2,
    "make async": 1, "brace function": 3,
}  # fmt: skip
PYTHON_ONLY = frozenset({*BODY_KINDS, *SIGNATURE_KINDS})
LANGUAGES = {"python": 74, "javascript": 18, "c": 3, "cpp": 1, "markdown": 4}
TRIES_PER_KIND = 30


@dataclass(frozen=True)
class TaskMix:
    """How often each family and each length is drawn."""

    families: dict[str, float] = field(
        default_factory=lambda: {"edit": 60.0, "multi": 11.0, "range": 7.0, "merge": 6.0, "quote": 16.0}
    )
    line_limits: tuple[tuple[int, float], ...] = ((12, 30.0), (20, 34.0), (32, 24.0), (48, 10.0), (80, 2.0))
    context_lines: tuple[int, ...] = (20,)  # lines around a range, before and after
    made_up_share: float = 0.0  # of pieces that are made up
    num_edits: tuple[int, ...] = (2, 2, 2, 3)  # of a task of several edits, each as likely


# What an edit is shows in a short file as well, at half the compute; the evaluation and a run's end take the full mix.
SHORT_MIX = TaskMix(
    families={"edit": 66.0, "multi": 10.0, "range": 5.0, "merge": 5.0, "quote": 14.0},
    line_limits=((10, 40.0), (15, 35.0), (24, 18.0), (36, 6.0), (60, 1.0)),
    context_lines=(2, 5, 10, 20),
    made_up_share=0.4,
)
# Where to edit is asked several times in one file, at the price of one.
PLACES_MIX = TaskMix(
    families={"edit": 50.0, "multi": 25.0, "range": 7.0, "merge": 6.0, "quote": 12.0},
    line_limits=((12, 22.0), (20, 30.0), (32, 28.0), (48, 16.0), (80, 4.0)),
    context_lines=(2, 5, 10, 20),
    made_up_share=0.3,
    num_edits=(2, 2, 3, 4, 5),
)
MIXES = {"full": TaskMix(), "short": SHORT_MIX, "places": PLACES_MIX}


def draw_kind(rng: random.Random, names: tuple[str, ...]) -> str:
    """One of the names, by weight."""
    return rng.choices(names, [KIND_WEIGHTS[name] for name in names])[0]


def _draw_language(rng: random.Random, kind: str) -> str:
    if kind in PYTHON_ONLY:
        return "python"
    if kind in BRACE_FUNCTION_KINDS:
        return "javascript"
    return rng.choices(list(LANGUAGES), list(LANGUAGES.values()))[0]


def apply_kind(rng: random.Random, kind: str, piece: Piece) -> Edit | None:
    """One edit of the kind, or None where the piece has no place for it; Python that parsed before parses after."""
    edit = KINDS[kind](rng, piece)
    if edit is None or edit.after == piece.text or not edit.after.strip():
        return None
    if piece.language == "python" and parses(piece.text) and not parses(edit.after):
        return None
    return edit


def draw_edit(
    rng: random.Random, split: str, mix: TaskMix, names: tuple[str, ...] = tuple(KINDS)
) -> tuple[str, Piece, Edit]:
    """A kind among `names`, a piece that has a place for it, and the edit."""
    limits, weights = [lines for lines, _ in mix.line_limits], [weight for _, weight in mix.line_limits]
    while True:
        kind = draw_kind(rng, names)
        for _ in range(TRIES_PER_KIND):
            limit = rng.choices(limits, weights)[0]
            language = _draw_language(rng, kind)
            is_made_up = rng.random() < mix.made_up_share
            piece = made_up_piece(rng, language) if is_made_up else cut_piece(rng, split, language, limit)
            edit = apply_kind(rng, kind, piece) if piece else None
            if piece is not None and edit is not None:
                return kind, piece, edit
