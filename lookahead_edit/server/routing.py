"""Which route a request takes, and what becomes of its wishes there: it may ask for less than the route allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from starlette.requests import Request

from lookahead_edit.config import RouteConfig, SpeculationConfig
from lookahead_edit.editor import Editor, EditRequest, GenerateRequest
from lookahead_edit.server.errors import HttpError
from lookahead_edit.server.fields import SpeculationBody, speculation_config
from lookahead_edit.server.middleware import canonical_path
from lookahead_edit.server.validation import describe, whole
from lookahead_edit.speculation import check_speculation
from lookahead_edit.types import ContextLengthExceeded, InvalidInput

ROUTE_HEADER = "x-lookahead-route"
# The addresses that generate, which are those that have a route.
GENERATING_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/edits")
# For paths that no route begins with.
OTHER = RouteConfig("other")

Asked = TypeVar("Asked", EditRequest, GenerateRequest)


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a request came in: known before its body is read."""

    path: str  # canonical, such as "/v1/edits"
    route_name: str | None = None  # of the header

    @classmethod
    def of(cls, request: Request) -> Entry:
        return cls(request.scope["path"], request.headers.get(ROUTE_HEADER))


@dataclass(frozen=True, slots=True)
class Bound(Generic[Asked]):
    """A request within its route's bounds."""

    request: Asked
    timeout_seconds: float | None
    warnings: tuple[str, ...]


class Routing:
    """The routes of one server.

    Raises:
        InvalidInput: a route's drafter doesn't exist, or there is nothing below one of its paths.

    Example:
        >>> routing = Routing([RouteConfig("fast", models=("editor",)), RouteConfig("edits", paths=("/v1/edits",))])
        >>> [routing.choose(Entry("/v1/edits"), model, "smollm2").name for model in ("editor", "smollm2", None)]
        ['fast', 'edits', 'edits']
    """

    def __init__(self, routes: Sequence[RouteConfig]) -> None:
        for route in routes:
            try:
                check_speculation(route.speculation_config)
            except InvalidInput as error:
                raise InvalidInput(f"route {route.name}: {error}", param=f"routes.{route.name}.drafter") from None
            for path in route.paths:
                if not _addresses_below(canonical_path(path)):
                    raise InvalidInput(
                        f"route {route.name}: expected paths among {', '.join(GENERATING_PATHS)}, or whole parts "
                        f"that these begin with, such as /v1, got {describe(path)}",
                        param=f"routes.{route.name}.paths",
                    )
        self._routes = tuple(routes)
        self._by_name = {route.name: route for route in routes if route.allows_header}
        self._by_model = {model: route for route in routes for model in route.models}
        self._by_path = {canonical_path(path): route for route in routes for path in route.paths}

    @property
    def models(self) -> Mapping[str, RouteConfig]:
        """Names besides the loaded model's own that clients may give as `model`, and their routes."""
        return self._by_model

    def warnings(self) -> list[str]:
        """What of the routes no request can ever take: one line each."""
        lines = []
        for route in self._routes:
            is_taken = bool(route.models) or route.allows_header
            for path in map(canonical_path, route.paths):
                deeper = {address: self._route_of_path(address) for address in _addresses_below(path)}
                if route in deeper.values():
                    is_taken = True
                    continue
                takers = ", ".join(f"{address} takes the route {other.name}" for address, other in deeper.items())
                lines.append(f"nothing takes the route {route.name} by its path {path}: {takers}")
            if not is_taken:
                lines.append(
                    f"no request can take the route {route.name}: it has no models, no path of its own, "
                    "and allows_header is false"
                )
        return lines

    def choose(self, entry: Entry, model: str | None, loaded_model: str) -> RouteConfig:
        """By the header, else by the model's name, else by the longest path.

        Raises:
            HttpError: neither a route nor the loaded model has this name.
            InvalidInput: the header names no route that it may name.
        """
        self.require_model(model, loaded_model)
        if entry.route_name is not None:
            if entry.route_name not in self._by_name:
                known = ", ".join(sorted(self._by_name)) or "absent"
                raise InvalidInput(
                    f"expected {ROUTE_HEADER} to be one of {known}, got {describe(entry.route_name)}",
                    param=ROUTE_HEADER,
                )
            return self._by_name[entry.route_name]
        if model in self._by_model:
            return self._by_model[model]
        return self._route_of_path(entry.path)

    def _route_of_path(self, address: str) -> RouteConfig:
        beginnings = [path for path in self._by_path if _is_below(address, path)]
        return self._by_path[max(beginnings, key=len)] if beginnings else OTHER

    def require_model(self, model: str | None, loaded_model: str) -> None:
        """Raises HttpError for a name that is neither the loaded model's nor a route's."""
        if model is not None and model != loaded_model and model not in self._by_model:
            known = " or ".join(repr(name) for name in (loaded_model, *self._by_model))
            raise HttpError(f"expected the model {known}, got {describe(model)}", code="model_not_found", param="model")


def _is_below(address: str, path: str) -> bool:
    return f"{address}/".startswith(f"{path}/")


def _addresses_below(path: str) -> list[str]:
    return [address for address in GENERATING_PATHS if _is_below(address, path)]


def bind(
    route: RouteConfig,
    request: Asked,
    speculation: SpeculationBody | None = None,
    *,
    timeout_seconds: float | None = None,
) -> Bound[Asked]:
    """Holds a request to what its route allows.

    Longer answers and drafts, later deadlines, and drafts where the route has none, are cut down with a warning: the
    answer's `finish_reason` and the error tell what came of it, and drafts never change a text. A prompt beyond
    `max_context_tokens` can't be cut without making the answer wrong: `require_room` refuses it.

    Raises:
        InvalidInput: an unknown drafter, a draft out of bounds.
    """
    bound, warnings = _bind_speculation(route, speculation or SpeculationBody())
    if route.max_tokens is not None and request.max_tokens is not None and request.max_tokens > route.max_tokens:
        warnings.append(_cut("max_tokens", request.max_tokens, route.max_tokens, route))
    if route.timeout_seconds is not None:
        limit = route.timeout_seconds
        if timeout_seconds is not None and timeout_seconds > limit:
            warnings.append(_cut("timeout_ms", timeout_seconds * 1000, limit * 1000, route))
        timeout_seconds = limit if timeout_seconds is None else min(timeout_seconds, limit)
    bound_request = replace(
        request,
        speculation=bound,
        max_tokens_limit=route.max_tokens,
        max_context_tokens=route.max_context_tokens,
    )
    return Bound(bound_request, timeout_seconds, tuple(warnings))


def require_room(bound: Bound[Asked], route: RouteConfig, editor: Editor, is_stopped: Callable[[], bool]) -> None:
    """`Editor.check`, whose ContextLengthExceeded then names the route where it's the route that allows no more."""
    try:
        editor.check(bound.request, is_stopped)
    except ContextLengthExceeded as error:
        error.limited_by = f"the route {route.name}"
        raise


def _bind_speculation(route: RouteConfig, asked: SpeculationBody) -> tuple[SpeculationConfig, list[str]]:
    own, wanted = route.speculation_config, speculation_config(asked)
    warnings = []
    if asked.enabled and not own.enabled:
        warnings.append(f"speculation stays off: the route {route.name} has none")
    max_draft_tokens = own.max_draft_tokens
    if wanted.max_draft_tokens is not None:
        if max_draft_tokens is not None and wanted.max_draft_tokens > max_draft_tokens:
            warnings.append(_cut("speculation.max_draft", wanted.max_draft_tokens, max_draft_tokens, route))
        else:
            max_draft_tokens = wanted.max_draft_tokens
    bound = replace(
        own,
        enabled=own.enabled and wanted.enabled,
        drafter=asked.drafter or own.drafter,
        max_draft_tokens=max_draft_tokens,
    )
    return bound, warnings


def _cut(field: str, wanted: float, limit: float, route: RouteConfig) -> str:
    return (
        f"{field} was cut from {describe(whole(wanted))} to {whole(limit)}, the most that the route {route.name} allows"
    )
