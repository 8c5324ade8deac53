"""What finished rows leave behind: reused by their own group alone, bounded in bytes, and no token changes by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from batches import Request, random_requests, serve_together, served_alone
from test_hook import CACHE
from tiny_models import VOCAB_SIZE

from lookahead_edit.config import SamplingConfig, TargetConfig
from lookahead_edit.engine import Engine
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.policy import FixedPolicy
from lookahead_edit.targets.hf import HfTarget, RowCache
from lookahead_edit.targets.prefix_cache import PrefixCache
from lookahead_edit.types import IntArray

BYTES_A_TOKEN = 3 * 2 * 2 * 8 * 4  # layers, keys and values, heads, head size, float32


def tokens_of(*parts: tuple[int, int]) -> IntArray:
    """Random tokens: (seed, number of tokens) each."""
    drawn = [np.random.default_rng(seed).integers(3, VOCAB_SIZE, num_tokens) for seed, num_tokens in parts]
    return np.concatenate(drawn).astype(np.int32)


def ask(
    target: HfTarget, prompt: IntArray, group: str | None = "a", *, num_rounds: int | None = None, max_tokens: int = 12
) -> tuple[list[int], SpeculationMetrics]:
    """Output and counters; after `num_rounds` the row is cancelled."""
    rounds: list[Any] = []
    request = Request(
        prompt,
        SamplingConfig(),
        max_tokens,
        truth=served_alone(target.model, Request(prompt, SamplingConfig(), max_tokens)),
        kind="half right",
    )
    sequence = request.open(
        target.max_context_tokens,
        cache_group=group,
        is_cancelled=lambda: num_rounds is not None and len(rounds) >= num_rounds,
    )
    metrics = SpeculationMetrics(num_prompt_tokens=len(prompt))
    for finished in Engine(target, FixedPolicy(8)).generate(sequence):
        rounds.append(finished)
        metrics.add(finished)
    assert sequence.output.tolist() == request.truth[: len(sequence.output)]
    return sequence.output.tolist(), metrics


# Reuse.


def test_the_second_prompt_is_read_only_where_it_differs(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    target = HfTarget(model)
    first, second = tokens_of((1, 50), (2, 10)), tokens_of((1, 50), (3, 30))
    expected = served_alone(model, Request(second, SamplingConfig(), max_tokens=12))
    _, metrics = ask(target, first)
    assert metrics.num_cached_tokens == 0
    output, metrics = ask(target, second)
    assert output == expected
    assert metrics.num_cached_tokens == 50
    assert metrics.num_prompt_tokens == 80


def test_an_answer_that_comes_back_in_a_prompt_is_not_read_again(tiny_model: Any) -> None:
    """A conversation goes on; of the answer all but the last token was read."""
    target = HfTarget(tiny_model("llama"))
    prompt = tokens_of((1, 40))
    output, _ = ask(target, prompt)
    longer = np.concatenate([prompt, np.asarray(output, np.int32), tokens_of((2, 9))])
    _, metrics = ask(target, longer)
    assert metrics.num_cached_tokens == 40 + len(output) - 1


def test_of_the_same_prompt_all_but_the_last_token_is_reused(tiny_model: Any) -> None:
    target = HfTarget(tiny_model("llama"))
    prompt = tokens_of((1, 40))
    outputs = [ask(target, prompt) for _ in range(3)]
    assert outputs[0][0] == outputs[1][0] == outputs[2][0]
    assert [metrics.num_cached_tokens for _, metrics in outputs] == [0, 39, 39]


def test_a_cancelled_row_leaves_what_it_had_read(tiny_model: Any) -> None:
    target = HfTarget(tiny_model("llama"), TargetConfig(prefill_chunk_tokens=16))
    prompt = tokens_of((1, 60))
    _, metrics = ask(target, prompt, num_rounds=2)
    assert metrics.num_emitted_tokens == 0
    _, metrics = ask(target, prompt)
    assert metrics.num_cached_tokens == 32


def test_rejected_tokens_are_never_reused(tiny_model: Any) -> None:
    """They stand in the cache until the next round rolls it back, which a row that ends doesn't live to see."""
    target = HfTarget(tiny_model("llama"))
    prompt = tokens_of((1, 30))
    truth = served_alone(target.model, Request(prompt, SamplingConfig(), max_tokens=40))
    for max_tokens in range(1, 12):
        request = Request(prompt, SamplingConfig(), max_tokens, truth=truth, kind="half right")
        sequence = request.open(target.max_context_tokens, cache_group=str(max_tokens))
        for _ in Engine(target, FixedPolicy(8)).generate(sequence):
            pass
        (entry,) = [entry for entry in target.prefix_cache._entries.values() if entry.group == str(max_tokens)]
        known = np.concatenate([prompt, np.asarray(truth, np.int32)])
        assert entry.tokens.tolist() == known[: len(entry.tokens)].tolist()
        assert 30 + max_tokens - 1 <= len(entry.tokens) <= 30 + max_tokens
        assert {tensor.shape[-2] for layer in entry.layers.values() for tensor in layer} == {len(entry.tokens)}


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen2"])
@pytest.mark.parametrize("seed", [0, 1])
def test_rows_that_reuse_each_others_beginnings_get_the_same_tokens(tiny_model: Any, name: str, seed: int) -> None:
    """Batched, chunked, sampled, with drafts of all kinds, and half of the prompts begin alike."""
    model = tiny_model(name)
    requests = random_requests(model, 12, seed)
    target = HfTarget(model, TargetConfig(prefill_chunk_tokens=48, shared_prefill_chunk_tokens=16))
    serve_together(target, requests, cache_group=lambda index: "all")
    steps = serve_together(target, requests, cache_group=lambda index: "all")
    for request in requests:
        assert request.sequence is not None
        assert request.sequence.output.tolist() == request.truth
    num_cached_tokens = sum(finished.num_cached_tokens for step in steps for finished in step)
    assert num_cached_tokens == sum(len(request.prompt) - 1 for request in requests)


def test_the_logits_after_a_reused_beginning_differ_in_their_last_digits_at_most(tiny_model: Any) -> None:
    """Read in other chunks, matrices have other shapes. Measured, so that the docstring says what is true."""
    model, prompt = tiny_model("llama"), tokens_of((1, 80))
    logits = []
    with torch.no_grad():
        for border in (0, 1, 13, 64, 79):
            cache = hf.DynamicCache(config=model.config)
            for part in np.split(prompt, [border])[int(border == 0) :]:
                ids = torch.from_numpy(part.astype(np.int64))[None]
                output = model(ids, **{CACHE: cache}, use_cache=True)
            logits.append(output.logits[0, -1])
    assert max(float((other - logits[0]).abs().max()) for other in logits) < 1e-4


# Who may reuse what.


def test_nobody_gets_what_another_group_left_and_without_a_group_nothing_is_kept(tiny_model: Any) -> None:
    target = HfTarget(tiny_model("llama"))
    prompt = tokens_of((1, 40))
    ask(target, prompt, None)
    assert (len(target.prefix_cache), target.prefix_cache.num_bytes) == (0, 0)
    assert ask(target, prompt, "a")[1].num_cached_tokens == 0
    assert ask(target, prompt, "b")[1].num_cached_tokens == 0
    assert ask(target, prompt, None)[1].num_cached_tokens == 0
    assert ask(target, prompt, "a")[1].num_cached_tokens == 39


@pytest.mark.parametrize("name", ["mistral", "lfm2", "qwen3_next"])
def test_caches_that_can_not_be_cut_anywhere_are_not_kept(tiny_model: Any, name: str) -> None:
    target = HfTarget(tiny_model(name))
    prompt = tokens_of((1, 40))
    for _ in range(2):
        assert ask(target, prompt)[1].num_cached_tokens == 0
    assert len(target.prefix_cache) == 0


def test_a_callers_cache_is_not_kept(tiny_model: Any) -> None:
    model = tiny_model("llama")
    target = HfTarget(model, open_cache=lambda row: RowCache(hf.DynamicCache(config=model.config)))
    ask(target, tokens_of((1, 40)))
    assert len(target.prefix_cache) == 0


# Memory.


def cache_of(model: Any, tokens: IntArray) -> hf.DynamicCache:
    cache = hf.DynamicCache(config=model.config)
    with torch.no_grad():
        model(torch.from_numpy(tokens.astype(np.int64))[None], **{CACHE: cache}, use_cache=True)
    return cache


def test_bytes_are_those_of_the_memory_behind_the_tensors(tiny_model: Any) -> None:
    model, kept = tiny_model("llama"), PrefixCache(10**9)
    kept.put("a", tokens_of((1, 40))[:30], cache_of(model, tokens_of((1, 40))))  # the others were rejected
    assert kept.num_bytes == 30 * BYTES_A_TOKEN
    (entry,) = kept._entries.values()
    tensors = [tensor for layer in entry.layers.values() for tensor in layer]
    assert sum(tensor.untyped_storage().nbytes() for tensor in tensors) == 30 * BYTES_A_TOKEN
    kept.clear()
    assert (len(kept), kept.num_bytes) == (0, 0)


def test_a_row_that_ends_gives_back_the_memory_of_its_rejected_drafts(tiny_model: Any) -> None:
    target = HfTarget(tiny_model("llama"))
    for seed in range(3):
        ask(target, tokens_of((seed, 40)), max_tokens=7)
    num_tokens = sum(len(entry.tokens) for entry in target.prefix_cache._entries.values())
    assert target.prefix_cache.num_bytes == num_tokens * BYTES_A_TOKEN


def test_what_went_unused_longest_makes_room(tiny_model: Any) -> None:
    model, kept = tiny_model("llama"), PrefixCache(100 * BYTES_A_TOKEN)
    texts = [tokens_of((seed, 40)) for seed in range(3)]
    for text in texts[:2]:
        kept.put("a", text, cache_of(model, text))
    assert kept.find("a", texts[0], model) is not None
    kept.put("a", texts[2], cache_of(model, texts[2]))
    assert [bool(kept.find("a", text, model)) for text in texts] == [True, False, True]
    assert kept.num_bytes == 80 * BYTES_A_TOKEN
    kept.put("b", tokens_of((9, 101)), cache_of(model, tokens_of((9, 101))))  # larger than all there is
    assert len(kept) == 2
    kept.put("b", tokens_of((9, 99)), cache_of(model, tokens_of((9, 99))))
    assert (len(kept), kept.num_bytes) == (1, 99 * BYTES_A_TOKEN)
    assert kept.find("a", texts[0], model) is None


def test_of_two_that_begin_alike_the_longer_one_is_kept_and_found(tiny_model: Any) -> None:
    model, kept = tiny_model("llama"), PrefixCache(10**9)
    long, short, other = tokens_of((1, 40)), tokens_of((1, 40))[:20], tokens_of((2, 30))
    kept.put("a", short, cache_of(model, short))
    kept.put("b", short, cache_of(model, short))
    kept.put("a", other, cache_of(model, other))
    kept.put("a", long, cache_of(model, long))
    assert [(entry.group, len(entry.tokens)) for entry in kept._entries.values()] == [("b", 20), ("a", 30), ("a", 40)]
    kept.put("a", short, cache_of(model, short))
    assert len(kept) == 3
    found = kept.find("a", np.concatenate([long[:35], other]), model)
    assert found is not None
    cache, num_tokens = found
    assert (cache.get_seq_length(), num_tokens) == (35, 35)
    expected = cache_of(model, long[:35])
    assert torch.allclose(cache.layers[2].keys, expected.layers[2].keys, atol=1e-5)


def test_what_was_found_is_a_copy(tiny_model: Any) -> None:
    """Two rows may go on after the same entry at the same time, and the entry stays."""
    model, kept = tiny_model("llama"), PrefixCache(10**9)
    text = tokens_of((1, 40))
    kept.put("a", text, cache_of(model, text))
    before = next(iter(kept._entries.values())).layers[0][0].clone()
    for _ in range(2):
        found = kept.find("a", text, model)
        assert found is not None
        found[0].layers[0].keys.zero_()
    assert torch.equal(next(iter(kept._entries.values())).layers[0][0], before)


def test_without_room_nothing_is_kept(tiny_model: Any) -> None:
    target = HfTarget(tiny_model("llama"), TargetConfig(max_prefix_cache_bytes=0))
    for _ in range(2):
        assert ask(target, tokens_of((1, 40)))[1].num_cached_tokens == 0
    assert len(target.prefix_cache) == 0


def test_many_rows_leave_no_more_than_the_bound(tiny_model: Any) -> None:
    limit = 150 * BYTES_A_TOKEN
    target = HfTarget(tiny_model("llama"), TargetConfig(max_prefix_cache_bytes=limit))
    for seed in range(12):
        ask(target, tokens_of((seed, 40)), str(seed % 3), max_tokens=3)
        assert target.prefix_cache.num_bytes <= limit
    assert len(target.prefix_cache) == 3
    assert not target._rows
