"""Static targets on the CPU, with what a GPU adds to them: records of passes, split attention, failures on demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lookahead_edit.config import SamplingConfig, TargetConfig
from lookahead_edit.engine import Engine
from lookahead_edit.policy import FixedPolicy
from lookahead_edit.sequence import Sequence
from lookahead_edit.targets.static import StaticTarget
from lookahead_edit.targets.static_reader import StaticReader
from lookahead_edit.types import Drafter, IntArray, Row, Target
from lookahead_edit.verify import Sampler, make_sampler


class ReplayRecorder:
    """Runs the recorded work anew at each replay, into the one tensor that a CUDA graph would write to."""

    def __init__(self) -> None:
        self.num_recordings = 0
        self.num_replays = 0

    def record(self, run: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        self.num_recordings += 1
        output = run().clone().fill_(torch.nan)

        def replay() -> None:
            self.num_replays += 1
            output.copy_(run())

        return replay, output


class BrokenRecorder:
    """What a driver that can't record does."""

    def record(self, run: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        raise RuntimeError("operation not permitted when stream is capturing\nmore of it")


def target_as_on_a_gpu(
    model: Any, config: TargetConfig | None = None, recorder: Any = None, **options: Any
) -> StaticTarget:
    """With recorded passes, fixed widths and attention in splits, on the CPU."""
    config = config or TargetConfig(kind="static", widths=(1, 4, 16))
    target = StaticTarget(model, config, **options)
    target._reader = StaticReader(
        model,
        config.pass_widths,
        is_deterministic=config.kind == "deterministic",
        recorder=recorder or ReplayRecorder(),
        has_splits=True,
    )
    return target


@dataclass
class LogitsLog:
    """The logits that tokens were chosen by, by the token's position."""

    by_position: dict[int, Tensor] = field(default_factory=dict)

    def open_sampler(self, row: Row) -> Sampler:
        """For `StaticTarget(open_sampler=…)`."""
        return _LoggedSampler(self, make_sampler(row.sampling, row.num_prompt_tokens))

    def equals(self, other: LogitsLog) -> bool:
        """Bit for bit."""
        return self.by_position.keys() == other.by_position.keys() and all(
            torch.equal(logits, other.by_position[position]) for position, logits in self.by_position.items()
        )


class _LoggedSampler:
    def __init__(self, log: LogitsLog, sampler: Sampler) -> None:
        self._log = log
        self._sampler = sampler

    def choose(self, logits: Tensor, row: Row) -> IntArray:
        tokens = self._sampler.choose(logits, row)
        for index in range(len(tokens)):
            self._log.by_position[len(row.tokens) + index] = logits[index].clone()
        return tokens


def open_sequence(
    target: Target, prompt: IntArray, drafter: Drafter, max_tokens: int, sampling: SamplingConfig | None = None
) -> Sequence:
    return Sequence(
        prompt,
        drafter=drafter,
        sampling=sampling or SamplingConfig(),
        max_tokens=max_tokens,
        max_context_tokens=target.max_context_tokens,
    )


def run_together(target: Target, sequences: list[Sequence], max_draft_tokens: int = 64) -> list[list[int]]:
    """Steps them in one engine until all are finished."""
    engine = Engine(target, FixedPolicy(max_draft_tokens))
    while live := [sequence for sequence in sequences if not sequence.is_finished]:
        engine.step(live)
    for sequence in sequences:
        target.close(sequence.key)
    return [sequence.output.tolist() for sequence in sequences]


def random_tokens(num_tokens: int, seed: int = 0) -> IntArray:
    """int32[num_tokens] of the tiny models' vocabulary."""
    return np.random.default_rng(seed).integers(3, 97, num_tokens).astype(np.int32)
