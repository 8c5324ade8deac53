"""POST /v1/edits, plain and streamed."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator

from fastapi import APIRouter, Request, Response

from lookahead_edit.config import ServerConfig
from lookahead_edit.editor import EditResult, Progress
from lookahead_edit.failures import describe_failure
from lookahead_edit.server.answers import to_json, without_absent_quotes
from lookahead_edit.server.connection import (
    DONE,
    PING,
    EventStream,
    event_frame,
)
from lookahead_edit.server.documentation import error_responses, json_request, stream_of
from lookahead_edit.server.edit_answers import (
    EditAnswer,
    EditCompleted,
    EditCreated,
    EditDelta,
    EditDeltas,
    edit_answer,
    edit_created,
)
from lookahead_edit.server.errors import error_answer, error_code
from lookahead_edit.server.intake import Intake
from lookahead_edit.server.jobs import Job
from lookahead_edit.server.schemas import EditBody, EditCall, parse_edit
from lookahead_edit.server.telemetry import Telemetry
from lookahead_edit.server.worker import Worker

logger = logging.getLogger(__name__)


def edit_router(worker: Worker, telemetry: Telemetry, config: ServerConfig, intake: Intake) -> APIRouter:
    """The routes, bound to one worker."""
    router = APIRouter()

    @router.post(
        "/v1/edits",
        summary="Edit a document",
        response_model=EditAnswer,
        responses={
            200: stream_of(EditCreated, EditDelta, EditCompleted),
            **error_responses(400, 404, 413, 415, 429, 499, 503, 504),
        },
        openapi_extra=json_request(EditBody),
    )
    async def create_edit(request: Request) -> Response:
        editor = worker.require_editor()  # Before a body is read that can't be used.
        job = Job("edit", request.state.request_id, client=request.state.client)
        async with intake.queued(request, job, editor, parse_edit) as call:
            if not call.stream:
                result = await job.result()
                assert isinstance(result, EditResult)
                answer = await worker.conclude(job, answer_json, job, call, result)
                return Response(answer, media_type="application/json")
        return EventStream(frames(job, call), job)

    def answer_json(job: Job, call: EditCall, result: EditResult) -> bytes:
        answer = to_json(without_absent_quotes(edit_answer(job, call, result).model_dump()))
        telemetry.count_answer(job, result.finish_reason, result.metrics)
        return answer

    def completed_frame(job: Job, call: EditCall, result: EditResult) -> bytes:
        answer = without_absent_quotes(edit_answer(job, call, result).model_dump())
        frame = event_frame({"type": "edit.completed", **answer})
        telemetry.count_answer(job, result.finish_reason, result.metrics)
        return frame

    async def frames(job: Job, call: EditCall) -> AsyncGenerator[bytes, None]:
        yield event_frame(edit_created(job, call).model_dump())
        deltas = EditDeltas(has_sources="sources" in call.include)
        try:
            async for outcome in job.outcomes(config.ping_seconds):
                if outcome is None:
                    yield PING
                elif isinstance(outcome, EditResult):
                    yield await worker.conclude(job, completed_frame, job, call, outcome)
                elif isinstance(outcome, Progress) and (event := deltas.event(outcome)) is not None:
                    yield event_frame(event)
        except Exception as error:
            if error_code(error) == "internal_error":
                logger.error("request %s failed: %s", job.request_id, describe_failure(error))
            telemetry.count_error(error)
            yield event_frame({"type": "error", **error_answer(error, job.request_id)})
        yield DONE

    return router
