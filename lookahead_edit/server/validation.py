"""From bytes to a checked model: JSON, fields, and messages that say what was expected and what came instead."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from lookahead_edit.types import InvalidInput

MAX_NAMED_FIELDS = 20
# Millions of tiny arrays take seconds to parse, in which no other thread runs. Strings may hold brackets as well, but a
# text with so many is longer than any context.
MAX_BRACKETS = 2**19

_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "an array",
    "model_type": "an object",
    "dict_type": "an object",
    "finite_number": "a finite number",
}


class Fields(BaseModel):
    """Fields of one JSON object: strict types, and fields that nobody knows are no error."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


def well_formed(text: str) -> str:
    """The text; raises InvalidInput where it can't be encoded."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            surrogate = f"U+{ord(text[error.start]):04X} at character {error.start}"
            raise InvalidInput(f"expected well-formed text, got a lone surrogate {surrogate}") from None
    return text


def whole(value: object) -> object:
    """JSON knows no integers: ``5.0`` and ``5`` are one number to it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Text = Annotated[str, AfterValidator(well_formed)]
Integer = Annotated[int, BeforeValidator(whole)]

Body = TypeVar("Body", bound=Fields)


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a request.

    Raises InvalidInput with `invalid_json`, or `invalid_type` for JSON that isn't an object.
    """
    num_brackets = body.count(b"[") + body.count(b"{")
    if num_brackets > MAX_BRACKETS:
        raise InvalidInput(f"expected at most {MAX_BRACKETS} objects and arrays, got {num_brackets}")
    try:
        value = json.loads(body.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise _invalid_json(f"byte {error.start} that is not UTF-8") from None
    except RecursionError:
        raise _invalid_json("values nested too deep") from None
    except json.JSONDecodeError as error:
        place = f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise _invalid_json(place if body.strip() else "an empty body") from None
    except InvalidInput:
        raise
    except ValueError:
        raise _invalid_json("a number of too many digits") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"expected a JSON object, got {describe(value)}", code="invalid_type")
    return value


def validate(model: type[Body], value: Mapping[str, Any]) -> tuple[Body, list[str]]:
    """The checked fields and the names of those that `model` doesn't know. `null` means absent.

    Raises InvalidInput for the first field at fault.
    """
    known = {name: value[name] for name in model.model_fields if value.get(name) is not None}
    try:
        fields = model.model_validate(known)
    except ValidationError as error:
        raise _as_invalid_input(error.errors(include_url=False)[0], value) from None
    return fields, _unknown_names(value, fields)


def unknown_fields_warnings(names: Sequence[str]) -> list[str]:
    """One warning that names the ignored fields, the first of very many."""
    if not names:
        return []
    shown = [ascii(name[:64])[1:-1] for name in names[:MAX_NAMED_FIELDS]]
    rest = len(names) - len(shown)
    return [f"ignored unknown fields: {', '.join(shown)}" + (f" and {rest} more" if rest else "")]


def describe(value: object) -> str:
    """A JSON value in a few words, never the whole of it.

    >>> describe({"a": 1}), describe(True), describe("text")
    ('an object', 'true', "'text'")
    """
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array" if value else "an empty array"
    if isinstance(value, str):
        return ascii(value) if len(value) <= 60 else f"{value[:60]!a}…"
    number = str(value)
    return number if len(number) <= 40 else "a very large number"


def _refuse_constant(name: str) -> NoReturn:
    raise _invalid_json(f"{name}, which JSON doesn't have")


def _invalid_json(got: str) -> InvalidInput:
    return InvalidInput(f"expected a body of JSON in UTF-8, got: {got}", code="invalid_json")


def _as_invalid_input(error: ErrorDetails, value: Mapping[str, Any]) -> InvalidInput:
    param = _path(error["loc"], value, is_missing=error["type"] == "missing")
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, InvalidInput):
        return InvalidInput(f"{param}: {cause}", param=param, code=cause.code)
    got = error["input"]
    if error["type"] == "missing" or (got is None and isinstance(error["loc"][-1], str)):
        return InvalidInput(f"expected {param}, got a request without it", param=param, code="missing_field")
    kind = error["type"]
    if kind == "float_type" and type(got) is int:
        kind = "finite_number"  # an integer beyond every float
    is_wrong_type = kind.endswith("_type") or (kind == "literal_error" and not isinstance(got, str))
    return InvalidInput(
        f"expected {param} {_expected(kind, error.get('ctx', {}))}, got {describe(got)}",
        param=param,
        code="invalid_type" if is_wrong_type else "invalid_value",
    )


def _expected(kind: str, context: Mapping[str, Any]) -> str:
    """In our words: the framework's change between its releases."""
    if kind in _EXPECTED:
        return f"to be {_EXPECTED[kind]}"
    if kind == "literal_error":
        return f"to be {context['expected']}"
    if kind == "greater_than":
        return f"to be above {context['gt']:g}"
    if kind == "too_short":
        return f"to hold at least {context['min_length']}"
    return "to be a value that the description allows"


def _path(location: Sequence[str | int], value: object, *, is_missing: bool) -> str:
    """``("context", 0, "path")`` as ``context[0].path``, without what names no part of the value, as a union's choice.

    The last part names none either where it is what is missing.
    """
    path = ""
    for index, part in enumerate(location):
        if isinstance(value, Mapping):
            if part not in value and not (is_missing and index == len(location) - 1):
                continue
            value = value.get(part)
            path += f".{part}"
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part] if part < len(value) else None
            path += f"[{part}]"
    return path.removeprefix(".")


def _unknown_names(value: Mapping[str, Any], fields: Fields) -> list[str]:
    names = [name for name in value if name not in type(fields).model_fields]
    for name in type(fields).model_fields:
        field, raw = getattr(fields, name), value.get(name)
        if isinstance(field, Fields) and isinstance(raw, dict):
            names += [f"{name}.{inner}" for inner in _unknown_names(raw, field)]
        elif isinstance(field, list) and isinstance(raw, list):
            for item, raw_item in zip(field, raw, strict=False):
                if isinstance(item, Fields) and isinstance(raw_item, dict):
                    names += [f"{name}[].{inner}" for inner in _unknown_names(raw_item, item)]
    return list(dict.fromkeys(names))
