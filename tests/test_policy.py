"""How much of a draft is kept."""

from __future__ import annotations

import numpy as np
import pytest

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.policy import POLICIES, FixedPolicy, MatchLengthPolicy
from lookahead_edit.speculation import make_policy
from lookahead_edit.types import Draft, InvalidInput, Round, SourceKind


def draft_of(num_tokens: int, match_length: int = 1) -> Draft:
    tokens = np.arange(num_tokens, dtype=np.int32)
    return Draft(tokens=tokens, sources=np.full(num_tokens, SourceKind.FILE, dtype=np.int8), match_length=match_length)


def lengths(drafts: list[Draft]) -> list[int]:
    return [len(draft) for draft in drafts]


def test_fixed_keeps_every_draft_up_to_the_limit() -> None:
    assert lengths(FixedPolicy(4).cut([draft_of(0), draft_of(3), draft_of(9)])) == [0, 3, 4]


@pytest.mark.parametrize(("match_length", "expected"), [(1, 8), (3, 24), (7, 56), (8, 64), (500, 64)])
def test_match_length_keeps_tokens_for_each_matching_token(match_length: int, expected: int) -> None:
    policy = MatchLengthPolicy(max_draft_tokens=64, draft_tokens_per_match=8.0)
    assert lengths(policy.cut([draft_of(100, match_length)])) == [expected]


def test_a_share_of_a_token_is_none_and_says_why() -> None:
    (kept,) = MatchLengthPolicy(max_draft_tokens=64, draft_tokens_per_match=0.4).cut([draft_of(10, match_length=2)])
    assert len(kept) == 0
    assert kept.reason == "the match is too short to pay"


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_keeps_rows_apart_and_invents_nothing(name: str) -> None:
    policy = POLICIES[name](SpeculationConfig(max_draft_tokens=16))
    drafts = [Draft(reason="nothing matched"), draft_of(40, match_length=40), draft_of(2), draft_of(40, match_length=1)]
    kept = policy.cut(drafts)
    assert len(kept) == len(drafts)
    for draft, part in zip(drafts, kept, strict=True):
        assert len(part) <= policy.max_draft_tokens == 16
        assert part.tokens.tolist() == draft.tokens[: len(part)].tolist()
        assert (len(part) == 0) == (part.reason is not None)
    assert kept[0].reason == "nothing matched"
    policy.observe([Round(tokens=np.array([1], dtype=np.int32), draft=part, num_accepted_tokens=0) for part in kept])
    assert policy.cut([]) == []


@pytest.mark.parametrize("name", POLICIES)
def test_no_draft_tokens_allowed_means_none(name: str) -> None:
    policy = POLICIES[name](SpeculationConfig(max_draft_tokens=0))
    (kept,) = policy.cut([draft_of(5, match_length=9)])
    assert len(kept) == 0
    assert kept.reason is not None


def test_the_limit_is_the_policys_own_unless_it_is_given() -> None:
    limits = {name: SpeculationConfig(policy=name).draft_limit for name in POLICIES}
    assert limits == {"cost": 512, "fixed": 64, "match_length": 64}
    assert SpeculationConfig(policy="cost", max_draft_tokens=7).draft_limit == 7
    assert make_policy(SpeculationConfig(policy="fixed")).max_draft_tokens == 64


@pytest.mark.parametrize("cost_ratio", [-0.1, float("nan"), float("inf"), 1e308])
def test_a_cost_that_is_none_is_refused(cost_ratio: float) -> None:
    with pytest.raises(InvalidInput, match="expected cost_ratio of 0 to 1000, got"):
        SpeculationConfig(cost_ratio=cost_ratio)
