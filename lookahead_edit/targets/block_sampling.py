"""Samples all positions of a block at once on the device: a dozen launches and one transfer a round.

Position by position, as `verify.OrderedSampler` does it, every accepted token would wait for the device: on a GPU about
0.3 ms each, which for long drafts is more than the pass takes.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from lookahead_edit.config import SamplingConfig
from lookahead_edit.types import IntArray, Row, num_agreeing
from lookahead_edit.verify import SAMPLE_STREAM, Sampler, make_sampler, uniform

# top-p looks at so many of the likeliest tokens; where they don't reach p, positions are sampled one by one.
MAX_NUCLEUS_TOKENS = 1024


class BlockSampler:
    """Chooses by the same noise and the same rules as the sampler for one position after the other.

    For configurations in which a position depends on the tokens before it through its logits alone: no penalties.

    Args:
        sampling: not greedy, no penalties, no logit bias.
        ordered: for drafts that were themselves sampled, and for flat distributions with top-p.
    """

    def __init__(self, sampling: SamplingConfig, ordered: Sampler) -> None:
        self._sampling = sampling
        self._ordered = ordered

    def choose(self, logits: Tensor, row: Row) -> IntArray:
        """As `Sampler` says."""
        if row.draft.distributions is not None:
            return self._ordered.choose(logits, row)
        first = len(row.tokens)
        noise = [
            uniform(self._sampling.seed, position, SAMPLE_STREAM) for position in range(first, first + len(logits))
        ]
        scores, is_settled = warp_block(logits.float(), self._sampling)
        cumulative = scores.double().softmax(dim=-1).cumsum(dim=-1)
        total = cumulative[:, -1:].contiguous()
        wanted = torch.tensor(noise, dtype=torch.float64).to(logits.device, non_blocking=True)[:, None]
        chosen = torch.searchsorted(cumulative, total * wanted, right=True)
        last = torch.searchsorted(cumulative, total, right=False)
        both = torch.cat([torch.minimum(chosen, last)[:, 0], is_settled.long()[None]]).cpu().numpy()
        tokens = both[:-1].astype(np.int32)
        # A token past the vocabulary: no score is a number. The other sampler says so.
        if not both[-1] or tokens.max() >= logits.shape[-1]:
            return self._ordered.choose(logits, row)
        return tokens[: num_agreeing(row.draft.tokens, tokens) + 1]


def open_block_sampler(row: Row) -> Sampler:
    """The sampler of a new row, for all positions at once where that is possible."""
    sampling = row.sampling
    ordered = make_sampler(sampling, row.num_prompt_tokens)
    if sampling.is_greedy or sampling.has_penalties or sampling.logit_bias:
        return ordered
    return BlockSampler(sampling, ordered)


def warp_block(scores: Tensor, sampling: SamplingConfig) -> tuple[Tensor, Tensor]:
    """What `verify.warp` makes of each row of float32[num_rows, vocab_size]; bool[]: whether it is all of each."""
    scores = scores / sampling.temperature
    is_settled = torch.ones((), dtype=torch.bool, device=scores.device)
    if 0 < sampling.top_k < scores.shape[-1]:
        kth_score = scores.topk(sampling.top_k).values[:, -1:]
        scores = torch.where(scores < kth_score, -torch.inf, scores)
    if sampling.top_p < 1.0:
        best = scores.topk(min(MAX_NUCLEUS_TOKENS, scores.shape[-1]))
        mass = (best.values - scores.logsumexp(dim=-1, keepdim=True)).exp().double().cumsum(dim=-1)
        num_kept = (mass < sampling.top_p).sum(dim=-1, keepdim=True) + 1
        places = torch.arange(best.values.shape[-1], device=scores.device)
        values = torch.where(places < num_kept, best.values, -torch.inf)
        is_settled = (num_kept <= best.values.shape[-1]).all() | (best.values.shape[-1] == scores.shape[-1])
        scores = torch.full_like(scores, -torch.inf).scatter(-1, best.indices, values)
    if sampling.min_p > 0.0:
        threshold = scores.max(dim=-1, keepdim=True).values + math.log(sampling.min_p)
        scores = scores.masked_fill(scores < threshold, -torch.inf)
    return scores, is_settled
