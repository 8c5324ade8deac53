"""Draft lengths from estimated acceptance and the measured cost of a pass. `cost.py` derives the rule."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from lookahead_edit.cost import CostCurve, best_constant_length, run_costs
from lookahead_edit.kernels.length import best_length, fill_savings, share_tokens
from lookahead_edit.payoff import MAX_RISK, ROUNDS_BETWEEN_TRIES, Payoff
from lookahead_edit.types import Draft, DraftTerms, FloatArray, Round

STEADY_ROUNDS = 8  # in a row, after which a batch that has one row more or less counts as that
NEVER_PAYS = "by what a pass costs here, no draft would save anything"
REFUSAL = f"drafts have not paid off lately, at most {ROUNDS_BETWEEN_TRIES} rounds to the next try"


class CostPolicy:
    """Keeps what costs least until the copied run has ended; nothing where that is cheapest, or drafts don't pay.

    A draft without probabilities is judged by its match: after m agreeing tokens the next one agrees with probability
    ``(m + 1) / (m + 2)`` (Laplace's rule of succession), and then m has grown by one, so that the first i tokens are
    right with probability ``(m + 1) / (m + 1 + i)``.

    Rows of a batch that share their passes also share what a pass with more tokens costs more: the tokens are given to
    the rows that save most by them, until the next one costs more than it saves. What is left of a run is reckoned at
    the row's share of a pass in which all rows draft alike. The size of the batch counts as changed by one only after
    `STEADY_ROUNDS` rounds, so that lengths don't jump to and fro where rows come and go.

    Each row has an account (`Payoff`): one whose drafts don't pay is refused, and the others go on.

    Args:
        curve: what a pass costs.
        max_draft_tokens: never exceeded; less where longer drafts can't pay, or would risk too much at once.

    Example: where a further token costs 0.01 of a pass and nine in ten tokens are right, 24 are drafted; where it
    costs a whole one, 3.
    """

    def __init__(self, curve: CostCurve, max_draft_tokens: int) -> None:
        compile_length_kernels()
        self._curve = curve
        self._max_draft_tokens = min(
            max_draft_tokens,
            best_constant_length(curve.values(1, max_draft_tokens + 1)),
            self._num_bearable_tokens(1, max_draft_tokens),
        )
        self._batches: dict[int, _Batch] = {}  # by size
        self._scratch = np.zeros(self._max_draft_tokens + 1)
        self._positions = np.arange(1, self._max_draft_tokens + 1, dtype=np.float32)
        self._single = self._batch_of(1)
        self._size = SteadySize()
        self._accounts: dict[int, Payoff] = {}  # by row

    @property
    def max_draft_tokens(self) -> int:
        return self._max_draft_tokens

    def cut(self, drafts: Sequence[Draft], terms: Sequence[DraftTerms] | None = None) -> list[Draft]:
        if terms is None:
            terms = [DraftTerms(place, self._max_draft_tokens) for place in range(len(drafts))]
        self._accounts = {row.key: self._accounts.get(row.key) or Payoff() for row in terms}
        batch = self._batch_of(self._size.follow(max(1, len(drafts))) if self._curve.shares_passes else 1)
        if len(drafts) == 1 or not self._curve.shares_passes:
            return [self._cut_alone(draft, row, batch) for draft, row in zip(drafts, terms, strict=True)]
        probabilities = [self._probabilities(draft, batch) for draft in drafts]
        lengths = self._shared_lengths(drafts, probabilities, terms, batch)
        return [self._cut(*each, batch) for each in zip(drafts, terms, lengths, probabilities, strict=True)]

    def observe(self, rounds: Sequence[Round], keys: Sequence[int] | None = None) -> None:
        is_shared = self._curve.shares_passes
        num_drafted_tokens = sum(finished.num_draft_tokens for finished in rounds)
        batch = self._batch_of(max(1, len(rounds)) if is_shared else 1)
        for key, finished in zip(range(len(rounds)) if keys is None else keys, rounds, strict=True):
            account = self._accounts.get(key)
            if account is None:
                continue
            if finished.num_draft_tokens:
                num_own_tokens = finished.num_draft_tokens
                extra_cost = batch.extra_cost(num_own_tokens, num_drafted_tokens if is_shared else num_own_tokens)
                account.add(finished.num_accepted_tokens - extra_cost)
            elif account.is_refusing:
                account.observe_refused(finished.tokens)

    def _cut_alone(self, draft: Draft, terms: DraftTerms, batch: _Batch) -> Draft:
        probabilities = self._probabilities(draft, batch)
        length = len(draft) if terms.is_forced else 0
        if not terms.is_forced and len(probabilities):
            goes_on = _goes_on(draft, terms, batch)
            length = best_length(probabilities, batch.costs, batch.futures, self._scratch, goes_on)
        return self._cut(draft, terms, length, probabilities, batch)

    def _cut(self, draft: Draft, terms: DraftTerms, length: int, probabilities: FloatArray, batch: _Batch) -> Draft:
        account = self._accounts[terms.key]
        if length and not account.is_trying and not terms.is_forced:
            account.follow(draft.tokens[:length], batch.extra_cost(length, length))
            return draft.cut(0, REFUSAL)
        if not len(draft) and self._max_draft_tokens == 0:
            return Draft(reason=NEVER_PAYS)  # the drafter was asked for none, and says that there is no room
        return draft.cut(length) if length or not len(draft) else draft.cut(0, _reason(probabilities))

    def _probabilities(self, draft: Draft, batch: _Batch) -> FloatArray:
        """float32[min(draft, limit)]."""
        num_tokens = min(len(draft), batch.max_draft_tokens)
        if draft.probabilities is not None:
            return draft.probabilities[:num_tokens]
        num_seen = np.float32(draft.match_length + 1)
        return num_seen / (num_seen + self._positions[:num_tokens])

    def _shared_lengths(
        self,
        drafts: Sequence[Draft],
        probabilities: Sequence[FloatArray],
        terms: Sequence[DraftTerms],
        batch: _Batch,
    ) -> list[int]:
        lengths = [len(draft) if row.is_forced else 0 for draft, row in zip(drafts, terms, strict=True)]
        free = [place for place, row in enumerate(terms) if not row.is_forced and len(probabilities[place])]
        if free:
            savings = np.zeros((len(free), batch.max_draft_tokens + 1))
            for index, place in enumerate(free):
                goes_on = _goes_on(drafts[place], terms[place], batch)
                fill_savings(probabilities[place], batch.futures, savings[index], goes_on)
            limits = np.array([len(probabilities[place]) for place in free])
            shared = np.zeros(len(free), dtype=np.int64)
            share_tokens(savings, limits, batch.token_costs(sum(lengths), int(limits.sum())), shared)
            for place, length in zip(free, shared.tolist(), strict=True):
                lengths[place] = length
        return lengths

    def _num_bearable_tokens(self, batch_size: int, most: int) -> int:
        """The longest draft that one row of the batch may risk: by its share of the passes it costs `MAX_RISK`."""
        costs = self._curve.token_costs(batch_size, most)
        bearable = (1.0 + MAX_RISK / batch_size) * costs[0]
        return int(np.searchsorted(costs, bearable, side="right")) - 1

    def _batch_of(self, size: int) -> _Batch:
        if size not in self._batches:
            limit = self._num_bearable_tokens(size, self._max_draft_tokens)
            self._batches[size] = _Batch(self._curve, size, limit)
        return self._batches[size]


class _Batch:
    """What drafts cost in a batch of this size.

    `futures` is the cost of the rest of a run, at the nodes of `kernels.length`; `costs` that of a row's widths, in a
    pass where all rows are alike. Both are a row's share of the pass.
    """

    def __init__(self, curve: CostCurve, size: int, max_draft_tokens: int) -> None:
        self.max_draft_tokens = max_draft_tokens
        self.costs = curve.values(size, max_draft_tokens + 1) / size
        self.futures = run_costs(self.costs)
        self._curve = curve
        self._size = size
        self._token_costs = curve.token_costs(size, size * max_draft_tokens)

    def token_costs(self, num_forced_tokens: int, num_tokens: int) -> NDArray[np.float64]:
        """float64[num_tokens + 1]: of the whole pass, by drafted tokens beside the forced ones."""
        most = num_forced_tokens + num_tokens
        if len(self._token_costs) <= most:
            self._token_costs = self._curve.token_costs(self._size, most)
        return self._token_costs[num_forced_tokens : most + 1]

    def extra_cost(self, num_draft_tokens: int, num_drafted_tokens: int) -> float:
        """What a draft costs its row, in its share of plain passes, if there are so many drafted tokens in all."""
        costs = self.token_costs(0, num_drafted_tokens)
        extra = float(costs[num_drafted_tokens] / costs[0]) - 1.0
        return self._size * extra * num_draft_tokens / num_drafted_tokens


class SteadySize:
    """Follows the size of a batch, but a change by one only where it lasts."""

    def __init__(self) -> None:
        self._size: int | None = None
        self._num_rounds_beside = 0

    def follow(self, size: int) -> int:
        """The size to reckon with in a round of `size` rows."""
        self._num_rounds_beside = 0 if size == self._size else self._num_rounds_beside + 1
        if self._size is None or abs(size - self._size) > 1 or self._num_rounds_beside >= STEADY_ROUNDS:
            self._size, self._num_rounds_beside = size, 0
        return self._size


def _goes_on(draft: Draft, terms: DraftTerms, batch: _Batch) -> bool:
    """A shorter draft reaches its source's end, or the output's limit."""
    return len(draft) >= min(terms.max_draft_tokens, batch.max_draft_tokens)


def _reason(probabilities: FloatArray) -> str:
    if not len(probabilities):
        return NEVER_PAYS
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
    ones = np.ones(1, dtype=np.int64)
    share_tokens(savings, ones, costs, ones.copy())
