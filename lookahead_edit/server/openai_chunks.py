"""The chunks of streamed chat and text completions. Only the last one carries figures: some clients drop the text of
any chunk that has usage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

from pydantic import BaseModel

from lookahead_edit.editor import FinishReason, GenerateResult
from lookahead_edit.server.answers import RequestMetrics, Timings, Usage, without_absent_quotes
from lookahead_edit.server.jobs import Job
from lookahead_edit.server.openai_answers import closing_facts, identity, quotes
from lookahead_edit.server.openai_schemas import GenerationCall
from lookahead_edit.server.provenance import Provenance


class Chunk(BaseModel):
    """What all chunks have; the last four stand in the last chunk alone."""

    id: str
    object: str
    created: int
    model: str
    usage: Usage | None = None
    timings: Timings | None = None
    metrics: RequestMetrics | None = None
    warnings: list[str] | None = None


class ChatDelta(BaseModel):
    role: Literal["assistant"] | None = None
    content: str | None = None


class ChatChunkChoice(BaseModel):
    index: int = 0
    delta: ChatDelta
    logprobs: None = None
    finish_reason: Literal["stop", "length"] | None
    provenance: Provenance | None = None


class ChatChunk(Chunk):
    """A piece of the assistant's message; the first has its role, the last the reason why it ends."""

    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[ChatChunkChoice]


class CompletionChunkChoice(BaseModel):
    text: str
    index: int = 0
    logprobs: None = None
    finish_reason: Literal["stop", "length"] | None
    provenance: Provenance | None = None


class CompletionChunk(Chunk):
    """A piece of what follows the prompt."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChunkChoice]


class Chunks(ABC):
    """Makes the chunks of one stream, as JSON objects.

    Args:
        job: every chunk names it.
        call: what the client asked for.
    """

    def __init__(self, job: Job, call: GenerationCall) -> None:
        self._job = job
        self._call = call
        self._identity = identity(job, call)

    def opening(self) -> list[dict[str, Any]]:
        """What is sent before any text."""
        return []

    def delta(self, text: str) -> dict[str, Any]:
        """More text."""
        return _event(self._chunk(text, None))

    def closing(self, result: GenerateResult) -> list[dict[str, Any]]:
        """Why the text ends and the figures, which have a chunk of their own where the client asked for usage.

        Not for the event loop: finding quotes takes its time.
        """
        quoted, warnings = quotes(self._call, result)
        facts = closing_facts(self._job, self._call, result, warnings)
        if not self._call.include_usage:
            return [_event(self._chunk("", result.finish_reason, quoted, **facts))]
        alone = self._chunk("", None, **facts).model_copy(update={"choices": []})
        return [_event(self._chunk("", result.finish_reason, quoted)), _event(alone)]

    @abstractmethod
    def _chunk(
        self, text: str, finish_reason: FinishReason | None, quoted: Provenance | None = None, **facts: Any
    ) -> Chunk: ...


class ChatChunks(Chunks):
    """Of a chat."""

    def opening(self) -> list[dict[str, Any]]:
        choice = ChatChunkChoice(delta=ChatDelta(role="assistant", content=""), finish_reason=None)
        return [_event(ChatChunk(choices=[choice], **self._identity))]

    def _chunk(
        self, text: str, finish_reason: FinishReason | None, quoted: Provenance | None = None, **facts: Any
    ) -> ChatChunk:
        delta = ChatDelta(content=text or None)
        choice = ChatChunkChoice(delta=delta, finish_reason=finish_reason, provenance=quoted)
        return ChatChunk(choices=[choice], **self._identity, **facts)


class CompletionChunks(Chunks):
    """Of a text completion."""

    def _chunk(
        self, text: str, finish_reason: FinishReason | None, quoted: Provenance | None = None, **facts: Any
    ) -> CompletionChunk:
        choice = CompletionChunkChoice(text=text, finish_reason=finish_reason, provenance=quoted)
        return CompletionChunk(choices=[choice], **self._identity, **facts)


def _event(chunk: Chunk) -> dict[str, Any]:
    """Without what is not there; but a choice always says that it hasn't finished."""
    event = {name: value for name, value in chunk.model_dump().items() if value is not None}
    without_absent_quotes(event)
    for choice in event["choices"]:
        if "delta" in choice:
            choice["delta"] = {name: value for name, value in choice["delta"].items() if value is not None}
    return event
