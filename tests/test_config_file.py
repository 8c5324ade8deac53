"""The server's TOML file: what it sets, and what is wrong with it in one line."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from lookahead_edit.config import DEFAULT_ROUTES, DriftConfig, RouteConfig, ServerConfig
from lookahead_edit.config_file import read_server_config
from lookahead_edit.types import InvalidInput


def read(tmp_path: Path, text: str) -> ServerConfig:
    path = tmp_path / "server.toml"
    path.write_text(text, encoding="utf-8")
    return read_server_config(path)


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "") == ServerConfig()


def test_a_byte_order_mark_is_no_setting(tmp_path: Path) -> None:
    assert read(tmp_path, "\ufeff[server]\nport = 9000\n").port == 9000


def test_limits_and_routes_are_read(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
        [server]
        port = 9000
        api_key = "secret"
        grace_seconds = 5
        cors_origins = ["https://editor.example"]

        [drift]
        threshold = 20

        [routes.interactive]
        models = ["fast-edit"]
        paths = ["/v1/edits"]
        max_draft_tokens = 64
        timeout_seconds = 10
        priority = 5

        [routes.night]
        allows_header = false
        drafter = "suffix"
        speculation = "off"
        max_tokens = 100
        max_context_tokens = 2048
        """,
    )
    assert (config.port, config.api_key, config.grace_seconds) == (9000, "secret", 5.0)
    assert config.cors_origins == ("https://editor.example",)
    assert config.max_batch_size == ServerConfig.max_batch_size
    assert config.drift == DriftConfig(threshold=20.0)
    interactive, night, *others = config.routes
    assert interactive == RouteConfig(
        "interactive",
        models=("fast-edit",),
        paths=("/v1/edits",),
        max_draft_tokens=64,
        timeout_seconds=10.0,
        priority=5,
    )
    assert night == RouteConfig(
        "night",
        allows_header=False,
        drafter="suffix",
        speculation="off",
        max_tokens=100,
        max_context_tokens=2048,
    )
    assert [route.name for route in others] == ["chat", "completions"]  # a route of the file has taken edits' path


def test_a_default_route_can_be_changed_and_keeps_its_path(tmp_path: Path) -> None:
    config = read(tmp_path, "[routes.chat]\nmax_tokens = 9\n")
    assert config.routes[0] == RouteConfig("chat", paths=("/v1/chat",), max_tokens=9)
    assert {route.name for route in config.routes} == {route.name for route in DEFAULT_ROUTES}


def test_every_field_can_be_set(tmp_path: Path) -> None:
    """So that a new field of a kind that the reader does not know is noticed here."""
    values = {"int": "1", "float": "1.5", "bool": "true", "str": '"edit"', "tuple": "[]", "Literal": '"on"'}
    lines = []
    for section, config in (("server", ServerConfig), ("drift", DriftConfig), ("routes.a", RouteConfig)):
        lines.append(f"[{section}]")
        for field in fields(config):
            if field.name not in ("name", "routes", "drift"):
                lines.append(f"{field.name} = {next(v for k, v in values.items() if str(field.type).startswith(k))}")
    config = read(tmp_path, "\n".join(lines))
    assert config.host == "edit"
    assert config.routes[0].speculation == "on"


BAD_FILES = {
    "[server": "expected TOML, got: ",
    "[servers]": "expected the file to have the keys drift, routes, server, got servers",
    "port = 1": "expected the file to have the keys drift, routes, server, got port",
    "server = 3": "expected server to be a table, got a number",
    "[server]\nprot = 1": r"expected \[server\] to have the keys api_key, .*, port, .*, trace_log, got prot",
    "[server]\nroutes = []": r"expected \[server\] to have the keys .*, got routes",
    "[server]\nport = '80'": "expected server.port to be a whole number, got a string",
    "[server]\nport = true": "expected server.port to be a whole number, got true",
    "[server]\nport = 70000": r"\[server\]: expected port between 0 and 65535, got 70000",
    "[server]\napi_key = 123": "expected server.api_key to be a string, got a number$",
    "[server]\ncors_origins = 'a'": "expected server.cors_origins to be an array of strings, got a string",
    "[server]\ncors_origins = ['https://a.example/']": r"cors_origins like .* or \"\*\", got 'https://a.example/'",
    "[server]\ncors_origins = ['a.example']": r"expected cors_origins like \"https://a.example\"",
    "[server]\nhost = 'not a host'": r"\[server\]: expected host to be an address or a host's name, got 'not a host'",
    "[server]\nhost = ''": r"\[server\]: expected host to be an address or a host's name, got ''",
    "[server]\nhost = 1979-05-27": "expected server.host to be a string, got a date or time",
    "[routes]\nfast = 1": "expected routes.fast to be a table, got a number",
    "[routes.fast]\nmodel = 'a'": r"expected \[routes.fast\] to have the keys allows_header, .*, got model",
    "[routes.fast]\nmodels = ['']": r"\[routes.fast\]: expected models to be names without blanks at their ends, got",
    "[routes.fast]\nmodels = ['a', ' b']": "names without blanks at their ends, got ' b'",
    "[routes.fast]\nname = 'a'": r"expected \[routes.fast\] to have the keys .*, got name",
    "[routes.fast]\nallows_header = 1": "expected routes.fast.allows_header to be true or false, got a number",
    "[routes.fast]\nspeculation = 'maybe'": r"\[routes.fast\]: expected speculation to be auto, on or off, got 'maybe'",
    "[routes.fast]\nmax_tokens = 0": r"\[routes.fast\]: expected max_tokens of at least 1, got 0",
    "[routes.fast]\ntimeout_seconds = nan": r"\[routes.fast\]: expected timeout_seconds above 0 and finite, got nan",
    "[routes.fast]\nmax_draft_tokens = -1": r"\[routes.fast\]: expected max_draft_tokens to be a whole number between",
    "[routes.fast]\npaths = ['edits']": r"\[routes.fast\]: expected paths like \"/v1/edits\", got 'edits'",
    "[routes.'a b']": "expected name of letters, digits, ., _ and -, got 'a b'",
    "[routes.a]\nmodels = ['x']\n[routes.b]\nmodels = ['x']": "expected routes.models to stand once, and in one route",
    "[drift]\nthreshold = -1": r"\[drift\]: expected threshold of at least 0 and finite, got -1.0",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_a_bad_file_is_one_line_that_names_the_key(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput, match=BAD_FILES[text]) as caught:
        read(tmp_path, text)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'server.toml'}: ")
    assert "\n" not in message
    assert "123" not in message


def test_a_file_that_is_none_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^can't read .*none.toml: No such file or directory$"):
        read_server_config(tmp_path / "none.toml")
    with pytest.raises(InvalidInput, match=r"Is a directory$"):
        read_server_config(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    with pytest.raises(InvalidInput, match="expected TOML in UTF-8, got other bytes"):
        read_server_config(tmp_path / "latin.toml")


@pytest.mark.parametrize(
    "line",
    [f"timeout_seconds = {'9' * 400}", f"timeout_seconds = {'9' * 5000}", f"models = {'[' * 5000}{']' * 5000}"],
    ids=["400 digits", "5000 digits", "nested"],
)
def test_monstrous_values_are_one_line_too(tmp_path: Path, line: str) -> None:
    with pytest.raises(InvalidInput, match=r"server\.toml: expected") as failure:
        read(tmp_path, f"[routes.interactive]\n{line}\n")
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("key", ["", " secret", "secret "])
def test_a_key_that_no_header_can_carry_is_refused(key: str) -> None:
    with pytest.raises(InvalidInput, match="api_key not to be empty"):
        ServerConfig(api_key=key)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "0.0.0.0", "localhost", "my-host.example", "::1", "::", "fe80::1%eth0", "::ffff:10.0.0.1"]
)
def test_any_address_or_name_is_a_host(host: str) -> None:
    assert ServerConfig(host=host).host == host


@pytest.mark.parametrize("host", ["", " ", "a b", "[::1]", "http://localhost", "localhost:80/x", "a\n", "x" * 254])
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(InvalidInput, match="expected host to be an address or a host's name"):
        ServerConfig(host=host)
