"""The promise: the text is the target's own, for every drafter, policy and target.

Reference is `model.generate` without a hook, and the same loop without drafts. float32 on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import VOCAB_SIZE, make_tiny_model

from lookahead_edit.config import SamplingConfig, SpeculationConfig, TargetConfig
from lookahead_edit.drafters import DRAFTERS
from lookahead_edit.drafters.combined import CombinedDrafter
from lookahead_edit.drafters.scripted import ScriptedDrafter
from lookahead_edit.engine import Engine
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.policy import POLICIES
from lookahead_edit.sequence import Sequence
from lookahead_edit.targets.draft_model import DraftModel, DraftModelConfig, ModelDrafter
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.targets.recorded import RecordedTarget
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.types import Drafter, IntArray, Source, SourceKind, Target

NUM_NEW_TOKENS = 48
# Full attention, sliding window (prompt beyond it), learned positions, short convolutions, recurrent state, hybrid.
MODELS = ["llama", "mistral", "gpt2", "lfm2", "mamba2", "qwen3_next"]
MakeDrafter = Callable[[IntArray], Drafter]
# In capitals, whose bytes the tiny models have as tokens. The rename makes drafts differ from the file.
TOKENIZER = ByteTokenizer()
EDITED_FILE = "SUM = 0\nFOR A IN B:\n  SUM = SUM + A\n  PUT(SUM)\n\nPUT(SUM)\n"
INSTRUCTION = "RENAME SUM TO ALL.\n"


def alternating(truth: IntArray) -> Drafter:
    """Good, partly good, hostile and no drafts in turn: a stale state shows where one kind follows another."""
    generator = np.random.default_rng(1)
    calls = iter(range(10**9))

    def script(tokens: IntArray) -> IntArray:
        good = truth[len(tokens) : len(tokens) + int(generator.integers(1, 20))]
        kind = next(calls) % 4
        if kind == 0:
            return good
        if kind == 1:
            return np.concatenate([good[: len(good) // 2], (good[len(good) // 2 :] + 1) % VOCAB_SIZE])
        if kind == 2:
            return generator.integers(0, VOCAB_SIZE, 9).astype(np.int32)
        return truth[:0]

    return ScriptedDrafter(script)


SCRIPTS: dict[str, MakeDrafter] = {
    "alternating": alternating,
    "oracle": lambda truth: ScriptedDrafter(lambda tokens: truth[len(tokens) :]),
    "hostile": lambda truth: ScriptedDrafter(lambda tokens: (truth[len(tokens) : len(tokens) + 9] + 1) % VOCAB_SIZE),
    "outside the vocabulary": lambda truth: ScriptedDrafter(
        lambda tokens: np.concatenate([truth[len(tokens) : len(tokens) + 3], [VOCAB_SIZE, -1, 2**31 - 1]])
    ),
    "late": lambda truth: ScriptedDrafter(lambda tokens: truth[len(tokens) + 1 :]),
}


def decode(
    target: Target,
    prompt: IntArray,
    drafter: Drafter,
    policy: str = "fixed",
    sampling: SamplingConfig | None = None,
    num_new_tokens: int = NUM_NEW_TOKENS,
    sources: SequenceOf[Source] = (),
) -> tuple[list[int], SpeculationMetrics]:
    sequence = Sequence(
        prompt,
        drafter=drafter,
        sampling=sampling or SamplingConfig(),
        max_tokens=num_new_tokens,
        max_context_tokens=target.max_context_tokens,
        sources=sources,
    )
    metrics = SpeculationMetrics()
    for finished in Engine(target, POLICIES[policy](SpeculationConfig(), None)).generate(sequence):
        metrics.add(finished)
    assert metrics.num_emitted_tokens == len(sequence.output) == num_new_tokens
    return sequence.output.tolist(), metrics


_draft_models: list[DraftModel] = []


def model_drafter() -> ModelDrafter:
    """Of a tiny model that none of the targets is, drafting its likeliest tokens."""
    if not _draft_models:
        _draft_models.append(DraftModel(make_tiny_model("qwen2"), VOCAB_SIZE))
    return ModelDrafter(_draft_models[0], config=DraftModelConfig(max_draft_tokens=5))


MODEL_DRAFTERS: dict[str, Callable[[], Drafter]] = {
    "model": model_drafter,
    "combined": lambda: CombinedDrafter(DRAFTERS["edit"](SpeculationConfig(), TOKENIZER), model_drafter()),
}


def drafting(name: str, truth: IntArray) -> Drafter:
    """A script that knows the text to come, or one of the real drafters, with what their makers get."""
    if name in MODEL_DRAFTERS:
        return MODEL_DRAFTERS[name]()
    return SCRIPTS[name](truth) if name in SCRIPTS else DRAFTERS[name](SpeculationConfig(), TOKENIZER)


def prompt_of(file: str = EDITED_FILE) -> tuple[IntArray, list[Source]]:
    """An instruction and a file, int32[num_prompt_tokens], and the file as a source; another file besides."""
    head, tokens = TOKENIZER.encode(INSTRUCTION), TOKENIZER.encode(file)
    other = Source(SourceKind.CONTEXT, TOKENIZER.encode("PUT(ALL)\nPUT(B)\n"), path="OTHER")
    return np.concatenate([head, tokens, TOKENIZER.encode("\n")]), [
        Source(SourceKind.FILE, tokens, prompt_start=len(head)),
        other,
    ]


_references: dict[tuple[Any, ...], list[int]] = {}


def generated(model: Any, prompt: IntArray, num_new_tokens: int = NUM_NEW_TOKENS) -> list[int]:
    key = (id(model), prompt.tobytes(), num_new_tokens)
    if key not in _references:
        ids = torch.from_numpy(prompt.astype(np.int64))[None]
        output = model.generate(ids, max_new_tokens=num_new_tokens, do_sample=False)
        _references[key] = output[0, len(prompt) :].tolist()
    return _references[key]


def decoded_plainly(model: Any, prompt: IntArray, sampling: SamplingConfig) -> list[int]:
    key = (id(model), prompt.tobytes(), str(sampling))
    if key not in _references:
        _references[key], _ = decode(
            HfTarget(model), prompt, DRAFTERS["none"](SpeculationConfig(), None), "fixed", sampling
        )
    return _references[key]


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("drafter", [*sorted(DRAFTERS), *MODEL_DRAFTERS, *SCRIPTS])
@pytest.mark.parametrize("name", MODELS)
def test_greedy_text_is_that_of_generate(tiny_model: Any, name: str, drafter: str, policy: str) -> None:
    model = tiny_model(name)
    prompt, sources = prompt_of()
    expected = generated(model, prompt)
    truth = np.concatenate([prompt, np.asarray(expected, np.int32)])
    tokens, metrics = decode(HfTarget(model), prompt, drafting(drafter, truth), policy, sources=sources)
    assert tokens == expected
    if drafter == "edit" or (drafter in MODEL_DRAFTERS and policy == "fixed"):
        assert metrics.num_draft_tokens > 0
    if drafter == "oracle":
        assert metrics.acceptance_rate == 1.0
        assert metrics.num_rounds <= 3
    if drafter in ("hostile", "none"):
        assert metrics.num_rounds == NUM_NEW_TOKENS


@pytest.mark.parametrize("drafter", [*sorted(DRAFTERS), *MODEL_DRAFTERS, *SCRIPTS])
@pytest.mark.parametrize("name", ["llama", "mistral", "qwen3_next"])
def test_sampled_text_does_not_depend_on_the_drafts(
    tiny_model: Any, random_prompt: IntArray, name: str, drafter: str
) -> None:
    model = tiny_model(name)
    for sampling in (
        SamplingConfig(temperature=0.8, seed=5),
        SamplingConfig(temperature=1.0, top_k=20, top_p=0.9, min_p=0.01, repetition_penalty=1.2, seed=6),
        SamplingConfig(temperature=0.0, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2),
        SamplingConfig(temperature=0.7, logit_bias={5: 3.0, 6: -100.0}, seed=2**64 - 1),
    ):
        plain = decoded_plainly(model, random_prompt, sampling)
        truth = np.concatenate([random_prompt, np.asarray(plain, np.int32)])
        tokens, metrics = decode(HfTarget(model), random_prompt, drafting(drafter, truth), "fixed", sampling)
        assert tokens == plain
        assert drafter != "oracle" or metrics.num_rounds <= 3


EDITS = {
    "renamed": EDITED_FILE.replace("SUM", "ALL"),
    "renamed in part": EDITED_FILE.replace("SUM", "ALL", 2),
    "not renamed": EDITED_FILE,
    "indented": EDITED_FILE.replace("FOR", "IF A:\n  FOR")
    .replace("\n  SUM", "\n    SUM")
    .replace("\n  PUT", "\n    PUT"),
    "moved": EDITED_FILE[30:] + EDITED_FILE[:30],
    "repeated": EDITED_FILE[:20] * 9,
    "another text": "".join(chr(32 + 7 * number % 60) for number in range(90)),
}


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("drafter", [*sorted(DRAFTERS), *SCRIPTS])
@pytest.mark.parametrize("edit", EDITS)
def test_a_recorded_target_emits_what_was_logged(edit: str, drafter: str, policy: str) -> None:
    prompt, sources = prompt_of()
    logged = TOKENIZER.encode(EDITS[edit])
    truth = np.concatenate([prompt, logged])
    target = RecordedTarget(lambda prompt: logged, end_token_id=0, vocab_size=VOCAB_SIZE)
    tokens, metrics = decode(
        target, prompt, drafting(drafter, truth), policy, num_new_tokens=len(logged), sources=sources
    )
    assert tokens == logged.tolist()
    if drafter == "edit" and edit != "another text":
        assert metrics.num_rounds < len(logged) / 2


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("chunk", [1, 7, 39, 40, 512])
def test_the_prefill_chunk_does_not_change_the_text(
    tiny_model: Any, random_prompt: IntArray, name: str, chunk: int
) -> None:
    model = tiny_model(name)
    expected = generated(model, random_prompt, 20)
    truth = np.concatenate([random_prompt, np.asarray(expected, np.int32)])
    target = HfTarget(model, TargetConfig(prefill_chunk_tokens=chunk, max_replayed_tokens=chunk % 5))
    tokens, _ = decode(target, random_prompt, alternating(truth), num_new_tokens=20)
    assert tokens == expected


@pytest.mark.parametrize("name", MODELS)
def test_a_prompt_of_one_token_and_an_output_of_one_token(tiny_model: Any, name: str) -> None:
    model, prompt = tiny_model(name), np.array([5], dtype=np.int32)
    for num_new_tokens in (1, 2, 9):
        expected = generated(model, prompt, num_new_tokens)
        truth = np.concatenate([prompt, np.asarray(expected, np.int32)])
        tokens, _ = decode(HfTarget(model), prompt, alternating(truth), num_new_tokens=num_new_tokens)
        assert tokens == expected


def test_rows_of_one_step_are_equal_to_rows_alone(tiny_model: Any, random_prompt: IntArray) -> None:
    model = tiny_model("llama")
    prompts = [random_prompt[:length] for length in (1, 9, 23, 40)]
    target = HfTarget(model)
    engine = Engine(target, POLICIES["match_length"](SpeculationConfig(), None))
    rows = [
        Sequence(
            prompt,
            drafter=DRAFTERS["suffix"](SpeculationConfig(), None),
            sampling=SamplingConfig(),
            max_tokens=20 + 10 * index,
            max_context_tokens=target.max_context_tokens,
        )
        for index, prompt in enumerate(prompts)
    ]
    while live := [row for row in rows if not row.is_finished]:
        assert all(finished.batch_size == len(live) for finished in engine.step(live))
    for index, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
        assert row.output.tolist() == generated(model, prompt, 20 + 10 * index)


def test_a_committed_draft_token_is_always_verified(tiny_model: Any, random_prompt: IntArray) -> None:
    """A loop that takes a draft's first token on trust shows with drafts that are wrong from the first token on."""
    model = tiny_model("llama")
    expected = generated(model, random_prompt)
    wrong = ScriptedDrafter(lambda tokens: [(int(tokens[-1]) + 1) % VOCAB_SIZE] * 5)
    tokens, metrics = decode(HfTarget(model), random_prompt, wrong)
    assert tokens == expected
    assert metrics.num_draft_tokens > 0
