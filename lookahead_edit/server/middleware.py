"""What happens to every request before and after its route: plain ASGI, so that streams and disconnects pass freely."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import re
import secrets
import time
import uuid
from hashlib import blake2b

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lookahead_edit.config import ServerConfig
from lookahead_edit.failures import describe_failure
from lookahead_edit.server.errors import DESCRIPTION_PATH, HttpError, error_code, error_response
from lookahead_edit.server.telemetry import Telemetry

logger = logging.getLogger(__name__)

HEALTH_PATH = "/health"
KEYLESS_PATHS = frozenset({HEALTH_PATH, "/metrics", "/"})  # the page itself asks for the key
ROOT_PATHS = frozenset({HEALTH_PATH, "/metrics", "/version", DESCRIPTION_PATH, "/"})

_REQUEST_ID = re.compile(r"[\w.-]{1,128}", re.ASCII)


class ResponseHeaders:
    """Names the request, and adds `x-request-id` and `openai-processing-ms` to its answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.monotonic()
        wanted = Headers(scope=scope).get("x-request-id", "")
        request_id = wanted if _REQUEST_ID.fullmatch(wanted) else f"req-{uuid.uuid4().hex}"
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request_id
                headers["openai-processing-ms"] = str(round((time.monotonic() - started) * 1000))
            await send(message)

        await self.app(scope, receive, send_with_headers)


class JsonErrors:
    """Turns exceptions into answers, by the table in `errors`."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self.app = app
        self.telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        has_started = False

        async def send_and_note(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        except Exception as error:
            request_id = scope["state"]["request_id"]
            if error_code(error) == "internal_error":
                logger.error("request %s failed: %s", request_id, describe_failure(error))
            if has_started:
                return  # the connection is closed then, which tells that the answer is not whole
            if canonical_path(scope["path"]) != HEALTH_PATH:  # probes ask until they like the answer
                self.telemetry.count_error(error)
            await error_response(error, request_id)(scope, receive, send)


class Entrance:
    """Lets a request in: one spelling for its path, an allowed Host header, a valid key."""

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self.app = app
        self.checks_host = is_loopback(config.host)
        self.api_key = config.api_key.encode() if config.api_key else None
        self._secret = secrets.token_bytes(32)  # so that nothing can be told from a client's name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["state"]["path"] = scope["path"]  # as it was sent, for messages
            scope["state"]["method"] = scope["method"]
            # What is asked for its headers only is answered as a whole; the server below leaves out the body.
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            scope = {**scope, "path": canonical_path(scope["path"]), "method": method}
            headers = Headers(scope=scope)
            _check_framing(headers)
            if self.checks_host:
                self._check_host(headers.get("host"))
            if self.api_key is not None and scope["path"] not in KEYLESS_PATHS:
                self._check_key(headers)
            scope["state"]["client"] = self._client(scope, headers)
        await self.app(scope, receive, send)

    def _client(self, scope: Scope, headers: Headers) -> str:
        """Names whoever asks: by the address and, where the server has no key of its own, by the key that was sent.

        With a key of its own a second header would give a client as many names as it likes.
        """
        host = (scope.get("client") or ("",))[0]
        keys = [] if self.api_key is not None else _offered_keys(headers)
        return blake2b(repr((host, keys)).encode(), key=self._secret, digest_size=16).hexdigest()

    def _check_host(self, host: str | None) -> None:
        # A web page can point its own name at 127.0.0.1 (DNS rebinding), but its requests still carry that name.
        if host is not None and not is_loopback(_without_port(host)):
            raise HttpError(
                f"expected a Host header that names this machine, such as localhost, got {host[:80]!r}",
                code="host_not_allowed",
            )

    def _check_key(self, headers: Headers) -> None:
        assert self.api_key is not None
        keys = _offered_keys(headers)
        # No short cut: which of the three headers was right must not show in the time taken.
        if sum(hmac.compare_digest(key, self.api_key) for key in keys) == 0:
            got = "a wrong one" if keys else "none"
            raise HttpError(
                f"expected an API key as Authorization: Bearer, x-api-key or api-key, got {got}",
                code="invalid_api_key",
            )


class Cors(CORSMiddleware):
    """Starlette's, with its one refusal in our error format."""

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        origin = request_headers.get("origin", "")
        refusal = HttpError(
            f"expected an allowed origin, method and headers, got origin {origin[:80]!r}", code="invalid_value"
        )
        answer = error_response(refusal, "")
        answer.headers["vary"] = "Origin"
        return answer


def _check_framing(headers: Headers) -> None:
    # Where the body ends must be beyond doubt: a proxy may go by the other header, and take what follows for another
    # client's request (RFC 9112, section 6.3).
    if "transfer-encoding" in headers and "content-length" in headers:
        raise HttpError(
            "expected Content-Length or Transfer-Encoding, got both",
            code="invalid_value",
            headers={"connection": "close"},
        )


def _offered_keys(headers: Headers) -> list[bytes]:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    offered = [headers.get("x-api-key"), headers.get("api-key")]
    if scheme.lower() == "bearer":
        offered.append(token.strip())
    return [key.encode("latin-1") for key in offered if key]  # the bytes that were sent


def canonical_path(path: str) -> str:
    """One spelling: ``/v1/x`` for the API, ``/x`` for the few addresses about the server itself.

    >>> canonical_path("/edits/"), canonical_path("/v1//models/a/b"), canonical_path("/v1/health")
    ('/v1/edits', '/v1/models/a/b', '/health')
    """
    path = re.sub(r"/{2,}", "/", path).rstrip("/") or "/"
    bare = path[len("/v1") :] if path.startswith("/v1/") else path
    return bare if bare in ROOT_PATHS or path == "/v1" else f"/v1{bare}"


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine; ``*.localhost`` always does (RFC 6761)."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
