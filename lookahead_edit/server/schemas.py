"""What a client may send to /v1/edits, and what becomes of it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema

from lookahead_edit.config import SamplingConfig, SpeculationConfig
from lookahead_edit.drafters import DRAFTERS
from lookahead_edit.editor import Editor, EditRequest
from lookahead_edit.server.errors import HttpError
from lookahead_edit.server.validation import (
    Fields,
    Integer,
    Text,
    describe,
    parse_object,
    unknown_fields_warnings,
    validate,
    whole,
)
from lookahead_edit.text_lines import PositionEncoding, range_to_offsets
from lookahead_edit.types import ContextFile, InvalidInput

MAX_STOP_STRINGS = 16

OutputPart = Literal["text", "edits", "diff"]


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


def _version(value: object) -> object:
    value = whole(value)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InvalidInput(f"expected an integer or a string, got {describe(value)}", code="invalid_type")
    return value


_TEXT_PART = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
    "required": ["text"],
}
_TEXT_PARTS = {"type": "array", "items": _TEXT_PART}
_PREDICTION_OBJECT = {
    "type": "object",
    "properties": {"type": {"const": "content"}, "content": {"anyOf": [{"type": "string"}, _TEXT_PARTS]}},
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
    WithJsonSchema({"anyOf": [{"type": "string"}, _PREDICTION_OBJECT, _TEXT_PARTS, {"type": "null"}]}),
]
DocumentVersion = Annotated[
    Any,
    BeforeValidator(_version),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}),
]


def _within(minimum: int, maximum: int | None = None) -> Any:
    """Limits for the description only: they are kept by what takes the value, which words the error."""
    limits: dict[str, Any] = {"minimum": minimum} if maximum is None else {"minimum": minimum, "maximum": maximum}
    return Field(json_schema_extra=limits)


class PositionBody(Fields):
    """An LSP position, both numbers from 0."""

    line: Annotated[Integer, _within(0)]
    character: Annotated[Integer, _within(0)]


class RangeBody(Fields):
    """An LSP range: the end is not part of it."""

    start: PositionBody
    end: PositionBody


class ContextFileBody(Fields):
    """Another file of the workspace."""

    path: Text
    text: Text


class SpeculationBody(Fields):
    """How drafts are made for this request; they never change its text."""

    enabled: bool | None = None
    max_draft: Annotated[Integer, _within(0, 4096)] | None = None
    drafter: Annotated[Text, Field(json_schema_extra={"enum": [*sorted(DRAFTERS)]})] | None = None


class EditBody(Fields):
    """One edit: the whole document and what to change. `null` means absent."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": [name], "properties": {name: {"type": "string"}}} for name in ("instruction", "update")
            ]
        }
    )

    input: Annotated[Text, Field(description="The whole document.")]
    instruction: Annotated[Text | None, Field(description="What to change.")] = None
    update: Annotated[Text | None, Field(description="A lazy snippet to merge, in place of an instruction.")] = None
    model: Text | None = None
    range: Annotated[RangeBody | None, Field(description="Only this part is rewritten.")] = None
    path: Text | None = None
    language: Text | None = None
    context: list[ContextFileBody] | None = None
    prediction: Annotated[Prediction | None, Field(description="What the text may become.")] = None
    speculation: SpeculationBody | None = None
    output: list[OutputPart] | None = None
    position_encoding: PositionEncoding | None = None
    document_version: Annotated[DocumentVersion, Field(description="Echoed.")] = None
    session: Annotated[Text | None, Field(description="A newer request of a session cancels the older one.")] = None
    temperature: Annotated[float, _within(0, 100)] | None = None
    top_p: Annotated[float, Field(json_schema_extra={"exclusiveMinimum": 0, "maximum": 1})] | None = None
    top_k: Annotated[Integer, _within(0)] | None = None
    min_p: Annotated[float, _within(0, 1)] | None = None
    seed: Annotated[Integer, _within(0, 2**64 - 1)] | None = None
    stop: StopStrings | None = None
    max_tokens: Annotated[Count, _within(1)] | None = None
    timeout_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    stream: bool | None = None
    n: Annotated[Count, _within(1, 1)] | None = None


@dataclass(frozen=True)
class EditCall:
    """A checked request: what the editor gets, and how the answer is wanted."""

    request: EditRequest
    output: frozenset[str] = frozenset({"text", "edits"})
    position_encoding: PositionEncoding = "utf-16"
    document_version: int | str | None = None
    session: str | None = None
    timeout_seconds: float | None = None
    stream: bool = False
    warnings: tuple[str, ...] = ()


def parse_edit(body: bytes, editor: Editor) -> EditCall:
    """The request of a body, checked down to the prompt's length. Slow for long documents: not for the event loop.

    Raises InvalidInput, ContextLengthExceeded, or HttpError where the model is unknown.
    """
    fields, unknown_names = validate(EditBody, parse_object(body))
    require_model(fields.model, editor)
    if fields.n is not None and fields.n > 1:
        raise InvalidInput(f"expected n to be 1, got {describe(fields.n)}", param="n", code="unsupported_parameter")
    if fields.instruction is None and fields.update is None:
        raise InvalidInput("expected instruction or update, got neither", param="instruction", code="missing_field")
    call = EditCall(
        request=_edit_request(fields),
        output=frozenset(fields.output) if fields.output is not None else EditCall.output,
        position_encoding=fields.position_encoding or EditCall.position_encoding,
        document_version=fields.document_version,
        session=fields.session,
        timeout_seconds=fields.timeout_ms / 1000 if fields.timeout_ms is not None else None,
        stream=bool(fields.stream),
        warnings=tuple(unknown_fields_warnings(unknown_names)),
    )
    editor.check(call.request)
    return call


def require_model(name: str | None, editor: Editor) -> None:
    """Raises HttpError where a request names a model that isn't loaded."""
    if name is not None and name != editor.model_name:
        raise HttpError(
            f"expected the model {editor.model_name!r}, got {describe(name)}", code="model_not_found", param="model"
        )


def _edit_request(fields: EditBody) -> EditRequest:
    region = None
    if fields.range is not None:
        encoding = fields.position_encoding or EditCall.position_encoding
        region = range_to_offsets(fields.input, fields.range.model_dump(), encoding)
    return EditRequest(
        text=fields.input,
        instruction=fields.instruction,
        update=fields.update,
        region=region,
        path=fields.path,
        language=fields.language,
        context=tuple(ContextFile(file.path, file.text) for file in fields.context or ()),
        prediction=fields.prediction,
        sampling=_sampling(fields),
        speculation=_speculation(fields.speculation or SpeculationBody()),
        stop=tuple(fields.stop or ()),
        max_tokens=fields.max_tokens,
    )


def _sampling(fields: EditBody) -> SamplingConfig:
    names = ("temperature", "top_p", "top_k", "min_p", "seed")
    given = {name: value for name in names if (value := getattr(fields, name)) is not None}
    if given.get("temperature", SamplingConfig.temperature) > 0.0 and "seed" not in given:
        # Who samples without a seed wants another answer every time.
        given["seed"] = secrets.randbits(63)
    return SamplingConfig(**given)


def _speculation(fields: SpeculationBody) -> SpeculationConfig:
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
