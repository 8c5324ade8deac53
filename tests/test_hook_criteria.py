"""The first look at the criteria of `generate`: where it says that a row goes on, the criteria would say so too."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from transformers.generation import (  # noqa: E402
    EosTokenCriteria,
    MaxLengthCriteria,
    StoppingCriteria,
    StoppingCriteriaList,
)

from lookahead_edit.hook_rows import UsualCriteria  # noqa: E402


class OwnEnd(EosTokenCriteria):
    """Stops anywhere."""

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        return torch.ones(len(input_ids), dtype=torch.bool)


class Never(StoppingCriteria):
    """Wants to hear of each token."""

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        return torch.zeros(len(input_ids), dtype=torch.bool)


@pytest.mark.parametrize(
    "criteria",
    [
        [EosTokenCriteria(2)],
        [EosTokenCriteria([2, 5])],
        [EosTokenCriteria(torch.tensor([[2], [7]]))],
        [MaxLengthCriteria(6)],
        [MaxLengthCriteria(9, max_position_embeddings=4)],
        [EosTokenCriteria(3), MaxLengthCriteria(7), EosTokenCriteria(4)],
        [],
    ],
)
def test_a_row_that_goes_on_at_the_first_look_goes_on(criteria: list[Any]) -> None:
    usual, asked = UsualCriteria(criteria), StoppingCriteriaList(criteria)
    for token, num_tokens in itertools.product(range(9), range(1, 11)):
        stops = bool(criteria) and bool(asked(torch.tensor([[1] * (num_tokens - 1) + [token]]), None)[0])
        may_stop = usual.may_stop(token, num_tokens)
        assert may_stop or not stops
        is_beyond = any(num_tokens > (getattr(each, "max_position_embeddings", None) or 99) for each in criteria)
        assert may_stop == stops or is_beyond  # beyond the model's length they warn, so they are asked


@pytest.mark.parametrize("other", [OwnEnd(2), Never()])
def test_other_criteria_are_asked_about_every_token(other: Any) -> None:
    usual = UsualCriteria([EosTokenCriteria(2), other])
    assert all(usual.may_stop(token, 3) for token in range(5))
