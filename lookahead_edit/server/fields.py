"""Fields that several routes take, what they may hold, and what becomes of them."""

from __future__ import annotations

import secrets
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from lookahead_edit.config import SamplingConfig, SpeculationConfig
from lookahead_edit.drafters import DRAFTERS
from lookahead_edit.server.validation import Fields, Integer, Text, describe
from lookahead_edit.types import InvalidInput

MAX_STOP_STRINGS = 16


def _stop_strings(value: object) -> object:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        raise InvalidInput(f"expected a string or an array of strings, got {describe(value)}", code="invalid_type")
    if len(value) > MAX_STOP_STRINGS:
        raise InvalidInput(f"expected at most {MAX_STOP_STRINGS} strings, got {len(value)}")
    return [item for item in value if item != ""]


def _content_text(value: object) -> object:
    """A string, ``{type: "content", content}`` or an array of text parts, as one string."""
    if isinstance(value, dict):
        if value.get("type") not in (None, "content"):
            raise InvalidInput(f"expected a type of 'content', got {describe(value['type'])}")
        value = value.get("content")
        if value is None:
            raise InvalidInput("expected content, got an object without it", code="missing_field")
    if isinstance(value, list):
        return "".join(map(_part_text, value))
    if not isinstance(value, str):
        expected = "a string, an object with content or an array of text parts"
        raise InvalidInput(f"expected {expected}, got {describe(value)}", code="invalid_type")
    return value


def _part_text(part: object) -> str:
    text = part.get("text") if isinstance(part, dict) and part.get("type") in (None, "text") else None
    if not isinstance(text, str):
        raise InvalidInput(
            f'expected parts of the form {{"type": "text", "text": "…"}}, got {describe(part)}', code="invalid_type"
        )
    return text


def _at_least_one(value: int) -> int:
    if value < 1:
        raise InvalidInput(f"expected at least 1, got {describe(value)}")
    return value


TEXT_PART = {
    "type": "object",
    "properties": {"type": {"enum": ["text", None]}, "text": {"type": "string"}},
    "required": ["text"],
}
_TEXT_PARTS = {"type": "array", "items": TEXT_PART}
CONTENT_FORMS = [{"type": "string"}, _TEXT_PARTS]
_PREDICTION_OBJECT = {
    "type": "object",
    "properties": {"type": {"enum": ["content", None]}, "content": {"anyOf": CONTENT_FORMS}},
    "required": ["content"],
}

Count = Annotated[Integer, AfterValidator(_at_least_one)]
StopStrings = Annotated[
    list[Text],
    BeforeValidator(_stop_strings),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "maxItems": MAX_STOP_STRINGS},
                {"type": "null"},
            ]
        }
    ),
]
Prediction = Annotated[
    Text,
    BeforeValidator(_content_text),
    WithJsonSchema({"anyOf": [*CONTENT_FORMS, _PREDICTION_OBJECT, {"type": "null"}]}),
]


def within(minimum: int, maximum: int | None = None) -> Any:
    """Limits for the description only: they are kept by what takes the value, which words the error."""
    limits: dict[str, Any] = {"minimum": minimum} if maximum is None else {"minimum": minimum, "maximum": maximum}
    return Field(json_schema_extra=limits)


class SpeculationBody(Fields):
    """How drafts are made for this request; they never change its text."""

    enabled: bool | None = None
    max_draft: Annotated[Integer, within(0, 4096)] | None = None
    drafter: Annotated[Text, Field(json_schema_extra={"enum": [*sorted(DRAFTERS)]})] | None = None


class SamplingFields(Fields):
    """How tokens are chosen, and when they end."""

    temperature: Annotated[float, within(0, 100)] | None = None
    top_p: Annotated[float, Field(json_schema_extra={"exclusiveMinimum": 0, "maximum": 1})] | None = None
    top_k: Annotated[Integer, within(0)] | None = None
    min_p: Annotated[float, within(0, 1)] | None = None
    seed: Annotated[Integer, within(0, 2**64 - 1)] | None = None
    stop: StopStrings | None = None
    max_tokens: Annotated[Count, within(1)] | None = None
    n: Annotated[Count, within(1, 1)] | None = None


def require_one_answer(fields: SamplingFields) -> None:
    """Raises InvalidInput where a request wants several answers."""
    if fields.n is not None and fields.n > 1:
        raise InvalidInput(f"expected n to be 1, got {describe(fields.n)}", param="n", code="unsupported_parameter")


def sampling_config(fields: SamplingFields, **others: Any) -> SamplingConfig:
    """With `others` that only some routes take. Raises InvalidInput for a value out of its range."""
    names = ("temperature", "top_p", "top_k", "min_p", "seed")
    given = {name: value for name in names if (value := getattr(fields, name)) is not None}
    if given.get("temperature", SamplingConfig.temperature) > 0.0 and "seed" not in given:
        # Who samples without a seed wants another answer every time.
        given["seed"] = secrets.randbits(63)
    return SamplingConfig(**given, **others)


def speculation_config(fields: SpeculationBody) -> SpeculationConfig:
    """Raises InvalidInput for an unknown drafter and a draft out of bounds."""
    given: dict[str, Any] = {}
    if fields.enabled is not None:
        given["enabled"] = fields.enabled
    if fields.max_draft is not None:
        given["max_draft_tokens"] = fields.max_draft
    if fields.drafter is not None:
        if fields.drafter not in DRAFTERS:
            raise InvalidInput(
                f"expected speculation.drafter to be one of {', '.join(sorted(DRAFTERS))}, "
                f"got {describe(fields.drafter)}",
                param="speculation.drafter",
            )
        given["drafter"] = fields.drafter
    try:
        return SpeculationConfig(**given)
    except InvalidInput as error:
        raise InvalidInput(
            str(error).replace("max_draft_tokens", "speculation.max_draft"), param="speculation.max_draft"
        ) from None
