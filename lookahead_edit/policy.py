"""How many of the guessed tokens are verified. Knows drafts and rounds; no model, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.cost import CostCurve
from lookahead_edit.policy_cost import CostPolicy
from lookahead_edit.types import Draft, DraftTerms, Policy, Round


class FixedPolicy:
    """Keeps up to `max_draft_tokens` of every draft."""

    def __init__(self, max_draft_tokens: int) -> None:
        self._max_draft_tokens = max_draft_tokens

    @property
    def max_draft_tokens(self) -> int:
        return self._max_draft_tokens

    def cut(self, drafts: Sequence[Draft], terms: Sequence[DraftTerms] | None = None) -> list[Draft]:
        return [draft.cut(self._max_draft_tokens, "no draft tokens are allowed") for draft in drafts]

    def observe(self, rounds: Sequence[Round], keys: Sequence[int] | None = None) -> None:
        pass


class MatchLengthPolicy:
    """Keeps `draft_tokens_per_match` tokens for each token of the match, up to `max_draft_tokens`.

    Example: with 8 tokens a match and a limit of 64, a match of 3 keeps 24 tokens, one of 8 or more 64.
    """

    def __init__(self, max_draft_tokens: int, draft_tokens_per_match: float) -> None:
        self._max_draft_tokens = max_draft_tokens
        self._draft_tokens_per_match = draft_tokens_per_match

    @property
    def max_draft_tokens(self) -> int:
        return self._max_draft_tokens

    def cut(self, drafts: Sequence[Draft], terms: Sequence[DraftTerms] | None = None) -> list[Draft]:
        return [draft.cut(self._length(draft), "the match is too short to pay") for draft in drafts]

    def observe(self, rounds: Sequence[Round], keys: Sequence[int] | None = None) -> None:
        pass

    def _length(self, draft: Draft) -> int:
        return int(min(self._max_draft_tokens, self._draft_tokens_per_match * draft.match_length))


class PolicyMaker(Protocol):
    """Makes a fresh policy."""

    def __call__(self, config: SpeculationConfig, cost_curve: CostCurve | None = None) -> Policy:
        """`cost_curve` is the target's, where it is known."""


POLICIES: dict[str, PolicyMaker] = {
    "cost": lambda config, cost_curve=None: CostPolicy(
        cost_curve or CostCurve.linear(config.cost_ratio), config.draft_limit
    ),
    "fixed": lambda config, cost_curve=None: FixedPolicy(config.draft_limit),
    "match_length": lambda config, cost_curve=None: MatchLengthPolicy(
        config.draft_limit, config.draft_tokens_per_match
    ),
}
