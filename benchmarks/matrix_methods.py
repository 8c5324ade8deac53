"""The matrix's ways of decoding, on prompts of any kind, greedy or sampled; and one of them run once and measured."""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from benchmarks.forwards import Forward, ForwardLog, rounds_of, synchronize
from benchmarks.matrix_costs import layer_modules, layers_of, pass_flops, prompt_flops, weight_bytes
from benchmarks.matrix_workloads import MatrixTask
from benchmarks.methods import PROMPT_LOOKUP_TOKENS, generate
from lookahead_edit.config import EditConfig, SamplingConfig, SpeculationConfig
from lookahead_edit.cost import CostCurve
from lookahead_edit.engine import Engine
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.sequence import EndTokenRule
from lookahead_edit.sequence import Sequence as LiveSequence
from lookahead_edit.speculation import DrafterMaker, cost_curve_of, make_drafter, make_policy
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.targets.roofline import cache_bytes_per_token
from lookahead_edit.types import Drafter, Tokenizer

PLAIN, NONE, PROMPT_LOOKUP, ASSISTED, EARLY_EXIT, MODEL, COMBINED = (
    *("plain", "none", "prompt_lookup", "assisted", "early_exit", "model", "combined"),
)
GENERATE_METHODS = (PLAIN, PROMPT_LOOKUP, ASSISTED, EARLY_EXIT)  # of transformers
COPYING_METHODS = (NONE, "ngram", "suffix", "edit")  # ours with drafts that are deterministic
DRAFT_MODEL_METHODS = (ASSISTED, MODEL, COMBINED)
METHODS_OF_ONE_LENGTH = (PLAIN, NONE, PROMPT_LOOKUP, ASSISTED)
# Models that are trained to be left early are left after a quarter: Llama 3.2 1B of LayerSkip after 4 of its 16 layers.
EARLY_EXIT_SHARE = 0.25

Length = int | Literal["auto"]


@dataclass(frozen=True)
class Method:
    """A way of decoding and its draft length: so many tokens, or what pays by the cost of a pass."""

    name: str
    length: Length = "auto"

    @property
    def label(self) -> str:
        """Such as ``"edit 16"``; without a length where there is only one."""
        return self.name if self.name in METHODS_OF_ONE_LENGTH else f"{self.name} {self.length}"

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
    cost_curve: CostCurve | None = None  # what `auto` goes by; None: the target's own
    can_exit_early: bool = False
    edit_config: EditConfig = field(default_factory=EditConfig)  # how edits are asked for

    def can_run(self, method: Method) -> bool:
        """Whether all that the method needs is there."""
        if method.name == EARLY_EXIT:
            return self.can_exit_early
        return not method.needs_draft_model or self.draft_model is not None


@dataclass(frozen=True)
class MatrixRun:
    """One prompt decoded once. None where a method of transformers doesn't tell."""

    num_tokens: int  # emitted, the end token included
    tokens_digest: str
    num_rounds: int
    seconds: float
    prefill_seconds: float  # in the target's passes that read the prompt; the last may verify a first draft as well
    first_token_seconds: float  # until the last of these passes is over
    verify_seconds: float  # in the target's passes after that
    draft_seconds: float | None  # building the index, drafting and cutting; passes of a draft model or of early exits
    correction_seconds: float | None  # choosing tokens and rolling back
    num_draft_tokens: int
    num_accepted_tokens: int
    target_flops: float  # without the reading of the prompt
    draft_flops: float
    weight_bytes: int  # of all models the method needs
    cache_bytes: int  # keys and values at the end, of both models
    index_bytes: int


def run_method(bench: Bench, method: Method, task: MatrixTask, sampling: SamplingConfig) -> tuple[MatrixRun, list[int]]:
    """Decodes the task once and measures it; also the emitted tokens."""
    metrics = SpeculationMetrics()
    synchronize()
    with ExitStack() as stack:
        log = stack.enter_context(ForwardLog(bench.model))
        draft_log = stack.enter_context(ForwardLog(bench.draft_model)) if method.needs_draft_model else None
        started = time.perf_counter()
        if method.name in GENERATE_METHODS:
            tokens = _generate(bench, method, task, sampling)
        else:
            tokens = _decode(bench, method, task, sampling, metrics)
        synchronize()
        seconds = time.perf_counter() - started
    whole = [one for one in log.forwards if one.num_layers in (0, layers_of(bench.model))]
    left_early = [one for one in log.forwards if one.num_layers not in (0, layers_of(bench.model))]
    drafting = draft_log.forwards if draft_log else left_early
    drafting_model = bench.draft_model if draft_log else bench.model
    rounds = rounds_of(whole, len(task.prompt))
    is_ours = method.name not in GENERATE_METHODS
    num_drafted, num_accepted = metrics.num_draft_tokens, metrics.num_accepted_tokens
    if not is_ours:
        num_drafted, num_accepted = draft_tokens_of(whole, len(task.prompt), len(tokens))
    run = MatrixRun(
        num_tokens=len(tokens),
        tokens_digest=hashlib.sha256(np.asarray(tokens, dtype="<i4").tobytes()).hexdigest()[:16],
        num_rounds=len(rounds),
        seconds=seconds,
        prefill_seconds=sum(one.seconds for one in whole[: len(whole) - len(rounds) + 1]),
        first_token_seconds=rounds[0].finished - started,
        verify_seconds=sum(one.seconds for one in rounds[1:]),
        draft_seconds=metrics.draft_seconds if is_ours else _drafting_seconds(method, drafting),
        correction_seconds=_correction_seconds(metrics) if is_ours else None,
        num_draft_tokens=num_drafted,
        num_accepted_tokens=num_accepted,
        target_flops=pass_flops(bench.model, whole) - prompt_flops(bench.model, len(task.prompt)),
        draft_flops=pass_flops(drafting_model, drafting) if drafting else 0.0,
        weight_bytes=weight_bytes(bench.model) + (weight_bytes(bench.draft_model) if draft_log else 0),
        cache_bytes=(len(task.prompt) + len(tokens)) * _cache_bytes_per_token(bench, method),
        index_bytes=metrics.max_index_bytes,
    )
    return run, tokens


def draft_tokens_of(passes: list[Forward], num_prompt_tokens: int, num_tokens: int) -> tuple[int, int]:
    """Drafted and accepted tokens, which transformers doesn't tell, of all passes of the target.

    A round reads its draft and the token before it, and emits what it accepts and one token more.
    """
    num_rounds = len(rounds_of(passes, num_prompt_tokens))
    num_read = sum(one.num_tokens for one in passes)
    return num_read - num_prompt_tokens - (num_rounds - 1), num_tokens - num_rounds


def _drafting_seconds(method: Method, drafting: list[Forward]) -> float | None:
    return sum(one.seconds for one in drafting) if method.name in (ASSISTED, EARLY_EXIT) else None


def _correction_seconds(metrics: SpeculationMetrics) -> float:
    return max(0.0, metrics.verify_seconds - metrics.forward_seconds - metrics.prefill_seconds)


def _cache_bytes_per_token(bench: Bench, method: Method) -> int:
    num_bytes = cache_bytes_per_token(bench.model)
    if method.needs_draft_model:
        return num_bytes + cache_bytes_per_token(bench.draft_model)
    if method.name == EARLY_EXIT:
        return num_bytes + num_bytes * early_exit_layers(bench.model) // layers_of(bench.model)
    return num_bytes


def _generate(bench: Bench, method: Method, task: MatrixTask, sampling: SamplingConfig) -> list[int]:
    options: dict[str, Any] = {}
    if not sampling.is_greedy:
        torch.manual_seed(sampling.seed)
        options |= {"do_sample": True, "temperature": sampling.temperature, "top_k": 0, "top_p": 1.0}
    if method.name == PROMPT_LOOKUP:
        options["prompt_lookup_num_tokens"] = PROMPT_LOOKUP_TOKENS
    elif method.name == ASSISTED:
        options["assistant_model"] = bench.draft_model
    elif method.name == EARLY_EXIT:
        options["assistant_early_exit"] = early_exit_layers(bench.model)
    assistant = {ASSISTED: bench.draft_model, EARLY_EXIT: bench.model}.get(method.name)
    with nullcontext() if assistant is None else _fresh_assistant(assistant, method.length):
        return generate(bench.model, task.prompt, bench.max_tokens, bench.tokenizer.eos_token_ids, **options)


@contextmanager
def _fresh_assistant(model: Any, length: Length) -> Iterator[None]:
    """How far an assistant drafts stands in its own configuration, and transformers changes it for all later calls."""
    before = model.generation_config
    model.generation_config = copy.deepcopy(before)
    if length != "auto":
        model.generation_config.num_assistant_tokens = length
        model.generation_config.num_assistant_tokens_schedule = "constant"
    try:
        yield
    finally:
        model.generation_config = before


def early_exit_layers(model: Any) -> int:
    """After how many layers the model is left to draft."""
    return max(1, round(layers_of(model) * EARLY_EXIT_SHARE))


@torch.no_grad()
def supports_early_exit(model: Any) -> bool:
    """Whether the model runs as many layers as its configuration says at that moment; found out by two short passes."""
    base = getattr(model, model.base_model_prefix, None)
    if base is None or layer_modules(model) is None or layers_of(model) < 2:
        return False
    tokens = torch.ones(1, 2, dtype=torch.int64, device=model.device)
    whole = model(input_ids=tokens, use_cache=False).logits
    before = base.config.num_hidden_layers
    base.config.num_hidden_layers = early_exit_layers(model)
    try:
        return not torch.equal(whole, model(input_ids=tokens, use_cache=False).logits)
    finally:
        base.config.num_hidden_layers = before


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
    engine = Engine(bench.target, make_policy(config, bench.cost_curve or cost_curve_of(bench.target)))
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
