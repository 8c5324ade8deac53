"""Which route a request takes, and what is left of its wishes there."""

from __future__ import annotations

import math
from typing import Any

import pytest

from lookahead_edit.config import DEFAULT_ROUTES, RouteConfig, SamplingConfig
from lookahead_edit.editor import EditRequest, GenerateRequest
from lookahead_edit.server.errors import HttpError
from lookahead_edit.server.fields import SpeculationBody
from lookahead_edit.server.routing import OTHER, Entry, Routing, bind
from lookahead_edit.types import InvalidInput

ROUTES = (
    RouteConfig("interactive", models=("editor", "editor-2"), paths=("/v1/edits",)),
    RouteConfig("batch", models=("editor-batch",)),
    RouteConfig("hidden", models=("internal",), allows_header=False),
    RouteConfig("chat", paths=("/v1/chat",)),
    RouteConfig("deep", paths=("/v1/chat/completions",)),
    RouteConfig("short", paths=("/completions",)),
)


@pytest.mark.parametrize(
    ("path", "header", "model", "name"),
    [
        ("/v1/edits", None, None, "interactive"),
        ("/v1/edits", None, "loaded", "interactive"),
        ("/v1/edits", None, "editor-batch", "batch"),
        ("/v1/edits", "batch", None, "batch"),
        ("/v1/edits", "batch", "editor", "batch"),  # the header goes before the model
        ("/v1/edits", None, "internal", "hidden"),
        ("/v1/chat/completions", None, "editor-2", "interactive"),  # and the model before the path
        ("/v1/chat/completions", None, None, "deep"),  # the longest beginning
        ("/v1/chat/other", None, None, "chat"),
        ("/v1/chatter", None, None, "other"),  # whole parts of a path only
        ("/v1/completions", None, None, "short"),  # written without the version
        ("/v1/elsewhere", None, None, "other"),
    ],
)
def test_header_goes_before_model_and_model_before_path(
    path: str, header: str | None, model: str | None, name: str
) -> None:
    assert Routing(ROUTES).choose(Entry(path, header), model, "loaded").name == name


def test_the_default_routes_are_named_after_their_tasks() -> None:
    routing = Routing(DEFAULT_ROUTES)
    names = [routing.choose(Entry(path), None, "m").name for path in ("/v1/edits", "/v1/chat/completions")]
    assert names == ["edits", "chat"]
    assert routing.choose(Entry("/v1/completions"), None, "m").name == "completions"


def test_a_model_that_nobody_serves_is_not_found() -> None:
    with pytest.raises(HttpError, match=r"expected the model 'loaded' or 'editor' or .*, got 'gpt'") as caught:
        Routing(ROUTES).choose(Entry("/v1/edits", "batch"), "gpt", "loaded")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


@pytest.mark.parametrize("name", ["nothing", "hidden", ""])
def test_a_route_that_the_header_may_not_name_is_refused(name: str) -> None:
    """Taking another one silently would be served with other limits than were asked for."""
    with pytest.raises(InvalidInput, match="expected x-lookahead-route to be one of batch, chat, deep, interactive"):
        Routing(ROUTES).choose(Entry("/v1/edits", name), None, "loaded")


def test_a_drafter_that_does_not_exist_is_named_with_its_route() -> None:
    with pytest.raises(InvalidInput, match=r"route fast: expected drafter to be one of edit, .*, got 'magic'"):
        Routing([RouteConfig("fast", drafter="magic")])


# Bounds.

LIMITED = RouteConfig(
    "limited",
    drafter="suffix",
    max_draft_tokens=20,
    max_tokens=100,
    max_context_tokens=500,
    timeout_seconds=30.0,
)


def bound(route: RouteConfig, wishes: dict[str, Any] | None = None, **fields: Any) -> Any:
    timeout_seconds = fields.pop("timeout_seconds", None)
    speculation = None if wishes is None else SpeculationBody(**wishes)
    return bind(route, EditRequest("a", "b", **fields), speculation, timeout_seconds=timeout_seconds)


def test_what_a_request_does_not_say_the_route_says() -> None:
    result = bound(LIMITED)
    speculation = result.request.speculation
    assert (speculation.enabled, speculation.drafter, speculation.max_draft_tokens) == (True, "suffix", 20)
    assert (result.request.max_tokens, result.request.max_tokens_limit) == (None, 100)
    assert (result.request.max_context_tokens, result.timeout_seconds) == (500, 30.0)
    assert result.warnings == ()


def test_what_a_request_says_goes_before_it_within_the_bounds() -> None:
    result = bound(LIMITED, {"drafter": "edit", "max_draft": 5}, max_tokens=50, timeout_seconds=3.0)
    speculation = result.request.speculation
    assert (speculation.drafter, speculation.max_draft_tokens) == ("edit", 5)
    assert (result.request.max_tokens, result.timeout_seconds) == (50, 3.0)
    assert result.warnings == ()


def test_what_is_beyond_the_bounds_is_cut_with_a_warning() -> None:
    result = bound(LIMITED, {"max_draft": 21}, max_tokens=101, timeout_seconds=31.0)
    assert result.request.speculation.max_draft_tokens == 20
    assert result.request.max_tokens_limit == 100
    assert result.timeout_seconds == 30.0
    assert result.warnings == (
        "speculation.max_draft was cut from 21 to 20, the most that the route limited allows",
        "max_tokens was cut from 101 to 100, the most that the route limited allows",
        "timeout_ms was cut from 31000 to 30000, the most that the route limited allows",
    )


@pytest.mark.parametrize("number", [10**400, 2**63])
def test_a_huge_number_is_cut_like_any_other(number: int) -> None:
    (warning,) = bound(LIMITED, max_tokens=number).warnings
    assert len(warning) < 120


def test_a_route_without_limits_takes_everything() -> None:
    result = bound(OTHER, {"max_draft": 4096, "enabled": True}, max_tokens=10**9, timeout_seconds=10**9)
    assert result.warnings == ()
    assert result.timeout_seconds == 10**9
    assert not math.isinf(result.timeout_seconds)


@pytest.mark.parametrize(
    ("mode", "asked", "enabled", "policy", "num_warnings"),
    [
        ("auto", None, True, "cost", 0),
        ("auto", False, False, "cost", 0),
        ("auto", True, True, "cost", 0),
        ("on", None, True, "fixed", 0),
        ("on", False, False, "fixed", 0),  # a request may always do without
        ("off", None, False, "cost", 0),
        ("off", False, False, "cost", 0),
        ("off", True, False, "cost", 1),
    ],
)
def test_speculation_of_a_route(mode: Any, asked: bool | None, enabled: bool, policy: str, num_warnings: int) -> None:
    result = bound(RouteConfig("r", speculation=mode), {"enabled": asked})
    assert (result.request.speculation.enabled, result.request.speculation.policy) == (enabled, policy)
    assert len(result.warnings) == num_warnings


def test_everything_else_stays_as_it_was_asked_for() -> None:
    request = GenerateRequest(prompt="a", sampling=SamplingConfig(temperature=0.5), stop=("x",), prediction="p")
    result = bind(LIMITED, request).request
    assert (result.prompt, result.sampling, result.stop, result.prediction) == ("a", request.sampling, ("x",), "p")


@pytest.mark.parametrize("wishes", [{"drafter": "magic"}, {"max_draft": 5000}, {"max_draft": -1}])
def test_wishes_that_make_no_sense_are_refused(wishes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"^expected speculation"):
        bound(LIMITED, wishes)
