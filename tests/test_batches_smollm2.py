"""Batches and reused prompts on the default model: SmolLM2-135M with the edit adapter, float32 on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

from lookahead_edit.config import SamplingConfig, SpeculationConfig, TargetConfig
from lookahead_edit.edit_text import build_edit_prompt
from lookahead_edit.engine import Engine
from lookahead_edit.sequence import EndTokenRule, Sequence
from lookahead_edit.speculation import cost_curve_of, make_drafter, make_policy
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.text_region import Region
from lookahead_edit.tokenizer import HfTokenizer
from lookahead_edit.types import IntArray, Round

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # loading the model counts, and a machine may be busy

# Short, since every token of it is read five times on a CPU.
FILE = '{\n  "name": "demo",\n  "port": 8080,\n  "debug": false\n}\n'
TASKS = [
    ("Set port to 9090.", SamplingConfig()),
    ("Set debug to true.", SamplingConfig(temperature=0.5, top_p=0.9, seed=7)),
    ("Set port to 9090.", SamplingConfig(temperature=0.8, seed=1)),
]
MAX_TOKENS = 20
# So that a prompt takes as many rounds as a long one does with the usual chunks.
CHUNKS = TargetConfig(prefill_chunk_tokens=32, shared_prefill_chunk_tokens=16)


@pytest.fixture(scope="module")
def prompts(default_model: tuple[Any, Any]) -> list[IntArray]:
    tokenizer = HfTokenizer(default_model[1])
    asked = [
        build_edit_prompt(Region.of(FILE), instruction=task, path="demo.json", num_context_lines=20)
        for task, _ in TASKS
    ]
    return [tokenizer.encode(tokenizer.render_chat(prompt.messages, prompt.prefill)) for prompt in asked]


def sequences(default_model: tuple[Any, Any], prompts: list[IntArray], target: HfTarget) -> list[Sequence]:
    tokenizer = HfTokenizer(default_model[1])
    return [
        Sequence(
            prompt,
            drafter=make_drafter(SpeculationConfig(), tokenizer),
            sampling=sampling,
            max_tokens=MAX_TOKENS,
            max_context_tokens=target.max_context_tokens,
            stop_rules=[EndTokenRule(tokenizer.eos_token_ids)],
            cache_group="everybody",
        )
        for prompt, (_, sampling) in zip(prompts, TASKS, strict=True)
    ]


@pytest.fixture(scope="module")
def alone(default_model: tuple[Any, Any], prompts: list[IntArray]) -> list[list[int]]:
    """Each request by a target of its own."""
    outputs = []
    for index in range(len(TASKS)):
        target = HfTarget(default_model[0])
        sequence = sequences(default_model, prompts, target)[index]
        engine = Engine(target, make_policy(SpeculationConfig(), cost_curve_of(target)))
        for _ in engine.generate(sequence):
            pass
        outputs.append(sequence.output.tolist())
    return outputs


def test_edits_that_join_one_after_the_other_equal_those_served_alone(
    default_model: tuple[Any, Any], prompts: list[IntArray], alone: list[list[int]]
) -> None:
    """Twice, so that the second time every prompt is found in the cache, read by others in other chunks."""
    target = HfTarget(default_model[0], CHUNKS)
    engine = Engine(target, make_policy(SpeculationConfig(), cost_curve_of(target)))
    for is_known in (False, True):
        waiting = sequences(default_model, prompts, target)
        everyone, live, steps = list(waiting), list[Sequence](), list[list[Round]]()
        while waiting or live:
            if waiting:
                live.append(waiting.pop(0))
            steps.append(engine.step(live))
            for sequence in live:
                if sequence.is_finished:
                    target.close(sequence.key)
            live = [sequence for sequence in live if not sequence.is_finished]
        assert [sequence.output.tolist() for sequence in everyone] == alone
        assert max(map(len, steps)) > 1
        num_cached_tokens = sum(finished.num_cached_tokens for step in steps for finished in step)
        num_prompt_tokens = sum(len(prompt) - 1 for prompt in prompts)
        assert (num_cached_tokens == num_prompt_tokens) == is_known
    assert target.packs_rows
