"""The whole answers of /v1/chat/completions and /v1/completions."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from lookahead_edit.editor import GenerateResult
from lookahead_edit.server.answers import Answer, request_metrics, timings, usage
from lookahead_edit.server.jobs import Job
from lookahead_edit.server.openai_schemas import GenerationCall
from lookahead_edit.server.provenance import Provenance, provenance


class AssistantMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(BaseModel):
    """`provenance` is there only where it was asked for, as in all choices."""

    index: int = 0
    message: AssistantMessage
    logprobs: None = None
    finish_reason: Literal["stop", "length"]
    provenance: Provenance | None = None


class ChatAnswer(Answer):
    """The assistant's next message, or the rest of the one that was begun."""

    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]
    warnings: list[str]


class CompletionChoice(BaseModel):
    text: str
    index: int = 0
    logprobs: None = None
    finish_reason: Literal["stop", "length"]
    provenance: Provenance | None = None


class CompletionAnswer(Answer):
    """What follows the prompt."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]
    warnings: list[str]


def identity(job: Job, call: GenerationCall) -> dict[str, Any]:
    """What an answer and each chunk of a stream begin with."""
    return {"id": job.id, "created": job.created, "model": call.model_name}


def quotes(call: GenerationCall, result: GenerateResult) -> tuple[Provenance | None, list[str]]:
    """What the answer quotes from the messages, or from the prompt, and warnings."""
    if not call.has_provenance:
        return None, []
    request = call.request
    if request.prompt_tokens is not None:
        return None, ["provenance: expected a prompt that is text, got token ids"]
    sources = [(f"messages[{index}]", message["content"]) for index, message in enumerate(request.messages)]
    if request.prompt is not None:
        sources = [("prompt", request.prompt)]
    return provenance(result.text, sources, call.position_encoding)


def closing_facts(job: Job, call: GenerationCall, result: GenerateResult, quote_warnings: list[str]) -> dict[str, Any]:
    """What is known once everything is generated: figures and warnings."""
    return {
        "usage": usage(result.metrics, has_prediction=call.request.prediction is not None),
        "timings": timings(result.metrics),
        "metrics": request_metrics(result.metrics, call.request.speculation, job),
        "warnings": [*call.warnings, *result.warnings, *quote_warnings],
    }


def chat_answer(job: Job, call: GenerationCall, result: GenerateResult) -> ChatAnswer:
    """The whole answer of a chat. Not for the event loop: finding quotes takes its time."""
    quoted, warnings = quotes(call, result)
    choice = ChatChoice(
        message=AssistantMessage(content=result.text), finish_reason=result.finish_reason, provenance=quoted
    )
    facts = closing_facts(job, call, result, warnings)
    return ChatAnswer(choices=[choice], **identity(job, call), **facts)


def completion_answer(job: Job, call: GenerationCall, result: GenerateResult) -> CompletionAnswer:
    """The whole answer of a text completion. Not for the event loop."""
    quoted, warnings = quotes(call, result)
    choice = CompletionChoice(text=result.text, finish_reason=result.finish_reason, provenance=quoted)
    facts = closing_facts(job, call, result, warnings)
    return CompletionAnswer(choices=[choice], **identity(job, call), **facts)
