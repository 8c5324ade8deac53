"""The server's configuration from a TOML file: [server] has its limits, [routes.NAME] the routes, [drift] the alarm."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from lookahead_edit.config import DEFAULT_ROUTES, DriftConfig, RouteConfig, ServerConfig
from lookahead_edit.types import InvalidInput

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Config = TypeVar("Config", ServerConfig, RouteConfig, DriftConfig)

# Fields that are no keys: tables of their own, and what the table's name says.
_NO_KEYS = ("routes", "drift", "name")


def read_server_config(path: Path) -> ServerConfig:
    """The file's settings in place of the defaults; a route named like a default one takes its place.

    A route's paths, and those below them, are taken from the default routes.

    Keys are the fields of `ServerConfig`, `RouteConfig` and `DriftConfig`; arrays stand for tuples.

    Raises:
        InvalidInput: the file can't be read, isn't TOML, or has a key or a value that is none.

    Example::

        [server]
        port = 8080
        max_batch_size = 4

        [routes.batch]
        paths = ["/v1/completions"]
        speculation = "off"
        priority = -1
    """
    try:
        document = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
        return _server_config(document)
    except OSError as error:
        raise InvalidInput(f"can't read {path}: {error.strerror or error}", param="config") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{path}: expected TOML in UTF-8, got other bytes", param="config") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{path}: expected TOML, got: {_one_line(error)}", param="config") from None
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}", param=error.param) from None
    except (ValueError, OverflowError, RecursionError) as error:  # numbers of thousands of digits, arrays as deep
        raise InvalidInput(f"{path}: expected usable values, got: {_one_line(error)}", param="config") from None


def _server_config(document: Mapping[str, Any]) -> ServerConfig:
    _require_known(document, ("drift", "routes", "server"), "the file")
    defaults = {route.name: route for route in DEFAULT_ROUTES}
    own = {
        name: _config(defaults.get(name, RouteConfig(name)), table, f"routes.{name}")
        for name, table in _table(document, "routes").items()
    }
    taken = tuple(f"{path}/" for route in own.values() for path in route.paths)
    left = {
        name: replace(route, paths=paths)
        for name, route in defaults.items()
        if (paths := tuple(path for path in route.paths if not f"{path}/".startswith(taken)))
    }
    return replace(
        _config(ServerConfig(), _table(document, "server"), "server"),
        drift=_config(DriftConfig(), _table(document, "drift"), "drift"),
        routes=(*own.values(), *(route for name, route in left.items() if name not in own)),
    )


def _config(default: Config, table: object, section: str) -> Config:
    if not isinstance(table, dict):
        raise InvalidInput(f"expected {section} to be a table, got {_kind(table)}", param=section)
    known = {field.name: field for field in fields(default) if field.name not in _NO_KEYS}
    _require_known(table, known, f"[{section}]")
    values: dict[str, Any] = {key: _value(value, known[key], f"{section}.{key}") for key, value in table.items()}
    try:
        return replace(default, **values)
    except InvalidInput as error:
        raise InvalidInput(f"[{section}]: {error}", param=f"{section}.{error.param}") from None


def _value(value: object, field: Field[Any], name: str) -> object:
    """The value as the field's annotation has it."""
    kind = str(field.type)
    if kind.startswith("tuple"):
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise InvalidInput(f"expected {name} to be an array of strings, got {_kind(value)}", param=name)
    wanted = "a string"
    matches = isinstance(value, str)
    if kind.startswith("int"):
        wanted, matches = "a whole number", isinstance(value, int) and not isinstance(value, bool)
    elif kind.startswith("float"):
        wanted, matches = "a number", isinstance(value, int | float) and not isinstance(value, bool)
    elif kind.startswith("bool"):
        wanted, matches = "true or false", isinstance(value, bool)
    if not matches:
        raise InvalidInput(f"expected {name} to be {wanted}, got {_kind(value)}", param=name)
    return float(value) if kind.startswith("float") and isinstance(value, int) else value


def _table(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise InvalidInput(f"expected {name} to be a table, got {_kind(table)}", param=name)
    return table


def _require_known(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    unknown = [key for key in table if key not in known]
    if unknown:
        raise InvalidInput(
            f"expected {where} to have the keys {', '.join(sorted(known))}, got {unknown[0]}", param=unknown[0]
        )


def _kind(value: object) -> str:
    """What it is, not what it says: it could be a key."""
    if isinstance(value, bool):
        return "true" if value else "false"
    kinds = {dict: "a table", list: "an array", str: "a string", int: "a number", float: "a number"}
    return kinds.get(type(value), "a date or time")


def _one_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
