"""Several edits in one task, chosen so that their order does not matter to a reader."""

from __future__ import annotations

import random
import re

from corpora.edit_model.edit import Edit
from corpora.edit_model.hunks import Hunk, line_hunks, touched_lines
from corpora.edit_model.kinds import KINDS, PYTHON_ONLY, TaskMix, apply_kind, draw_edit, draw_kind
from corpora.edit_model.pieces import Piece

TRIES_PER_EDIT = 6


def shifted_line(line: int, hunks: list[Hunk]) -> int:
    """Where an untouched line stands after the hunks. Example: line 5 after `[Hunk(1, 1, 1, 3)]` → 7."""
    return line + sum((hunk.new_end - hunk.new_first) - (hunk.end - hunk.first) for hunk in hunks if hunk.end <= line)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w{2,}", text))


def _join(rng: random.Random, instructions: list[str]) -> str:
    if any("\n" in text for text in instructions):
        return "\n".join(f"- {text}" for text in instructions)
    bare = [text.rstrip(".") for text in instructions]
    style = rng.choice(("numbers", "bullets", "sentences", "sentences", "and", "then"))
    if style == "numbers":
        return "\n".join(f"{number}. {text}" for number, text in enumerate(bare, 1))
    if style == "bullets":
        return "\n".join(f"- {text}" for text in bare)
    if style == "sentences":
        return " ".join(text if text.endswith("?") else f"{text}." for text in bare)
    link = ", and " if style == "and" else ", then "
    return bare[0] + "".join(f"{link}{text[:1].lower()}{text[1:]}" for text in bare[1:]) + "."


def draw_edits(rng: random.Random, split: str, mix: TaskMix) -> tuple[str, Piece, Edit] | None:
    """Several edits of one piece as one, or None if the piece took no second one.

    The edits touch lines that are not neighbours, and no edit speaks of a word that another brought in or took away.
    """
    _, piece, edit = draw_edit(rng, split, mix)
    names = tuple(name for name in KINDS if piece.language == "python" or name not in PYTHON_ONLY)
    instructions, text, touched = [edit.instruction], edit.after, touched_lines(piece.text, edit.after)
    wanted = rng.choice(mix.num_edits)
    for _ in range(TRIES_PER_EDIT * wanted):
        if len(instructions) == wanted:
            break
        following = apply_kind(rng, draw_kind(rng, names), Piece(piece.language, text, piece.package))
        if following is None:
            continue
        hunks = line_hunks(text, following.after)
        if any(line in touched for hunk in hunks for line in range(hunk.first - 1, hunk.end + 1)):
            continue
        tied = _words(piece.text) ^ _words(text)
        later_tied = _words(text) ^ _words(following.after)
        if tied & _words(following.instruction) or later_tied & _words(" ".join(instructions)):
            continue
        touched = {shifted_line(line, hunks) for line in touched} | touched_lines(text, following.after)
        instructions.append(following.instruction)
        text = following.after
    if len(instructions) < 2:
        return None
    return f"{len(instructions)} edits", piece, Edit(_join(rng, instructions), text)
