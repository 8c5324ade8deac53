"""What is asked of the editor and what comes back: plain records. Knows no model and no tokenizer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal

from lookahead_edit.config import SamplingConfig, SpeculationConfig
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.text_changes import TextEdit, text_edits, unified_diff
from lookahead_edit.text_lines import PositionEncoding
from lookahead_edit.types import ContextFile, InvalidInput, Round

FinishReason = Literal["stop", "length"]
MAX_SHOWN_CHARACTERS = 60  # of a wrong value


@dataclass(frozen=True, slots=True)
class EditRequest:
    """One edit. `region` is a pair of character offsets in `text`; None is the whole document."""

    text: str
    instruction: str | None = None
    update: str | None = None  # lazy snippet to merge, instead of an instruction or with one about it
    region: tuple[int, int] | None = None
    path: str | None = None
    language: str | None = None
    context: tuple[ContextFile, ...] = ()
    prediction: str | None = None
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    # What a server allows, whatever is asked for: of the answer, and of prompt and answer together.
    max_tokens_limit: int | None = None
    max_context_tokens: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.path, os.PathLike):
            object.__setattr__(self, "path", os.fspath(self.path))


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """Plain generation: either `prompt` or `prompt_tokens` as they are, or a chat through the model's template.

    In `prompt`, special texts such as ``<|im_end|>`` are special tokens; in a chat they are plain characters.
    """

    prompt: str | None = None
    prompt_tokens: tuple[int, ...] | None = None
    messages: tuple[Mapping[str, Any], ...] = ()
    prefill: str = ""  # the assistant's turn begins with it; the answer is what follows
    tools: tuple[Mapping[str, Any], ...] = ()  # told to the model by templates that know tools
    requires_tool: bool = False  # refuse the request where the template knows none
    prediction: str | None = None
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    # What a server allows, whatever is asked for: of the answer, and of prompt and answer together.
    max_tokens_limit: int | None = None
    max_context_tokens: int | None = None


def check_fields(request: EditRequest | GenerateRequest) -> None:
    """Raises InvalidInput, which names the field, for a value of another kind than the field's.

    A text where several are expected would be taken for its letters, and what is no text fails somewhere deep inside.
    """
    for name in ("text", "prefill"):
        _require(isinstance(getattr(request, name, ""), str), name, "a text", request)
    for name in ("instruction", "update", "path", "language", "prediction", "prompt"):
        value = getattr(request, name, None)
        _require(value is None or isinstance(value, str), name, "a text or None", request)
    for name in ("max_tokens", "max_tokens_limit", "max_context_tokens"):
        value = getattr(request, name)
        _require(value is None or _is_number(value), name, "a whole number or None", request)
    _require(_all_are(request.stop, str), "stop", "a sequence of texts", request)
    if isinstance(request, EditRequest):
        region = request.region
        is_region = region is None or (_all_are(region, Integral) and len(region) == 2)
        _require(is_region, "region", "a pair of whole numbers or None", request)
        _require(_all_are(request.context, ContextFile), "context", "a sequence of ContextFile", request)
    else:
        tokens = request.prompt_tokens
        _require(tokens is None or _all_are(tokens, Integral), "prompt_tokens", "token ids or None", request)
        _require(_all_are(request.messages, Mapping), "messages", "a sequence of mappings", request)


def _require(condition: bool, name: str, expected: str, request: object) -> None:
    if not condition:
        got = briefly(getattr(request, name))
        raise InvalidInput(f"expected {name} to be {expected}, got {got}", param=name, code="invalid_type")


def briefly(value: object) -> str:
    """A wrong value, for a message of one line."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}…"


def _is_number(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _all_are(values: object, kind: type) -> bool:
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        return False
    return all(isinstance(value, kind) for value in values)


@dataclass(frozen=True, slots=True)
class Progress:
    """One round: the text it added (may be empty) and the live counters."""

    delta: str
    offset: int  # characters of the answer before the delta
    round: Round
    metrics: SpeculationMetrics
    # What each token of the round was decoded to, before anything was held back or left out of the delta; a character
    # of several tokens comes with the last of them.
    token_texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerateResult:
    """Generated text and what happened."""

    text: str
    finish_reason: FinishReason
    metrics: SpeculationMetrics
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EditResult:
    """The edited document and what happened. If `truncated`, `text` is the document with half a region: never write it.

    The answer was cut by the limit ("length"), or by one of the request's stop strings ("stop" and `is_stopped`).
    """

    before: str
    text: str
    finish_reason: FinishReason
    metrics: SpeculationMetrics
    path: str | None = None
    eol: str = "\n"  # the region's majority line end
    final_newline: bool = True
    fence_stripped: bool = False
    warnings: tuple[str, ...] = ()
    is_stopped: bool = False  # by a stop string, before the answer's closing fence

    @property
    def changed(self) -> bool:
        return self.text != self.before

    @property
    def truncated(self) -> bool:
        return self.finish_reason == "length" or self.is_stopped

    def diff(self) -> str:
        """Unified diff that `git apply` and `patch -p1` turn into `text`."""
        return unified_diff(self.before, self.text, self.path)

    def edits(self, position_encoding: PositionEncoding = "utf-16") -> list[TextEdit]:
        """LSP TextEdits on the original; applied to it they give `text`."""
        return text_edits(self.before, self.text, position_encoding)
