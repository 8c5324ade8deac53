"""What a client may send to /v1/chat/completions and /v1/completions, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from lookahead_edit.config import RouteConfig
from lookahead_edit.editor import Editor, GenerateRequest
from lookahead_edit.server.fields import Count, require_one_answer, within
from lookahead_edit.server.openai_fields import GenerationFields, unsupported
from lookahead_edit.server.openai_messages import JsonObject, MessageBody, template_messages
from lookahead_edit.server.routing import Entry, Routing, bind, require_room
from lookahead_edit.server.validation import (
    Integer,
    Text,
    describe,
    parse_object,
    unknown_fields_warnings,
    validate,
    whole,
)
from lookahead_edit.text_lines import PositionEncoding
from lookahead_edit.types import ContextLengthExceeded, InvalidInput, never

TOOL_CHOICES = ("none", "auto", "required")


def _prompt(value: object) -> object:
    """A string, or a list of token ids; a list of one such stands for it."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], (str, list)):
        value = value[0]
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise InvalidInput(f"expected a string or an array of token ids, got {describe(value)}", code="invalid_type")
    if not value:
        raise InvalidInput("expected at least one token id, got an empty array")
    if set(map(type, value)) == {int}:
        return value
    if any(isinstance(item, (str, list)) for item in value):
        raise InvalidInput(f"expected one prompt, got {len(value)}", code="unsupported_parameter")
    tokens = [whole(item) for item in value]
    for token in tokens:
        if isinstance(token, bool) or not isinstance(token, int):
            raise InvalidInput(f"expected token ids to be integers, got {describe(token)}", code="invalid_type")
    return tokens


def _tool_choice(value: object) -> object:
    if isinstance(value, str) and value not in TOOL_CHOICES:
        raise InvalidInput(f"expected one of {', '.join(TOOL_CHOICES)} or an object, got {describe(value)}")
    if not isinstance(value, (str, dict)):
        raise InvalidInput(f"expected a string or an object, got {describe(value)}", code="invalid_type")
    return value


Prompt = Annotated[
    Text | list[int],
    BeforeValidator(_prompt),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "maxItems": 1},
                {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
            ]
        }
    ),
]
ToolChoice = Annotated[
    Any,
    BeforeValidator(_tool_choice),
    WithJsonSchema({"anyOf": [{"enum": [*TOOL_CHOICES]}, {"type": "object"}, {"type": "null"}]}),
]
_RESPONSE_FORMAT = WithJsonSchema(
    {"type": "object", "properties": {"type": {"enum": ["text", "json_object"], "default": "text"}}}
)


def _only(value: object) -> WithJsonSchema:
    """For what other servers can do, and clients send with this value where they don't want it."""
    return WithJsonSchema({"enum": [value]})


class ChatBody(GenerationFields):
    """A chat to go on with. `null` means absent."""

    messages: Annotated[list[MessageBody], Field(min_length=1)]
    max_completion_tokens: Annotated[Count, within(1)] | None = None
    tools: Annotated[list[JsonObject] | None, Field(description="For templates that know tools.")] = None
    tool_choice: ToolChoice = None
    response_format: Annotated[JsonObject, _RESPONSE_FORMAT] | None = None
    logprobs: Annotated[bool, _only(False)] | None = None
    top_logprobs: Annotated[Integer, _only(0)] | None = None


class CompletionBody(GenerationFields):
    """A text to go on with. `null` means absent."""

    prompt: Annotated[Prompt, Field(description="Special tokens may be spelled out, as in rendered ChatML.")]
    max_completion_tokens: Annotated[Count, within(1)] | None = None
    suffix: Annotated[Text, _only("")] | None = None
    echo: Annotated[bool, _only(False)] | None = None
    best_of: Annotated[Count, _only(1)] | None = None
    logprobs: Annotated[Integer | bool, _only(False)] | None = None


@dataclass(frozen=True)
class GenerationCall:
    """A checked request: what the editor gets, and how the answer is wanted."""

    request: GenerateRequest
    route: RouteConfig
    model_name: str  # as the request has it, or the loaded one's
    session: str | None = None
    timeout_seconds: float | None = None
    has_provenance: bool = False
    position_encoding: PositionEncoding = "utf-16"
    stream: bool = False
    include_usage: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Place:
    """Where a request came in, and who will answer it."""

    editor: Editor
    routing: Routing
    entry: Entry
    is_stopped: Callable[[], bool]


def parse_chat(
    body: bytes, editor: Editor, routing: Routing, entry: Entry, is_stopped: Callable[[], bool] = never
) -> GenerationCall:
    """The request of a body, checked down to the prompt's length. Slow for long prompts: not for the event loop.

    Raises InvalidInput, ContextLengthExceeded, HttpError where the model is unknown, or RequestCancelled soon after
    `is_stopped` says that nobody waits for it.
    """
    fields, unknown_names = validate(ChatBody, parse_object(body))
    if fields.logprobs:
        raise unsupported("logprobs", "to be false", fields.logprobs)
    if fields.top_logprobs:
        raise unsupported("top_logprobs", "to be 0", fields.top_logprobs)
    warnings = [*unknown_fields_warnings(unknown_names), *_response_format_warnings(fields.response_format)]
    tools, requires_tool = _tools(fields)
    messages, prefill = template_messages(fields.messages)
    request = GenerateRequest(messages=messages, prefill=prefill, tools=tools, requires_tool=requires_tool)
    place = _Place(editor, routing, entry, is_stopped)
    return _call(fields, request, fields.max_completion_tokens, "messages", warnings, place)


def parse_completion(
    body: bytes, editor: Editor, routing: Routing, entry: Entry, is_stopped: Callable[[], bool] = never
) -> GenerationCall:
    """The same for a text to go on with."""
    fields, unknown_names = validate(CompletionBody, parse_object(body))
    if fields.suffix:
        raise unsupported("suffix", "to be empty", fields.suffix)
    if fields.echo:
        raise unsupported("echo", "to be false", fields.echo)
    if fields.best_of is not None and fields.best_of > 1:
        raise unsupported("best_of", "to be 1", fields.best_of)
    if fields.logprobs is not None and fields.logprobs is not False:
        raise unsupported("logprobs", "to be false", fields.logprobs)
    if isinstance(fields.prompt, str):
        request = GenerateRequest(prompt=fields.prompt)
    else:
        request = GenerateRequest(prompt_tokens=tuple(fields.prompt))
    warnings = unknown_fields_warnings(unknown_names)
    place = _Place(editor, routing, entry, is_stopped)
    return _call(fields, request, fields.max_completion_tokens, "prompt", warnings, place)


def _call(
    fields: GenerationFields,
    request: GenerateRequest,
    max_completion_tokens: int | None,
    prompt_param: str,
    warnings: list[str],
    place: _Place,
) -> GenerationCall:
    require_one_answer(fields)
    route = place.routing.choose(place.entry, fields.model, place.editor.model_name)
    limits = [limit for limit in (fields.max_tokens, max_completion_tokens) if limit is not None]
    request = replace(
        request,
        prediction=fields.prediction_text(),
        sampling=fields.sampling_config(),
        stop=tuple(fields.stop or ()),
        max_tokens=min(limits, default=None),
    )
    timeout_seconds = fields.timeout_ms / 1000 if fields.timeout_ms is not None else None
    bound = bind(route, request, fields.speculation, timeout_seconds=timeout_seconds)
    try:
        require_room(bound, route, place.editor, place.is_stopped)
    except ContextLengthExceeded as error:
        error.param = prompt_param
        raise
    return GenerationCall(
        request=bound.request,
        route=route,
        model_name=place.editor.model_name if fields.model is None else fields.model,
        session=fields.session,
        timeout_seconds=bound.timeout_seconds,
        has_provenance="provenance" in (fields.include or ()),
        position_encoding=fields.position_encoding or GenerationCall.position_encoding,
        stream=bool(fields.stream),
        include_usage=bool(fields.stream_options and fields.stream_options.include_usage),
        warnings=(*warnings, *bound.warnings),
    )


def _response_format_warnings(response_format: dict[str, Any] | None) -> list[str]:
    """A schema that isn't kept would be a wrong answer; JSON has to be asked for in the messages anyway."""
    kind = (response_format or {}).get("type", "text")
    if kind == "json_object":
        return ["response_format json_object is not enforced: the messages must ask for JSON"]
    if kind != "text":
        raise unsupported("response_format", "of type 'text'", kind)
    return []


def _tools(fields: ChatBody) -> tuple[tuple[dict[str, Any], ...], bool]:
    """The tools to show, and whether one must be called."""
    choice = fields.tool_choice
    requires_tool = choice == "required" or (isinstance(choice, dict) and choice.get("type") != "allowed_tools")
    if requires_tool and not fields.tools:
        raise InvalidInput("expected tools along with a tool_choice that requires one, got none", param="tools")
    return () if choice == "none" else tuple(fields.tools or ()), requires_tool
