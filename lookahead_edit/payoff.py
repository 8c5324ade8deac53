"""Whether drafts have paid lately: an account in plain passes, and drafts followed on paper while they are refused.

Knows no curve, no model and no clock; who keeps the account says what a draft's pass cost beyond a plain one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lookahead_edit.types import IntArray, Round, num_agreeing

MAX_LOSS = 16.0  # plain passes that drafts may lose, all in all, before they are refused
MAX_RISK = 8.0  # plain passes that a single one may lose
MAX_CREDIT = 32.0  # what gains count at most, so that a bad stretch is noticed soon after a good one
ROUNDS_BETWEEN_TRIES = 128  # while drafts are refused, one goes in all the same: the drafter must hear how it fares


@dataclass(slots=True)
class _Followed:
    """A refused draft, compared with what is emitted instead."""

    tokens: IntArray  # int32[num_draft_tokens]
    extra_cost: float  # plain passes that verifying it would have cost beyond a plain one
    num_right_tokens: int = 0


class Payoff:
    """Refuses drafts after a loss of `MAX_LOSS` plain passes, until refused ones would have made up for it.

    An accepted token saves a plain pass, and a draft's pass costs more than a plain one. A refused draft is followed on
    paper, one a row at a time: the emitted tokens tell what it would have saved, so a good stretch is noticed at once
    and a bad one costs nothing more, but for one try in `ROUNDS_BETWEEN_TRIES` rounds. If no draft risks more than
    `MAX_RISK`, drafts that are always wrong cost at most 24 passes, and one in 16 after that.

    Example: drafts of 20 tokens cost 0.2 plain passes each. After 81 wrong ones drafts are refused; one of which 17
    tokens turn out right brings them back in the 17th round.
    """

    def __init__(self) -> None:
        self.is_refusing = False
        self._balance = 0.0
        self._num_rounds_to_try = 0
        self._followed: dict[int, _Followed] = {}  # by row
        self._num_rows = 0

    @property
    def is_trying(self) -> bool:
        """Whether drafts are let in now, whatever they did before."""
        return not self.is_refusing or self._num_rounds_to_try <= 0

    def add(self, num_saved_passes: float) -> None:
        """Hears of verified drafts: mean accepted tokens a row less the pass's extra cost, in plain passes."""
        self._followed.clear()
        self._book(num_saved_passes)
        self._num_rounds_to_try = ROUNDS_BETWEEN_TRIES

    def follow(self, drafts: Sequence[IntArray], extra_costs: Sequence[float]) -> None:
        """Hears of refused drafts, int32[num_draft_tokens] for each row, and what the pass of each would have cost."""
        if len(drafts) != self._num_rows:
            # Rows have no names here, so they can't be told apart once one has left.
            self._num_rows = len(drafts)
            self._followed.clear()
        for row, (tokens, extra_cost) in enumerate(zip(drafts, extra_costs, strict=True)):
            if len(tokens):
                self._followed.setdefault(row, _Followed(tokens, extra_cost))

    def observe_refused(self, rounds: Sequence[Round]) -> None:
        """Hears what was emitted in a round without drafts."""
        self._num_rounds_to_try -= 1
        if len(rounds) != self._num_rows:
            self._followed.clear()
        num_pending_passes = 0.0
        for row, followed in list(self._followed.items()):
            expected = followed.tokens[followed.num_right_tokens :]
            num_right_tokens = num_agreeing(expected, rounds[row].tokens)
            followed.num_right_tokens += num_right_tokens
            num_saved_passes = (followed.num_right_tokens - followed.extra_cost) / len(rounds)
            if num_right_tokens == len(rounds[row].tokens) < len(expected):
                num_pending_passes += num_saved_passes
            else:
                del self._followed[row]
                self._book(num_saved_passes)
        if self._balance + num_pending_passes >= 0.0:
            self._followed.clear()
            self._book(num_pending_passes)

    def _book(self, num_saved_passes: float) -> None:
        self._balance = min(max(self._balance + num_saved_passes, -MAX_LOSS - MAX_RISK), MAX_CREDIT)
        if self._balance >= 0.0:
            self.is_refusing = False
        elif self._balance < -MAX_LOSS:
            self.is_refusing = True
