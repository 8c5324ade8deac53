"""A smaller causal model as a drafter: it foretells what the target will say, a token a pass.

Each sequence has a cache of its own, which is rolled back to what was committed and reads what it hasn't seen when a
draft is next asked for; all share the weights. For a sampled target the drafts are drawn from the draft model's own
distribution under the same warpers, and carry it, so that the sampler can judge them (Leviathan et al. 2023, section
2.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from lookahead_edit.config import SamplingConfig, SpeculationConfig, TargetConfig
from lookahead_edit.drafters import DRAFTERS
from lookahead_edit.drafters.combined import CombinedDrafter
from lookahead_edit.payoff import Payoff
from lookahead_edit.speculation import DrafterMaker
from lookahead_edit.targets.growing_cache import open_cache
from lookahead_edit.targets.reading import Block, BlockReader
from lookahead_edit.targets.rollback import RowState, require_decoder, uncroppable_layers
from lookahead_edit.targets.roofline import num_parameters
from lookahead_edit.types import (
    NO_TOKENS,
    Draft,
    Drafter,
    FloatArray,
    IntArray,
    InvalidInput,
    Source,
    SourceKind,
    Tokenizer,
    UnsupportedModel,
    num_agreeing,
)
from lookahead_edit.verify import DRAFT_STREAM, pick, score_processor, uniform

MAX_EVIDENCE = 64  # agreeing tokens that a draft's likeliness is worth at most
# A draft model that is asked in vain every round costs a third of a pass each time: four passes lost are enough.
LOSS_WEIGHT = 4.0
# Counted before anything was verified: with sampled drafts, tokens judged and tokens accepted.
PRIOR_JUDGED, PRIOR_ACCEPTED = 8.0, 5.0


@dataclass(frozen=True)
class DraftModelConfig:
    """How a draft model is asked."""

    max_draft_tokens: int = 8  # a draft; what is asked for may be less
    # A draft ends after a token that the draft model gives less than this; 0 never does.
    min_confidence: float = 0.0
    # A greedy draft ends before a token that is less likely to be accepted, with all before it; None: 0, or what a
    # token costs (`DraftModel.cost_ratio`) where the policy weighs costs.
    min_probability: float | None = None
    # For a sampled target: drafts are drawn, and judged by both distributions. Otherwise they are the likeliest tokens:
    # fewer are accepted, but one seed gives the same text whatever is drafted.
    samples: bool = True

    def __post_init__(self) -> None:
        if self.max_draft_tokens < 1:
            raise InvalidInput(
                f"expected max_draft_tokens of at least 1, got {self.max_draft_tokens}", param="max_draft_tokens"
            )
        for name in ("min_confidence", "min_probability"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value <= 1.0:
                raise InvalidInput(f"expected {name} between 0 and 1, got {value}", param=name)


class DraftModel:
    """A model that drafts for a target, shared by the drafters of all its sequences.

    Args:
        model: a causal language model, in eval mode, smaller than the target.
        vocab_size: of the target's logits. Where the model's own is another one, because either's embeddings are
            padded, the tokens that both have are drafted.
        cost_ratio: what one drafted token costs, in plain passes of the target.

    Raises:
        UnsupportedModel: an encoder-decoder, or a model whose cache can't be rolled back, by name.
        InvalidInput: no token in common.
    """

    def __init__(self, model: PreTrainedModel, vocab_size: int, *, cost_ratio: float = 0.0) -> None:
        require_decoder(model)
        uncroppable = uncroppable_layers(open_cache(model))
        if uncroppable:
            raise UnsupportedModel(
                f"expected a draft model whose cache can be rolled back, got {type(model).__name__}: "
                f"layer {uncroppable[0]} can't be cropped"
            )
        self.model = model
        self.vocab_size = vocab_size
        self.cost_ratio = cost_ratio
        self.num_known_tokens = min(vocab_size, int(model.config.get_text_config().vocab_size))
        if self.num_known_tokens < 1:
            raise InvalidInput(f"expected a vocabulary of at least one token, got {vocab_size}", param="draft_model")
        self._reader = BlockReader(model, TargetConfig.max_pass_tokens)

    @property
    def max_context_tokens(self) -> int:
        """Beyond it nothing is drafted."""
        return int(getattr(self.model.config.get_text_config(), "max_position_embeddings", None) or 2**31 - 1)

    def open(self) -> RowState:
        """An empty cache."""
        return RowState(open_cache(self.model))

    @torch.no_grad()
    def read(self, tokens: IntArray, state: RowState) -> Tensor:
        """float32[vocab_size], the target's: logits after `tokens`, of which the cache holds a part; minus infinity
        for tokens that the draft model doesn't know."""
        while True:
            first = state.num_cached_tokens
            block = tokens[first : first + TargetConfig.prefill_chunk_tokens]
            is_last = first + len(block) == len(tokens)
            logits = self._reader.read([Block(block, state.cache, first, int(is_last))])
            state.num_cached_tokens += len(block)
            if is_last:
                break
        own = logits[0][0].float()
        if len(own) == self.vocab_size:
            return own
        scores = own.new_full((self.vocab_size,), -torch.inf)
        scores[: self.num_known_tokens] = own[: self.num_known_tokens]
        return scores


class ModelDrafter:
    """Drafts what a draft model says next: its likeliest tokens, or for a sampled target tokens drawn from it.

    `probabilities` of greedy drafts are the running product of the model's own confidence. Those of drawn drafts are
    the share accepted so far, to the power of the place: a policy may cut a drawn draft only by what doesn't depend on
    its tokens. If likely tokens alone were verified, the text would no longer have the target's distribution.

    Draws are keyed by the seed and the position, in a stream of their own, so a sequence that begins anew drafts the
    same. With a policy that weighs costs, drafts that don't pay for the draft model's own time stop for a while.

    Args:
        model: shared.
        sampling: the sequence's.
        config: how far, and whether drafts are drawn.
        weighs_costs: whether the draft model's own time counts.
    """

    def __init__(
        self,
        model: DraftModel,
        sampling: SamplingConfig | None = None,
        config: DraftModelConfig | None = None,
        *,
        weighs_costs: bool = False,
    ) -> None:
        self.model = model
        self.sampling = sampling or SamplingConfig()
        self.config = config or DraftModelConfig()
        self._is_drawn = self.config.samples and not self.sampling.is_greedy
        self._weighs_costs = weighs_costs
        default = model.cost_ratio if weighs_costs else 0.0
        self._min_probability = default if self.config.min_probability is None else self.config.min_probability
        self.start(NO_TOKENS, ())

    def start(self, prompt: IntArray, sources: Sequence[Source]) -> None:
        """Reads nothing yet: the first draft does, where the model runs."""
        self._tokens = prompt.copy()
        self._seen = NO_TOKENS  # what the cache holds
        self._num_prompt_tokens = len(prompt)
        self._state = self.model.open()
        # A drawn draft is judged under all warpers; of the likeliest tokens, temperature and top-k change nothing.
        rules = self.sampling if self._is_drawn else _greedy(self.sampling)
        self._process = score_processor(rules, len(prompt))
        self._payoff = Payoff()
        self._num_passes = 0  # of the draft model since the latest commit, also for what was not drafted then
        self._num_judged_tokens, self._num_accepted_tokens = PRIOR_JUDGED, PRIOR_ACCEPTED

    def draft(self, max_draft_tokens: int) -> Draft:
        num_free = self.model.max_context_tokens - len(self._tokens) + 1
        limit = min(max_draft_tokens, self.config.max_draft_tokens, num_free)
        if limit <= 0 or len(self._tokens) == 0:
            return Draft(reason="no room for a draft")
        if self._weighs_costs and not self._payoff.is_trying:
            return Draft(reason="the draft model has not paid for its own time lately")
        if self._tokens.max() >= self.model.num_known_tokens:
            return Draft(reason="a token that the draft model doesn't know")
        return self._drawn(limit) if self._is_drawn else self._likeliest(limit)

    def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None:
        self._tokens = np.concatenate([self._tokens, tokens])
        self._num_accepted_tokens += num_accepted_tokens
        self._num_judged_tokens += min(num_accepted_tokens + 1, len(draft))
        if self._num_passes:
            self._payoff.add(LOSS_WEIGHT * (num_accepted_tokens - self.model.cost_ratio * self._num_passes))
        else:
            self._payoff.observe_refused(tokens)
        self._num_passes = 0

    @property
    def num_index_bytes(self) -> int:
        """Of the cache and the tokens."""
        tensors = [
            tensor
            for layer in self._state.cache.layers
            for tensor in (getattr(layer, "keys", None), getattr(layer, "values", None))
            if tensor is not None
        ]
        return int(self._tokens.nbytes + sum(tensor.untyped_storage().nbytes() for tensor in tensors))

    def _likeliest(self, limit: int) -> Draft:
        tokens, probabilities, probability = NO_TOKENS, [], 1.0
        while len(tokens) < limit:
            scores = self._scores(tokens)
            best = scores.argmax()
            confidence = float((scores[best] - scores.logsumexp(dim=-1)).exp())
            probability *= confidence
            if probability < self._min_probability:
                break
            tokens = np.append(tokens, np.int32(best.item()))
            probabilities.append(probability)
            if confidence < self.config.min_confidence:
                break
        if not len(tokens):
            num_tens = round(probability * 10.0)
            return Draft(reason=f"the draft model is not sure enough: about {num_tens * 10} % likely to be right")
        return _draft(tokens, np.array(probabilities, dtype=np.float32))

    def _drawn(self, limit: int) -> Draft:
        tokens, distributions = NO_TOKENS, []
        while len(tokens) < limit:
            distribution = self._scores(tokens).double().softmax(dim=-1)
            position = len(self._tokens) + len(tokens)
            token = pick(distribution, uniform(self.sampling.seed, position, DRAFT_STREAM))
            tokens = np.append(tokens, np.int32(token))
            distributions.append(distribution.float().cpu().numpy())
            # The token that ends the draft is in it: left out for what it is, it would be drawn too seldom.
            if float(distribution[token]) < self.config.min_confidence:
                break
        share = self._num_accepted_tokens / self._num_judged_tokens
        probabilities = (share ** np.arange(1, len(tokens) + 1)).astype(np.float32)
        return _draft(tokens, probabilities, np.stack(distributions))

    @torch.no_grad()
    def _scores(self, drafted: IntArray) -> Tensor:
        """float32[vocab_size] after what was committed and drafted; the cache holds all of it afterwards."""
        tokens = np.concatenate([self._tokens, drafted])
        if not len(drafted):
            # The last token is read in any case, for its logits. Once a draft: a sliding window forgets its past here.
            self._state.roll_back(min(num_agreeing(self._seen, tokens), len(tokens) - 1))
            self._state.prepare_for_rejections()
        logits = self.model.read(tokens, self._state)
        self._num_passes += 1
        self._seen = tokens
        return self._process(logits, tokens)


def require_same_vocabulary(draft: Mapping[str, int], target: Mapping[str, int]) -> None:
    """Raises InvalidInput unless both tokenizers give the same texts the same ids; padded embeddings don't matter.

    Example: ``require_same_vocabulary(draft_tokenizer.get_vocab(), tokenizer.get_vocab())``
    """
    if draft == target:
        return
    other = sum(draft.get(text) != token for text, token in target.items())
    raise InvalidInput(
        f"expected a draft model with the target's vocabulary of {len(target)} tokens, got one of {len(draft)}: "
        f"{other} of them are missing or have another id, {len(draft.keys() - target.keys())} are others",
        param="draft_model",
    )


def model_drafter_factory(
    draft: PreTrainedModel,
    target: PreTrainedModel,
    vocabularies: tuple[Mapping[str, int], Mapping[str, int]] | None = None,
    asking: DraftModelConfig | None = None,
) -> dict[str, DrafterMaker]:
    """The drafters "model" and "combined" (the edit drafter, and the model where that has nothing likely).

    Args:
        draft: the smaller model, in eval mode; its weights are shared by all drafters made.
        target: what it drafts for.
        vocabularies: of the tokenizers of both, as `get_vocab()` gives them; None: embeddings of one size are taken for
            one vocabulary.
        asking: how far it drafts, and whether drafts are drawn.

    Raises:
        InvalidInput: the vocabularies differ.
        UnsupportedModel: the draft model's cache can't be rolled back.

    Example::

        drafters = model_drafter_factory(small, large, (small_tokenizer.get_vocab(), tokenizer.get_vocab()))
        editor = Editor(HfTarget(large), HfTokenizer(tokenizer), drafters=drafters)
        editor.edit(EditRequest(text, "Rename total to price.", speculation=SpeculationConfig(drafter="combined")))
    """
    sizes = [int(model.config.get_text_config().vocab_size) for model in (draft, target)]
    if vocabularies is not None:
        require_same_vocabulary(*vocabularies)
    elif sizes[0] != sizes[1]:
        raise InvalidInput(
            f"expected a draft model with the target's vocabulary of {sizes[1]} tokens, got one of {sizes[0]}",
            param="draft_model",
        )
    # Decoding waits for the weights, which all pass through the cores once a token.
    shared = DraftModel(draft, sizes[1], cost_ratio=num_parameters(draft) / num_parameters(target))

    def make_model(config: SpeculationConfig, tokenizer: Tokenizer | None, sampling: SamplingConfig) -> Drafter:
        return ModelDrafter(shared, sampling, asking, weighs_costs=config.policy == "cost")

    def make_combined(config: SpeculationConfig, tokenizer: Tokenizer | None, sampling: SamplingConfig) -> Drafter:
        return CombinedDrafter(DRAFTERS["edit"](config, tokenizer), make_model(config, tokenizer, sampling))

    return {"model": make_model, "combined": make_combined}


def _draft(tokens: IntArray, probabilities: FloatArray, distributions: FloatArray | None = None) -> Draft:
    first = min(float(probabilities[0]), 0.999)
    # As many agreeing tokens as make the first one as likely, by Laplace's rule: (m + 1) / (m + 2).
    evidence = int((2.0 * first - 1.0) / (1.0 - first))
    return Draft(
        tokens=tokens,
        sources=np.full(len(tokens), SourceKind.MODEL, dtype=np.int8),
        match_length=min(max(1, evidence), MAX_EVIDENCE),
        probabilities=probabilities,
        distributions=distributions,
    )


def _greedy(sampling: SamplingConfig) -> SamplingConfig:
    return SamplingConfig(
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logit_bias=sampling.logit_bias,
    )
