"""What is asked of the editor and what comes back: plain records. Knows no model and no tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lookahead_edit.config import SamplingConfig, SpeculationConfig
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.text_changes import TextEdit, text_edits, unified_diff
from lookahead_edit.text_lines import PositionEncoding
from lookahead_edit.types import ContextFile, Round

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class EditRequest:
    """One edit. `region` is a pair of character offsets in `text`; None is the whole document."""

    text: str
    instruction: str | None = None
    update: str | None = None  # lazy snippet to merge, instead of an instruction
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
    """The edited document and what happened. On "length", `text` is the document with half a region: never write it."""

    before: str
    text: str
    finish_reason: FinishReason
    metrics: SpeculationMetrics
    path: str | None = None
    eol: str = "\n"  # the region's majority line end
    final_newline: bool = True
    fence_stripped: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return self.text != self.before

    @property
    def truncated(self) -> bool:
        return self.finish_reason == "length"

    def diff(self) -> str:
        """Unified diff that `git apply` and `patch -p1` turn into `text`."""
        return unified_diff(self.before, self.text, self.path)

    def edits(self, position_encoding: PositionEncoding = "utf-16") -> list[TextEdit]:
        """LSP TextEdits on the original; applied to it they give `text`."""
        return text_edits(self.before, self.text, position_encoding)
