"""Which cells the matrix has: groups of methods on a workload, context and temperature; a quick and a full profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.matrix_methods import ASSISTED, COMBINED, MODEL, NONE, PLAIN, PROMPT_LOOKUP, Method
from benchmarks.matrix_workloads import WORKLOADS

CODE_EDITS = "code edits"
CONTEXTS = (512, 2048, 6144)
TEMPERATURES = (0.0, 0.7)
FIXED_LENGTHS = (1, 2, 4, 8, 16, 32, 64)
MODEL_LENGTHS = (2, 3, 4, 5, 6, 7, 8)
SEED = 7


@dataclass(frozen=True)
class Group:
    """Methods that take turns on the same prompts."""

    workload: str
    context: int  # prompt tokens, about
    temperature: float
    methods: tuple[Method, ...]
    num_tasks: int


@dataclass(frozen=True)
class Profile:
    """A choice of groups, and how thoroughly they are measured."""

    name: str
    groups: tuple[Group, ...]
    num_repeats: int
    max_tokens: int  # emitted by a run


def _at(name: str, lengths: Sequence[int]) -> tuple[Method, ...]:
    return tuple(Method(name, length) for length in lengths)


BASES = (Method(PLAIN), Method(NONE), Method(PROMPT_LOOKUP))
AUTO = Method("edit")
EVERY_METHOD = (
    *BASES,
    Method(ASSISTED),
    *_at(MODEL, MODEL_LENGTHS),
    *(each for name in ("ngram", "suffix", "edit", COMBINED) for each in (*_at(name, FIXED_LENGTHS), Method(name))),
)
QUICK_EDIT_METHODS = (
    *BASES,
    Method(ASSISTED),
    *_at(MODEL, (2, 4, 8)),
    *(each for name in ("ngram", "suffix") for each in (Method(name, 16), Method(name))),
    *(*_at("edit", (4, 16, 64)), AUTO),
    Method(COMBINED),
)
QUICK_METHODS = (*BASES, Method(MODEL, 4), AUTO)

PROFILES = {
    "quick": Profile(
        "quick",
        (
            Group(CODE_EDITS, 512, 0.0, QUICK_EDIT_METHODS, num_tasks=2),
            *(
                Group(workload, 512, 0.0, QUICK_METHODS, num_tasks=2)
                for workload in WORKLOADS
                if workload != CODE_EDITS
            ),
            Group(CODE_EDITS, 2048, 0.0, (*BASES, AUTO), num_tasks=1),
            Group(CODE_EDITS, 512, 0.7, (*BASES, AUTO), num_tasks=1),
        ),
        num_repeats=2,
        max_tokens=64,
    ),
    "full": Profile(
        "full",
        tuple(
            Group(workload, context, temperature, EVERY_METHOD, num_tasks=4)
            for workload in WORKLOADS
            for context in CONTEXTS
            for temperature in TEMPERATURES
        ),
        num_repeats=3,
        max_tokens=256,
    ),
}
