"""What a client may send to /v1/edits, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema

from lookahead_edit.config import RouteConfig
from lookahead_edit.editor import Editor, EditRequest
from lookahead_edit.server.fields import (
    Prediction,
    SamplingFields,
    SpeculationBody,
    require_one_answer,
    sampling_config,
    within,
)
from lookahead_edit.server.routing import Entry, Routing, bind, require_room
from lookahead_edit.server.validation import (
    Fields,
    Integer,
    Text,
    describe,
    parse_object,
    unknown_fields_warnings,
    validate,
    well_formed,
    whole,
)
from lookahead_edit.text_lines import PositionEncoding, range_to_offsets
from lookahead_edit.types import ContextFile, InvalidInput, never

OutputPart = Literal["text", "edits", "diff"]
IncludePart = Literal["provenance", "sources"]


def _version(value: object) -> object:
    value = whole(value)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InvalidInput(f"expected an integer or a string, got {describe(value)}", code="invalid_type")
    return well_formed(value) if isinstance(value, str) else value


DocumentVersion = Annotated[
    Any,
    BeforeValidator(_version),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}),
]


class PositionBody(Fields):
    """An LSP position, both numbers from 0."""

    line: Annotated[Integer, within(0)]
    character: Annotated[Integer, within(0)]


class RangeBody(Fields):
    """An LSP range: the end is not part of it."""

    start: PositionBody
    end: PositionBody


class ContextFileBody(Fields):
    """Another file of the workspace."""

    path: Text
    text: Text


class EditBody(SamplingFields):
    """One edit: the whole document and what to change. `null` means absent."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["instruction"], "properties": {"instruction": {"type": "string", "pattern": "\\S"}}},
                {"required": ["update"], "properties": {"update": {"type": "string", "minLength": 1}}},
            ]
        }
    )

    input: Annotated[Text, Field(description="The whole document.")]
    instruction: Annotated[Text | None, Field(description="What to change.")] = None
    update: Annotated[
        Text | None, Field(description="A lazy snippet to merge, in place of an instruction or with it.")
    ] = None
    model: Text | None = None
    range: Annotated[RangeBody | None, Field(description="Only this part is rewritten.")] = None
    path: Text | None = None
    language: Text | None = None
    context: list[ContextFileBody] | None = None
    prediction: Annotated[Prediction | None, Field(description="What the text may become.")] = None
    speculation: SpeculationBody | None = None
    output: list[OutputPart] | None = None
    include: Annotated[
        list[IncludePart] | None,
        Field(
            description="`provenance`: what of the text stands word for word in the document, the snippet or the "
            "instruction. `sources`: streamed text is told apart by where its drafts came from."
        ),
    ] = None
    position_encoding: PositionEncoding | None = None
    document_version: Annotated[DocumentVersion, Field(description="Echoed.")] = None
    session: Annotated[Text | None, Field(description="A newer request of a session cancels the older one.")] = None
    timeout_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    stream: bool | None = None


@dataclass(frozen=True)
class EditCall:
    """A checked request: what the editor gets, and how the answer is wanted."""

    request: EditRequest
    route: RouteConfig
    model_name: str  # as the request has it, or the loaded one's
    output: frozenset[str] = frozenset({"text", "edits"})
    include: frozenset[str] = frozenset()
    position_encoding: PositionEncoding = "utf-16"
    document_version: int | str | None = None
    session: str | None = None
    timeout_seconds: float | None = None
    stream: bool = False
    warnings: tuple[str, ...] = ()


def parse_edit(
    body: bytes, editor: Editor, routing: Routing, entry: Entry, is_stopped: Callable[[], bool] = never
) -> EditCall:
    """The request of a body, checked down to the prompt's length. Slow for long documents: not for the event loop.

    Raises InvalidInput, ContextLengthExceeded, HttpError where the model is unknown, or RequestCancelled soon after
    `is_stopped` says that nobody waits for it.
    """
    fields, unknown_names = validate(EditBody, parse_object(body))
    route = routing.choose(entry, fields.model, editor.model_name)
    require_one_answer(fields)
    if fields.instruction is None and fields.update is None:
        raise InvalidInput("expected instruction or update, got neither", param="instruction", code="missing_field")
    timeout_seconds = fields.timeout_ms / 1000 if fields.timeout_ms is not None else None
    bound = bind(route, _edit_request(fields), fields.speculation, timeout_seconds=timeout_seconds)
    require_room(bound, route, editor, is_stopped)
    return EditCall(
        request=bound.request,
        route=route,
        model_name=editor.model_name if fields.model is None else fields.model,
        output=frozenset(fields.output) if fields.output is not None else EditCall.output,
        include=frozenset(fields.include or ()),
        position_encoding=fields.position_encoding or EditCall.position_encoding,
        document_version=fields.document_version,
        session=fields.session,
        timeout_seconds=bound.timeout_seconds,
        stream=bool(fields.stream),
        warnings=(*unknown_fields_warnings(unknown_names), *bound.warnings),
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
        sampling=sampling_config(fields),
        stop=tuple(fields.stop or ()),
        max_tokens=fields.max_tokens,
    )
