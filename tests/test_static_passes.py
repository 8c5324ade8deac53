"""Passes of a static target: their widths, that they are recorded and compiled once, and what happens on failure."""

from __future__ import annotations

import logging
import shutil
from typing import Any

import pytest
import torch
from static_targets import (
    BrokenRecorder,
    ReplayRecorder,
    open_sequence,
    random_tokens,
    run_together,
    target_as_on_a_gpu,
)
from test_exactness import SCRIPTS, alternating, decode, drafting, generated
from test_static import DETERMINISTIC, STATIC, truth_of
from tiny_models import make_tiny_model

from lookahead_edit.config import TargetConfig
from lookahead_edit.engine import Engine
from lookahead_edit.policy import FixedPolicy
from lookahead_edit.targets.static import StaticTarget
from lookahead_edit.targets.static_attention import attend_in_splits, causal_mask
from lookahead_edit.targets.static_cache import StaticRowCache, rounded_capacity, rounded_length
from lookahead_edit.targets.static_passes import PassRunner
from lookahead_edit.types import IntArray


def test_a_draft_longer_than_the_widest_pass_is_cut_and_counted_as_cut(
    tiny_model: Any, random_prompt: IntArray
) -> None:
    model = tiny_model("llama")
    truth = truth_of(model, random_prompt, 60)
    target = StaticTarget(model, DETERMINISTIC)
    sequence = open_sequence(target, random_prompt, SCRIPTS["oracle"](truth), 60)
    rounds = [*Engine(target, FixedPolicy(64)).generate(sequence)]
    assert [finished.num_draft_tokens for finished in rounds][:3] == [7, 7, 7]
    assert all(finished.num_accepted_tokens == finished.num_draft_tokens for finished in rounds)


def test_passes_are_recorded_once_a_shape_and_again_for_no_later_row(tiny_model: Any) -> None:
    model = tiny_model("llama")
    recorder = ReplayRecorder()
    target = target_as_on_a_gpu(model, recorder=recorder)
    texts = []
    counts = []
    for seed in range(4):
        prompt = random_tokens(30, seed)
        truth = truth_of(model, prompt, 40)
        tokens, _ = decode(target, prompt, alternating(truth), num_new_tokens=40)
        texts.append(tokens == truth[len(prompt) :].tolist())
        counts.append(recorder.num_recordings)
    assert all(texts)
    assert counts[0] == counts[-1] <= 3
    assert recorder.num_replays > 4 * recorder.num_recordings
    assert target._reader.num_idle_bytes > 0


def test_a_replay_does_not_look_at_the_model(
    tiny_model: Any, random_prompt: IntArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Switching the attention of a large model to and fro takes a tenth of a GPU's pass."""
    model = tiny_model("llama")
    recorder = ReplayRecorder()
    target = target_as_on_a_gpu(model, recorder=recorder)
    decode(target, random_prompt, drafting("none", random_prompt), num_new_tokens=9)
    (cache,) = target._reader._idle
    monkeypatch.setattr(type(model), "set_attn_implementation", lambda *arguments: pytest.fail("switched"))
    for recording in cache.recordings.values():
        recording.replay = lambda: None
    num_recordings = recorder.num_recordings
    target._reader._runner.run(cache, random_prompt[:1], 45, 512)
    assert recorder.num_recordings == num_recordings


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_a_cache_that_grew_is_recorded_again(caplog: pytest.LogCaptureFixture) -> None:
    """It was the only one, so its recordings were the last of their memory."""
    model = make_tiny_model("llama").to("cuda")
    target = StaticTarget(model, TargetConfig(kind="static", widths=(1, 4, 16), compiles=False))
    for num_tokens in (40, 1500):
        prompt = random_tokens(num_tokens)
        truth = truth_of(model, prompt, 30)
        tokens, _ = decode(target, prompt, alternating(truth), num_new_tokens=30)
        assert tokens == truth[len(prompt) :].tolist()
    assert target.is_recorded
    assert not caplog.records


def test_rows_that_live_at_once_have_caches_of_their_own(tiny_model: Any) -> None:
    model = tiny_model("llama")
    target = target_as_on_a_gpu(model)
    prompts = [random_tokens(length, length) for length in (9, 30, 41, 17, 8, 60)]
    sequences = [open_sequence(target, prompt, alternating(truth_of(model, prompt, 30)), 30) for prompt in prompts]
    assert run_together(target, sequences) == [generated(model, prompt, 30) for prompt in prompts]
    assert len(target._reader._idle) == 4


def test_a_used_cache_shows_nothing_of_the_row_before(tiny_model: Any, random_prompt: IntArray) -> None:
    """Even a NaN: a masked key has weight 0, but 0 times NaN is NaN."""
    model = tiny_model("llama")
    target = target_as_on_a_gpu(model)
    decode(target, random_prompt, drafting("none", random_prompt), num_new_tokens=5)
    (cache,) = target._reader._idle
    for buffer in (*cache.keys, *cache.values):
        buffer.fill_(torch.nan)
    expected = generated(model, random_prompt, 30)
    tokens, _ = decode(target, random_prompt, drafting("none", random_prompt), num_new_tokens=30)
    assert tokens == expected


def test_a_failed_recording_warns_once_and_passes_run_without(
    tiny_model: Any, random_prompt: IntArray, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_model("llama")
    with caplog.at_level(logging.WARNING):
        target = target_as_on_a_gpu(model, recorder=BrokenRecorder())
        tokens, _ = decode(target, random_prompt, drafting("none", random_prompt))
    assert tokens == generated(model, random_prompt)
    assert [record.message for record in caplog.records] == [
        "passes are not recorded, each is launched kernel by kernel: operation not permitted when stream is capturing"
    ]


@pytest.mark.parametrize("kind", ["static", "deterministic"])
def test_where_memory_runs_out_passes_get_narrower_unless_bits_depend_on_it(
    tiny_model: Any,
    random_prompt: IntArray,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: Any,
) -> None:
    model = tiny_model("llama")
    truth = truth_of(model, random_prompt, 48)
    target = target_as_on_a_gpu(model, TargetConfig(kind=kind, widths=(1, 4, 16), deterministic_width=16))
    run = PassRunner.run

    def run_out_of_memory(self: PassRunner, cache: Any, tokens: IntArray, *arguments: Any) -> Any:
        if len(tokens) == 16:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return run(self, cache, tokens, *arguments)

    monkeypatch.setattr(PassRunner, "run", run_out_of_memory)
    with caplog.at_level(logging.WARNING):
        if kind == "deterministic":
            with pytest.raises(torch.OutOfMemoryError):
                decode(target, random_prompt, SCRIPTS["oracle"](truth))
            return
        tokens, metrics = decode(target, random_prompt, SCRIPTS["oracle"](truth))
    assert tokens == truth[len(random_prompt) :].tolist()
    assert target.widths == (1, 4)
    assert len(caplog.records) == 1
    assert "no pass is 16 tokens wide any more" in caplog.records[0].message
    assert metrics.acceptance_rate == 1.0


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_a_prompt_that_takes_too_much_memory_is_read_in_halves(
    tiny_model: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: RuntimeError
) -> None:
    model, prompt = tiny_model("llama"), random_tokens(300)
    target = StaticTarget(model, STATIC)
    read = PassRunner.read

    def run_out_of_memory(self: PassRunner, cache: Any, tokens: IntArray, *arguments: Any, **options: Any) -> Any:
        if len(tokens) > 100:
            raise error
        return read(self, cache, tokens, *arguments, **options)

    monkeypatch.setattr(PassRunner, "read", run_out_of_memory)
    tokens, _ = decode(target, prompt, drafting("none", prompt), num_new_tokens=10)
    assert tokens == generated(model, prompt, 10)
    assert len(caplog.records) == 3


def test_caches_kept_for_later_rows_are_given_up_for_one_that_is_needed(
    tiny_model: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_model("llama")
    target = target_as_on_a_gpu(model)
    prompt = random_tokens(30)
    expected = generated(model, prompt, 20)
    assert decode(target, prompt, drafting("none", prompt), num_new_tokens=20)[0] == expected
    grow = StaticRowCache.grow

    def run_out_of_memory(self: StaticRowCache, num_tokens: int) -> None:
        if target._reader._idle:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        grow(self, num_tokens)

    monkeypatch.setattr(StaticRowCache, "grow", run_out_of_memory)
    run_together(target, [open_sequence(target, prompt, drafting("none", prompt), 5) for _ in range(2)])
    assert len(target._reader._idle) == 2
    longer = random_tokens(1500)
    assert decode(target, longer, drafting("none", longer), num_new_tokens=20)[0] == generated(model, longer, 20)
    assert [record.message for record in caplog.records] == [
        "memory ran out, caches that were kept for later rows are given up"
    ]


def test_where_no_cache_can_be_given_up_the_row_fails_with_its_size(
    tiny_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_out_of_memory(self: StaticRowCache, num_tokens: int) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    target = StaticTarget(tiny_model("llama"), STATIC)
    monkeypatch.setattr(StaticRowCache, "grow", run_out_of_memory)
    prompt = random_tokens(5)
    with pytest.raises(MemoryError, match=r"no memory for a cache of \d+ tokens: CUDA out of memory"):
        decode(target, prompt, drafting("none", prompt), num_new_tokens=1500)


# Compiled.


@pytest.mark.filterwarnings("default")  # the compiler's own
@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_passes_have_no_graph_break_and_are_not_compiled_again(tiny_model: Any, backend: str) -> None:
    """Whatever the width, the length and the capacity: one graph for single tokens, one for wider blocks."""
    from torch._dynamo.utils import counters

    if backend == "inductor" and shutil.which("g++") is None:
        pytest.skip("needs a C++ compiler")

    model = tiny_model("llama")
    config = TargetConfig(kind="static", widths=(1, 4, 16, 32))
    target = target_as_on_a_gpu(model, config)
    target._reader._runner = PassRunner(model, target._reader._runner._shape, compiles=True, backend=backend)
    torch._dynamo.reset()
    counters.clear()
    target.warm_up(100)
    num_graphs = counters["stats"]["unique_graphs"]
    assert num_graphs == 2
    for num_prompt_tokens in (3, 40, 900):
        prompt = random_tokens(num_prompt_tokens)
        truth = truth_of(model, prompt, 200)
        tokens, _ = decode(target, prompt, alternating(truth), num_new_tokens=200)
        assert tokens == truth[len(prompt) :].tolist()
    # Nor is another target of the same model.
    other = target_as_on_a_gpu(model, config)
    other._reader._runner = PassRunner(model, other._reader._runner._shape, compiles=True, backend=backend)
    tokens, _ = decode(other, prompt, alternating(truth), num_new_tokens=200)
    assert tokens == truth[len(prompt) :].tolist()
    assert counters["stats"]["unique_graphs"] == num_graphs
    assert not counters["graph_break"]
    assert target.is_compiled


def test_a_model_that_can_not_be_compiled_runs_eagerly_after_one_warning(
    random_prompt: IntArray, caplog: pytest.LogCaptureFixture
) -> None:
    """Its path depends on a number that it has to look at, which breaks the graph."""
    model = make_tiny_model("llama")
    layer = model.model.layers[0]
    forward = layer.mlp.forward
    layer.mlp.forward = lambda states: forward(states) if float(states.abs().max()) > 0.0 else states
    target = StaticTarget(model, TargetConfig(kind="static", widths=(1, 4, 16), compiles=True))
    assert not target.is_compiled
    tokens, _ = decode(target, random_prompt, drafting("none", random_prompt))
    assert tokens == generated(model, random_prompt)
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.message.startswith("LlamaForCausalLM is not compiled, its passes run eagerly: ")
    assert target.widths is None


# Pieces.


@pytest.mark.parametrize("num_key_heads", [1, 2, 4])
def test_attention_in_splits_is_attention(num_key_heads: int) -> None:
    torch.manual_seed(0)
    width, num_attended, num_groups = 5, 1024, 4 // num_key_heads
    query = torch.randn(num_key_heads, num_groups * width, 16)
    key = torch.randn(num_key_heads, num_attended, 16)
    value = torch.randn(num_key_heads, num_attended, 24)
    slots = torch.arange(width) + 700
    mask = causal_mask(slots, torch.arange(num_attended), num_groups, torch.float32)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask[0], scale=0.3)
    splits = value.reshape(num_key_heads, 4, 256, 24).transpose(0, 1).contiguous()
    got = attend_in_splits(query, key, splits, mask[0], 0.3)
    assert torch.allclose(got, expected, atol=1e-6)
    # What is masked counts nothing, however large it is.
    key[:, 705:] = 1e4
    splits.transpose(0, 1).reshape(num_key_heads, 1024, 24)[:, 705:] = -1e4
    assert torch.allclose(attend_in_splits(query, key, splits, mask[0], 0.3), expected, atol=1e-6)


def test_lengths_are_rounded_by_at_most_an_eighth_and_never_down() -> None:
    lengths = [rounded_length(number, 512) for number in range(1, 40_000)]
    assert all(number <= length for number, length in enumerate(lengths, start=1))
    assert all(length <= max(number + 511, number * 9 / 8) for number, length in enumerate(lengths, start=1))
    assert len(set(lengths)) <= 8 * 6
    assert all(length % 512 == 0 for length in lengths)
    assert [rounded_capacity(number) for number in (1, 1025, 5000)] == [1024, 1280, 5120]
