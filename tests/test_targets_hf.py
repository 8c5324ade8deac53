"""The transformers target: every kind of cache is rolled back without a trace, and left as it was found."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from test_hook import CACHE, both, prompt
from tiny_models import VOCAB_SIZE
from transformers.cache_utils import DynamicLayer

from lookahead_edit.config import SamplingConfig, SpeculationConfig
from lookahead_edit.drafters.scripted import ScriptedDrafter
from lookahead_edit.engine import Engine
from lookahead_edit.hook import LookaheadEdit
from lookahead_edit.policy import FixedPolicy
from lookahead_edit.sequence import Sequence
from lookahead_edit.targets import pass_watch
from lookahead_edit.targets.hf import HfTarget, RowCache
from lookahead_edit.types import IntArray, InvalidInput, Round, UnsupportedModel

PROMPT = np.arange(3, 33, dtype=np.int32)


def decode(
    target: HfTarget, script: Callable[[IntArray], IntArray], num_new_tokens: int = 40
) -> tuple[Sequence, list[Round]]:
    sequence = Sequence(
        PROMPT,
        drafter=ScriptedDrafter(script),
        sampling=SamplingConfig(),
        max_tokens=num_new_tokens,
        max_context_tokens=target.max_context_tokens,
    )
    engine = Engine(target, FixedPolicy(64))
    rounds = []
    while not sequence.is_finished:
        rounds += engine.step([sequence])
    return sequence, rounds


def half_right(truth: IntArray) -> Callable[[IntArray], IntArray]:
    """Three tokens right and three wrong, and every third time no draft at all."""
    calls = itertools.count()

    def script(tokens: IntArray) -> IntArray:
        if next(calls) % 3 == 2:
            return truth[:0]
        draft = truth[len(tokens) : len(tokens) + 6].copy()
        draft[3:] = (draft[3:] + 1) % VOCAB_SIZE
        return draft

    return script


def truth_of(model: Any) -> IntArray:
    ids = torch.from_numpy(PROMPT.astype(np.int64))[None]
    output = model.generate(ids, max_new_tokens=40, do_sample=False)[0]
    return np.asarray(output, dtype=np.int32)


@pytest.mark.parametrize("num_prompt_tokens", [1, 2, 30])
@pytest.mark.parametrize("name", ["lfm2", "qwen3_next", "mistral"])
def test_a_static_cache_of_a_hybrid_gives_the_same_text(tiny_model: Any, name: str, num_prompt_tokens: int) -> None:
    """A static cache that recorded its past lost its mask in rounds of a single token."""
    ids = prompt(30)[:, :num_prompt_tokens]
    plain, ours, _ = both(tiny_model(name), ids, max_new_tokens=25, do_sample=False, cache_implementation="static")
    assert torch.equal(plain, ours)


class CountingLayer(DynamicLayer):
    """Keeps something of its own that the inherited crop() knows nothing of, as layers of DeepSeek-V4 do."""

    def __init__(self) -> None:
        super().__init__()
        self.num_seen_tokens = 0

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        self.num_seen_tokens += key_states.shape[-2]
        return super().update(key_states, value_states, *args, **kwargs)


def test_a_layer_that_inherits_crop_is_copied(tiny_model: Any) -> None:
    model = tiny_model("llama")
    cache = hf.DynamicCache(config=model.config)
    cache.layers[1] = CountingLayer()
    truth = truth_of(model)
    target = HfTarget(model, open_cache=lambda row: RowCache(cache))
    sequence, _ = decode(target, half_right(truth))
    assert sequence.tokens.tolist() == truth.tolist()
    target.settle(sequence.row(sequence.drafter.draft(0)))
    assert cache.layers[1].num_seen_tokens == cache.get_seq_length() == len(truth) - 1


def test_states_that_are_copied_do_not_pile_up(tiny_model: Any) -> None:
    """Convolution states that record their past grow until they are cropped, and copies are put back, not cropped."""
    model = tiny_model("qwen3_next")
    cache = hf.DynamicCache(config=model.config)
    truth = truth_of(model)
    sequence, _ = decode(HfTarget(model, open_cache=lambda row: RowCache(cache)), lambda tokens: truth[len(tokens) :])
    assert sequence.tokens.tolist() == truth.tolist()
    lengths = [layer.conv_states for layer in cache.layers if hasattr(layer, "conv_states")]
    assert lengths
    for states in lengths:
        state = states[0] if isinstance(states, dict) else states
        assert state.shape[-1] <= model.config.linear_conv_kernel_dim


@pytest.mark.parametrize("name", ["mistral", "lfm2"])
def test_the_cache_left_behind_forgets_again_what_it_need_not_know(tiny_model: Any, name: str) -> None:
    model, ids = tiny_model(name), prompt(30)
    expected = model.generate(ids, max_new_tokens=60, do_sample=False)
    cache = hf.DynamicCache(config=model.config)
    first = model.generate(ids, **{CACHE: cache}, max_new_tokens=20, do_sample=False, custom_generate=LookaheadEdit())
    whole = torch.ones_like(first)
    again = model.generate(first, attention_mask=whole, **{CACHE: cache}, max_new_tokens=40, do_sample=False)
    assert torch.equal(expected, again)
    assert not any(getattr(layer, "record_past", False) for layer in cache.layers)
    if name == "mistral":
        assert all(layer.keys.shape[-2] < model.config.sliding_window for layer in cache.layers)


def test_a_cache_that_keeps_more_than_its_layers_is_refused(tiny_model: Any) -> None:
    class LinearCache(hf.DynamicCache):
        """As MiniMax's: states of its own beside the layers."""

    model = tiny_model("llama")
    with pytest.raises(UnsupportedModel, match="LlamaForCausalLM to keep a DynamicCache or StaticCache, got LinearCac"):
        model.generate(
            prompt(8),
            **{CACHE: LinearCache(config=model.config)},
            max_new_tokens=4,
            do_sample=False,
            custom_generate=LookaheadEdit(),
        )


def test_a_model_that_makes_a_cache_of_its_own_is_refused_by_name() -> None:
    config = hf.MiniMaxConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        num_local_experts=2,
        bos_token_id=1,
        eos_token_id=None,
    )
    with pytest.raises(UnsupportedModel, match="MiniMaxForCausalLM makes a cache of its own"):
        hf.MiniMaxForCausalLM(config).eval().generate(
            prompt(8), max_new_tokens=4, do_sample=False, custom_generate=LookaheadEdit()
        )


def test_a_block_that_reads_the_prompt_too_is_prefill_for_that_part(
    tiny_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole answer accepted in the first round took time to decode."""
    model = tiny_model("llama")
    truth = truth_of(model)
    seconds = itertools.count()
    monkeypatch.setattr(pass_watch.time, "perf_counter", lambda: float(next(seconds)))
    _, (first, second) = decode(HfTarget(model), lambda tokens: truth[len(tokens) :][:30])
    # A second passes in the block: 29 of its 60 tokens are prompt whose logits nobody needs.
    assert first.prefill_seconds == pytest.approx(29 / 60)
    assert first.forward_seconds == pytest.approx(31 / 60)
    assert (second.prefill_seconds, second.forward_seconds) == (0.0, 1.0)


def test_seconds_of_a_batch_are_counted_once(tiny_model: Any) -> None:
    hook = LookaheadEdit()
    ids = torch.cat([prompt(20, seed) for seed in range(4)])
    tiny_model("llama").generate(ids, max_new_tokens=10, do_sample=False, custom_generate=hook)
    assert hook.metrics.num_emitted_tokens == 40
    # Every row's seconds are those of the steps it took part in, so the longest row's are all but those of the index.
    steps = max(row.verify_seconds for row in hook.row_metrics)
    assert hook.metrics.verify_seconds == pytest.approx(steps)
    assert hook.metrics.num_rounds == sum(row.num_rounds for row in hook.row_metrics)


def test_metrics_of_the_hook_tell_index_cached_tokens_and_why_it_is_off(tiny_model: Any) -> None:
    model, ids = tiny_model("llama"), prompt(30)
    cache = hf.DynamicCache(config=model.config)
    with torch.no_grad():
        model(ids[:, :20], **{CACHE: cache}, use_cache=True)
    hook = LookaheadEdit()
    model.generate(ids, **{CACHE: cache}, max_new_tokens=5, do_sample=False, custom_generate=hook)
    assert hook.metrics.num_cached_tokens == 20
    assert hook.metrics.max_index_bytes > 0
    assert hook.metrics.disabled_reason is None
    off = LookaheadEdit(speculation=SpeculationConfig(enabled=False))
    model.generate(ids, max_new_tokens=5, do_sample=False, custom_generate=off)
    assert off.metrics.disabled_reason == "speculation is off for this hook"


def test_a_model_that_forgets_its_state_before_a_block_is_refused_by_name(tiny_model: Any) -> None:
    model = tiny_model("mamba")
    for _ in range(2):
        with pytest.raises(UnsupportedModel, match="MambaForCausalLM forgets its state"):
            model.generate(prompt(8), max_new_tokens=4, do_sample=False, custom_generate=LookaheadEdit())


@pytest.mark.parametrize("name", ["lfm2", "mamba2", "qwen3_next"])
def test_states_matter_in_the_tiny_models(tiny_model: Any, name: str) -> None:
    """Otherwise they would prove nothing: a state put back wrongly has to show in the logits."""
    model = tiny_model(name)
    with torch.no_grad():
        logits = [model(torch.cat([prompt(30, seed), prompt(6)], dim=1)).logits[0, -1] for seed in (1, 2)]
    assert (logits[0] - logits[1]).abs().max() > 1e-3 * logits[0].abs().max()


def test_a_static_cache_whose_layers_hold_states_too_has_room(tiny_model: Any) -> None:
    model = tiny_model("falcon_h1")
    plain, ours, _ = both(model, prompt(12), max_new_tokens=8, do_sample=False, cache_implementation="static")
    assert torch.equal(plain, ours)
    cache = hf.StaticCache(config=model.config, max_cache_len=15)
    with pytest.raises(InvalidInput, match="at least 19 tokens, got 15"):
        model.generate(prompt(12), **{CACHE: cache}, max_new_tokens=8, do_sample=False, custom_generate=LookaheadEdit())
