"""The one table from exceptions to HTTP answers: ``{"error": {message, type, param, code}}``, always four keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from lookahead_edit.types import (
    DeadlineExceeded,
    EngineUnavailable,
    InvalidInput,
    LookaheadEditError,
    ModelLoading,
    QueueFull,
    RequestCancelled,
    RequestSuperseded,
    ShuttingDown,
)

DESCRIPTION_PATH = "/openapi.json"  # where the server describes itself
MAX_MESSAGE_CHARACTERS = 1000  # a wrong value of megabytes is not repeated


class HttpError(LookaheadEditError):
    """A request refused for reasons that exist in HTTP only: its address, its headers, its size.

    Args:
        message: one line, "expected X, got Y".
        code: a key of `KINDS`.
        headers: sent besides those of the kind, e.g. ``Allow``.
    """

    def __init__(
        self, message: str, *, code: str, param: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.param = param
        self.headers = dict(headers or {})


@dataclass(frozen=True, slots=True)
class Kind:
    """How one error code is answered."""

    status: int
    type: str
    headers: Mapping[str, str] = field(default_factory=dict)


_BAD_REQUEST = Kind(400, "invalid_request_error")
_STOPPED = Kind(499, "cancelled_error", {"x-should-retry": "false"})
_LATER = Kind(503, "service_unavailable_error", {"retry-after": "5"})

KINDS: Mapping[str, Kind] = {
    "invalid_json": _BAD_REQUEST,
    "missing_field": _BAD_REQUEST,
    "invalid_type": _BAD_REQUEST,
    "invalid_value": _BAD_REQUEST,
    "unsupported_parameter": _BAD_REQUEST,
    "invalid_range": _BAD_REQUEST,
    "context_length_exceeded": _BAD_REQUEST,
    "invalid_api_key": Kind(401, "authentication_error", {"www-authenticate": "Bearer"}),
    "host_not_allowed": Kind(403, "permission_error"),
    "model_not_found": Kind(404, "invalid_request_error"),
    "unknown_url": Kind(404, "invalid_request_error"),
    "method_not_allowed": Kind(405, "invalid_request_error"),
    "request_too_large": Kind(413, "invalid_request_error"),
    "unsupported_media_type": Kind(415, "invalid_request_error"),
    "queue_full": Kind(429, "rate_limit_error", {"retry-after": "1"}),
    "request_cancelled": _STOPPED,
    "request_superseded": _STOPPED,
    "internal_error": Kind(500, "server_error"),
    "model_loading": _LATER,
    "shutting_down": _LATER,
    "deadline_exceeded": Kind(504, "timeout_error", {"x-should-retry": "false"}),
}

_CODES: Mapping[type[Exception], str] = {
    QueueFull: "queue_full",
    ShuttingDown: "shutting_down",
    ModelLoading: "model_loading",
    EngineUnavailable: "model_loading",
    RequestCancelled: "request_cancelled",
    RequestSuperseded: "request_superseded",
    DeadlineExceeded: "deadline_exceeded",
}


class ErrorBody(BaseModel):
    message: str
    type: str
    param: str | None
    code: str


class ErrorAnswer(BaseModel):
    """Every answer that is not a success."""

    error: ErrorBody


def error_code(error: Exception) -> str:
    """The row of `KINDS` that an exception belongs to; what nobody foresaw is an internal error."""
    if isinstance(error, (InvalidInput, HttpError)) and error.code in KINDS:
        return error.code
    return _CODES.get(type(error), "internal_error")


def error_answer(error: Exception, request_id: str) -> dict[str, dict[str, str | None]]:
    """The body. An internal error tells only the request id, under which the log has the rest."""
    code = error_code(error)
    param = error.param if isinstance(error, (InvalidInput, HttpError)) else None
    message = _naming(str(error), param)
    if len(message) > MAX_MESSAGE_CHARACTERS:
        message = f"{message[:MAX_MESSAGE_CHARACTERS]}…"
    if code == "internal_error":
        message = f"the server failed on request {request_id}; its log says more"
    return {"error": {"message": message, "type": KINDS[code].type, "param": param, "code": code}}


def _naming(message: str, param: str | None) -> str:
    """The message, with the field before it where it doesn't name it: many clients show nothing else.

    >>> _naming("expected a line from 0 to 2, got 5", "range"), _naming("expected n to be 1, got 2", "n")
    ('range: expected a line from 0 to 2, got 5', 'expected n to be 1, got 2')
    """
    is_named = param is None or re.search(rf"(?<![\w.\]]){re.escape(param)}(?![\w\[])", message)
    return message if is_named else f"{param}: {message}"


def error_response(error: Exception, request_id: str) -> JSONResponse:
    """The whole answer, with the headers that its kind asks for."""
    kind = KINDS[error_code(error)]
    headers = dict(kind.headers)
    if isinstance(error, HttpError):
        headers.update(error.headers)
    return JSONResponse(error_answer(error, request_id), status_code=kind.status, headers=headers)


def from_http_exception(error: HTTPException, method: str, path: str) -> HttpError:
    """The framework's own refusals, which are about addresses and methods only. `path` is as the client wrote it."""
    path = path if len(path) <= 80 else f"{path[:80]}…"
    if error.status_code == 405:
        methods = {method.strip() for method in (error.headers or {}).get("Allow", "another method").split(",")}
        allowed = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
        return HttpError(
            f"expected {allowed} for {path}, got {method}", code="method_not_allowed", headers={"Allow": allowed}
        )
    return HttpError(f"expected an address that {DESCRIPTION_PATH} lists, got {method} {path}", code="unknown_url")
