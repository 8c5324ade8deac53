"""A route that no request can take is a mistake of whoever wrote the file: it is told at the start, not never."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripted_editor import ScriptedEditor
from server_harness import counter, in_process

from lookahead_edit.config import DEFAULT_ROUTES, RouteConfig
from lookahead_edit.config_file import read_server_config
from lookahead_edit.server import create_app
from lookahead_edit.server.routing import GENERATING_PATHS, Routing
from lookahead_edit.types import InvalidInput

BODIES: dict[str, dict[str, Any]] = {
    "/v1/edits": {"input": "a", "instruction": "go"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "go"}]},
    "/v1/completions": {"prompt": "go"},
}


def routes_of(tmp_path: Path, text: str) -> tuple[RouteConfig, ...]:
    path = tmp_path / "server.toml"
    path.write_text(text)
    return read_server_config(path).routes


def test_the_addresses_that_have_a_route_are_those_that_generate() -> None:
    with in_process(ScriptedEditor()) as client:
        paths = client.get("/openapi.json").json()["paths"]
    assert set(GENERATING_PATHS) == {path for path, kinds in paths.items() if "post" in kinds and "{" not in path}


@pytest.mark.parametrize(
    "path", ["/v1/edit", "/edit", "/v1/models", "/health", "/v1/chat/completion", "/v1/edits/fast"]
)
def test_a_path_that_nothing_begins_with_ends_the_start(tmp_path: Path, path: str) -> None:
    file = tmp_path / "server.toml"
    file.write_text(f'[routes.fast]\npaths = ["/v1/edits", "{path}"]\n')
    with pytest.raises(InvalidInput, match=r"^route fast: expected paths among /v1/chat/completions, .* got"):
        create_app(ScriptedEditor, read_server_config(file))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ["chat", "completions", "edits"]),
        ('[routes.all]\npaths = ["/v1"]', ["all", "all", "all"]),
        ('[routes.all]\npaths = ["/v1"]\n[routes.chat]\nmax_tokens = 5', ["chat", "all", "all"]),
        ('[routes.talk]\npaths = ["/v1/chat/completions"]', ["talk", "completions", "edits"]),
        ('[routes.mine]\npaths = ["/edits"]', ["chat", "completions", "mine"]),  # "/v1" may be left out
    ],
)
def test_a_files_route_takes_its_paths_and_those_below(tmp_path: Path, text: str, names: list[str]) -> None:
    with in_process(ScriptedEditor(), routes=routes_of(tmp_path, text)) as client:
        for path, name in zip(GENERATING_PATHS, names, strict=True):
            before = counter(client, "requests_total", route=name)
            assert client.post(path, json=BODIES[path]).status_code == 200
            assert counter(client, "requests_total", route=name) == before + 1


def test_one_path_in_two_spellings_stands_in_one_route_only(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"routes.paths to stand once, and in one route, got \['/v1/edits'\]"):
        routes_of(tmp_path, '[routes.a]\npaths = ["/edits"]\n[routes.b]\npaths = ["/v1/edits"]')


USELESS: dict[str, tuple[list[RouteConfig], list[str]]] = {
    "nothing wrong": ([*DEFAULT_ROUTES, RouteConfig("named")], []),
    "every address has a longer path": (
        [*DEFAULT_ROUTES, RouteConfig("all", paths=("/v1",), models=("m",))],
        ["nothing takes the route all by its path /v1: /v1/chat/completions takes the route chat, "],
    ),
    "one of two paths": (
        [RouteConfig("talk", paths=("/v1/chat",)), RouteConfig("deep", paths=("/v1/chat/completions",))],
        ["nothing takes the route talk by its path /v1/chat: /v1/chat/completions takes the route deep"],
    ),
    "no way in": (
        [RouteConfig("lost", allows_header=False)],
        ["no request can take the route lost: it has no models, no path of its own, and allows_header is false"],
    ),
    "an address is left": (
        [RouteConfig("deep", paths=("/v1/edits",)), RouteConfig("rest", paths=("/v1",), allows_header=False)],
        [],
    ),
    "neither by path nor otherwise": (
        [
            RouteConfig("deep", paths=("/v1/chat/completions",)),
            RouteConfig("x", paths=("/v1/chat",), allows_header=False),
        ],
        ["nothing takes the route x by its path /v1/chat: ", "no request can take the route x: "],
    ),
}


@pytest.mark.parametrize("name", USELESS)
def test_what_nothing_takes_is_warned_of(name: str) -> None:
    routes, beginnings = USELESS[name]
    warnings = Routing(routes).warnings()
    assert len(warnings) == len(beginnings)
    for warning, beginning in zip(warnings, beginnings, strict=True):
        assert warning.startswith(beginning)
