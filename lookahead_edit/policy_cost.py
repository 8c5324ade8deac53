"""Draft lengths from estimated acceptance and the measured cost of a pass. `cost.py` derives the rule."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from lookahead_edit.cost import CostCurve, best_constant_length, run_costs
from lookahead_edit.kernels.length import best_length, best_shared_length, fill_savings
from lookahead_edit.payoff import MAX_RISK, ROUNDS_BETWEEN_TRIES, Payoff
from lookahead_edit.types import Draft, FloatArray, Round

# Tokens that fill a width another row of the batch pays for are free by the curve, and still have to be this likely.
MIN_FILLER_PROBABILITY = 0.02
REFUSAL = f"drafts have not paid off lately, at most {ROUNDS_BETWEEN_TRIES} rounds to the next try"


class CostPolicy:
    """Keeps what costs least until the copied run has ended; nothing where that is cheapest, or drafts don't pay.

    A draft without probabilities is judged by its match: after m agreeing tokens the next one agrees with probability
    ``(m + 1) / (m + 2)`` (Laplace's rule of succession), and then m has grown by one, so that the first i tokens are
    right with probability ``(m + 1) / (m + 1 + i)``.

    Rows of a batch that share their passes share the width too: the width with the largest sum of savings is taken,
    and each row fills it with what is likely enough. What is left of a run is reckoned at the row's share of plain
    passes, and of what wider ones cost more at a share for each row that could use them now.

    Args:
        curve: what a pass costs.
        max_draft_tokens: never exceeded; less where longer drafts can't pay, or would risk too much at once.

    Example: where a further token costs 0.01 of a pass and nine in ten tokens are right, 24 are drafted; where it
    costs a whole one, 3.
    """

    def __init__(self, curve: CostCurve, max_draft_tokens: int) -> None:
        compile_length_kernels()
        self._curve = curve
        costs = curve.values(1, max_draft_tokens + 1)
        num_bearable_tokens = int(np.searchsorted(costs, (1.0 + MAX_RISK) * costs[0], side="right")) - 1
        self._max_draft_tokens = min(max_draft_tokens, best_constant_length(costs), num_bearable_tokens)
        self._pass_costs: dict[int, NDArray[np.float64]] = {}  # by batch size
        # By batch size, and the number of rows that share what a wider pass costs more.
        self._run_costs: dict[tuple[int, int], NDArray[np.float64]] = {}
        self._scratch = np.zeros(self._max_draft_tokens + 1)
        self._positions = np.arange(1, self._max_draft_tokens + 1, dtype=np.float32)
        self._payoff = Payoff()

    @property
    def max_draft_tokens(self) -> int:
        return self._max_draft_tokens

    def cut(self, drafts: Sequence[Draft]) -> list[Draft]:
        probabilities = [self._probabilities(draft) for draft in drafts]
        lengths = self._lengths(probabilities)
        if not self._payoff.is_trying and any(lengths):
            refused = [draft.tokens[:length] for draft, length in zip(drafts, lengths, strict=True)]
            self._payoff.follow(refused, [self._extra_cost(length, len(drafts)) for length in lengths])
            return [draft.cut(0, REFUSAL) for draft in drafts]
        return [
            draft.cut(length) if length or not len(draft) else draft.cut(0, _reason(likely))
            for draft, length, likely in zip(drafts, lengths, probabilities, strict=True)
        ]

    def observe(self, rounds: Sequence[Round]) -> None:
        lengths = [finished.num_draft_tokens for finished in rounds]
        if any(lengths):
            num_accepted_tokens = sum(finished.num_accepted_tokens for finished in rounds)
            extra_costs = [self._extra_cost(length, len(rounds)) for length in lengths]
            extra_cost = max(extra_costs) if self._curve.shares_passes else sum(extra_costs) / len(rounds)
            self._payoff.add(num_accepted_tokens / len(rounds) - extra_cost)
        elif self._payoff.is_refusing:
            self._payoff.observe_refused(rounds)

    def _probabilities(self, draft: Draft) -> FloatArray:
        """float32[min(draft, limit)]."""
        num_tokens = min(len(draft), self._max_draft_tokens)
        if draft.probabilities is not None:
            return draft.probabilities[:num_tokens]
        num_seen = np.float32(draft.match_length + 1)
        return num_seen / (num_seen + self._positions[:num_tokens])

    def _lengths(self, probabilities: Sequence[FloatArray]) -> list[int]:
        if not any(map(len, probabilities)):
            return [0] * len(probabilities)
        if len(probabilities) == 1 or not self._curve.shares_passes:
            costs, futures = self._pass_costs_of(1), self._run_costs_of(1, 1)
            return [
                best_length(row, costs, futures, self._scratch, self._goes_on(row)) if len(row) else 0
                for row in probabilities
            ]
        return self._shared_lengths(probabilities)

    def _shared_lengths(self, probabilities: Sequence[FloatArray]) -> list[int]:
        num_rows = len(probabilities)
        costs, futures = self._pass_costs_of(num_rows), self._run_costs_of(num_rows, num_rows)
        # What each would draft if all rows did the same tells how many of them have a use for a wide pass.
        equal = [
            best_length(row, costs / num_rows, futures, self._scratch, self._goes_on(row)) if len(row) else 0
            for row in probabilities
        ]
        futures = self._run_costs_of(num_rows, max(1, round(sum(equal) / max(1, *equal))))
        savings = np.zeros((num_rows, self._max_draft_tokens + 1))
        likely = np.zeros(num_rows, dtype=np.int64)
        for index, row in enumerate(probabilities):
            if len(row):
                fill_savings(row, futures, savings[index], self._goes_on(row))
                likely[index] = np.count_nonzero(row >= MIN_FILLER_PROBABILITY)
        longest = best_shared_length(likely, savings, costs)
        return [min(length, longest) for length in likely.tolist()]

    def _goes_on(self, probabilities: FloatArray) -> bool:
        """Was the draft cut at the limit? A shorter one reaches its source's end, or the output's limit."""
        return len(probabilities) == self._max_draft_tokens

    def _extra_cost(self, num_draft_tokens: int, batch_size: int) -> float:
        """What the pass of such a draft costs beyond a plain one, in plain ones."""
        costs = self._pass_costs_of(batch_size if self._curve.shares_passes else 1)
        return float(costs[num_draft_tokens] / costs[0]) - 1.0

    def _pass_costs_of(self, batch_size: int) -> NDArray[np.float64]:
        if batch_size not in self._pass_costs:
            self._pass_costs[batch_size] = self._curve.values(batch_size, self._max_draft_tokens + 1)
        return self._pass_costs[batch_size]

    def _run_costs_of(self, batch_size: int, num_sharing: int) -> NDArray[np.float64]:
        """A row's share, at the nodes of `kernels.length`."""
        key = (batch_size, num_sharing)
        if key not in self._run_costs:
            costs = self._pass_costs_of(batch_size)
            self._run_costs[key] = run_costs(costs[0] / batch_size + (costs - costs[0]) / num_sharing)
        return self._run_costs[key]


def _reason(probabilities: FloatArray) -> str:
    if not len(probabilities):
        return "no draft tokens are allowed"
    # In tens, for reasons are counted.
    num_tens = round(float(probabilities[0]) * 10.0)
    return f"a draft would cost more than it saves: about {num_tens * 10} % likely to be right"


@cache
def compile_length_kernels() -> None:
    """Compiles them, or loads them from the disk cache: 2 s the very first time, 0.3 s in a new process."""
    costs = CostCurve.linear(0.0).values(1, 2)
    savings = np.zeros((1, 2))
    best_length(np.ones(1, dtype=np.float32), costs, run_costs(costs), savings[0], True)
    fill_savings(np.ones(1, dtype=np.float32), run_costs(costs), savings[0], True)
    best_shared_length(np.ones(1, dtype=np.int64), savings, costs)
