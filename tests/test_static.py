"""Static caches and fixed widths change no token; in deterministic mode drafts change no bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from static_targets import (
    LogitsLog,
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
