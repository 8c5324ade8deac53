"""Puts the server together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from lookahead_edit import __version__
from lookahead_edit.config import ServerConfig
from lookahead_edit.editor import Editor
from lookahead_edit.server.documentation import describe_app
from lookahead_edit.server.edit_answers import EditCompleted, EditCreated, EditDelta
from lookahead_edit.server.edit_routes import edit_router
from lookahead_edit.server.errors import DESCRIPTION_PATH, from_http_exception
from lookahead_edit.server.intake import Intake
from lookahead_edit.server.middleware import Cors, Entrance, JsonErrors, ResponseHeaders
from lookahead_edit.server.openai_routes import OPENAI_MODELS, openai_router
from lookahead_edit.server.playground_routes import playground_router
from lookahead_edit.server.routing import Routing
from lookahead_edit.server.schemas import EditBody
from lookahead_edit.server.service_routes import service_router
from lookahead_edit.server.stats_routes import stats_router
from lookahead_edit.server.telemetry import Telemetry
from lookahead_edit.server.worker import Worker
from lookahead_edit.text_quotes import compile_kernels
from lookahead_edit.types import InvalidInput

EXPOSED_HEADERS = ("x-request-id", "openai-processing-ms", "retry-after", "x-should-retry")


def create_app(load_editor: Callable[[], Editor], config: ServerConfig) -> FastAPI:
    """The ASGI application. The editor is loaded in the background once the application starts.

    Args:
        load_editor: called once, in the thread that will run the model.
        config: limits, key, origins; `host` decides whether Host headers are checked.

    The worker is ``app.state.worker``, the routes are ``app.state.routing``.
    """

    def load() -> Editor:
        compile_kernels()  # here, so that no request has to wait for it
        return load_editor()

    telemetry = Telemetry([route.name for route in config.routes], config.drift)
    routing = Routing(config.routes)
    worker = Worker(load, config, telemetry)
    intake = Intake(worker, config, routing)  # one for all routes, as they share the room for bodies

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        worker.start()
        yield
        await worker.close()

    app = FastAPI(
        title="lookahead_edit",
        summary="Code edits by a language model, with exact speculative decoding",
        version=__version__,
        lifespan=lifespan,
        openapi_url=DESCRIPTION_PATH,
        # The usual pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.worker = worker
    app.state.routing = routing
    app.include_router(edit_router(worker, telemetry, config, intake))
    app.include_router(openai_router(worker, telemetry, config, intake))
    app.include_router(service_router(worker, telemetry, routing))
    app.include_router(stats_router(worker, telemetry, config.drift))
    app.include_router(playground_router())

    @app.exception_handler(HTTPException)
    async def raise_ours(request: Request, error: HTTPException) -> NoReturn:
        raise from_http_exception(error, request.state.method, request.state.path)

    @app.exception_handler(RequestValidationError)
    async def raise_invalid(request: Request, error: RequestValidationError) -> NoReturn:
        raise InvalidInput("expected a valid address")

    # The last one added is the first to see a request.
    app.add_middleware(Entrance, config=config)
    app.add_middleware(JsonErrors, telemetry=telemetry)
    if config.cors_origins:
        app.add_middleware(
            Cors,
            allow_origins=config.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=EXPOSED_HEADERS,
        )
    app.add_middleware(ResponseHeaders)

    def openapi() -> dict[str, Any]:
        models = (EditBody, EditCreated, EditDelta, EditCompleted, *OPENAI_MODELS)
        return describe_app(app, *models, requires_key=config.api_key is not None)

    app.openapi = openapi  # type: ignore[method-assign]
    return app
