"""What `gpu_check` measures, a function a stage: exactness, the cost of passes, edits replayed at that cost."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.peers import MAX_DRAFT_TOKENS, PEERS
from benchmarks.shapes import Shape, random_model
from lookahead_edit.config import SamplingConfig, SpeculationConfig, TargetConfig
from lookahead_edit.cost import CostCurve
from lookahead_edit.engine import Engine
from lookahead_edit.policy import FixedPolicy
from lookahead_edit.replay_tokens import TokenTrace
from lookahead_edit.sequence import EndTokenRule
from lookahead_edit.sequence import Sequence as TokenSequence
from lookahead_edit.speculation import make_drafter, make_policy
from lookahead_edit.targets.auditing import AuditPrompt, audit
from lookahead_edit.targets.making import make_target
from lookahead_edit.targets.roofline import Roofline
from lookahead_edit.targets.static import StaticTarget
from lookahead_edit.targets.static_reader import MIN_ATTENDED_STEP
from lookahead_edit.types import (
    Draft,
    Drafter,
    IntArray,
    Policy,
    Row,
    Source,
    SourceKind,
    Target,
    Tokenizer,
    num_agreeing,
)
from lookahead_edit.verify import Sampler, greedy_tokens

ROW_KEY = -1  # no sequence has it
METHODS = ("plain", "hf_lookup", "suffix", "edit")


# Exactness.


@dataclass(frozen=True)
class ExactnessCase:
    """A target whose text is audited against the model's own."""

    dtype: str
    target: TargetConfig

    @property
    def name(self) -> str:
        compiled = "" if self.target.kind == "dynamic" or self.target.compiles is False else ", compiled on a GPU"
        return f"{self.target.kind}, {self.dtype}{compiled}"


EXACTNESS_CASES = tuple(
    ExactnessCase(dtype, target)
    for dtype in ("float32", "bfloat16")
    for target in (
        TargetConfig(),
        TargetConfig(kind="static", compiles=False),
        TargetConfig(kind="deterministic", compiles=False),
    )
)
# Compiling takes most of the time; what it changes shows in bfloat16, where real models run.
COMPILED_CASES = (
    ExactnessCase("bfloat16", TargetConfig(kind="static")),
    ExactnessCase("bfloat16", TargetConfig(kind="deterministic")),
)


def check_exactness(
    case: ExactnessCase, shape: Shape, *, device: str, num_prompt_tokens: Sequence[int], num_tokens: int
) -> dict[str, Any]:
    """The audit's report as JSON: without drafts against the model itself, and with `suffix`, right, wrong drafts."""
    model = random_model(shape, device=device, dtype=getattr(torch, case.dtype))
    generator = np.random.default_rng(0)
    prompts = []
    for number in num_prompt_tokens:
        tokens = generator.integers(3, shape.vocab_size, number).astype(np.int32)
        prompts.append(AuditPrompt(f"{number} tokens", tokens, (Source(SourceKind.FILE, tokens, prompt_start=0),)))
    started = time.perf_counter()
    *_, report = audit(
        model,
        lambda open_sampler: make_target(model, case.target, open_sampler=open_sampler),
        prompts,
        drafters=("suffix",),
        tokenizer=None,
        max_tokens=num_tokens,
        is_deterministic=case.target.kind == "deterministic",
        facts={"case": case.name, "shape": shape.name},
    )
    return report.to_json() | {"seconds": time.perf_counter() - started}


# What passes cost.


@dataclass
class PassCosts:
    """Seconds of passes over so many tokens after a context: of the whole call, and on the device alone."""

    num_context_tokens: int
    call_seconds: dict[int, float] = field(default_factory=dict)
    device_seconds: dict[int, float] = field(default_factory=dict)

    def curve(self) -> CostCurve:
        """Of whole calls, as the cost policy sees them, where passes have these widths."""
        widths = tuple(sorted(self.call_seconds))
        measured = CostCurve(widths, (tuple(self.call_seconds[width] for width in widths),), shares_passes=False)
        return measured.padded_to(widths)

    def to_json(self, roofline: Roofline) -> dict[str, Any]:
        """With the least that they could take."""
        return {
            "context_tokens": self.num_context_tokens,
            "roofline": roofline.to_json(),
            "passes": [
                {
                    "width": width,
                    "call_ms": self.call_seconds[width] * 1000.0,
                    "device_ms": self.device_seconds[width] * 1000.0,
                    "roofline_ms": roofline.seconds(width) * 1000.0,
                    "fraction_of_roofline": roofline.seconds(width) / self.call_seconds[width],
                    "relative": self.call_seconds[width] / self.call_seconds[min(self.call_seconds)],
                }
                for width in sorted(self.call_seconds)
            ],
        }


def measure_passes(target: Target, num_context_tokens: int, widths: Sequence[int], num_repeats: int) -> PassCosts:
    """Times `verify` with drafts that are rejected; widths take turns, medians are taken, the first two don't count."""
    tokens = np.random.default_rng(0).integers(3, target.vocab_size, num_context_tokens + max(widths)).astype(np.int32)
    calls: dict[int, list[float]] = defaultdict(list)
    passes: dict[int, list[float]] = defaultdict(list)
    try:
        for _ in range(num_repeats + 2):
            for width in widths:
                drafted = tokens[num_context_tokens:][: width - 1]
                row = _row(tokens[:num_context_tokens], drafted)
                while True:
                    started = time.perf_counter()
                    verified = target.verify([row])
                    if len(verified.tokens[0]):
                        break
                calls[width].append(time.perf_counter() - started)
                passes[width].append(verified.forward_seconds + verified.prefill_seconds)
    finally:
        target.close(ROW_KEY)
    return PassCosts(
        num_context_tokens,
        {width: statistics.median(seconds[2:]) for width, seconds in calls.items()},
        {width: statistics.median(seconds[2:]) for width, seconds in passes.items()},
    )


def _row(tokens: IntArray, drafted: IntArray) -> Row:
    return Row(
        key=ROW_KEY,
        tokens=tokens,
        num_prompt_tokens=len(tokens),
        draft=Draft(tokens=drafted, sources=np.zeros(len(drafted), dtype=np.int8)),
        sampling=SamplingConfig(),
        should_stop=lambda tokens: False,
        is_cancelled=lambda: False,
    )


# Edits at that cost.


class RecordedSampler:
    """Accepts what the log says, after the work of greedy acceptance: the text is the trace's, the time is real."""

    def __init__(self, text: IntArray) -> None:
        self._text = text  # int32[num_tokens]: prompt, output and end token

    def choose(self, logits: Tensor, row: Row) -> IntArray:
        """As `Sampler` says."""
        greedy_tokens(logits, row.draft.tokens)
        following = self._text[len(row.tokens) :]
        return following[: num_agreeing(row.draft.tokens, following) + 1]


@dataclass
class MethodTotals:
    """Of one method over all traces; seconds are those after the prompt was read."""

    num_tokens: int = 0
    num_rounds: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    decode_seconds: float = 0.0
    forward_seconds: float = 0.0
    bound_seconds: float = 0.0  # the roofline's for the same passes

    def to_json(self, plain: MethodTotals) -> dict[str, Any]:
        """With ratios to plain decoding."""
        tokens_per_second = self.num_tokens / self.decode_seconds
        return {
            "tokens": self.num_tokens,
            "rounds": self.num_rounds,
            "tokens_per_round": self.num_tokens / self.num_rounds,
            "acceptance_rate": self.num_accepted_tokens / max(1, self.num_draft_tokens),
            "seconds": self.decode_seconds,
            "tokens_per_second": tokens_per_second,
            "times_plain": tokens_per_second * plain.decode_seconds / plain.num_tokens,
            "outside_forward": 1.0 - self.forward_seconds / self.decode_seconds,
            "fraction_of_roofline": self.bound_seconds / self.decode_seconds,
        }


class EditReplay:
    """Replays traces on a target that really runs, with what the trace says as its answer.

    Args:
        make: makes the target with a given opener of samplers; its passes are the model's own.
        tokenizer: for the edit drafter.
        curve: of the target's passes.
        roofline: of the target's model.
    """

    def __init__(
        self,
        make: Callable[[Callable[[Row], Sampler]], Target],
        tokenizer: Tokenizer,
        curve: CostCurve,
        roofline: Roofline,
    ) -> None:
        self._text: IntArray = np.zeros(0, dtype=np.int32)
        self._target = make(lambda row: RecordedSampler(self._text))
        self._tokenizer = tokenizer
        self._curve = curve
        self._roofline = roofline
        self.totals = {method: MethodTotals() for method in METHODS}
        self.num_traces = 0

    def add(self, trace: TokenTrace) -> None:
        """Replays a trace with every method; the one that begins changes from trace to trace."""
        self._text = np.concatenate([trace.prompt, trace.output, np.array([trace.end_token_id], np.int32)])
        first = self.num_traces % len(METHODS)
        for method in METHODS[first:] + METHODS[:first]:
            self._replay(trace, method)
        self.num_traces += 1

    def warm_up(self, num_tokens: int) -> None:
        """Compiles kernels, and records the passes of texts of up to so many tokens, the longest first."""
        for method in METHODS:
            self._drafter_and_policy(method)
        if isinstance(self._target, StaticTarget):
            for length in range(num_tokens, 0, -MIN_ATTENDED_STEP):
                self._target.warm_up(length)

    def to_json(self) -> dict[str, Any]:
        """The totals by method."""
        plain = self.totals["plain"]
        return {method: totals.to_json(plain) for method, totals in self.totals.items()}

    def _replay(self, trace: TokenTrace, method: str) -> None:
        drafter, policy = self._drafter_and_policy(method)
        sequence = TokenSequence(
            trace.prompt,
            drafter=drafter,
            sampling=SamplingConfig(),
            max_tokens=len(trace.output) + 1,
            max_context_tokens=self._target.max_context_tokens,
            stop_rules=[EndTokenRule(frozenset({trace.end_token_id}))],
            sources=trace.sources,
        )
        totals = self.totals[method]
        for finished in Engine(self._target, policy).generate(sequence):
            if not len(finished.tokens):
                continue
            totals.num_tokens += len(finished.tokens)
            totals.num_rounds += 1
            totals.num_draft_tokens += finished.num_draft_tokens
            totals.num_accepted_tokens += finished.num_accepted_tokens
            totals.decode_seconds += finished.draft_seconds + finished.verify_seconds - finished.prefill_seconds
            totals.forward_seconds += finished.forward_seconds
            totals.bound_seconds += self._roofline.seconds(finished.num_draft_tokens + 1)
        assert np.array_equal(sequence.output[: len(trace.output)], trace.output)

    def _drafter_and_policy(self, method: str) -> tuple[Drafter, Policy]:
        if method in PEERS:
            options = {"num_draft_tokens": 10, "max_ngram_length": 2} if method == "hf_lookup" else {}
            return PEERS[method](**options), FixedPolicy(MAX_DRAFT_TOKENS)
        config = SpeculationConfig(drafter=method)
        return make_drafter(config, self._tokenizer), make_policy(config, self._curve)


def spread(items: Sequence[Any], number: int) -> Iterator[Any]:
    """That many of them, evenly spread; all where there are fewer."""
    places: Iterable[int] = range(len(items))
    if number < len(items):
        places = (index * len(items) // number for index in range(number))
    return (items[place] for place in places)
