"""Requests that join and leave a batch at random, and the same requests served alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lookahead_edit.config import SamplingConfig
from lookahead_edit.drafters.scripted import ScriptedDrafter
from lookahead_edit.engine import Engine
from lookahead_edit.policy import FixedPolicy
from lookahead_edit.sequence import EndTokenRule, Sequence
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.types import IntArray, Round, StopRule

KINDS = ("none", "right", "wrong", "half right", "in turn")
SAMPLINGS = (
    SamplingConfig(),
    SamplingConfig(temperature=0.8, seed=5),
    SamplingConfig(temperature=1.0, top_k=20, top_p=0.9, min_p=0.01, repetition_penalty=1.2, seed=6),
    SamplingConfig(temperature=0.0, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2),
)


@dataclass
class Request:
    """What is asked, and what came of it."""

    prompt: IntArray
    sampling: SamplingConfig
    max_tokens: int
    end_token_ids: frozenset[int] = frozenset()
    kind: str = "none"  # of drafts
    truth: list[int] = field(default_factory=list)  # served alone, without drafts
    sequence: Sequence | None = None

    def open(self, max_context_tokens: int, *, cache_group: str | None = None, **options: Any) -> Sequence:
        rules: list[StopRule] = [EndTokenRule(self.end_token_ids)]
        self.sequence = Sequence(
            self.prompt,
            drafter=ScriptedDrafter(self._script()),
            sampling=self.sampling,
            max_tokens=self.max_tokens,
            max_context_tokens=max_context_tokens,
            stop_rules=rules,
            cache_group=cache_group,
            **options,
        )
        return self.sequence

    def _script(self) -> Callable[[IntArray], IntArray]:
        generator = np.random.default_rng(len(self.prompt))
        truth = np.concatenate([self.prompt, np.asarray(self.truth, np.int32)])
        calls = iter(range(10**9))

        def draft(tokens: IntArray) -> IntArray:
            right = truth[len(tokens) : len(tokens) + int(generator.integers(1, 20))]
            wrong = np.where(right > 5, right - 1, right + 1).astype(np.int32)
            kind = KINDS[next(calls) % 4] if self.kind == "in turn" else self.kind
            if kind == "half right":
                return np.concatenate([right[: len(right) // 2], wrong[len(right) // 2 :]])
            return {"none": right[:0], "right": right, "wrong": wrong}[kind]

        return draft


def random_requests(
    model: Any, num_requests: int, seed: int, *, max_prompt_tokens: int = 90, first_token: int = 3
) -> list[Request]:
    """Prompts of 1 to 90 tokens, of which some begin alike; limits, end tokens, samplers and drafts mixed."""
    generator = np.random.default_rng(seed)
    vocab_size = model.config.vocab_size
    common = generator.integers(first_token, vocab_size, max_prompt_tokens).astype(np.int32)
    requests = []
    for index in range(num_requests):
        prompt = generator.integers(first_token, vocab_size, generator.integers(1, max_prompt_tokens)).astype(np.int32)
        num_common = int(generator.integers(0, len(prompt) + 1)) if index % 2 else 0
        prompt[:num_common] = common[:num_common]
        request = Request(
            prompt,
            SAMPLINGS[index % len(SAMPLINGS)],
            max_tokens=int(generator.integers(1, 40)),
            end_token_ids=frozenset(generator.integers(0, vocab_size, 2).tolist()),
        )
        request.truth = served_alone(model, request)
        request.kind = KINDS[int(generator.integers(0, len(KINDS)))]
        requests.append(request)
    return requests


def served_alone(model: Any, request: Request) -> list[int]:
    """The output by a target of its own, without drafts."""
    target = HfTarget(model)
    sequence = request.open(target.max_context_tokens)
    for _ in Engine(target, FixedPolicy(0)).generate(sequence):
        pass
    return sequence.output.tolist()


def serve_together(
    target: HfTarget,
    requests: list[Request],
    *,
    max_batch_size: int = 6,
    seed: int = 0,
    cache_group: Callable[[int], str | None] = lambda index: None,
) -> list[list[Round]]:
    """Steps all of them in one engine; after each round some join and some leave. The rounds of each step."""
    generator = np.random.default_rng(seed)
    engine = Engine(target, FixedPolicy(12))
    waiting, live, steps = list(enumerate(requests)), [], []
    while waiting or live:
        while waiting and len(live) < max_batch_size and (not live or generator.random() < 0.4):
            index, request = waiting.pop(0)
            live.append(request.open(target.max_context_tokens, cache_group=cache_group(index)))
        steps.append(engine.step(live))
        for sequence in live:
            if sequence.is_finished:
                target.close(sequence.key)
        live = [sequence for sequence in live if not sequence.is_finished]
    return steps
