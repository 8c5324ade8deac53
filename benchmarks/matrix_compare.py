"""Two files of results: the same tokens, rounds and acceptance, and ratios within what repetitions differ by anyway."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.matrix_store import IDENTITY, Results, ResultsMismatch, turn_of
from benchmarks.matrix_tables import groups_of, speed_up
from benchmarks.measure import Spread
from benchmarks.report import spread_text

# What one run of a turn has in common with the next, whatever the machine does meanwhile.
COUNTS = ("tokens_digest", "num_tokens", "num_rounds", "num_draft_tokens", "num_accepted_tokens")
COMPARED = (*IDENTITY, "cost_curve")
MAX_SHOWN = 8


@dataclass
class Compared:
    """What was the same, and what wasn't, a line each."""

    num_runs: int = 0
    num_ratios: int = 0
    num_missing: int = 0  # runs that only one of the two files has
    unequal: list[str] = field(default_factory=list)
    apart: list[str] = field(default_factory=list)  # ratios beyond the spread

    @property
    def is_same(self) -> bool:
        """Whether every run that both files have did the same; times may differ."""
        return self.num_runs > 0 and not self.unequal

    def lines(self) -> list[str]:
        """In words."""
        found = [
            f"{self.num_runs} runs in both, {self.num_missing} in one only: "
            + (f"{len(self.unequal)} DIFFER" if self.unequal else "the same tokens, rounds and acceptance"),
            *_shown(self.unequal),
            f"{self.num_ratios} speed-ups: {self.num_ratios - len(self.apart)} within the spread of the repetitions",
            *_shown(self.apart),
        ]
        return found if self.num_runs else ["no run in common"]

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "benchmark": "matrix comparison",
            "num_runs": self.num_runs,
            "num_missing": self.num_missing,
            "num_unequal": len(self.unequal),
            "num_ratios": self.num_ratios,
            "num_apart": len(self.apart),
        }


def _shown(lines: Sequence[str]) -> list[str]:
    more = [f"  and {len(lines) - MAX_SHOWN} more"] if len(lines) > MAX_SHOWN else []
    return [*(f"  {line}" for line in lines[:MAX_SHOWN]), *more]


def compare_results(first: Results, second: Results, paths: tuple[Path, Path]) -> Compared:
    """Compares runs one by one, and speed-ups group by group.

    Two ratios agree where their spreads overlap, each widened by the spread that is usual in these files: that of few
    repetitions is narrow now and then by chance.

    Raises ResultsMismatch for files of different commits, models, machines or measured costs of a pass.
    """
    for name in COMPARED:
        if first.header.get(name) != second.header.get(name):
            got = f"{first.header.get(name)!r} and {second.header.get(name)!r}"
            raise ResultsMismatch(f"expected files of the same {name}, got {got} in {paths[0]} and {paths[1]}")
    compared = Compared()
    _compare_counts(compared, *(_by_run(results.rows) for results in (first, second)))
    _compare_ratios(compared, *(_speed_ups(results.rows) for results in (first, second)))
    return compared


def _by_run(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    return {(*turn_of(row), row["label"]): row for row in rows}


def _compare_counts(
    compared: Compared,
    first: Mapping[tuple[Any, ...], Mapping[str, Any]],
    second: Mapping[tuple[Any, ...], Mapping[str, Any]],
) -> None:
    common = [key for key in first if key in second]
    compared.num_runs = len(common)
    compared.num_missing = len(first.keys() ^ second.keys())
    for key in common:
        for name in COUNTS:
            values = first[key][name], second[key][name]
            if values[0] != values[1]:
                compared.unequal.append(f"{_place(key)}: {name} {values[0]}, then {values[1]}")
                break


def _place(key: tuple[Any, ...]) -> str:
    workload, context, temperature, *rest, label = key
    task = f", {rest[0]}, repetition {rest[1] + 1}" if rest else ""
    return f"{label} on {workload}, {context} tokens, T = {temperature:g}{task}"


def _speed_ups(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, ...], Spread]:
    return {
        (*key, label): speed_up(methods, label)
        for key, methods in groups_of(rows).items()
        for label in methods
        if label != "plain" and "plain" in methods
    }


def _compare_ratios(
    compared: Compared, first: Mapping[tuple[Any, ...], Spread], second: Mapping[tuple[Any, ...], Spread]
) -> None:
    common = [key for key in first if key in second]
    compared.num_ratios = len(common)
    if not common:
        return
    spreads = [spread for found in (first, second) for spread in found.values()]
    usual = statistics.median((spread.greatest - spread.least) / spread.median for spread in spreads)
    for key in common:
        lower, upper = sorted((first[key], second[key]), key=lambda spread: spread.median)
        if lower.greatest * (1.0 + usual) < upper.least * (1.0 - usual):
            compared.apart.append(f"{_place(key)}: {spread_text(first[key])}, then {spread_text(second[key])}")
