"""From tasks to token rows with a weight for every answer token."""

from __future__ import annotations

import difflib
import random
from dataclasses import dataclass
from typing import Protocol

from corpora.edit_model.tasks import Task

# Copied tokens are easy and many: by weight the changed ones, and those where the copying goes on, count ten times.
CHANGED_WEIGHT = 3.0
COPIED_WEIGHT = 0.3
LAST_WEIGHT = 1.0
NUM_TOKENS_AFTER_CHANGE = 2
TRIM_PROBABILITY = 0.7
MIN_TAIL_TOKENS, MAX_TAIL_TOKENS = 8, 32


class Encoder(Protocol):
    """What is needed of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Token ids, special tokens in the text included and none added."""


@dataclass(frozen=True)
class Example:
    """A prompt and an answer as tokens; `weights` has one number for each answer token."""

    label: str
    prompt: list[int]
    answer: list[int]
    weights: list[float]

    @property
    def num_tokens(self) -> int:
        """Tokens of prompt and answer."""
        return len(self.prompt) + len(self.answer)


def encode_task(task: Task, encoder: Encoder, rng: random.Random | None = None) -> Example:
    """Tokenise a task and weight its answer.

    With `rng`, most long unchanged tails are cut off: they cost as much compute as the rest and teach little. The
    cut answer simply stops, so the model never learns to end early.
    """
    label = f"{task.family} {task.kind}"
    prompt, answer = encoder.encode(task.prompt), encoder.encode(task.answer)
    if task.family == "quote":
        return Example(label, prompt, answer, [1.0] * len(answer))
    weights = [COPIED_WEIGHT] * len(answer)
    weights[-1] = LAST_WEIGHT
    source = encoder.encode(task.before)
    last_changed = 0
    for tag, _, _, first, end in difflib.SequenceMatcher(None, source, answer, autojunk=False).get_opcodes():
        if tag == "equal" or first >= len(answer) - 2:
            continue
        for position in range(first, min(max(end, first + 1) + NUM_TOKENS_AFTER_CHANGE - 1, len(answer))):
            weights[position] = CHANGED_WEIGHT
            last_changed = position
    if rng is not None and rng.random() < TRIM_PROBABILITY:
        length = min(len(answer), last_changed + 1 + rng.randint(MIN_TAIL_TOKENS, MAX_TAIL_TOKENS))
        answer, weights = answer[:length], weights[:length]
    return Example(label, prompt, answer, weights)
