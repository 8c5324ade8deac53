"""GET /v1/stats: what the requests of each route did so far, for a page or a script; Prometheus has it over time."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from lookahead_edit.config import DriftConfig
from lookahead_edit.metrics_routes import RequestFigures, RouteMetrics
from lookahead_edit.server.answers import SourceDrafts, source_drafts
from lookahead_edit.server.documentation import error_responses
from lookahead_edit.server.telemetry import Telemetry
from lookahead_edit.server.worker import Worker


class RecentRequest(BaseModel):
    """Null where there was no draft, or no time to measure."""

    num_tokens: int
    acceptance_rate: float | None
    tokens_per_round: float | None
    tokens_per_second: float | None


class RouteDrift(BaseModel):
    """Whether acceptance has changed against the route's first requests; docs/metrics.md tells how that is decided.

    `reference_rate` is null until those are learned, `acceptance_rate` where nothing has changed.
    """

    direction: Literal["drop", "rise"] | None
    reference_rate: float | None
    acceptance_rate: float | None
    num_reference_requests: int
    num_reference_requests_needed: int


class RouteStats(BaseModel):
    """Sums and ratios over all requests of a route since the server started; `recent` has the last ones in order.

    Tokens a second are those that a request sees while it decodes; a server with several at once does more.
    """

    route: str
    num_requests: int
    num_tokens: int
    num_rounds: int
    num_draft_tokens: int
    num_accepted_draft_tokens: int
    num_wasted_draft_tokens: int
    acceptance_rate: float | None
    tokens_per_round: float | None
    tokens_per_second: float | None
    drafts_by_source: dict[str, SourceDrafts]
    drift: RouteDrift
    recent: list[RecentRequest]


class Stats(BaseModel):
    num_requests_running: int
    num_requests_waiting: int
    routes: list[RouteStats]


def stats_router(worker: Worker, telemetry: Telemetry, drift: DriftConfig) -> APIRouter:
    """The route, bound to one worker."""
    router = APIRouter()

    @router.get("/v1/stats", summary="Each route's figures so far", responses=error_responses())
    async def show_stats() -> Stats:
        return Stats(
            num_requests_running=worker.num_running,
            num_requests_waiting=worker.num_waiting,
            routes=[_route_stats(name, route, drift) for name, route in telemetry.routes().items()],
        )

    return router


def _route_stats(name: str, route: RouteMetrics, drift: DriftConfig) -> RouteStats:
    totals, state = route.totals, route.drift
    return RouteStats(
        route=name,
        num_requests=route.num_requests,
        num_tokens=totals.num_emitted_tokens,
        num_rounds=totals.num_rounds,
        num_draft_tokens=totals.num_draft_tokens,
        num_accepted_draft_tokens=totals.num_accepted_tokens,
        num_wasted_draft_tokens=totals.num_wasted_tokens,
        acceptance_rate=totals.acceptance_rate,
        tokens_per_round=totals.tokens_per_round,
        tokens_per_second=totals.tokens_per_second,
        drafts_by_source=source_drafts(totals),
        drift=RouteDrift(
            direction=state.direction,
            reference_rate=state.reference_rate,
            acceptance_rate=state.acceptance_rate,
            num_reference_requests=state.num_reference_requests,
            num_reference_requests_needed=drift.num_reference_requests,
        ),
        recent=[_recent_request(figures) for figures in route.recent],
    )


def _recent_request(figures: RequestFigures) -> RecentRequest:
    return RecentRequest(
        num_tokens=figures.num_emitted_tokens,
        acceptance_rate=figures.acceptance_rate,
        tokens_per_round=figures.tokens_per_round,
        tokens_per_second=figures.tokens_per_second,
    )
