"""Acceptance on logits: the law of what is emitted, the order of processing, the noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

from lookahead_edit.config import SamplingConfig
from lookahead_edit.types import Draft, InvalidInput, Row, num_agreeing
from lookahead_edit.verify import (
    ACCEPT_STREAM,
    RESIDUAL_STREAM,
    SAMPLE_STREAM,
    OrderedSampler,
    greedy_tokens,
    make_sampler,
    penalise,
    pick,
    uniform,
    warp,
)

# 1 - chi2.cdf(46.0, df=9) = 6e-7: with fixed seeds a pass stays a pass, and a wrong law of 10k draws is far beyond.
CHI_SQUARE_LIMIT = 46.0
NUM_DRAWS = 10_000


def tokens(*values: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.asarray(values, dtype=np.int32)


def make_row(
    draft: Draft, sampling: SamplingConfig, *, prompt: tuple[int, ...] = (1, 2), output: tuple[int, ...] = ()
) -> Row:
    return Row(
        key=1,
        tokens=tokens(*prompt, *output),
        num_prompt_tokens=len(prompt),
        draft=draft,
        sampling=sampling,
        should_stop=lambda candidate: False,
        is_cancelled=lambda: False,
    )


def drafted(*values: int, distributions: Any = None) -> Draft:
    return Draft(tokens(*values), np.zeros(len(values), np.int8), distributions=distributions)


def chi_square(observed: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    assert observed[expected == 0.0].sum() == 0
    kept = expected > 0.0
    return float((((observed - expected)[kept]) ** 2 / expected[kept]).sum())


def random_logits(num_rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(num_rows, 10, generator=torch.Generator().manual_seed(seed)) * 1.5


def test_noise_is_a_pure_function_and_uniform() -> None:
    draws = np.array([uniform(3, position, SAMPLE_STREAM) for position in range(NUM_DRAWS)])
    assert uniform(3, 5, SAMPLE_STREAM) == draws[5]
    assert draws.min() >= 0.0
    assert draws.max() < 1.0
    counts = np.bincount((draws * 10).astype(int), minlength=10)
    assert chi_square(counts, np.full(10, NUM_DRAWS / 10)) < CHI_SQUARE_LIMIT


def test_noise_of_neighbouring_positions_seeds_and_streams_is_uncorrelated() -> None:
    base = np.array([uniform(7, position, SAMPLE_STREAM) for position in range(4000)])
    others = [
        [uniform(7, position + 1, SAMPLE_STREAM) for position in range(4000)],
        [uniform(8, position, SAMPLE_STREAM) for position in range(4000)],
        [uniform(7, position, ACCEPT_STREAM) for position in range(4000)],
        [uniform(7, position, RESIDUAL_STREAM) for position in range(4000)],
    ]
    for other in others:
        assert abs(np.corrcoef(base, other)[0, 1]) < 0.06


def test_pick_walks_the_cumulative_distribution_and_never_takes_an_impossible_token() -> None:
    probabilities = torch.tensor([0.0, 0.25, 0.0, 0.75, 0.0], dtype=torch.float64)
    assert [pick(probabilities, noise) for noise in (0.0, 0.2499, 0.25, 0.9999999999999999)] == [1, 1, 3, 3]


def test_agreeing_prefix() -> None:
    assert num_agreeing(tokens(5, 6, 7), tokens(5, 6, 9, 4)) == 2
    assert num_agreeing(tokens(), tokens(1)) == 0
    assert num_agreeing(tokens(1, 2), tokens(1, 2, 3)) == 2


def test_greedy_emits_the_accepted_prefix_and_one_token_of_its_own() -> None:
    logits = torch.eye(5)[[3, 1, 4]]
    assert greedy_tokens(logits, tokens(3, 1)).tolist() == [3, 1, 4]
    assert greedy_tokens(logits, tokens(3, 2)).tolist() == [3, 1]
    assert greedy_tokens(logits, tokens(0, 1)).tolist() == [3]


SPECIAL_VALUES = [0.0, -0.0, 1.0, 1.0, float("inf"), float("-inf"), float("nan"), 3.5, 3.5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_greedy_token_is_torchs_argmax_at_ties_infinities_and_nan_too(dtype: torch.dtype) -> None:
    values = torch.tensor(SPECIAL_VALUES)
    generator = torch.Generator().manual_seed(4)
    for num_columns in (1, 2, 5, 33, 1000):
        special = values[torch.randint(0, len(values), (40, num_columns), generator=generator)]
        tied = torch.randint(-2, 3, (40, num_columns), generator=generator).float()
        for logits in (special, tied, tied - torch.inf, torch.full((3, num_columns), float("nan"))):
            logits = logits.to(dtype)
            expected = logits.argmax(dim=-1).tolist()
            found = greedy_tokens(logits, tokens(*expected[:-1]))
            assert (found.tolist(), found.dtype) == (expected, np.int32)


def test_the_greedy_token_is_the_first_of_the_largest() -> None:
    assert greedy_tokens(torch.tensor([[1.0, 7.0, 7.0, 2.0, 7.0]]), tokens()).tolist() == [1]
    assert greedy_tokens(torch.full((1, 9), -torch.inf), tokens()).tolist() == [0]
    assert greedy_tokens(torch.tensor([[1.0, float("nan"), torch.inf, float("nan")]]), tokens()).tolist() == [1]


def test_greedy_tokens_are_those_of_any_view_of_the_logits() -> None:
    logits = random_logits(12).requires_grad_()
    for view in (logits, logits[2:7], logits[::2], logits[:, 1::3], logits.T, logits[3:4].expand(5, 10)):
        expected = view.argmax(dim=-1).tolist()
        assert greedy_tokens(view, tokens(*expected[:-1])).tolist() == expected


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingConfig(temperature=1.0),
        SamplingConfig(temperature=0.7, top_k=4),
        SamplingConfig(temperature=1.3, top_p=0.8),
        SamplingConfig(temperature=1.0, min_p=0.1),
        SamplingConfig(temperature=1.0, repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.4),
        SamplingConfig(temperature=1.0, logit_bias={3: 2.0, 5: -100.0}),
    ],
    ids=str,
)
def test_emitted_tokens_follow_the_targets_law_whatever_was_drafted(sampling: SamplingConfig) -> None:
    logits = random_logits(2)
    first_law = _law(logits[0], tokens(1, 2, 2), 1, sampling)
    favourite = int(first_law.argmax())
    second_law = _law(logits[1], tokens(1, 2, 2, favourite), 1, sampling)
    first, second = np.zeros(10), np.zeros(10)
    for seed in range(NUM_DRAWS // 4):
        sampler = make_sampler(_with_seed(sampling, seed), num_prompt_tokens=1)
        emitted = sampler.choose(logits, make_row(drafted(favourite), sampling, prompt=(1,), output=(2, 2)))
        first[emitted[0]] += 1
        if emitted[0] == favourite:
            assert len(emitted) == 2
            second[emitted[1]] += 1
        else:
            assert len(emitted) == 1
    assert chi_square(first, first_law * first.sum()) < CHI_SQUARE_LIMIT
    assert chi_square(second, second_law * second.sum()) < CHI_SQUARE_LIMIT


def test_modified_rejection_sampling_follows_the_targets_law() -> None:
    logits = random_logits(3)
    sampling = SamplingConfig(temperature=0.9)
    generator = np.random.default_rng(0)
    proposals = generator.dirichlet(np.ones(10) * 0.7, size=2).astype(np.float32)
    counts = np.zeros((3, 10))
    for seed in range(NUM_DRAWS):
        guesses = [int(generator.choice(10, p=row / row.sum())) for row in proposals.astype(np.float64)]
        sampler = make_sampler(_with_seed(sampling, seed), num_prompt_tokens=2)
        emitted = sampler.choose(logits, make_row(drafted(*guesses, distributions=proposals), sampling))
        assert num_agreeing(tokens(*guesses), emitted) == len(emitted) - 1
        for index, token in enumerate(emitted):
            counts[index, token] += 1
    assert counts[2].sum() > NUM_DRAWS / 10
    for index in range(3):
        law = _law(logits[index], tokens(1, 2), 2, sampling)
        assert chi_square(counts[index], law * counts[index].sum()) < CHI_SQUARE_LIMIT


def test_modified_rejection_accepts_as_often_as_the_distributions_overlap() -> None:
    logits = random_logits(2)
    sampling = SamplingConfig(temperature=1.0)
    law = _law(logits[0], tokens(1, 2), 2, sampling)
    proposal = np.full((1, 10), 0.1, dtype=np.float32)
    generator = np.random.default_rng(1)
    num_accepted = 0
    for seed in range(4000):
        guess = int(generator.integers(10))
        row = make_row(drafted(guess, distributions=proposal), sampling)
        num_accepted += len(make_sampler(_with_seed(sampling, seed), 2).choose(logits, row)) == 2
    overlap = float(np.minimum(law, 0.1).sum())
    assert abs(num_accepted / 4000 - overlap) < 4 * np.sqrt(overlap * (1 - overlap) / 4000)


def test_a_greedy_target_accepts_a_sampled_draft_only_where_it_is_the_best_token() -> None:
    logits = torch.eye(10)[[3, 4]]
    proposals = np.full((1, 10), 0.1, dtype=np.float32)
    sampler = OrderedSampler(lambda scores, _: scores, is_greedy=True)
    sampling = SamplingConfig()
    assert sampler.choose(logits, make_row(drafted(3, distributions=proposals), sampling)).tolist() == [3, 4]
    assert sampler.choose(logits, make_row(drafted(5, distributions=proposals), sampling)).tolist() == [3]


def test_processors_see_accepted_prefixes_only_and_once_a_token() -> None:
    seen: list[list[int]] = []

    def process(scores: torch.Tensor, prefix: np.ndarray[Any, np.dtype[np.int32]]) -> torch.Tensor:
        seen.append(prefix.tolist())
        return scores

    logits = torch.eye(10)[[3, 4, 5, 6]]
    emitted = OrderedSampler(process, is_greedy=True).choose(logits, make_row(drafted(3, 4, 9), SamplingConfig()))
    assert emitted.tolist() == [3, 4, 5]
    assert seen == [[1, 2], [1, 2, 3], [1, 2, 3, 4]]


def test_a_stop_inside_the_accepted_prefix_ends_the_block() -> None:
    logits = torch.eye(10)[[3, 4, 5]]
    row = Row(1, tokens(1, 2), 2, drafted(3, 4), SamplingConfig(), lambda ids: int(ids[-1]) == 3, lambda: False)
    assert OrderedSampler(lambda scores, _: scores, is_greedy=True).choose(logits, row).tolist() == [3]


@pytest.mark.parametrize(
    ("sampling", "reference"),
    [
        (SamplingConfig(temperature=0.6), hf.TemperatureLogitsWarper(0.6)),
        (SamplingConfig(temperature=1.0, top_k=7), hf.TopKLogitsWarper(7)),
        (SamplingConfig(temperature=1.0, top_p=0.9), hf.TopPLogitsWarper(0.9)),
        (SamplingConfig(temperature=1.0, top_p=0.05), hf.TopPLogitsWarper(0.05)),
        (SamplingConfig(temperature=1.0, min_p=0.05), hf.MinPLogitsWarper(0.05)),
    ],
    ids=["temperature", "top_k", "top_p", "narrow top_p", "min_p"],
)
def test_warpers_agree_with_those_of_transformers(
    sampling: SamplingConfig, reference: Callable[[Any, torch.Tensor], torch.Tensor]
) -> None:
    for seed in range(20):
        logits = torch.randn(3000, generator=torch.Generator().manual_seed(seed)) * (0.2 + seed / 5)
        expected = reference(None, logits[None].clone())[0]
        assert torch.equal(torch.isinf(warp(logits, sampling)), torch.isinf(expected))
        torch.testing.assert_close(warp(logits, sampling), expected)


def test_repetition_penalty_agrees_with_transformers() -> None:
    logits, ids = random_logits(1)[0], tokens(1, 2, 2, 7)
    sampling = SamplingConfig(repetition_penalty=1.7)
    expected = hf.RepetitionPenaltyLogitsProcessor(1.7)(torch.from_numpy(ids).long()[None], logits[None].clone())[0]
    torch.testing.assert_close(penalise(logits, ids, 2, sampling), expected)


def test_presence_and_frequency_count_the_output_alone() -> None:
    sampling = SamplingConfig(presence_penalty=0.5, frequency_penalty=0.25)
    loss = torch.zeros(10) - penalise(torch.zeros(10), tokens(1, 2, 3, 3, 4), 2, sampling)
    assert loss.tolist() == [0, 0, 0, 1.0, 0.75, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"top_k": -1},
        {"min_p": 2.0},
        {"repetition_penalty": 0.0},
        {"presence_penalty": 3.0},
        {"seed": -1},
    ],
    ids=str,
)
def test_wrong_sampling_options_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=f"expected {next(iter(wrong))} .*, got ") as caught:
        SamplingConfig(**wrong)
    assert caught.value.param == next(iter(wrong))


def test_an_unknown_option_raises() -> None:
    with pytest.raises(TypeError):
        SamplingConfig(temprature=1.0)  # type: ignore[call-arg]


def _law(
    logits: torch.Tensor, ids: np.ndarray[Any, np.dtype[np.int32]], num_prompt_tokens: int, sampling: SamplingConfig
) -> np.ndarray[Any, np.dtype[np.float64]]:
    scores = warp(penalise(logits, ids, num_prompt_tokens, sampling), sampling)
    law: np.ndarray[Any, np.dtype[np.float64]] = scores.double().softmax(-1).numpy()
    return law


def _with_seed(sampling: SamplingConfig, seed: int) -> SamplingConfig:
    from dataclasses import replace

    return replace(sampling, seed=seed)
