"""POST /v1/chat/completions and /v1/completions, plain and streamed."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from lookahead_edit.config import ServerConfig
from lookahead_edit.editor import GenerateResult, Progress
from lookahead_edit.failures import describe_failure
from lookahead_edit.server.answers import Answer, to_json, without_absent_quotes
from lookahead_edit.server.connection import (
    DONE,
    PING,
    EventStream,
    event_frame,
)
from lookahead_edit.server.documentation import error_responses, json_request, stream_of
from lookahead_edit.server.errors import error_answer, error_code
from lookahead_edit.server.intake import Intake, Parse
from lookahead_edit.server.jobs import Job
from lookahead_edit.server.openai_answers import (
    ChatAnswer,
    CompletionAnswer,
    chat_answer,
    completion_answer,
)
from lookahead_edit.server.openai_chunks import ChatChunk, ChatChunks, Chunk, Chunks, CompletionChunk, CompletionChunks
from lookahead_edit.server.openai_fields import GenerationFields, SpeculationOptions
from lookahead_edit.server.openai_schemas import (
    ChatBody,
    CompletionBody,
    GenerationCall,
    parse_chat,
    parse_completion,
)
from lookahead_edit.server.telemetry import Telemetry
from lookahead_edit.server.worker import Worker

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Endpoint:
    """How one of the two reads and words what both do."""

    path: str
    summary: str
    id_prefix: str
    body: type[GenerationFields]
    answer: type[Answer]
    chunk: type[Chunk]
    parse: Parse[GenerationCall]
    make_answer: Callable[[Job, GenerationCall, GenerateResult], Answer]
    chunks: type[Chunks]


CHAT = Endpoint(
    path="/v1/chat/completions",
    summary="Go on with a chat",
    id_prefix="chatcmpl",
    body=ChatBody,
    answer=ChatAnswer,
    chunk=ChatChunk,
    parse=parse_chat,
    make_answer=chat_answer,
    chunks=ChatChunks,
)
COMPLETION = Endpoint(
    path="/v1/completions",
    summary="Go on with a text",
    id_prefix="cmpl",
    body=CompletionBody,
    answer=CompletionAnswer,
    chunk=CompletionChunk,
    parse=parse_completion,
    make_answer=completion_answer,
    chunks=CompletionChunks,
)
# What the description has to hold besides what signatures mention.
OPENAI_MODELS = (ChatBody, CompletionBody, SpeculationOptions, ChatChunk, CompletionChunk)


def openai_router(worker: Worker, telemetry: Telemetry, config: ServerConfig, intake: Intake) -> APIRouter:
    """The routes, bound to one worker."""
    router = APIRouter()
    for endpoint in (CHAT, COMPLETION):
        _add_route(router, endpoint, worker, telemetry, config, intake)
    return router


def _add_route(
    router: APIRouter,
    endpoint: Endpoint,
    worker: Worker,
    telemetry: Telemetry,
    config: ServerConfig,
    intake: Intake,
) -> None:
    @router.post(
        endpoint.path,
        summary=endpoint.summary,
        response_model=endpoint.answer,
        responses={
            200: stream_of(endpoint.chunk),
            **error_responses(400, 404, 413, 415, 429, 499, 503, 504),
        },
        openapi_extra=json_request(endpoint.body),
        operation_id=f"create_{endpoint.id_prefix}",
    )
    async def generate(request: Request) -> Response:
        editor = worker.require_editor()  # Before a body is read that can't be used.
        job = Job(endpoint.id_prefix, request.state.request_id, client=request.state.client)
        async with intake.queued(request, job, editor, endpoint.parse) as call:
            if not call.stream:
                result = await job.result()
                assert isinstance(result, GenerateResult)
                answer = await worker.conclude(job, answer_json, job, call, result)
                return Response(answer, media_type="application/json")
        return EventStream(frames(job, call), job)

    def answer_json(job: Job, call: GenerationCall, result: GenerateResult) -> bytes:
        answer = endpoint.make_answer(job, call, result)
        written = to_json(without_absent_quotes(answer.model_dump()))
        telemetry.count_answer(job, result.finish_reason, result.metrics)
        return written

    def closing_frames(job: Job, chunks: Chunks, result: GenerateResult) -> bytes:
        closing = b"".join(map(event_frame, chunks.closing(result)))
        telemetry.count_answer(job, result.finish_reason, result.metrics)
        return closing

    async def frames(job: Job, call: GenerationCall) -> AsyncGenerator[bytes, None]:
        chunks = endpoint.chunks(job, call)
        for opening in chunks.opening():
            yield event_frame(opening)
        try:
            async for outcome in job.outcomes(config.ping_seconds):
                if outcome is None:
                    yield PING
                elif isinstance(outcome, GenerateResult):
                    yield await worker.conclude(job, closing_frames, job, chunks, outcome)
                elif isinstance(outcome, Progress) and outcome.delta:
                    yield event_frame(chunks.delta(outcome.delta))
        except Exception as error:
            if error_code(error) == "internal_error":
                logger.error("request %s failed: %s", job.request_id, describe_failure(error))
            telemetry.count_error(error)
            # Nothing behind it: a client that looks for [DONE] alone must not take half an answer for a whole one.
            yield event_frame(error_answer(error, job.request_id))
            return
        yield DONE
