"""POST /v1/edits, plain and streamed."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator

from fastapi import APIRouter, Request, Response

from lookahead_edit.config import ServerConfig
from lookahead_edit.editor import Editor, EditResult, Progress
from lookahead_edit.failures import describe_failure
from lookahead_edit.server.answers import to_json
from lookahead_edit.server.connection import (
    DONE,
    PING,
    EventStream,
    event_frame,
    read_json_body,
    stopped_with_connection,
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
from lookahead_edit.server.jobs import Job
from lookahead_edit.server.routing import Entry, Routing
from lookahead_edit.server.schemas import EditBody, EditCall, parse_edit
from lookahead_edit.server.telemetry import Telemetry
from lookahead_edit.server.worker import Worker

logger = logging.getLogger(__name__)


def edit_router(worker: Worker, telemetry: Telemetry, config: ServerConfig, routing: Routing) -> APIRouter:
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
        body = await read_json_body(request, config.max_body_bytes)
        async with stopped_with_connection(request.receive, job):
            worker.open(job)
            call = await worker.prepare(parse_edit, body, editor, routing, Entry.of(request))
            del body  # Megabytes that a queued request need not keep.
            worker.submit(job, call.request, call.route, session=call.session, timeout_seconds=call.timeout_seconds)
            if not call.stream:
                result = await job.result()
                assert isinstance(result, EditResult)
                answer = await worker.conclude(answer_json, job, call, editor, result)
                return Response(answer, media_type="application/json")
        return EventStream(frames(job, call, editor), job)

    def answer_json(job: Job, call: EditCall, editor: Editor, result: EditResult) -> bytes:
        answer = to_json(edit_answer(job, call, result, editor.model_name).model_dump())
        telemetry.count_answer(job, result.finish_reason, result.metrics)
        return answer

    def completed_frame(job: Job, call: EditCall, editor: Editor, result: EditResult) -> bytes:
        answer = edit_answer(job, call, result, editor.model_name)
        frame = event_frame({"type": "edit.completed", **answer.model_dump()})
        telemetry.count_answer(job, result.finish_reason, result.metrics)
        return frame

    async def frames(job: Job, call: EditCall, editor: Editor) -> AsyncGenerator[bytes, None]:
        yield event_frame(edit_created(job, call, editor.model_name).model_dump())
        deltas = EditDeltas(has_sources="sources" in call.include)
        try:
            async for outcome in job.outcomes(config.ping_seconds):
                if outcome is None:
                    yield PING
                elif isinstance(outcome, EditResult):
                    yield await worker.conclude(completed_frame, job, call, editor, outcome)
                elif isinstance(outcome, Progress) and (event := deltas.event(outcome)) is not None:
                    yield event_frame(event)
        except Exception as error:
            if error_code(error) == "internal_error":
                logger.error("request %s failed: %s", job.request_id, describe_failure(error))
            telemetry.count_error(error)
            yield event_frame({"type": "error", **error_answer(error, job.request_id)})
        yield DONE

    return router
