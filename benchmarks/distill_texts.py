"""What a draft model is taught and judged on: text number `index` of a split and seed is always the same one.

Code and prose are those of installed packages, edits and quotes are tasks of the edit adapter's trainer, in its prompt
templates: a draft model that copies from a file must have seen files to copy. Training and evaluation read different
packages (`corpora.edit_model.pieces` names them).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from corpora.edit_model.kinds import SHORT_MIX, TaskMix
from corpora.edit_model.pieces import cut_piece
from corpora.edit_model.quotes import paragraphs
from corpora.edit_model.tasks import make_task

KIND_WEIGHTS = {"edit": 40.0, "code": 25.0, "prose": 20.0, "quote": 15.0}
CODE_LANGUAGES = {"python": 70, "javascript": 20, "c": 6, "markdown": 4}
MAX_CODE_LINES = 40
MIN_PROSE_WORDS = 60
MIN_TEXT_TOKENS, MAX_TEXT_TOKENS, MAX_TASK_TOKENS = 48, 320, 640


class Encoder(Protocol):
    """What is needed of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Token ids, special tokens in the text included and none added."""


@dataclass(frozen=True)
class Text:
    """Tokens to be read, and from where on the next one is to be foretold."""

    kind: str  # of KIND_WEIGHTS
    tokens: list[int]
    first: int  # index of the first token that is to be foretold, at least 1


def _code(rng: random.Random, split: str) -> tuple[str, str] | None:
    language = rng.choices(list(CODE_LANGUAGES), list(CODE_LANGUAGES.values()))[0]
    piece = cut_piece(rng, split, language, MAX_CODE_LINES)
    return None if piece is None else ("", piece.text)


def _prose(rng: random.Random, split: str) -> tuple[str, str] | None:
    """Neighbouring paragraphs, so that the text goes on where a document does."""
    known = paragraphs(split)
    first = rng.randrange(len(known))
    text, num_words = "", 0
    for paragraph in known[first:]:
        text += " ".join(paragraph) + "\n\n"
        num_words += sum(len(sentence.split()) for sentence in paragraph)
        if num_words >= MIN_PROSE_WORDS:
            return "", text
    return None


def _task(family: str) -> Callable[[random.Random, str], tuple[str, str] | None]:
    mix = TaskMix(
        families={family: 1.0},
        line_limits=SHORT_MIX.line_limits,
        context_lines=SHORT_MIX.context_lines,
        made_up_share=SHORT_MIX.made_up_share,
    )

    def make(rng: random.Random, split: str) -> tuple[str, str] | None:
        task = make_task(split, rng.randrange(2**31), 0, mix)
        return task.prompt, task.answer

    return make


MAKERS = {"edit": _task("edit"), "code": _code, "prose": _prose, "quote": _task("quote")}


def make_text(encoder: Encoder, split: str, seed: int, index: int, kind: str | None = None) -> Text:
    """Text number `index` of a split (`train` or `evaluation`) and seed; of one kind, or of all by their weights.

    Example: ``make_text(tokenizer, "evaluation", 0, 7, "prose")``, the same one on every call.
    """
    rng = random.Random(f"distill {split} {seed} {index} {kind}")
    chosen = kind or rng.choices(list(KIND_WEIGHTS), list(KIND_WEIGHTS.values()))[0]
    while True:
        made = MAKERS[chosen](rng, split)
        if made is None:
            continue
        head, body = (encoder.encode(part) if part else [] for part in made)
        if len(head) + len(body) > MAX_TASK_TOKENS and head:
            continue
        tokens = (head + body)[: MAX_TASK_TOKENS if head else MAX_TEXT_TOKENS]
        if len(tokens) >= MIN_TEXT_TOKENS:
            return Text(chosen, tokens, max(1, len(head)))
