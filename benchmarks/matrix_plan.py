"""Which cells the matrix has: groups of methods on a workload, context and temperature; profiles choose among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.matrix_methods import ASSISTED, COMBINED, EARLY_EXIT, MODEL, NONE, PLAIN, PROMPT_LOOKUP, Method
from benchmarks.matrix_workloads import CODE_EDITS, CORPUS_FILES, PROSE_EDITS, WORKLOADS

CONTEXTS = (512, 2048, 6144)
TEMPERATURES = (0.0, 0.7)
FIXED_LENGTHS = (1, 2, 4, 8, 16, 32, 64)
MODEL_LENGTHS = (2, 3, 4, 5, 6, 7, 8)
EARLY_EXIT_LENGTHS = (2, 4, 8)
WHOLE_ANSWER_TOKENS = 256
SEED = 7


@dataclass(frozen=True)
class Group:
    """Methods that take turns on the same prompts."""

    workload: str
    context: int  # prompt tokens, about
    temperature: float
    methods: tuple[Method, ...]
    num_tasks: int
    max_tokens: int = WHOLE_ANSWER_TOKENS  # emitted by a run

    @property
    def wants_right_answers(self) -> bool:
        """Whether only tasks count that the model gets right: where there is one right answer."""
        return self.workload in (CODE_EDITS, PROSE_EDITS)


@dataclass(frozen=True)
class Profile:
    """A choice of groups, and how thoroughly they are measured."""

    name: str
    groups: tuple[Group, ...]
    num_repeats: int


def _at(name: str, lengths: Sequence[int]) -> tuple[Method, ...]:
    return tuple(Method(name, length) for length in lengths)


BASES = (Method(PLAIN), Method(NONE), Method(PROMPT_LOOKUP))
AUTO = Method("edit")
EVERY_METHOD = (
    *BASES,
    Method(ASSISTED),
    *_at(EARLY_EXIT, EARLY_EXIT_LENGTHS),
    *_at(MODEL, MODEL_LENGTHS),
    Method(MODEL),
    *(each for name in ("ngram", "suffix", "edit", COMBINED) for each in (*_at(name, FIXED_LENGTHS), Method(name))),
)
# Without the slow ones that say nothing new of edits: `none`, which writes plain's text at plain's speed, and early
# exits, which take twice as long as that.
QUICK_EDIT_METHODS = (
    Method(PLAIN),
    Method(PROMPT_LOOKUP),
    Method(ASSISTED),
    Method(MODEL),
    Method("ngram"),
    *(each for name in ("suffix", "edit") for each in (Method(name, 64), Method(name))),
    Method(COMBINED),
)
LENGTHS_METHODS = (
    Method(PLAIN),
    *_at(MODEL, MODEL_LENGTHS),
    *(each for name in ("ngram", "suffix", "edit") for each in _at(name, FIXED_LENGTHS)),
)
QUICK_METHODS = (Method(PLAIN), Method(PROMPT_LOOKUP), Method(MODEL), AUTO)
QUICK_CHAT_METHODS = (*BASES, Method(EARLY_EXIT, 4), Method(MODEL), AUTO)
OPEN_CHAT = "open chat"


def _cut_quickly(workload: str) -> Group:
    """Answers that are cut before they end."""
    is_chat = workload == OPEN_CHAT
    methods = QUICK_CHAT_METHODS if is_chat else QUICK_METHODS
    return Group(workload, 512, 0.0, methods, num_tasks=1, max_tokens=96 if is_chat else 64)


PROFILES = {
    "quick": Profile(
        "quick",
        (
            Group(CODE_EDITS, 512, 0.0, QUICK_EDIT_METHODS, num_tasks=2),
            Group(CODE_EDITS, 512, 0.7, (*BASES, AUTO), num_tasks=1),
            Group(CODE_EDITS, 2048, 0.0, (Method(PLAIN), Method(PROMPT_LOOKUP), AUTO), num_tasks=1),
            Group(PROSE_EDITS, 512, 0.0, QUICK_METHODS, num_tasks=1),
            *(_cut_quickly(workload) for workload in CORPUS_FILES),
        ),
        num_repeats=2,
    ),
    "lengths": Profile("lengths", (Group(CODE_EDITS, 512, 0.0, LENGTHS_METHODS, num_tasks=1),), num_repeats=2),
    "full": Profile(
        "full",
        tuple(
            Group(workload, context, temperature, EVERY_METHOD, num_tasks=4)
            for workload in WORKLOADS
            for context in CONTEXTS
            for temperature in TEMPERATURES
        ),
        num_repeats=3,
    ),
}
