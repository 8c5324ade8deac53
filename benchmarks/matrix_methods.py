"""The matrix's ways of decoding, on prompts of any kind, greedy or sampled; and one of them run once and measured.

Floating-point operations are counted by ``2 N + 4 L d n`` for each token in a forward pass, N weights, L layers, d =
heads times their size, n tokens of context (Chowdhery et al. 2022, "PaLM", appendix B, whose 6 N + 12 L d n are for
forward and backward pass together). Every verified token counts, rejected ones too; the reading of the prompt is left
out, which all methods have alike.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from benchmarks.forwards import Forward, ForwardLog, synchronize
from benchmarks.matrix_workloads import MatrixTask
from benchmarks.methods import PROMPT_LOOKUP_TOKENS, generate
from lookahead_edit.config import SamplingConfig, SpeculationConfig
from lookahead_edit.engine import Engine
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.sequence import EndTokenRule
from lookahead_edit.sequence import Sequence as LiveSequence
from lookahead_edit.speculation import DrafterMaker, cost_curve_of, make_drafter, make_policy
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.targets.roofline import cache_bytes_per_token, read_weights
from lookahead_edit.types import Drafter, Tokenizer

PLAIN, NONE, PROMPT_LOOKUP, ASSISTED, MODEL, COMBINED = (
    "plain",
    "none",
    "prompt_lookup",
    "assisted",
    "model",
    "combined",
)
GENERATE_METHODS = (PLAIN, PROMPT_LOOKUP, ASSISTED)  # of transformers
COPYING_METHODS = (NONE, "ngram", "suffix", "edit")  # ours with drafts that are deterministic
DRAFT_MODEL_METHODS = (ASSISTED, MODEL, COMBINED)

Length = int | Literal["auto"]


@dataclass(frozen=True)
class Method:
    """A way of decoding and its draft length: so many tokens, or what pays by the cost of a pass."""

    name: str
    length: Length = "auto"

    @property
    def label(self) -> str:
        """Such as ``"edit 16"``; without a length where there is only one."""
        return self.name if self.name in (*GENERATE_METHODS, NONE) else f"{self.name} {self.length}"

    @property
    def needs_draft_model(self) -> bool:
        return self.name in DRAFT_MODEL_METHODS

    @property
    def keeps_seed(self) -> bool:
        """Whether the sampled text is that of `none` with the same seed; others have the same distribution only."""
        return self.name in COPYING_METHODS


@dataclass(frozen=True)
class Bench:
    """What all methods share."""

    model: Any
    tokenizer: Tokenizer
    target: HfTarget
    max_tokens: int  # emitted by a run
    draft_model: Any = None
    drafters: Mapping[str, DrafterMaker] = field(default_factory=dict)  # those that ask the draft model

    def can_run(self, method: Method) -> bool:
        """Whether all that the method needs is there."""
        return not method.needs_draft_model or self.draft_model is not None


@dataclass(frozen=True)
class MatrixRun:
    """One prompt decoded once. None where a method of transformers doesn't tell."""

    num_tokens: int  # emitted, the end token included
    tokens_digest: str
    num_rounds: int
    seconds: float
    first_token_seconds: float  # until the pass that read the prompt's end is over
    verify_seconds: float  # in the target's passes after that
    draft_seconds: float | None  # building the index, drafting and cutting; passes of the draft model for "assisted"
    correction_seconds: float | None  # choosing tokens and rolling back
    num_draft_tokens: int | None
    num_accepted_tokens: int | None
    target_flops: float  # without the reading of the prompt
    draft_flops: float
    cache_bytes: int  # keys and values at the end, of both models
    index_bytes: int


def run_method(bench: Bench, method: Method, task: MatrixTask, sampling: SamplingConfig) -> tuple[MatrixRun, list[int]]:
    """Decodes the task once and measures it; also the emitted tokens."""
    metrics = SpeculationMetrics()
    synchronize()
    with ExitStack() as stack:
        log = stack.enter_context(ForwardLog(bench.model))
        has_draft_model = method.needs_draft_model
        draft_log = stack.enter_context(ForwardLog(bench.draft_model)) if has_draft_model else None
        started = time.perf_counter()
        if method.name in GENERATE_METHODS:
            tokens = _generate(bench, method, task, sampling)
        else:
            tokens = _decode(bench, method, task, sampling, metrics)
        synchronize()
        seconds = time.perf_counter() - started
    drafted = draft_log.forwards if draft_log else []
    rounds = log.rounds(len(task.prompt))
    is_ours = method.name not in GENERATE_METHODS
    model_seconds = metrics.forward_seconds + metrics.prefill_seconds
    num_kept_tokens = len(task.prompt) + len(tokens)
    run = MatrixRun(
        num_tokens=len(tokens),
        tokens_digest=hashlib.sha256(np.asarray(tokens, dtype="<i4").tobytes()).hexdigest()[:16],
        num_rounds=len(rounds),
        seconds=seconds,
        first_token_seconds=rounds[0].finished - started,
        verify_seconds=sum(each.seconds for each in rounds[1:]),
        draft_seconds=_draft_seconds(method, metrics, drafted),
        correction_seconds=max(0.0, metrics.verify_seconds - model_seconds) if is_ours else None,
        num_draft_tokens=metrics.num_draft_tokens if is_ours else None,
        num_accepted_tokens=metrics.num_accepted_tokens if is_ours else None,
        target_flops=pass_flops(bench.model, log.forwards) - prompt_flops(bench.model, len(task.prompt)),
        draft_flops=pass_flops(bench.draft_model, drafted) if drafted else 0.0,
        cache_bytes=num_kept_tokens
        * sum(
            cache_bytes_per_token(model) for model in (bench.model, *([bench.draft_model] if has_draft_model else []))
        ),
        index_bytes=metrics.max_index_bytes,
    )
    return run, tokens


def _draft_seconds(method: Method, metrics: SpeculationMetrics, drafted: Sequence[Forward]) -> float | None:
    if method.name not in GENERATE_METHODS:
        return metrics.draft_seconds
    return sum(each.seconds for each in drafted) if method.name == ASSISTED else None


def _generate(bench: Bench, method: Method, task: MatrixTask, sampling: SamplingConfig) -> list[int]:
    options: dict[str, Any] = {}
    if not sampling.is_greedy:
        torch.manual_seed(sampling.seed)
        options |= {"do_sample": True, "temperature": sampling.temperature, "top_k": 0, "top_p": 1.0}
    if method.name == PROMPT_LOOKUP:
        options["prompt_lookup_num_tokens"] = PROMPT_LOOKUP_TOKENS
    elif method.name == ASSISTED:
        options["assistant_model"] = bench.draft_model
    return generate(bench.model, task.prompt, bench.max_tokens, bench.tokenizer.eos_token_ids, **options)


def _decode(
    bench: Bench, method: Method, task: MatrixTask, sampling: SamplingConfig, metrics: SpeculationMetrics
) -> list[int]:
    started = time.perf_counter()
    drafter, config = _drafter(bench, method, sampling)
    live = LiveSequence(
        task.prompt,
        drafter=drafter,
        sampling=sampling,
        max_tokens=bench.max_tokens,
        max_context_tokens=bench.target.max_context_tokens,
        stop_rules=[EndTokenRule(bench.tokenizer.eos_token_ids)],
        sources=task.sources,
        max_draft_tokens=config.draft_limit,
        is_draft_forced=config.policy == "fixed",
    )
    metrics.count_index_build(time.perf_counter() - started)
    engine = Engine(bench.target, make_policy(config, cost_curve_of(bench.target)))
    for finished in engine.generate(live):
        metrics.add(finished)
        metrics.max_index_bytes = max(metrics.max_index_bytes, drafter.num_index_bytes)
    return [int(token) for token in live.output]


def _drafter(bench: Bench, method: Method, sampling: SamplingConfig) -> tuple[Drafter, SpeculationConfig]:
    is_copying = method.name in COPYING_METHODS
    config = SpeculationConfig(
        enabled=method.name != NONE,
        drafter=method.name if is_copying and method.name != NONE else SpeculationConfig.drafter,
        policy="cost" if method.length == "auto" else "fixed",
        max_draft_tokens=None if method.length == "auto" else method.length,
    )
    if is_copying:
        return make_drafter(config, bench.tokenizer), config
    return bench.drafters[method.name](config, bench.tokenizer, sampling), config


def pass_flops(model: Any, forwards: Sequence[Forward]) -> float:
    """Of forward passes with their contexts."""
    num_weights, per_context_token = _flop_factors(model)
    total = 0.0
    for one in forwards:
        attended = one.num_tokens * one.num_context_tokens + one.num_tokens * (one.num_tokens + 1) / 2
        total += 2.0 * num_weights * one.num_tokens + per_context_token * attended
    return total


def prompt_flops(model: Any, num_prompt_tokens: int) -> float:
    """Of reading a prompt, in however many passes."""
    return pass_flops(model, [Forward(num_prompt_tokens, 0.0, 0.0)])


def _flop_factors(model: Any) -> tuple[int, float]:
    """Weights that every token is multiplied with, and operations for each token of context."""
    _, num_weights = read_weights(model)
    config = model.config.get_text_config()
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return num_weights, 4.0 * config.num_hidden_layers * config.num_attention_heads * head_size


def weight_bytes(model: Any) -> int:
    """Of all parameters; shared ones once."""
    return sum(parameter.nbytes for parameter in model.parameters())


def weights_fingerprint(model: Any) -> str:
    """The same for the same weights, whatever the model is called."""
    sums = [
        f"{name} {tuple(weights.shape)} {float(weights.double().sum())}" for name, weights in model.named_parameters()
    ]
    return hashlib.sha256("\n".join(sums).encode()).hexdigest()[:16]
