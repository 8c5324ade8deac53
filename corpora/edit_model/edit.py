"""The noun that all kinds of edit share, and their common seam."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from corpora.edit_model.pieces import Piece


@dataclass(frozen=True)
class Edit:
    """One instruction and the whole text after it."""

    instruction: str
    after: str


# A kind of edit gives None where the piece has no place for it, or where the instruction could be read in two ways.
EditKind = Callable[[random.Random, Piece], Edit | None]
