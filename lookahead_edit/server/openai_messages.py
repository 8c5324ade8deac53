"""The messages of a chat as clients send them, and as chat templates want them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from lookahead_edit.server.fields import TEXT_PART
from lookahead_edit.server.validation import Fields, Text, describe
from lookahead_edit.types import InvalidInput

Role = Literal["system", "developer", "user", "assistant", "tool"]


def _message_text(value: object) -> object:
    """A string, or an array of parts as one string."""
    if isinstance(value, list):
        return "".join(map(_part_text, value))
    if not isinstance(value, str):
        raise InvalidInput(f"expected a string or an array of parts, got {describe(value)}", code="invalid_type")
    return value


def _part_text(part: object) -> str:
    if not isinstance(part, dict):
        raise InvalidInput(f"expected parts that are objects, got {describe(part)}", code="invalid_type")
    kind = "text" if part.get("type") is None else part["type"]
    if kind not in ("text", "refusal"):
        raise InvalidInput(f"expected parts of type 'text', got {describe(kind)}", code="unsupported_parameter")
    text = part.get(kind)
    if not isinstance(text, str):
        raise InvalidInput(f"expected a part with the string {kind!r}, got {describe(text)}", code="invalid_type")
    return text


def well_formed_json(value: Any) -> Any:
    """Values that nobody looks into but the chat template: they must still be text that can be encoded."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidInput("expected well-formed text, got a lone surrogate") from None
    except RecursionError:
        raise InvalidInput("expected values that nest less deep") from None
    return value


_REFUSAL_PART = {
    "type": "object",
    "properties": {"type": {"const": "refusal"}, "refusal": {"type": "string"}},
    "required": ["type", "refusal"],
}
JsonObject = Annotated[dict[str, Any], AfterValidator(well_formed_json)]
MessageText = Annotated[
    Text,
    BeforeValidator(_message_text),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"anyOf": [TEXT_PART, _REFUSAL_PART]}},
                {"type": "null"},
            ]
        }
    ),
]


class MessageBody(Fields):
    """One message. An assistant's last one is gone on with."""

    role: Role
    content: MessageText | None = None
    refusal: Text | None = None
    name: Text | None = None
    tool_calls: Annotated[list[JsonObject] | None, Field(description="Shown by templates that know tools.")] = None
    tool_call_id: Text | None = None


def template_messages(messages: Sequence[MessageBody]) -> tuple[tuple[dict[str, Any], ...], str]:
    """The messages for the chat template, and what the assistant's turn begins with."""
    *before, last = messages
    is_begun = last.role == "assistant" and not last.tool_calls and bool(last.content)
    shown = before if is_begun else messages
    return tuple(map(_template_message, shown)), (last.content or "") if is_begun else ""


def _template_message(message: MessageBody) -> dict[str, Any]:
    # Templates know no developers, whom OpenAI put in the place of the system.
    role = "system" if message.role == "developer" else message.role
    content = message.content if message.content is not None else message.refusal
    shown: dict[str, Any] = {"role": role, "content": content or ""}
    if message.tool_calls:
        shown["tool_calls"] = [_template_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        shown["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        shown["name"] = message.name
    return shown


def _template_call(call: dict[str, Any]) -> dict[str, Any]:
    """Templates write arguments as JSON themselves, so they want the object that clients send as a string."""
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = well_formed_json(json.loads(function["arguments"]))
    except (ValueError, RecursionError):
        return call
    if not isinstance(arguments, dict):
        return call
    return {**call, "function": {**function, "arguments": arguments}}
