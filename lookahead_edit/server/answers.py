"""The parts of an answer that every route shares: usage, timings, metrics, with names that others already parse."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, overload

from pydantic import BaseModel, ConfigDict

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.server.jobs import Job
from lookahead_edit.types import SourceKind


class PromptTokensDetails(BaseModel):
    cached_tokens: int


class CompletionTokensDetails(BaseModel):
    """Draft tokens that came from the request's own `prediction`."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class Timings(BaseModel):
    """llama.cpp's names. Null where nothing was measured."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float | None
    prompt_per_second: float | None
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float | None
    predicted_per_second: float | None
    draft_n: int
    draft_n_accepted: int


class SourceDrafts(BaseModel):
    num_draft_tokens: int
    num_accepted_draft_tokens: int


class SpeculativeDecoding(BaseModel):
    """vLLM's names, then our own. Null where nothing was drafted, so that it never reads as 0 % or 100 %."""

    mean_acceptance_length: float | None  # 1 and what was accepted, of the rounds that had a draft
    draft_acceptance_rate: float | None
    acceptance_histogram: list[int]  # [i]: rounds with a draft of which i tokens were accepted
    num_spec_steps: int  # rounds that had a draft
    num_accepted_draft_tokens: int
    num_draft_tokens: int
    num_spec_tokens: int  # the longest draft allowed
    tokens_per_forward: float | None  # of all rounds, also those without a draft
    drafts_by_source: dict[str, SourceDrafts]
    draft_ms: float
    verify_ms: float
    disabled_reason: str | None  # why nothing was drafted: never null where nothing was


class RequestMetrics(BaseModel):
    """vLLM's names. Times count from the request's arrival; null where there was no such token."""

    queue_time_ms: float
    time_to_first_token_ms: float | None
    generation_time_ms: float | None  # from the first token to the last
    mean_itl_ms: float | None
    tokens_per_second: float | None
    speculative_decoding: SpeculativeDecoding


class Answer(BaseModel):
    """What all answers of the API have."""

    model_config = ConfigDict(frozen=True)

    id: str
    object: str
    created: int
    model: str
    usage: Usage
    timings: Timings
    metrics: RequestMetrics


def usage(metrics: SpeculationMetrics, *, has_prediction: bool) -> Usage:
    """Token counts. Without a prediction none of its tokens can have been accepted or rejected."""
    label = SourceKind.PREDICTION.label
    num_accepted = metrics.num_accepted_by_source[label] if has_prediction else 0
    num_drafted = metrics.num_drafted_by_source[label] if has_prediction else 0
    return Usage(
        prompt_tokens=metrics.num_prompt_tokens,
        completion_tokens=metrics.num_emitted_tokens,
        total_tokens=metrics.num_prompt_tokens + metrics.num_emitted_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=metrics.num_cached_tokens),
        completion_tokens_details=CompletionTokensDetails(
            accepted_prediction_tokens=num_accepted, rejected_prediction_tokens=num_drafted - num_accepted
        ),
    )


def timings(metrics: SpeculationMetrics) -> Timings:
    """llama.cpp's figures of a request."""
    num_read = metrics.num_prompt_tokens - metrics.num_cached_tokens
    num_emitted = metrics.num_emitted_tokens
    return Timings(
        cache_n=metrics.num_cached_tokens,
        prompt_n=num_read,
        prompt_ms=_milliseconds(metrics.prefill_seconds),
        prompt_per_token_ms=_milliseconds(_ratio(metrics.prefill_seconds, num_read)),
        prompt_per_second=_ratio(num_read, metrics.prefill_seconds),
        predicted_n=num_emitted,
        predicted_ms=_milliseconds(metrics.decode_seconds),
        predicted_per_token_ms=_milliseconds(_ratio(metrics.decode_seconds, num_emitted)),
        predicted_per_second=metrics.tokens_per_second,
        draft_n=metrics.num_draft_tokens,
        draft_n_accepted=metrics.num_accepted_tokens,
    )


def request_metrics(metrics: SpeculationMetrics, speculation: SpeculationConfig, job: Job) -> RequestMetrics:
    """vLLM's figures of a request, and our own beside them."""
    first, last = job.first_token, job.last_token
    generation_seconds = last - first if first is not None and last is not None else None
    return RequestMetrics(
        queue_time_ms=_milliseconds((job.started or job.arrived) - job.arrived),
        time_to_first_token_ms=_milliseconds(first - job.arrived if first is not None else None),
        generation_time_ms=_milliseconds(generation_seconds),
        mean_itl_ms=_milliseconds(_ratio(generation_seconds, metrics.num_emitted_tokens - 1)),
        tokens_per_second=metrics.tokens_per_second,
        speculative_decoding=speculative_decoding(metrics, speculation),
    )


def speculative_decoding(metrics: SpeculationMetrics, speculation: SpeculationConfig) -> SpeculativeDecoding:
    """What the drafts of a request did."""
    most_accepted = max(metrics.num_rounds_by_accepted, default=0)
    histogram = [metrics.num_rounds_by_accepted[number] for number in range(most_accepted + 1)]
    accepted_per_draft = _ratio(metrics.num_accepted_tokens, metrics.num_draft_rounds)
    return SpeculativeDecoding(
        mean_acceptance_length=None if accepted_per_draft is None else 1.0 + accepted_per_draft,
        draft_acceptance_rate=metrics.acceptance_rate,
        acceptance_histogram=histogram if metrics.num_draft_rounds else [],
        num_spec_steps=metrics.num_draft_rounds,
        num_accepted_draft_tokens=metrics.num_accepted_tokens,
        num_draft_tokens=metrics.num_draft_tokens,
        num_spec_tokens=speculation.draft_limit if speculation.enabled else 0,
        tokens_per_forward=metrics.tokens_per_round,
        drafts_by_source=source_drafts(metrics),
        draft_ms=_milliseconds(metrics.draft_seconds),
        verify_ms=_milliseconds(metrics.verify_seconds),
        disabled_reason=metrics.undrafted_reason,
    )


def source_drafts(metrics: SpeculationMetrics) -> dict[str, SourceDrafts]:
    """Drafted and accepted tokens of each source that occurred."""
    return {
        source: SourceDrafts(num_draft_tokens=number, num_accepted_draft_tokens=metrics.num_accepted_by_source[source])
        for source, number in sorted(metrics.num_drafted_by_source.items())
    }


def without_absent_quotes(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer or chunk as other servers know it, where no provenance was asked for."""
    for choice in answer["choices"]:
        if choice["provenance"] is None:
            del choice["provenance"]
    return answer


def to_json(answer: Mapping[str, object]) -> bytes:
    """UTF-8; a number that JSON doesn't have is a bug of ours and raises ValueError."""
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


@overload
def _milliseconds(seconds: float) -> float: ...
@overload
def _milliseconds(seconds: float | None) -> float | None: ...
def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000.0, 3)


def _ratio(number: float | None, of: float | None) -> float | None:
    return number / of if number is not None and of is not None and of > 0 else None
