"""Changes of one literal: a number or a string that stands once in the piece. Any language."""

from __future__ import annotations

import random
import re

from corpora.edit_model.edit import Edit
from corpora.edit_model.pieces import Piece
from corpora.edit_model.words import phrase_text, say

NUMBER = re.compile(r"(?<![\w.$/:#-])\d{1,5}(?:\.\d{1,3})?(?![\w.%/:-])")
STRING = re.compile(r"(?<![\w\\'\"])(['\"])([A-Za-z][\w .:/,-]{1,40})\1(?!['\"])")
NUMBER_TEMPLATES = (
    "Change {old} to {new}",
    "Change the number {old} to {new}",
    "Replace {old} with {new}",
    "Replace the number {old} by {new}",
    "Use {new} instead of {old}",
    "Set the value {old} to {new}",
    "Make it {new} instead of {old}",
)
STRING_TEMPLATES = (
    "Change the string {old} to {new}",
    "Change {old} to {new}",
    "Replace {old} with {new}",
    "Replace the string {old} by {new}",
    "Use {new} instead of {old}",
    "The text should be {new}, not {old}",
)


def _other_number(rng: random.Random, old: str) -> str:
    while True:
        if "." in old:
            new = f"{rng.uniform(0, 2 * float(old) + 1):.{rng.randint(1, 3)}f}"
        elif rng.random() < 0.3:
            new = str(int(old) + rng.choice((1, 2, 5, 10, 100)))
        else:
            new = str(
                rng.choice((rng.randint(0, 20), rng.randint(2, 300), rng.randint(100, 9999), 2 ** rng.randint(3, 14)))
            )
        if new != old:
            return new


def change_number(rng: random.Random, piece: Piece) -> Edit | None:
    """Change a number whose digits stand nowhere else in the piece."""
    matches = [match for match in NUMBER.finditer(piece.text) if piece.text.count(match.group()) == 1]
    if not matches:
        return None
    match = rng.choice(matches)
    new = _other_number(rng, match.group())
    after = piece.text[: match.start()] + new + piece.text[match.end() :]
    return Edit(say(rng, NUMBER_TEMPLATES, old=match.group(), new=new), after)


def change_string(rng: random.Random, piece: Piece) -> Edit | None:
    """Change a short one-line string whose text stands nowhere else in the piece."""
    matches = [
        match
        for match in STRING.finditer(piece.text)
        if piece.text.count(match.group(2)) == 1 and not match.group(2).endswith(" ")
    ]
    if not matches:
        return None
    match = rng.choice(matches)
    quote, old = match.group(1), match.group(2)
    new = old
    if rng.random() < 0.3 and re.search(r"[ _-]", old):
        # Only one word of the string changes.
        words = re.split(r"([ _-])", old)
        words[2 * rng.randrange((len(words) + 1) // 2)] = phrase_text(rng).split(" ")[0]
        new = "".join(words)
    if new == old or not new:
        new = phrase_text(rng)
    if new in piece.text:
        return None
    after = piece.text[: match.start(2)] + new + piece.text[match.end(2) :]
    if rng.random() < 0.7:
        old, new = f"{quote}{old}{quote}", f"{quote}{new}{quote}"
    return Edit(say(rng, STRING_TEMPLATES, old=old, new=new), after)
