"""Wires tokenizer, engine and edit_text into the edit task; streams text. (skeleton: the names are final)"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from lookahead_edit.config import EditConfig, SamplingConfig, SpeculationConfig
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.types import Round, Target, Tokenizer

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class ContextFile:
    """Another file of the workspace: drafts may be copied from it, it never enters the prompt."""

    path: str
    text: str


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


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """Plain generation from a prompt: `messages` go through the chat template, `prompt` is taken as it is."""

    prompt: str | None = None
    messages: tuple[dict[str, str], ...] = ()
    prediction: str | None = None
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """One round: the text it added (may be empty) and the live counters."""

    delta: str
    offset: int  # characters of the answer before the delta
    round: Round
    metrics: SpeculationMetrics


@dataclass(frozen=True, slots=True)
class GenerateResult:
    text: str
    finish_reason: FinishReason
    metrics: SpeculationMetrics


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
        """Unified diff that `git apply` and `patch -p1` take."""
        raise NotImplementedError

    def edits(self, position_encoding: str = "utf-16") -> list[dict[str, object]]:
        """LSP TextEdits on the original."""
        raise NotImplementedError


class Editor:
    """Edits text with one target and one tokenizer. Not thread-safe: one request at a time.

    Errors: InvalidInput (empty instruction, region outside the text), ContextLengthExceeded, RequestCancelled.
    """

    def __init__(
        self,
        target: Target,
        tokenizer: Tokenizer,
        *,
        model_name: str = "model",
        config: EditConfig | None = None,
    ) -> None:
        self.target = target
        self.tokenizer = tokenizer
        self.model_name = model_name
        self.config = config or EditConfig()

    def check(self, request: EditRequest | GenerateRequest) -> None:
        """Raises what `stream` would raise at once, without running the model (InvalidInput and kin)."""
        raise NotImplementedError

    def stream(
        self, request: EditRequest, is_cancelled: Callable[[], bool] = lambda: False
    ) -> Iterator[Progress | EditResult]:
        """Yields a Progress a round, then one EditResult. Closing the iterator frees the request."""
        raise NotImplementedError

    def edit(self, request: EditRequest, is_cancelled: Callable[[], bool] = lambda: False) -> EditResult:
        """The whole answer at once."""
        raise NotImplementedError

    def stream_generate(
        self, request: GenerateRequest, is_cancelled: Callable[[], bool] = lambda: False
    ) -> Iterator[Progress | GenerateResult]:
        """Plain generation, streamed the same way."""
        raise NotImplementedError
