"""Exact acceptance: logits and a draft in, emitted tokens out. Pure functions of logits, tokens, seed and position.

A draft that was copied is deterministic, so "sample the target at each position, accept while equal" draws from the
target's own distribution. The noise of a position depends on (seed, position) alone: with one seed the text is the
same with speculation on or off, whatever the drafts. A draft that was itself sampled from a known distribution q goes
through modified rejection sampling.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookahead_edit.config import SamplingConfig
from lookahead_edit.types import IntArray, InvalidInput, Row, num_agreeing

SAMPLE_STREAM, ACCEPT_STREAM, RESIDUAL_STREAM = 0, 1, 2
DRAFT_STREAM = 3  # of drafters that sample: a draft must not know by which noise it will be judged
NUCLEUS_CANDIDATES = (64, 1024)  # top-p looks at so many first: 0.1 and 0.6 ms of 49k logits, sorting all takes 8
_MASK64 = 2**64 - 1

ProcessScores = Callable[[Tensor, IntArray], Tensor]
"""(float32[vocab_size] logits, int32[num_tokens] tokens before the position) -> float32[vocab_size] scores."""


class Sampler(Protocol):
    """Chooses the emitted tokens of one row."""

    def choose(self, logits: Tensor, row: Row) -> IntArray:
        """float32[num_draft_tokens + 1, vocab_size] -> int32[num_emitted_tokens]: accepted prefix plus one token.

        Fewer where a stop rule ends the row inside the accepted prefix.
        """


def uniform(seed: int, position: int, stream: int) -> float:
    """Noise in [0, 1) with 53 bits, a pure function of its arguments (splitmix64: Steele et al., OOPSLA 2014, fig. 17).

    Example:
        >>> uniform(0, 7, SAMPLE_STREAM) == uniform(0, 7, SAMPLE_STREAM)
        True
    """
    value = _mix((_mix(seed) + position) & _MASK64)
    return (_mix((value + stream) & _MASK64) >> 11) * 2.0**-53


def _mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK64
    return value ^ (value >> 31)


def greedy_tokens(logits: Tensor, draft_tokens: IntArray) -> IntArray:
    """Accepted prefix plus the target's own next token; one transfer from the device."""
    best = _largest(logits).astype(np.int32)
    return best[: num_agreeing(draft_tokens, best) + 1]


def _largest(logits: Tensor) -> NDArray[np.int64]:
    """int64[num_rows]: the first of each row's largest logits, as `torch.argmax` defines it.

    On a CPU numpy's takes a tenth of torch's time, which is up to 2 % of a forward pass there.
    """
    if logits.device.type == "cpu" and logits.dtype == torch.float32:
        best: NDArray[np.int64] = logits.detach().numpy().argmax(axis=-1)
    else:
        best = logits.argmax(dim=-1).cpu().numpy()
    return best


def warp(scores: Tensor, sampling: SamplingConfig) -> Tensor:
    """Temperature, top-k, top-p, min-p on float32[vocab_size]; at least one token is kept.

    top-p keeps the smallest set of tokens whose probability reaches p (Holtzman et al. 2020, section 3.1); min-p keeps
    those of at least min_p times the largest probability (Nguyen et al. 2024, section 3).
    """
    scores = scores / sampling.temperature
    if 0 < sampling.top_k < scores.shape[-1]:
        kth_score = scores.topk(sampling.top_k).values[-1]
        scores = torch.where(scores < kth_score, -torch.inf, scores)
    if sampling.top_p < 1.0:
        scores = _keep_nucleus(scores, sampling.top_p)
    if sampling.min_p > 0.0:
        threshold = scores.max() + float(np.log(sampling.min_p))
        scores = scores.masked_fill(scores < threshold, -torch.inf)
    return scores


def _keep_nucleus(scores: Tensor, top_p: float) -> Tensor:
    log_total = scores.logsumexp(dim=-1)
    for num_candidates in (*(size for size in NUCLEUS_CANDIDATES if size < scores.shape[-1]), scores.shape[-1]):
        best = scores.topk(num_candidates)
        mass = (best.values - log_total).exp().double().cumsum(dim=-1)
        num_kept = int((mass < top_p).sum()) + 1
        if num_kept <= num_candidates:
            break
    kept = torch.full_like(scores, -torch.inf)
    indices = best.indices[:num_kept]
    return kept.index_copy(0, indices, scores[indices])


def penalise(scores: Tensor, tokens: IntArray, num_prompt_tokens: int, sampling: SamplingConfig) -> Tensor:
    """Logit bias, then repetition penalty over prompt and output (Keskar et al. 2019, section 4.1), then presence and
    frequency penalty over the output alone (OpenAI's definition)."""
    if sampling.logit_bias:
        scores = scores.clone()
        for token, bias in sampling.logit_bias.items():
            scores[token] += bias
    if sampling.repetition_penalty != 1.0:
        seen = torch.from_numpy(np.unique(tokens).astype(np.int64)).to(scores.device)
        old = scores[seen]
        new = torch.where(old < 0, old * sampling.repetition_penalty, old / sampling.repetition_penalty)
        scores = scores.index_copy(0, seen, new)
    output = tokens[num_prompt_tokens:]
    if len(output) and (sampling.presence_penalty or sampling.frequency_penalty):
        unique, counts = np.unique(output, return_counts=True)
        used = torch.from_numpy(unique.astype(np.int64)).to(scores.device)
        times = torch.from_numpy(counts.astype(np.float32)).to(scores.device)
        loss = sampling.presence_penalty + sampling.frequency_penalty * times
        scores = scores.index_copy(0, used, scores[used] - loss)
    return scores


def pick(probabilities: Tensor, noise: float) -> int:
    """The token at which the cumulative probability passes `noise`; float64[vocab_size] need not be normalised.

    Raises:
        InvalidInput: not a number among them, as where a processor allows no token.
    """
    cumulative = probabilities.cumsum(dim=-1)
    token = torch.searchsorted(cumulative, cumulative[-1] * noise, right=True)
    # A noise within rounding of 1 may point past the last token that has any probability.
    last = torch.searchsorted(cumulative, cumulative[-1], right=False)
    chosen = int(torch.minimum(token, last))
    if chosen == len(probabilities):
        raise InvalidInput("expected scores by which a token can be sampled, got NaN, +inf, or -inf for every token")
    return chosen


class GreedySampler:
    """Temperature 0 with unprocessed logits: one argmax over the whole block."""

    def choose(self, logits: Tensor, row: Row) -> IntArray:
        return greedy_tokens(logits, row.draft.tokens)


class OrderedSampler:
    """Position by position, so that a processor sees accepted prefixes only, once for each token it decides.

    Args:
        process: logits to scores, given the tokens before the position.
        is_greedy: take the best score instead of sampling.
        seed: of the noise.
    """

    def __init__(self, process: ProcessScores, *, is_greedy: bool, seed: int = 0) -> None:
        self._process = process
        self._is_greedy = is_greedy
        self._seed = operator.index(seed)  # NumPy's integers overflow where the noise is mixed

    def choose(self, logits: Tensor, row: Row) -> IntArray:
        num_draft_tokens = len(row.draft)
        tokens = np.concatenate([row.tokens, row.draft.tokens, np.zeros(1, np.int32)])
        first = len(row.tokens)
        for index in range(num_draft_tokens + 1):
            position = first + index
            drafted = int(tokens[position]) if index < num_draft_tokens else None
            distributions = row.draft.distributions
            scores = self._process(logits[index].float(), tokens[:position])
            if drafted is not None and distributions is not None:
                token = self._accept_or_resample(scores, drafted, distributions[index], position)
            else:
                token = self._own_token(scores, position)
            tokens[position] = token
            if token != drafted or row.should_stop(tokens[: position + 1]):
                break
        return tokens[first : position + 1]

    def _own_token(self, scores: Tensor, position: int) -> int:
        if self._is_greedy:
            return int(scores.argmax())
        return pick(scores.double().softmax(dim=-1), uniform(self._seed, position, SAMPLE_STREAM))

    def _accept_or_resample(
        self,
        scores: Tensor,
        drafted: int,
        draft_distribution: np.ndarray[tuple[int], np.dtype[np.float32]],
        position: int,
    ) -> int:
        """Accept x ~ q with min(1, p(x) / q(x)), else draw from max(0, p - q) (Leviathan et al. 2023, section 2.3)."""
        if self._is_greedy:
            target = torch.zeros_like(scores, dtype=torch.float64)
            target[scores.argmax()] = 1.0
        else:
            target = scores.double().softmax(dim=-1)
        proposal = torch.from_numpy(draft_distribution).to(device=scores.device, dtype=torch.float64)
        proposal = proposal / proposal.sum()
        if uniform(self._seed, position, ACCEPT_STREAM) * float(proposal[drafted]) < float(target[drafted]):
            return drafted
        rest = (target - proposal).clamp(min=0.0)
        # Nothing is left where the two differ by rounding alone.
        return pick(rest if bool(rest.any()) else target, uniform(self._seed, position, RESIDUAL_STREAM))


def score_processor(sampling: SamplingConfig, num_prompt_tokens: int) -> ProcessScores:
    """Penalties and warpers of a configuration, in their order; a greedy one has no warpers."""

    def process(logits: Tensor, tokens: IntArray) -> Tensor:
        scores = penalise(logits, tokens, num_prompt_tokens, sampling)
        return scores if sampling.is_greedy else warp(scores, sampling)

    return process


def make_sampler(sampling: SamplingConfig, num_prompt_tokens: int) -> Sampler:
    """The sampler for a configuration: one argmax where that is enough, else position by position."""
    if sampling.is_greedy and not sampling.has_penalties and not sampling.logit_bias:
        return GreedySampler()
    process = score_processor(sampling, num_prompt_tokens)
    return OrderedSampler(process, is_greedy=sampling.is_greedy, seed=sampling.seed)
