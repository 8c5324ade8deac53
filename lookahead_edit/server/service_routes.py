"""Routes about the server itself: health, models, version, counters, and cancelling a request."""

from __future__ import annotations

import time
from typing import Literal

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from lookahead_edit import __version__
from lookahead_edit.editor import Editor
from lookahead_edit.server.documentation import error_responses
from lookahead_edit.server.routing import Routing
from lookahead_edit.server.telemetry import Telemetry
from lookahead_edit.server.worker import Worker


class Health(BaseModel):
    status: Literal["ok"] = "ok"
    model: str


class Version(BaseModel):
    version: str


class ModelCard(BaseModel):
    """The loaded model, by its own name or a route's; `max_model_len` counts prompt and answer together, in tokens."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "lookahead_edit"
    max_model_len: int


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelCard]


class Cancelled(BaseModel):
    cancelled: bool


def service_router(worker: Worker, telemetry: Telemetry, routing: Routing) -> APIRouter:
    """The routes, bound to one worker."""
    router = APIRouter()
    created = int(time.time())

    def cards(editor: Editor) -> list[ModelCard]:
        limit = editor.target.max_context_tokens
        limits = {name: route.max_context_tokens or limit for name, route in routing.models.items()}
        return [
            ModelCard(id=name, created=created, max_model_len=min(limit, own))
            for name, own in {editor.model_name: limit, **limits}.items()
        ]

    @router.get("/health", summary="Whether work is taken", responses=error_responses(503))
    async def health() -> Health:
        editor = worker.require_editor()
        await run_in_threadpool(editor.check_health)
        return Health(model=editor.model_name)

    @router.get("/version", responses=error_responses())
    async def show_version() -> Version:
        return Version(version=__version__)

    @router.get(
        "/metrics",
        summary="Counters for Prometheus",
        response_class=PlainTextResponse,
        responses=error_responses(),
    )
    async def show_metrics() -> Response:
        return Response(telemetry.render(), media_type=CONTENT_TYPE_LATEST)

    @router.get("/v1/models", responses=error_responses(503))
    async def list_models() -> ModelList:
        return ModelList(data=cards(worker.require_editor()))

    @router.get("/v1/models/{model_id:path}", responses=error_responses(404, 503))
    async def show_model(model_id: str) -> ModelCard:
        editor = worker.require_editor()
        routing.require_model(model_id, editor.model_name)
        return next(card for card in cards(editor) if card.id == model_id)

    @router.post(
        "/v1/requests/{request_id}/cancel",
        summary="Cancel a request, by the id of its answer or by its x-request-id",
        responses=error_responses(),
    )
    async def cancel_request(request_id: str, request: Request) -> Cancelled:
        return Cancelled(cancelled=worker.cancel(request_id, request.state.client))

    return router
