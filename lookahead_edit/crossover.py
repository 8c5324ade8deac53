"""From where on speculation stops paying: by batch size, acceptance and length of the output, from a measured curve.

The draft lengths are not reckoned anew: `CostPolicy`, which decides in the engine, is asked for them with drafts of a
given acceptance. Knows no model, no traces and no clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lookahead_edit.config import AdviseConfig, SpeculationConfig
from lookahead_edit.cost import CostCurve
from lookahead_edit.policy_cost import CostPolicy
from lookahead_edit.types import Draft

SHOWN_ACCEPTANCES = (0.5, 0.8, 0.95)
NUM_BISECTIONS = 12  # an acceptance to 1 in 4096
MAX_ACCEPTANCE = 0.999
MAX_DRAFT_TOKENS = SpeculationConfig().draft_limit


@dataclass(frozen=True)
class Payment:
    """What drafts are worth in a full batch of alike rows, when each drafted token is right with one probability."""

    batch_size: int
    acceptance: float  # probability that a drafted token is right, when all before it are
    num_draft_tokens: int  # that the policy lets a row draft
    tokens_per_round: float  # of a row, expected
    speed_up: float  # of decoding, prompts not counted
    verified_tokens_per_token: float  # in passes, for each emitted one; 1 without drafts
    # From so many output tokens on the gain makes up for building the index; None: never, or the curve is no time.
    min_output_tokens: int | None


@dataclass(frozen=True)
class Crossover:
    """One batch size."""

    batch_size: int
    min_acceptance: float | None  # from which drafts gain `AdviseConfig.min_gain`; None: none does
    payments: tuple[Payment, ...]  # one for each acceptance asked for


def crossovers(
    curve: CostCurve,
    batch_sizes: Sequence[int] = AdviseConfig.batch_sizes,
    acceptances: Sequence[float] = SHOWN_ACCEPTANCES,
    *,
    start_seconds: float = 0.0,
    draft_seconds: float = 0.0,
) -> list[Crossover]:
    """Where drafts pay, for each batch size.

    Args:
        curve: what a pass costs; in seconds if the two below are to mean anything.
        batch_sizes: rows of a pass, each at least 1.
        acceptances: each from 0 to below 1.
        start_seconds: until a row's first draft: building the index.
        draft_seconds: of one row's draft, added to what a round costs.

    Example: with `CostCurve.linear(0.01)`, drafts gain at any acceptance above 0.05 while a row is alone; in a batch of
    32 rows, above 0.27.
    """
    payments = Payments(curve, start_seconds=start_seconds, draft_seconds=draft_seconds)
    return [
        Crossover(size, payments.min_acceptance(size), tuple(payments.of(size, each) for each in acceptances))
        for size in batch_sizes
    ]


class Payments:
    """What drafts are worth at any size of batch and acceptance. Arguments as in `crossovers`."""

    def __init__(self, curve: CostCurve, *, start_seconds: float = 0.0, draft_seconds: float = 0.0) -> None:
        self._curve = curve
        self._start_seconds = start_seconds
        self._draft_seconds = draft_seconds
        # One a size: it is asked dozens of times, and what it has seen of one size would tell on another.
        self._policies: dict[int, CostPolicy] = {}

    def of(self, batch_size: int, acceptance: float) -> Payment:
        """In a full batch of alike rows.

        A draft of k tokens, each right with probability a, is expected to emit ``(1 - a ** (k + 1)) / (1 - a)`` tokens
        (Leviathan et al. 2023, equation 1).
        """
        assert 0.0 <= acceptance < 1.0
        length = self.policy_length(batch_size, acceptance)
        tokens_per_round = (1.0 - acceptance ** (length + 1)) / (1.0 - acceptance)
        shared = self._curve.shares_passes
        costs = self._curve.values(batch_size if shared else 1, length + 1)
        num_drafting_rows = batch_size if shared else 1  # the others draft in passes of their own
        round_cost = float(costs[-1]) + (num_drafting_rows * self._draft_seconds if length else 0.0)
        speed_up = tokens_per_round * float(costs[0]) / round_cost
        saved = (float(costs[0]) - round_cost / tokens_per_round) / num_drafting_rows
        num_needed = math.ceil(self._start_seconds / saved) if saved > 0.0 and length else None
        return Payment(
            batch_size=batch_size,
            acceptance=acceptance,
            num_draft_tokens=length,
            tokens_per_round=tokens_per_round,
            speed_up=speed_up,
            verified_tokens_per_token=(length + 1) / tokens_per_round,
            min_output_tokens=num_needed,
        )

    def policy_length(self, batch_size: int, acceptance: float) -> int:
        """How far the cost policy lets each row of a batch draft, when all are alike."""
        if batch_size not in self._policies:
            self._policies[batch_size] = CostPolicy(self._curve, MAX_DRAFT_TOKENS)
        policy = self._policies[batch_size]
        limit = policy.max_draft_tokens
        if limit == 0:
            return 0
        draft = Draft(
            tokens=np.zeros(limit, dtype=np.int32),
            sources=np.zeros(limit, dtype=np.int8),
            probabilities=np.power(acceptance, np.arange(1, limit + 1)).astype(np.float32),
        )
        num_tokens = sum(len(cut) for cut in policy.cut([draft] * batch_size))
        return num_tokens // batch_size

    def min_acceptance(self, batch_size: int) -> float | None:
        """From which acceptance on drafts gain `AdviseConfig.min_gain`, to 1 in 4096; None if even 0.999 doesn't."""

        def pays(acceptance: float) -> bool:
            return self.of(batch_size, acceptance).speed_up >= AdviseConfig.min_gain

        if not pays(MAX_ACCEPTANCE):
            return None
        low, high = 0.0, MAX_ACCEPTANCE
        for _ in range(NUM_BISECTIONS):
            middle = (low + high) / 2.0
            low, high = (low, middle) if pays(middle) else (middle, high)
        return high


def row_curve(curve: CostCurve, batch_size: int, max_draft_tokens: int = MAX_DRAFT_TOKENS) -> CostCurve:
    """What one row pays, its share of the pass, in a batch whose rows all draft as far as it does.

    A policy with this curve lets a lone row draft as far as in such a batch. Where rows don't share passes, the curve
    itself.

    Example: a pass over 8 rows of width 1 costs a row an eighth of it.
    """
    if batch_size == 1 or not curve.shares_passes:
        return curve
    num_widths = max_draft_tokens + 1
    shares = curve.values(batch_size, num_widths) / batch_size
    return CostCurve(widths=tuple(range(1, num_widths + 1)), costs=(tuple(shares.tolist()),))
