"""The promises on the default model: SmolLM2-135M with the edit adapter, float32 on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lookahead_edit
from lookahead_edit.config import SamplingConfig, SpeculationConfig
from lookahead_edit.drafters.scripted import ScriptedDrafter
from lookahead_edit.edit_text import build_edit_prompt
from lookahead_edit.engine import Engine
from lookahead_edit.hook import LookaheadEdit
from lookahead_edit.sequence import Sequence
from lookahead_edit.speculation import make_drafter, make_policy
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.text_region import Region
from lookahead_edit.tokenizer import HfTokenizer
from lookahead_edit.types import Drafter, IntArray, Tokenizer

pytestmark = pytest.mark.slow

SOURCE = '''def total_price(items, tax_rate):
    """Adds up prices and tax."""
    subtotal = sum(item.price for item in items)
    return subtotal * (1 + tax_rate)


def is_free(item):
    return item.price == 0
'''


@pytest.fixture(scope="module")
def prompt(default_model: tuple[Any, Any]) -> IntArray:
    tokenizer = HfTokenizer(default_model[1])
    asked = build_edit_prompt(
        Region.of(SOURCE), instruction="Rename tax_rate to vat.", path="shop.py", num_context_lines=20
    )
    return tokenizer.encode(tokenizer.render_chat(asked.messages, asked.prefill))


@pytest.fixture(scope="module")
def truth(default_model: tuple[Any, Any], prompt: IntArray) -> IntArray:
    """Prompt and what plain `generate` makes of it."""
    model = default_model[0]
    ids = torch.from_numpy(prompt.astype(np.int64))[None]
    return np.asarray(model.generate(ids, max_new_tokens=50, do_sample=False)[0], dtype=np.int32)


def alternating(truth: IntArray) -> Drafter:
    calls = iter(range(10**9))
    generator = np.random.default_rng(0)

    def script(tokens: IntArray) -> IntArray:
        good = truth[len(tokens) : len(tokens) + 12]
        kind = next(calls) % 4
        if kind == 1:
            return np.concatenate([good[:4], good[4:] + 1])
        if kind == 2:
            return generator.integers(0, 49152, 6).astype(np.int32)
        return truth[:0] if kind == 3 else good

    return ScriptedDrafter(script)


DRAFTERS: dict[str, Callable[[IntArray, Tokenizer], Drafter]] = {
    "alternating": lambda truth, tokenizer: alternating(truth),
    "edit": lambda truth, tokenizer: make_drafter(SpeculationConfig(drafter="edit"), tokenizer),
    "suffix": lambda truth, tokenizer: make_drafter(SpeculationConfig(drafter="suffix")),
    "ngram": lambda truth, tokenizer: make_drafter(SpeculationConfig(drafter="ngram")),
}


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_greedy_text_is_that_of_generate(
    default_model: tuple[Any, Any], prompt: IntArray, truth: IntArray, drafter: str
) -> None:
    target = HfTarget(default_model[0])
    sequence = Sequence(
        prompt,
        drafter=DRAFTERS[drafter](truth, HfTokenizer(default_model[1])),
        sampling=SamplingConfig(),
        max_tokens=len(truth) - len(prompt),
        max_context_tokens=target.max_context_tokens,
    )
    rounds = list(Engine(target, make_policy(SpeculationConfig())).generate(sequence))
    assert sequence.tokens.tolist() == truth.tolist()
    assert len(rounds) < len(sequence.output)


def test_the_hook_equals_generate(default_model: tuple[Any, Any], prompt: IntArray, truth: IntArray) -> None:
    model, tokenizer = default_model
    ids = torch.from_numpy(prompt.astype(np.int64))[None]
    hook = LookaheadEdit(tokenizer=tokenizer)
    ours = model.generate(ids, max_new_tokens=50, do_sample=False, custom_generate=hook)
    assert ours[0].tolist() == truth.tolist()
    assert hook.metrics.tokens_per_round is not None
    assert hook.metrics.tokens_per_round > 2.0


def test_sampled_text_with_one_seed_is_the_same_on_and_off(default_model: tuple[Any, Any], prompt: IntArray) -> None:
    ids = torch.from_numpy(prompt.astype(np.int64))[None]
    on, off = (
        default_model[0].generate(
            ids,
            max_new_tokens=24,
            do_sample=True,
            temperature=0.7,
            top_p=0.95,
            custom_generate=LookaheadEdit(seed=3, speculation=SpeculationConfig(enabled=enabled)),
        )
        for enabled in (True, False)
    )
    assert on.tolist() == off.tolist()


def test_an_edit_in_one_call(default_model: tuple[Any, Any]) -> None:
    model, tokenizer = default_model
    text = (Path(__file__).parent.parent / "benchmarks/samples/settings.json").read_text()
    result = lookahead_edit.edit(model, tokenizer, text, "Set port to 9090.", path="settings.json")
    assert result.text == text.replace('"port": 8080', '"port": 9090')
    assert result.finish_reason == "stop"
    assert result.diff().startswith("diff --git a/settings.json b/settings.json\n")
    assert result.metrics.num_accepted_by_source["file"] > 20
