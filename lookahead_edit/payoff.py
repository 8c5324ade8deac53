"""Whether one row's drafts have paid lately: an account in plain passes, and drafts followed on paper while refused.

Knows no curve, no model and no clock; who keeps the account says what a draft cost beyond a plain token.
"""

from __future__ import annotations

from dataclasses import dataclass

from lookahead_edit.types import IntArray, num_agreeing

MAX_LOSS = 16.0  # plain passes that drafts may lose, all in all, before they are refused
MAX_RISK = 8.0  # plain passes that a single one may lose
MAX_CREDIT = 32.0  # what gains count at most, so that a bad stretch is noticed soon after a good one
ROUNDS_BETWEEN_TRIES = 128  # while drafts are refused, one goes in all the same: the drafter must hear how it fares


@dataclass(slots=True)
class _Followed:
    """A refused draft, compared with what is emitted instead."""

    tokens: IntArray  # int32[num_draft_tokens]
    extra_cost: float  # plain passes that verifying it would have cost beyond a plain token
    num_right_tokens: int = 0


class Payoff:
    """Refuses a row's drafts after a loss of `MAX_LOSS` plain passes, until refused ones would have made up for it.

    An accepted token saves a plain pass, and a draft costs more than a plain token. A refused draft is followed on
    paper, one at a time: the emitted tokens tell what it would have saved, so a good stretch is noticed at once and a
    bad one costs nothing more, but for one try in `ROUNDS_BETWEEN_TRIES` rounds. If no draft risks more than
    `MAX_RISK`, drafts that are always wrong cost at most 24 passes, and one in 16 after that.

    Example: drafts of 20 tokens cost 0.2 plain passes each. After 81 wrong ones drafts are refused; one of which 17
    tokens turn out right brings them back in the 17th round.
    """

    def __init__(self) -> None:
        self.is_refusing = False
        self._balance = 0.0
        self._num_rounds_to_try = 0
        self._followed: _Followed | None = None

    @property
    def is_trying(self) -> bool:
        """Whether drafts are let in now, whatever they did before."""
        return not self.is_refusing or self._num_rounds_to_try <= 0

    def add(self, num_saved_passes: float) -> None:
        """Hears of a verified draft: its accepted tokens less what it cost, in plain passes."""
        self._followed = None
        self._book(num_saved_passes)
        self._num_rounds_to_try = ROUNDS_BETWEEN_TRIES

    def follow(self, tokens: IntArray, extra_cost: float) -> None:
        """Hears of a refused draft, int32[num_draft_tokens], and what it would have cost."""
        if self._followed is None and len(tokens):
            self._followed = _Followed(tokens, extra_cost)

    def observe_refused(self, emitted: IntArray) -> None:
        """Hears what was emitted in a round without a draft, int32[num_emitted_tokens]."""
        self._num_rounds_to_try -= 1
        followed = self._followed
        if followed is None:
            return
        expected = followed.tokens[followed.num_right_tokens :]
        num_right_tokens = num_agreeing(expected, emitted)
        followed.num_right_tokens += num_right_tokens
        num_saved_passes = followed.num_right_tokens - followed.extra_cost
        goes_on = num_right_tokens == len(emitted) < len(expected)
        if not goes_on or self._balance + num_saved_passes >= 0.0:
            self._followed = None
            self._book(num_saved_passes)

    def _book(self, num_saved_passes: float) -> None:
        self._balance = min(max(self._balance + num_saved_passes, -MAX_LOSS - MAX_RISK), MAX_CREDIT)
        if self._balance >= 0.0:
            self.is_refusing = False
        elif self._balance < -MAX_LOSS:
            self.is_refusing = True
