"""Fields that chat and text completions share, beyond those of every route."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from lookahead_edit.config import SamplingConfig
from lookahead_edit.server.fields import (
    CONTENT_FORMS,
    Prediction,
    SamplingFields,
    SpeculationBody,
    sampling_config,
    within,
)
from lookahead_edit.server.validation import Fields, Integer, Text, describe
from lookahead_edit.text_lines import PositionEncoding
from lookahead_edit.types import InvalidInput

IncludePart = Literal["provenance"]

MAX_BIASED_TOKENS = 1024
MAX_BIAS = 100.0
SEEDS = 2**64


def _content_or_options(value: object) -> object:
    """A bare text, or its parts, is a prediction."""
    return {"content": value} if isinstance(value, (str, list)) else value


def _biases(value: object) -> object:
    if not isinstance(value, dict):
        raise InvalidInput(f"expected an object of token ids and biases, got {describe(value)}", code="invalid_type")
    if len(value) > MAX_BIASED_TOKENS:
        raise InvalidInput(f"expected at most {MAX_BIASED_TOKENS} tokens, got {len(value)}")
    biases: dict[int, float] = {}
    for token, bias in value.items():
        if not (token.isascii() and token.isdecimal() and len(token) <= 10):
            raise InvalidInput(f"expected token ids such as '50256', got {describe(token)}")
        if isinstance(bias, bool) or not isinstance(bias, (int, float)):
            raise InvalidInput(f"expected numbers as biases, got {describe(bias)}", code="invalid_type")
        if not -MAX_BIAS <= bias <= MAX_BIAS:
            raise InvalidInput(f"expected biases from {-MAX_BIAS:g} to {MAX_BIAS:g}, got {describe(bias)}")
        biases[int(token)] = float(bias)
    return biases


LogitBias = Annotated[
    dict[int, float],
    BeforeValidator(_biases),
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": "^[0-9]{1,10}$"},
            "additionalProperties": {"type": "number", "minimum": -MAX_BIAS, "maximum": MAX_BIAS},
            "maxProperties": MAX_BIASED_TOKENS,
        }
    ),
]


class SpeculationOptions(SpeculationBody):
    """How drafts are made, or, as other servers have it, another name for `prediction`."""

    type: Literal["content"] | None = None
    content: Prediction | None = None


Speculation = Annotated[
    SpeculationOptions,
    BeforeValidator(_content_or_options),
    WithJsonSchema({"anyOf": [*CONTENT_FORMS, {"$ref": "#/components/schemas/SpeculationOptions"}, {"type": "null"}]}),
]


class StreamOptions(Fields):
    include_usage: Annotated[bool | None, Field(description="Usage in a chunk of its own.")] = None


class GenerationFields(SamplingFields):
    """What chat and text completions have in common. `null` means absent."""

    model: Text | None = None
    seed: Annotated[Integer, within(-(SEEDS // 2), SEEDS - 1)] | None = None
    frequency_penalty: Annotated[float, within(-2, 2)] | None = None
    presence_penalty: Annotated[float, within(-2, 2)] | None = None
    repetition_penalty: Annotated[float, Field(json_schema_extra={"exclusiveMinimum": 0})] | None = None
    logit_bias: LogitBias | None = None
    prediction: Annotated[Prediction | None, Field(description="What the text may become.")] = None
    speculation: Speculation | None = None
    session: Annotated[Text | None, Field(description="A newer request of a session cancels the older one.")] = None
    timeout_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    include: Annotated[
        list[IncludePart] | None, Field(description="`provenance`: what the answer quotes word for word.")
    ] = None
    position_encoding: Annotated[PositionEncoding | None, Field(description="Of the quotes' offsets.")] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    def prediction_text(self) -> str | None:
        """Under either name; `prediction` is the one that counts."""
        if self.prediction is not None or self.speculation is None:
            return self.prediction
        return self.speculation.content

    def sampling_config(self) -> SamplingConfig:
        """Raises InvalidInput for a value out of its range."""
        seed = self.seed
        if seed is not None and -SEEDS // 2 <= seed < 0:
            seed += SEEDS
        penalties = ("frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias")
        given = {name: value for name in penalties if (value := getattr(self, name)) is not None}
        return sampling_config(self.model_copy(update={"seed": seed}), **given)


def unsupported(param: str, expected: str, got: object) -> InvalidInput:
    """A wish that would give a wrong answer if it were ignored."""
    return InvalidInput(f"expected {param} {expected}, got {describe(got)}", param=param, code="unsupported_parameter")
