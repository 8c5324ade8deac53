"""From tasks to rows of prompt and answer tokens."""

from __future__ import annotations

import difflib
import random
from dataclasses import dataclass
from typing import Protocol

from corpora.edit_model.tasks import Task

TRIM_PROBABILITY = 0.7
MIN_TAIL_TOKENS, MAX_TAIL_TOKENS = 8, 32


class Encoder(Protocol):
    """What is needed of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Token ids, special tokens in the text included and none added."""


@dataclass(frozen=True)
class Example:
    """A prompt and an answer as tokens.

    Every answer token counts the same in training: the sum of their losses is the logarithm of the probability that
    the whole answer is right. (Weighting the changed tokens ten times, as an earlier trainer did, taught the model to
    edit at the first place that could be meant.)
    """

    label: str
    prompt: list[int]
    answer: list[int]

    @property
    def num_tokens(self) -> int:
        """Tokens of prompt and answer."""
        return len(self.prompt) + len(self.answer)


def encode_task(task: Task, encoder: Encoder, rng: random.Random | None = None) -> Example:
    """Tokenise a task.

    With `rng`, most long unchanged tails are cut off: they cost as much compute as the rest and teach little. The
    cut answer simply stops, so the model never learns to end early.
    """
    label = f"{task.family} {task.kind}"
    prompt, answer = encoder.encode(task.prompt), encoder.encode(task.answer)
    if task.family == "quote" or rng is None or rng.random() >= TRIM_PROBABILITY:
        return Example(label, prompt, answer)
    source = encoder.encode(task.before)
    last_changed = 0
    for tag, _, _, first, end in difflib.SequenceMatcher(None, source, answer, autojunk=False).get_opcodes():
        if tag != "equal" and first < len(answer) - 2:
            last_changed = min(max(end, first + 1), len(answer) - 1)
    return Example(label, prompt, answer[: last_changed + 1 + rng.randint(MIN_TAIL_TOKENS, MAX_TAIL_TOKENS)])
