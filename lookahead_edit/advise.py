"""What speculation would be worth for logged traffic: which drafter, which length, by batch size, and where not.

The traces are replayed as by `replay`, with the cost of a pass on the machine in question. Knows no command line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lookahead_edit.config import AdviseConfig, SpeculationConfig
from lookahead_edit.cost import CostCurve
from lookahead_edit.crossover import row_curve
from lookahead_edit.policy import FixedPolicy
from lookahead_edit.policy_cost import CostPolicy
from lookahead_edit.replay import drafter_factory, replay_trace, warm_up
from lookahead_edit.replay_figures import TraceReplay
from lookahead_edit.replay_tokens import TokenTrace
from lookahead_edit.types import InvalidInput, Policy, Tokenizer

AUTO: Literal["auto"] = "auto"
Length = int | Literal["auto"]

OUTPUT_BORDERS = (32, 128, 512)  # tokens: outputs are told apart by length
MIN_ADVANTAGE = 1.02  # of a fixed length over auto, for which it is worth to be set


@dataclass(frozen=True)
class Choice:
    """A drafter with a draft length, in a batch of a size."""

    drafter: str
    length: Length
    batch_size: int


@dataclass(frozen=True)
class Worth:
    """What a choice is worth on the traces. Decoding only: prompts are read alike."""

    choice: Choice
    speed_up: float
    tokens_per_round: float
    acceptance_rate: float | None  # accepted / drafted; None where nothing was drafted
    verified_tokens_per_token: float  # in passes, for each emitted one; 1 without drafts: what the gain costs
    max_draft_tokens: int  # of a round
    max_index_bytes: int  # of a request


@dataclass(frozen=True)
class OutputLengths:
    """The traces whose outputs have from `least` to `most` tokens, alone in their batch."""

    least: int
    most: int | None
    num_traces: int
    speed_up: float | None  # of the recommended choice; None without traces


@dataclass(frozen=True)
class Advice:
    """What to do, and all that it follows from."""

    num_traces: int
    num_output_tokens: int
    drafter: str | None  # None: leave speculation off
    length: Length
    by_batch_size: tuple[Worth, ...]  # of the recommended drafter and length, or of the best where none is
    by_output_length: tuple[OutputLengths, ...]
    worths: tuple[Worth, ...]  # of every choice
    max_batch_size: int | None  # the largest one that gains `AdviseConfig.min_gain`; None: none does

    @property
    def has_gain(self) -> bool:
        """Whether speculation is worth anything to a request that is alone."""
        return self.drafter is not None


@dataclass(slots=True)
class _Sums:
    """Over traces; costs in the curve's unit."""

    plain_cost: float = 0.0
    cost: float = 0.0
    num_tokens: int = 0
    num_rounds: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    max_draft_tokens: int = 0
    max_index_bytes: int = 0

    def worth(self, choice: Choice) -> Worth:
        return Worth(
            choice=choice,
            speed_up=self.plain_cost / self.cost,
            tokens_per_round=self.num_tokens / self.num_rounds,
            acceptance_rate=self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else None,
            verified_tokens_per_token=(self.num_draft_tokens + self.num_rounds) / self.num_tokens,
            max_draft_tokens=self.max_draft_tokens,
            max_index_bytes=self.max_index_bytes,
        )


class Adviser:
    """Replays traces one at a time with every drafter, at every length and batch size; memory doesn't grow.

    Making one compiles what drafts, or loads it.

    Args:
        curve: what a pass costs.
        is_in_seconds: whether the curve says so; then building the index and drafting count too, as long as they took
            here, and the figures of two runs differ a little.
        tokenizer: the traces'; drafters know words and lines by it.
        drafters: names, the preferred one first among equals.
        lengths: fixed ones, beside auto.
        batch_sizes: of alike rows that share passes.

    Raises:
        InvalidInput: an unknown drafter, a length or batch size below 1, or none at all.

    Example::

        adviser = Adviser(curve, tokenizer=tokenizer)
        for _, trace in read_traces(file):
            adviser.add(tokenize_trace(trace, tokenizer))
        adviser.advice().drafter
    """

    def __init__(
        self,
        curve: CostCurve,
        *,
        is_in_seconds: bool = False,
        tokenizer: Tokenizer | None = None,
        drafters: Sequence[str] = AdviseConfig.drafters,
        lengths: Sequence[int] = AdviseConfig.lengths,
        batch_sizes: Sequence[int] = AdviseConfig.batch_sizes,
    ) -> None:
        if not drafters:
            raise InvalidInput("expected at least one drafter, got none", param="drafters")
        for name, numbers in (("lengths", lengths), ("batch_sizes", batch_sizes)):
            if not all(number >= 1 for number in numbers):
                raise InvalidInput(f"expected {name} of at least 1, got {list(numbers)}", param=name)
        self._is_in_seconds = is_in_seconds
        # A request is alone at times, whatever else is asked for.
        self._curves = {size: row_curve(curve, size) for size in sorted({1, *batch_sizes})}
        config = SpeculationConfig()
        # For all traces: what a policy learns, it learns of a request.
        self._policies = {size: CostPolicy(curve, config.draft_limit) for size, curve in self._curves.items()}
        self._factories = {
            name: drafter_factory(dataclasses.replace(config, drafter=name), tokenizer) for name in drafters
        }
        warm_up(self._factories.values(), self._policies[1], tokenizer)
        self._lengths = tuple(sorted(set(lengths)))
        self._sums: dict[Choice, _Sums] = {}
        self._bucket_sums: dict[tuple[Choice, int], _Sums] = {}
        self._num_in_bucket = [0] * (len(OUTPUT_BORDERS) + 1)

    def add(self, trace: TokenTrace) -> None:
        """Replays one trace."""
        bucket = sum(len(trace.output) >= border for border in OUTPUT_BORDERS)
        self._num_in_bucket[bucket] += 1
        for name in self._factories:
            for length in self._lengths:  # what is drafted doesn't depend on the cost
                replayed = self._replay(trace, name, FixedPolicy(length))
                for size in self._curves:
                    self._count(Choice(name, length, size), replayed, bucket)
            for size, policy in self._policies.items():
                self._count(Choice(name, AUTO, size), self._replay(trace, name, policy), bucket)

    def advice(self) -> Advice:
        """What follows from the traces so far; InvalidInput where there are none."""
        if not self._sums:
            raise InvalidInput("expected at least one trace, got none", param="traces")
        worths = {choice: sums.worth(choice) for choice, sums in self._sums.items()}
        best = self._best(worths)
        has_gain = worths[best].speed_up >= AdviseConfig.min_gain
        by_size = tuple(worths[dataclasses.replace(best, batch_size=size)] for size in self._curves)
        paying = [worth.choice.batch_size for worth in by_size if worth.speed_up >= AdviseConfig.min_gain]
        return Advice(
            num_traces=sum(self._num_in_bucket),
            num_output_tokens=self._sums[best].num_tokens,
            drafter=best.drafter if has_gain else None,
            length=best.length,
            by_batch_size=by_size,
            by_output_length=tuple(self._by_output_length(best)),
            worths=tuple(worths.values()),
            max_batch_size=max(paying, default=None),
        )

    def _best(self, worths: Mapping[Choice, Worth]) -> Choice:
        """For a request that is alone. Auto, unless a fixed length is clearly better: only auto knows when to stop."""
        alone = {choice: worth.speed_up for choice, worth in worths.items() if choice.batch_size == 1}
        auto = max((choice for choice in alone if choice.length == AUTO), key=alone.__getitem__)
        best = max(alone, key=alone.__getitem__)
        return best if alone[best] >= MIN_ADVANTAGE * alone[auto] else auto

    def _by_output_length(self, choice: Choice) -> list[OutputLengths]:
        found = []
        for bucket, num_traces in enumerate(self._num_in_bucket):
            least = OUTPUT_BORDERS[bucket - 1] if bucket else 1
            most = OUTPUT_BORDERS[bucket] - 1 if bucket < len(OUTPUT_BORDERS) else None
            sums = self._bucket_sums.get((choice, bucket))
            found.append(OutputLengths(least, most, num_traces, sums.plain_cost / sums.cost if sums else None))
        return found

    def _replay(self, trace: TokenTrace, drafter: str, policy: Policy) -> TraceReplay:
        return replay_trace(trace, self._factories[drafter](trace), policy)

    def _count(self, choice: Choice, replayed: TraceReplay, bucket: int) -> None:
        metrics = replayed.metrics
        longest = max(round_.num_draft_tokens for round_ in replayed.rounds)
        costs = self._curves[choice.batch_size].values(1, longest + 1)
        cost = sum(float(costs[round_.num_draft_tokens]) for round_ in replayed.rounds)
        if self._is_in_seconds:
            cost += metrics.draft_seconds + replayed.index_build_seconds + replayed.commit_seconds
        sums = [self._sums.setdefault(choice, _Sums())]
        if choice.batch_size == 1:
            sums.append(self._bucket_sums.setdefault((choice, bucket), _Sums()))
        for each in sums:
            each.plain_cost += float(costs[0]) * metrics.num_emitted_tokens
            each.cost += cost
            each.num_tokens += metrics.num_emitted_tokens
            each.num_rounds += metrics.num_rounds
            each.num_draft_tokens += metrics.num_draft_tokens
            each.num_accepted_tokens += metrics.num_accepted_tokens
            each.max_draft_tokens = max(each.max_draft_tokens, longest)
            each.max_index_bytes = max(each.max_index_bytes, metrics.max_index_bytes)
