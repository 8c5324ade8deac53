"""Wires tokenizer, engine and edit_text into the edit task, and into plain generation; streams text."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from lookahead_edit.config import EditConfig, SamplingConfig, SpeculationConfig
from lookahead_edit.edit_text import EditPrompt, build_edit_prompt
from lookahead_edit.engine import Engine
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.sequence import EndTokenRule, Sequence
from lookahead_edit.speculation import check_speculation, cost_curve_of, make_drafter, make_policy
from lookahead_edit.text_answer import AnswerStream
from lookahead_edit.text_changes import TextEdit, text_edits, unified_diff
from lookahead_edit.text_lines import PositionEncoding, to_lf, with_final_newline
from lookahead_edit.text_placeholders import placeholder_lines
from lookahead_edit.text_plain import PlainStream
from lookahead_edit.text_region import Region
from lookahead_edit.tokenizer import TextDecoder
from lookahead_edit.types import (
    ContextFile,
    ContextLengthExceeded,
    IntArray,
    InvalidInput,
    RequestCancelled,
    Round,
    Source,
    SourceKind,
    Target,
    Tokenizer,
)

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
    """Generated text and what happened."""

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
        """Unified diff that `git apply` and `patch -p1` turn into `text`."""
        return unified_diff(self.before, self.text, self.path)

    def edits(self, position_encoding: PositionEncoding = "utf-16") -> list[TextEdit]:
        """LSP TextEdits on the original; applied to it they give `text`."""
        return text_edits(self.before, self.text, position_encoding)


class Editor:
    """Edits text with one target and one tokenizer. Not thread-safe: one request at a time.

    Errors: InvalidInput (no instruction, region outside the text), ContextLengthExceeded, RequestCancelled.

    Example::

        editor = Editor(HfTarget(model), HfTokenizer(tokenizer))
        result = editor.edit(EditRequest(text, instruction="Rename total to price.", path="shop.py"))
        print(result.diff(), result.metrics.tokens_per_round)
    """

    def __init__(
        self, target: Target, tokenizer: Tokenizer, *, model_name: str = "model", config: EditConfig | None = None
    ) -> None:
        self.target = target
        self.tokenizer = tokenizer
        self.model_name = model_name
        self.config = config or EditConfig()
        make_drafter(SpeculationConfig(), tokenizer)  # compiles its kernels
        make_policy(SpeculationConfig())  # which may have kernels of its own

    def check(self, request: EditRequest | GenerateRequest) -> None:
        """Raises what `stream` would raise at once, without running the model."""
        check_speculation(request.speculation)
        num_prompt_tokens = len(self.prompt_tokens(request))
        if num_prompt_tokens >= self.target.max_context_tokens:
            raise ContextLengthExceeded(num_prompt_tokens, self.target.max_context_tokens)

    def prompt_tokens(self, request: EditRequest | GenerateRequest) -> IntArray:
        """int32[num_prompt_tokens], what the model reads: for other decoders of the same prompt, and for counting."""
        prompt = self._edit_prompt(request)[1] if isinstance(request, EditRequest) else self._plain_prompt(request)
        return prompt.tokens

    def stream(
        self, request: EditRequest, is_cancelled: Callable[[], bool] = lambda: False
    ) -> Iterator[Progress | EditResult]:
        """Yields a Progress a round, then one EditResult. Closing the iterator frees the request."""
        region, prompt = self._edit_prompt(request)
        answer = prompt.edit_prompt.answer_stream(request.stop)
        finished = yield from self._run(request, prompt, answer, is_cancelled)
        after = region.apply(answer.answer.text)
        placeholders = placeholder_lines(request.text, after)
        warnings = [f"line {line.number} stands for code that is missing: {line.text}" for line in placeholders]
        if region.body and not answer.answer.text:
            warnings.append("the answer is empty, so the text to be edited was removed")
        yield EditResult(
            before=request.text,
            text=after,
            finish_reason=finished.finish_reason,
            metrics=finished.metrics,
            path=request.path,
            eol=region.line_end,
            final_newline=region.ends_with_newline,
            fence_stripped=answer.answer.fence_stripped,
            warnings=tuple(warnings),
        )

    def edit(self, request: EditRequest, is_cancelled: Callable[[], bool] = lambda: False) -> EditResult:
        """The whole answer at once."""
        *_, result = self.stream(request, is_cancelled)
        assert isinstance(result, EditResult)
        return result

    def stream_generate(
        self, request: GenerateRequest, is_cancelled: Callable[[], bool] = lambda: False
    ) -> Iterator[Progress | GenerateResult]:
        """Plain generation, streamed the same way."""
        answer = PlainStream(request.stop)
        finished = yield from self._run(request, self._plain_prompt(request), answer, is_cancelled)
        yield GenerateResult(answer.text, finished.finish_reason, finished.metrics)

    def generate(self, request: GenerateRequest, is_cancelled: Callable[[], bool] = lambda: False) -> GenerateResult:
        """The whole text at once."""
        *_, result = self.stream_generate(request, is_cancelled)
        assert isinstance(result, GenerateResult)
        return result

    def _run(
        self,
        request: EditRequest | GenerateRequest,
        prompt: _Prompt,
        answer: AnswerStream | PlainStream,
        is_cancelled: Callable[[], bool],
    ) -> Generator[Progress, None, _Finished]:
        speculation = request.speculation
        metrics = SpeculationMetrics(num_prompt_tokens=len(prompt.tokens))
        if not speculation.enabled:
            metrics.disabled_reason = "speculation is off for this request"
        text = _AnswerRule(TextDecoder(self.tokenizer.decode, int(prompt.tokens[-1])), answer)
        started = time.perf_counter()
        sequence = Sequence(
            prompt.tokens,
            drafter=make_drafter(speculation, self.tokenizer),
            sampling=request.sampling,
            max_tokens=prompt.max_tokens,
            max_context_tokens=self.target.max_context_tokens,
            stop_rules=[EndTokenRule(self.tokenizer.eos_token_ids), text],
            sources=prompt.sources,
            is_cancelled=is_cancelled,
        )
        metrics.count_index_build(time.perf_counter() - started)
        engine = Engine(self.target, make_policy(speculation, cost_curve_of(self.target)))
        num_given = 0
        for finished in engine.generate(sequence):
            metrics.add(finished)
            if sequence.finish_reason == "cancelled":
                raise RequestCancelled("the request was cancelled")
            if sequence.is_finished:
                text.finish()
            metrics.max_index_bytes = max(metrics.max_index_bytes, sequence.drafter.num_index_bytes)
            delta = text.take()
            yield Progress(delta, num_given, finished, metrics)
            num_given += len(delta)
        return _Finished("length" if sequence.finish_reason == "length" else "stop", metrics)

    def _edit_prompt(self, request: EditRequest) -> tuple[Region, _EditTokens]:
        if request.update is None and not (request.instruction or "").strip():
            expected, got = "an instruction", "an empty one"
            if request.instruction is None:
                expected, got = "an instruction or an update", "neither"
            raise InvalidInput(f"expected {expected}, got {got}", param="instruction", code="missing_field")
        region = Region.of(request.text, request.region)
        prompt = build_edit_prompt(
            region,
            num_context_lines=self.config.num_context_lines,
            instruction=request.instruction,
            update=request.update,
            path=request.path,
            language=request.language,
        )
        tokens, file = self._encode_chat(prompt.messages, prompt.prefill, prompt.region_start, prompt.region_end)
        num_region_tokens = len(file.tokens)
        if len(tokens) + num_region_tokens >= self.target.max_context_tokens:
            raise ContextLengthExceeded(len(tokens), self.target.max_context_tokens, num_region_tokens)
        default = int(num_region_tokens * self.config.output_tokens_per_region_token) + self.config.extra_output_tokens
        others = [self._source(SourceKind.CONTEXT, to_lf(other.text), other.path) for other in request.context]
        if request.prediction:
            others.insert(0, self._source(SourceKind.PREDICTION, with_final_newline(to_lf(request.prediction))))
        max_tokens = default if request.max_tokens is None else request.max_tokens
        return region, _EditTokens(tokens, (file, *others), max_tokens, prompt)

    def _plain_prompt(self, request: GenerateRequest) -> _Prompt:
        if (request.prompt is None) == (not request.messages):
            got = "neither" if request.prompt is None else "both"
            raise InvalidInput(f"expected a prompt or messages, got {got}", param="prompt", code="missing_field")
        text = request.prompt
        if text is None:
            text = self.tokenizer.render_chat(request.messages, prefill="")
        tokens = self.tokenizer.encode(text)
        if not len(tokens):
            raise InvalidInput("expected a prompt of at least one token, got an empty one", param="prompt")
        sources = [self._source(SourceKind.PREDICTION, request.prediction)] if request.prediction else []
        rest = max(1, self.target.max_context_tokens - len(tokens))
        return _Prompt(tokens, tuple(sources), rest if request.max_tokens is None else request.max_tokens)

    def _source(self, kind: SourceKind, text: str, path: str | None = None) -> Source:
        return Source(kind, self.tokenizer.encode(text, parse_special=False), path=path)

    def _encode_chat(
        self, messages: list[dict[str, str]], prefill: str, region_start: int, region_end: int
    ) -> tuple[IntArray, Source]:
        """Prompt tokens, and the region among them; both offsets count characters of the user's message."""
        user = messages[-1]["content"]
        rendered = self.tokenizer.render_chat(messages, prefill)
        user_start = rendered.rfind(user)
        if user_start < 0:
            # Many templates strip messages: look for the rest, and count from there.
            num_stripped = len(user) - len(user.lstrip())
            user, region_start, region_end = user.strip(), region_start - num_stripped, region_end - num_stripped
            user_start = rendered.rfind(user)
        if user_start < 0:
            # The template changed the message in some other way: the region is a text of its own then.
            return self.tokenizer.encode(rendered), self._source(SourceKind.FILE, user[region_start:region_end])
        has_special_text = any(special in user for special in self.tokenizer.special_texts)
        if has_special_text:
            # A file that spells out "<|im_end|>" must not end the turn.
            head = self.tokenizer.encode(rendered[:user_start])
            body, offsets = self.tokenizer.encode_with_offsets(user, parse_special=False)
            tail = self.tokenizer.encode(rendered[user_start + len(user) :])
            tokens, num_before, origin = np.concatenate([head, body, tail]), len(head), 0
        else:
            tokens, offsets = self.tokenizer.encode_with_offsets(rendered)
            num_before, origin = 0, user_start
        inside = np.flatnonzero((offsets[:, 0] >= origin + region_start) & (offsets[:, 1] <= origin + region_end))
        if not len(inside):
            return tokens, self._source(SourceKind.FILE, user[region_start:region_end])
        start, end = num_before + int(inside[0]), num_before + int(inside[-1]) + 1
        return tokens, Source(SourceKind.FILE, tokens[start:end], prompt_start=start)


@dataclass(frozen=True, slots=True)
class _Prompt:
    tokens: IntArray  # int32[num_prompt_tokens]
    sources: tuple[Source, ...]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class _EditTokens(_Prompt):
    edit_prompt: EditPrompt


@dataclass(frozen=True, slots=True)
class _Finished:
    finish_reason: FinishReason
    metrics: SpeculationMetrics


class _AnswerRule:
    """Feeds committed tokens to the cleaner, and stops where the answer is closed."""

    def __init__(self, decoder: TextDecoder, answer: AnswerStream | PlainStream) -> None:
        self._decoder = decoder
        self._answer = answer
        self._pending: list[str] = []

    def should_stop(self, tokens: IntArray, num_prompt_tokens: int) -> bool:
        self._pending.append(self._answer.push(self._decoder.push(int(tokens[-1]))))
        return self._answer.is_finished

    def finish(self) -> None:
        self._pending.append(self._answer.push(self._decoder.finish()))
        self._pending.append(self._answer.finish())

    def take(self) -> str:
        text, self._pending = "".join(self._pending), []
        return text
