"""The OpenAPI description: bodies are read by hand, so what they are is told here."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from lookahead_edit.server.errors import KINDS, ErrorAnswer
from lookahead_edit.server.middleware import KEYLESS_PATHS

_REFERENCE = "#/components/schemas/{model}"


def json_request(model: type[BaseModel]) -> dict[str, Any]:
    """For `openapi_extra`: the route reads this model from a JSON body."""
    schema = {"$ref": _REFERENCE.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def stream_of(*events: type[BaseModel]) -> dict[str, Any]:
    """For `responses`: the route may also answer with these events."""
    names = ", ".join(event.__name__ for event in events)
    schema = {
        "type": "object",
        "properties": {"data": {"type": "string"}},
        "required": ["data"],
        "x-events": [{"$ref": _REFERENCE.format(model=event.__name__)} for event in events],
    }
    return {
        "description": f"The answer; with `stream`, events ({names} or ErrorAnswer), then `[DONE]`",
        "content": {"text/event-stream": {"schema": schema}},
    }


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For `responses`: the errors of a route, and those that any route may answer with."""
    described: dict[int | str, dict[str, Any]] = {}
    for status in sorted({*statuses, 401, 403, 500}):
        codes = ", ".join(code for code, kind in KINDS.items() if kind.status == status)
        described[status] = {"model": ErrorAnswer, "description": codes}
    # Keeps the framework from describing a 422 that is never sent.
    described["default"] = {"model": ErrorAnswer, "description": "any other error"}
    return described


def describe_app(app: FastAPI, *models: type[BaseModel], requires_key: bool = False) -> dict[str, Any]:
    """The whole description, with `models` that no signature mentions; `requires_key` says whether keys are checked."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        inputs = [(model, "validation") for model in models]
        definitions = models_json_schema(inputs, ref_template=_REFERENCE)[1].get("$defs", {})  # type: ignore[arg-type]
        schema.setdefault("components", {}).setdefault("schemas", {}).update(definitions)
        if requires_key:
            _describe_keys(schema)
        app.openapi_schema = schema
    return app.openapi_schema


def _describe_keys(schema: dict[str, Any]) -> None:
    """Any one of three headers lets a request in; a few addresses need none."""
    schemes = {"bearer": {"type": "http", "scheme": "bearer"}}
    schemes |= {name: {"type": "apiKey", "in": "header", "name": name} for name in ("x-api-key", "api-key")}
    schema["components"]["securitySchemes"] = schemes
    schema["security"] = [{name: []} for name in schemes]
    for path in KEYLESS_PATHS & schema["paths"].keys():
        for operation in schema["paths"][path].values():
            operation["security"] = []
