"""Static caches and fixed widths change no token; in deterministic mode drafts change no bit."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from static_targets import (
    BrokenRecorder,
    LogitsLog,
    ReplayRecorder,
    open_sequence,
    random_tokens,
    run_together,
    target_as_on_a_gpu,
)
from test_exactness import SCRIPTS, alternating, decode, decoded_plainly, drafting, generated, prompt_of

from lookahead_edit.config import SamplingConfig, SpeculationConfig, TargetConfig
from lookahead_edit.drafters import DRAFTERS
from lookahead_edit.drafters.scripted import ScriptedDrafter
from lookahead_edit.engine import Engine
from lookahead_edit.policy import POLICIES, FixedPolicy
from lookahead_edit.targets.static import StaticTarget
from lookahead_edit.targets.static_attention import attend_in_splits, causal_mask
from lookahead_edit.targets.static_cache import rounded_capacity, rounded_length
from lookahead_edit.targets.static_passes import PassRunner
from lookahead_edit.types import IntArray, InvalidInput, UnsupportedModel

STATIC = TargetConfig(kind="static")
DETERMINISTIC = TargetConfig(kind="deterministic", deterministic_width=8)


def truth_of(model: Any, prompt: IntArray, num_tokens: int) -> IntArray:
    return np.concatenate([prompt, np.asarray(generated(model, prompt, num_tokens), np.int32)])


# The text.


@pytest.mark.parametrize("drafter", [*sorted(DRAFTERS), *SCRIPTS])
@pytest.mark.parametrize("kind", ["eager", "as on a GPU", "deterministic"])
@pytest.mark.parametrize(("name", "policy"), [("llama", "cost"), ("llama", "fixed"), ("gpt2", "fixed")])
def test_greedy_text_is_that_of_generate(tiny_model: Any, name: str, kind: str, drafter: str, policy: str) -> None:
    model = tiny_model(name)
    prompt, sources = prompt_of()
    expected = generated(model, prompt)
    truth = np.concatenate([prompt, np.asarray(expected, np.int32)])
    if kind == "as on a GPU":
        target = target_as_on_a_gpu(model)
    else:
        target = StaticTarget(model, STATIC if kind == "eager" else DETERMINISTIC)
    tokens, metrics = decode(target, prompt, drafting(drafter, truth), policy, sources=sources)
    assert tokens == expected
    if drafter == "oracle":
        assert metrics.acceptance_rate == 1.0
        assert metrics.num_rounds <= {"eager": 3, "as on a GPU": 4, "deterministic": 6}[kind]


@pytest.mark.parametrize("drafter", ["edit", *SCRIPTS])
@pytest.mark.parametrize("config", [STATIC, DETERMINISTIC], ids=lambda config: config.kind)
def test_sampled_text_does_not_depend_on_the_drafts(
    tiny_model: Any, random_prompt: IntArray, config: TargetConfig, drafter: str
) -> None:
    model = tiny_model("llama")
    for sampling in (
        SamplingConfig(temperature=0.8, seed=5),
        SamplingConfig(temperature=1.0, top_k=20, top_p=0.9, min_p=0.01, repetition_penalty=1.2, seed=6),
    ):
        plain = decoded_plainly(model, random_prompt, sampling)
        truth = np.concatenate([random_prompt, np.asarray(plain, np.int32)])
        target = StaticTarget(model, config)
        tokens, _ = decode(target, random_prompt, drafting(drafter, truth), "fixed", sampling)
        assert tokens == plain


@pytest.mark.parametrize("config", [STATIC, DETERMINISTIC], ids=lambda config: config.kind)
def test_rows_of_one_step_are_equal_to_rows_alone(tiny_model: Any, config: TargetConfig) -> None:
    model = tiny_model("llama")
    prompts = [random_tokens(length, length) for length in (1, 9, 23, 700)]
    target = StaticTarget(model, config)
    sequences = [
        open_sequence(target, prompt, alternating(truth_of(model, prompt, 20 + index)), 20 + index)
        for index, prompt in enumerate(prompts)
    ]
    outputs = run_together(target, sequences)
    assert outputs == [generated(model, prompt, 20 + index) for index, prompt in enumerate(prompts)]


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_text_may_fill_the_context_to_its_last_token(tiny_model: Any, name: str) -> None:
    """The padding of the last passes stands beyond the last position there is."""
    model = tiny_model(name)
    limit = 512 if name == "gpt2" else 2048
    prompt = random_tokens(limit - 20)
    truth = truth_of(model, prompt, 20)
    for target in (StaticTarget(model, DETERMINISTIC), target_as_on_a_gpu(model)):
        assert target.max_context_tokens == limit
        tokens, _ = decode(target, prompt, alternating(truth), num_new_tokens=20)
        assert tokens == truth[len(prompt) :].tolist()


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_cache_grows_where_the_text_outgrows_it(tiny_model: Any, is_recorded: bool) -> None:
    model, prompt = tiny_model("llama"), random_tokens(5)
    truth = truth_of(model, prompt, 1060)
    target = target_as_on_a_gpu(model) if is_recorded else StaticTarget(model, STATIC)
    sequence = open_sequence(target, prompt, alternating(truth), 1060)
    engine, capacities = Engine(target, FixedPolicy(12)), set()
    while not sequence.is_finished:
        engine.step([sequence])
        capacities.add(target._rows[sequence.key].cache.capacity)
    assert sequence.output.tolist() == truth[len(prompt) :].tolist()
    assert len(capacities) > 1


# Bits.


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("is_as_on_a_gpu", [False, True])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_in_deterministic_mode_logits_are_the_same_bits_whatever_was_drafted(
    tiny_model: Any, name: str, is_as_on_a_gpu: bool, dtype: torch.dtype
) -> None:
    """The text crosses a length at which another number of slots is attended, and grows its cache on the way."""
    model = tiny_model(name).to(dtype)
    try:
        prompt = random_tokens(400 if name == "gpt2" else 450)
        num_tokens = 80
        logs: dict[str, LogitsLog] = {}
        texts: dict[str, list[int]] = {}
        truth = prompt
        for drafter in ("none", *SCRIPTS):
            logs[drafter] = LogitsLog()
            options = {"open_sampler": logs[drafter].open_sampler}
            target = (
                target_as_on_a_gpu(model, DETERMINISTIC, **options)
                if is_as_on_a_gpu
                else StaticTarget(model, DETERMINISTIC, **options)
            )
            texts[drafter], metrics = decode(target, prompt, drafting(drafter, truth), num_new_tokens=num_tokens)
            if drafter == "none":
                truth = np.concatenate([prompt, np.asarray(texts["none"], np.int32)])
            if drafter == "oracle":
                assert metrics.num_rounds <= num_tokens // 8 + 2
        assert all(text == texts["none"] for text in texts.values())
        assert all(log.equals(logs["none"]) for log in logs.values())
        assert len(logs["none"].by_position) == num_tokens
    finally:
        model.to(torch.float32)


@pytest.mark.parametrize("sampling", [SamplingConfig(), SamplingConfig(temperature=0.9, top_p=0.95, seed=3)])
@pytest.mark.parametrize("limit", [0, 1, 5, 64])
@pytest.mark.parametrize("drafter", ["edit", "suffix", "ngram"])
def test_in_deterministic_mode_no_drafter_and_no_limit_changes_a_bit(
    tiny_model: Any, sampling: SamplingConfig, limit: int, drafter: str
) -> None:
    model = tiny_model("llama")
    prompt, sources = prompt_of()
    logs = [LogitsLog(), LogitsLog()]
    texts = []
    for log, name in zip(logs, ("none", drafter), strict=True):
        target = StaticTarget(model, DETERMINISTIC, open_sampler=log.open_sampler)
        config = SpeculationConfig(drafter=name, max_draft_tokens=limit, policy="fixed")
        sequence = open_sequence(target, prompt, drafting(name, prompt), 40, sampling)
        sequence.drafter.start(prompt, sources)
        for _ in Engine(target, POLICIES["fixed"](config, None)).generate(sequence):
            pass
        texts.append(sequence.output.tolist())
    assert texts[0] == texts[1]
    assert logs[0].equals(logs[1])


def test_in_deterministic_mode_other_rows_change_no_bit(tiny_model: Any) -> None:
    """A long prompt is read in the same chunks, whoever else reads or decodes meanwhile."""
    model = tiny_model("llama")
    prompts = [random_tokens(length, length) for length in (3, 1200, 40)]
    truths = [truth_of(model, prompt, 30) for prompt in prompts]
    config = TargetConfig(kind="deterministic", deterministic_width=8, prefill_chunk_tokens=100)
    logs: dict[int, LogitsLog] = {}

    def opened(row: Any) -> Any:
        return logs.setdefault(row.num_prompt_tokens, LogitsLog()).open_sampler(row)

    alone, together = StaticTarget(model, config, open_sampler=opened), None
    for prompt in prompts:
        run_together(alone, [open_sequence(alone, prompt, drafting("none", prompt), 30)])
    expected, logs = dict(logs), {}
    together = StaticTarget(model, config, open_sampler=opened)
    sequences = [
        open_sequence(together, prompt, alternating(truth), 30) for prompt, truth in zip(prompts, truths, strict=True)
    ]
    run_together(together, sequences)
    assert all(logs[length].equals(log) for length, log in expected.items())


# Passes.


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


def test_a_prompt_that_takes_too_much_memory_is_read_in_halves(
    tiny_model: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, prompt = tiny_model("llama"), random_tokens(300)
    target = StaticTarget(model, STATIC)
    read = PassRunner.read

    def run_out_of_memory(self: PassRunner, cache: Any, tokens: IntArray, *arguments: Any) -> Any:
        if len(tokens) > 100:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return read(self, cache, tokens, *arguments)

    monkeypatch.setattr(PassRunner, "read", run_out_of_memory)
    tokens, _ = decode(target, prompt, drafting("none", prompt), num_new_tokens=10)
    assert tokens == generated(model, prompt, 10)
    assert len(caplog.records) == 3


# Compiled.


def test_compiled_passes_have_no_graph_break_and_are_not_compiled_again(
    tiny_model: Any, random_prompt: IntArray
) -> None:
    """Whatever the width, the length and the capacity: one graph for single tokens, one for wider blocks."""
    from torch._dynamo.utils import counters

    model = tiny_model("llama")
    config = TargetConfig(kind="static", widths=(1, 4, 16, 32))
    target = target_as_on_a_gpu(model, config)
    target._reader._runner = PassRunner(model, target._reader._runner._shape, compiles=True, backend="eager")
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
    assert counters["stats"]["unique_graphs"] == num_graphs
    assert not counters["graph_break"]


def test_what_can_not_be_compiled_runs_eagerly_after_one_warning(
    tiny_model: Any, random_prompt: IntArray, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_model("llama")
    target = target_as_on_a_gpu(model)
    runner = PassRunner(model, target._reader._runner._shape, compiles=True, backend="eager")
    target._reader._runner = runner

    def fail(*arguments: Any) -> Any:
        raise RuntimeError("no compiler here\nand a long tale")

    runner._compiled = fail
    tokens, _ = decode(target, random_prompt, drafting("none", random_prompt))
    assert tokens == generated(model, random_prompt)
    assert [record.message for record in caplog.records] == [
        "LlamaForCausalLM is not compiled, its passes run eagerly: no compiler here"
    ]
    assert not runner.is_compiled


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


# Refusals.


@pytest.mark.parametrize("config", [STATIC, DETERMINISTIC], ids=lambda config: config.kind)
@pytest.mark.parametrize("name", ["mistral", "mamba2", "lfm2", "qwen3_next"])
def test_models_without_full_attention_are_refused_by_name(tiny_model: Any, name: str, config: TargetConfig) -> None:
    with pytest.raises(UnsupportedModel, match=r"\w+ForCausalLM can't be read with a static cache: "):
        StaticTarget(tiny_model(name), config)


def test_a_model_whose_tokens_of_a_block_touch_each_other_is_refused_in_deterministic_mode(
    tiny_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model("llama")
    layer = model.model.layers[1]
    forward = layer.mlp.forward
    monkeypatch.setattr(layer.mlp, "forward", lambda states: forward(states) + 1e-4 * states.mean(dim=1, keepdim=True))
    with pytest.raises(UnsupportedModel, match=r"its logits (depend on|are other)"):
        StaticTarget(model, DETERMINISTIC)


def test_widths_that_the_context_has_no_room_for_are_refused(tiny_model: Any) -> None:
    for config in (
        TargetConfig(kind="static", widths=(1, 4096)),
        TargetConfig(kind="deterministic", deterministic_width=4096),
    ):
        with pytest.raises(InvalidInput, match="expected passes that fit the model's context of 2048 tokens, got 4096"):
            StaticTarget(tiny_model("llama"), config)


@pytest.mark.parametrize(
    "options",
    [{"kind": "fast"}, {"widths": ()}, {"widths": (8, 1)}, {"widths": (0, 8)}, {"deterministic_width": 0}],
)
def test_a_configuration_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="expected"):
        TargetConfig(**options)


def test_a_cancelled_row_is_closed_and_the_others_go_on(tiny_model: Any) -> None:
    model = tiny_model("llama")
    target = target_as_on_a_gpu(model)
    prompts = [random_tokens(20, 1), random_tokens(20, 2)]
    sequences = [open_sequence(target, prompt, ScriptedDrafter(lambda tokens: []), 20) for prompt in prompts]
    engine = Engine(target, FixedPolicy(8))
    engine.step(sequences)
    sequences[0].is_cancelled = lambda: True
    engine.step(sequences)
    assert sequences[0].finish_reason == "cancelled"
    target.close(sequences[0].key)
    assert run_together(target, sequences[1:]) == [generated(model, prompts[1], 20)]
    assert not target._rows
