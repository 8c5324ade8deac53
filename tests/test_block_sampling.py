"""All positions of a block sampled at once are those that are sampled one after the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from lookahead_edit.config import SamplingConfig
from lookahead_edit.targets import block_sampling
from lookahead_edit.targets.block_sampling import BlockSampler, open_block_sampler
from lookahead_edit.types import Draft, IntArray, InvalidInput, Row
from lookahead_edit.verify import make_sampler

SAMPLINGS = [
    SamplingConfig(temperature=1.0, seed=1),
    SamplingConfig(temperature=0.3, top_k=7, seed=2),
    SamplingConfig(temperature=1.3, top_p=0.7, seed=3),
    SamplingConfig(temperature=0.9, min_p=0.05, seed=2**64 - 1),
    SamplingConfig(temperature=0.8, top_k=40, top_p=0.95, min_p=0.01, seed=5),
]


def row_of(sampling: SamplingConfig, draft: IntArray) -> Row:
    return Row(
        key=1,
        tokens=np.arange(30, dtype=np.int32),
        num_prompt_tokens=20,
        draft=Draft(tokens=draft, sources=np.zeros(len(draft), dtype=np.int8)),
        sampling=sampling,
        should_stop=lambda tokens: False,
        is_cancelled=lambda: False,
    )


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("num_right", [0, 3, 12])
def test_the_same_tokens_come_out(sampling: SamplingConfig, num_right: int) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        logits = 3.0 * torch.randn(13, 500, generator=generator)
        # What is sampled at every position, however the draft fares.
        chosen = [
            int(make_sampler(sampling, 20).choose(logits[index : index + 1], _at(sampling, 30 + index))[0])
            for index in range(13)
        ]
        draft = np.array(chosen[:12], dtype=np.int32)
        draft[num_right:] = (draft[num_right:] + 1) % 500
        row = row_of(sampling, draft)
        sampler = open_block_sampler(row)
        assert isinstance(sampler, BlockSampler)
        expected = make_sampler(sampling, 20).choose(logits, row)
        assert sampler.choose(logits, row).tolist() == expected.tolist() == chosen[: num_right + 1]


def _at(sampling: SamplingConfig, num_tokens: int) -> Row:
    return replace(row_of(sampling, np.zeros(0, np.int32)), tokens=np.arange(num_tokens, dtype=np.int32))


def test_a_nucleus_of_more_tokens_than_are_looked_at_is_sampled_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sampling = SamplingConfig(temperature=1.0, top_p=0.9, seed=4)
    monkeypatch.setattr(block_sampling, "MAX_NUCLEUS_TOKENS", 8)
    logits = torch.randn(3, 500, generator=torch.Generator().manual_seed(0))
    row = row_of(sampling, np.zeros(2, np.int32))
    assert (
        open_block_sampler(row).choose(logits, row).tolist() == make_sampler(sampling, 20).choose(logits, row).tolist()
    )


def test_where_positions_depend_on_each_other_they_are_sampled_one_by_one() -> None:
    for sampling in (
        SamplingConfig(),
        SamplingConfig(temperature=1.0, repetition_penalty=1.2),
        SamplingConfig(temperature=1.0, logit_bias={3: 1.0}),
    ):
        assert not isinstance(open_block_sampler(row_of(sampling, np.zeros(0, np.int32))), BlockSampler)


def test_a_draft_with_distributions_is_accepted_by_them() -> None:
    sampling = SamplingConfig(temperature=1.0, seed=9)
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    row = row_of(sampling, np.array([4, 5], np.int32))
    row = replace(row, draft=replace(row.draft, distributions=np.full((2, 50), 0.02, np.float32)))
    assert (
        open_block_sampler(row).choose(logits, row).tolist() == make_sampler(sampling, 20).choose(logits, row).tolist()
    )


@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_scores_by_which_nothing_can_be_sampled_are_refused(value: float) -> None:
    row = row_of(SamplingConfig(temperature=1.0), np.zeros(0, np.int32))
    with pytest.raises(InvalidInput, match="expected scores by which a token can be sampled"):
        open_block_sampler(row).choose(torch.full((1, 50), value), row)
