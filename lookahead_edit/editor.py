"""Wires tokenizer, engine and edit_text into the edit task, and into plain generation; streams text."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, overload

from lookahead_edit.config import EditConfig, SamplingConfig, SpeculationConfig
from lookahead_edit.engine import Engine
from lookahead_edit.live import AnswerRule, AnswerText, LiveRequest
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.prompts import Prompt, PromptBuilder, RegionPrompt
from lookahead_edit.sequence import EndTokenRule, Sequence
from lookahead_edit.speculation import (
    NO_DRAFTER_MAKERS,
    DrafterMakers,
    check_speculation,
    cost_curve_of,
    make_drafter,
    make_policy,
)
from lookahead_edit.tasks import EditRequest, EditResult, FinishReason, GenerateRequest, GenerateResult, Progress
from lookahead_edit.text_answer import AnswerStream
from lookahead_edit.text_placeholders import placeholder_lines
from lookahead_edit.text_plain import PlainStream
from lookahead_edit.tokenizer import TextDecoder
from lookahead_edit.types import ContextLengthExceeded, Drafter, IntArray, Target, Tokenizer, never

__all__ = ["EditRequest", "EditResult", "Editor", "FinishReason", "GenerateRequest", "GenerateResult", "Progress"]

Result = TypeVar("Result")


class Editor:
    """Edits text with one target and one tokenizer.

    `check`, `prompt_tokens` and `open` may be called from any thread, also while the target works; whatever steps the
    target (`stream`, `edit`, `stream_generate`, `generate`) one request at a time.

    `drafters` are makers of drafters beside the usual ones, by the name that a request's speculation gives.

    Errors: InvalidInput (no instruction, region outside the text), ContextLengthExceeded, RequestCancelled.

    Example::

        editor = Editor(HfTarget(model), HfTokenizer(tokenizer))
        result = editor.edit(EditRequest(text, instruction="Rename total to price.", path="shop.py"))
        print(result.diff(), result.metrics.tokens_per_round)
    """

    def __init__(
        self,
        target: Target,
        tokenizer: Tokenizer,
        *,
        model_name: str = "model",
        config: EditConfig | None = None,
        drafters: DrafterMakers = NO_DRAFTER_MAKERS,
    ) -> None:
        self.target = target
        self.tokenizer = tokenizer
        self.model_name = model_name
        self.config = config or EditConfig()
        self.drafters = drafters
        self._known_pairs: dict[tuple[int, int], str] = {}  # of tokens, for all requests
        self._make_drafter(SpeculationConfig())  # compiles its kernels
        make_policy(SpeculationConfig())  # which may have kernels of its own

    def check_health(self) -> None:
        """Raises EngineUnavailable where the target can't take work at the moment."""

    def check(self, request: EditRequest | GenerateRequest, is_cancelled: Callable[[], bool] = never) -> None:
        """Raises what `open` would raise, without indexing anything.

        `is_cancelled` is asked while long texts are read: RequestCancelled, where it says so.
        """
        check_speculation(request.speculation, self.drafters)
        with self._saying_whose_limit():
            num_prompt_tokens = len(self._prompt(request, is_cancelled, reads_sources=False).tokens)
            max_context_tokens = self._max_context_tokens(request)
            if num_prompt_tokens >= max_context_tokens:
                raise ContextLengthExceeded(num_prompt_tokens, max_context_tokens)

    def prompt_tokens(self, request: EditRequest | GenerateRequest) -> IntArray:
        """int32[num_prompt_tokens], what the model reads: for other decoders of the same prompt, and for counting."""
        return self._prompt(request, reads_sources=False).tokens

    def prompt(self, request: EditRequest | GenerateRequest) -> Prompt:
        """The prompt's tokens, what may be copied from, and how much may be written."""
        return self._prompt(request)

    def _prompt(
        self,
        request: EditRequest | GenerateRequest,
        is_cancelled: Callable[[], bool] = never,
        *,
        reads_sources: bool = True,
    ) -> Prompt:
        builder = PromptBuilder(
            self.tokenizer,
            max_context_tokens=self._max_context_tokens(request),
            vocab_size=self.target.vocab_size,
            config=self.config,
            is_cancelled=is_cancelled,
            reads_sources=reads_sources,
        )
        return builder.for_edit(request) if isinstance(request, EditRequest) else builder.for_text(request)

    @overload
    def open(
        self, request: EditRequest, is_cancelled: Callable[[], bool] = ..., *, cache_group: str | None = ...
    ) -> LiveRequest[EditResult]: ...
    @overload
    def open(
        self, request: GenerateRequest, is_cancelled: Callable[[], bool] = ..., *, cache_group: str | None = ...
    ) -> LiveRequest[GenerateResult]: ...
    @overload
    def open(
        self,
        request: EditRequest | GenerateRequest,
        is_cancelled: Callable[[], bool] = ...,
        *,
        cache_group: str | None = ...,
    ) -> LiveRequest[EditResult] | LiveRequest[GenerateResult]: ...
    def open(
        self,
        request: EditRequest | GenerateRequest,
        is_cancelled: Callable[[], bool] = never,
        *,
        cache_group: str | None = None,
    ) -> LiveRequest[EditResult] | LiveRequest[GenerateResult]:
        """Reads the prompt into a drafter, so that an engine can step the request; the target isn't asked yet.

        Args:
            request: what is wanted.
            is_cancelled: asked between rounds, and while texts are read here (which raises RequestCancelled).
            cache_group: requests of one group may reuse what the target keeps of each other's prompts; None: of nobody.
        """
        with self._saying_whose_limit():
            if isinstance(request, EditRequest):
                return self._open_edit(request, is_cancelled, cache_group)
            return self._open_text(request, is_cancelled, cache_group)

    def stream(self, request: EditRequest, is_cancelled: Callable[[], bool] = never) -> Iterator[Progress | EditResult]:
        """Yields a Progress a round, then one EditResult. Closing the iterator frees the request."""
        return self._follow(request.speculation, self.open(request, is_cancelled))

    def edit(self, request: EditRequest, is_cancelled: Callable[[], bool] = never) -> EditResult:
        """The whole answer at once."""
        *_, result = self.stream(request, is_cancelled)
        assert isinstance(result, EditResult)
        return result

    def stream_generate(
        self, request: GenerateRequest, is_cancelled: Callable[[], bool] = never
    ) -> Iterator[Progress | GenerateResult]:
        """Plain generation, streamed the same way."""
        return self._follow(request.speculation, self.open(request, is_cancelled))

    def generate(self, request: GenerateRequest, is_cancelled: Callable[[], bool] = never) -> GenerateResult:
        """The whole text at once."""
        *_, result = self.stream_generate(request, is_cancelled)
        assert isinstance(result, GenerateResult)
        return result

    def _follow(self, speculation: SpeculationConfig, live: LiveRequest[Result]) -> Iterator[Progress | Result]:
        engine = Engine(self.target, make_policy(speculation, cost_curve_of(self.target)))
        for finished in engine.generate(live.sequence):
            yield live.take(finished)
        yield live.result()

    def _max_context_tokens(self, request: EditRequest | GenerateRequest) -> int:
        limit = self.target.max_context_tokens
        return limit if request.max_context_tokens is None else min(limit, request.max_context_tokens)

    @contextmanager
    def _saying_whose_limit(self) -> Iterator[None]:
        try:
            yield
        except ContextLengthExceeded as error:
            if error.max_context_tokens < self.target.max_context_tokens:
                error.model_context_tokens = self.target.max_context_tokens
            raise

    def _open_text(
        self, request: GenerateRequest, is_cancelled: Callable[[], bool], cache_group: str | None
    ) -> LiveRequest[GenerateResult]:
        prompt, answer = self._prompt(request, is_cancelled), PlainStream(request.stop)

        def conclude(finish_reason: FinishReason, metrics: SpeculationMetrics) -> GenerateResult:
            return GenerateResult(answer.text, finish_reason, metrics, prompt.warnings)

        return self._open(request, prompt, answer, is_cancelled, cache_group, conclude)

    def _open_edit(
        self, request: EditRequest, is_cancelled: Callable[[], bool], cache_group: str | None
    ) -> LiveRequest[EditResult]:
        prompt = self._prompt(request, is_cancelled)
        assert isinstance(prompt, RegionPrompt)
        answer, stop_tokens = prompt.edit_prompt.answer_stream(request.stop), self._stop_tokens(request)

        def conclude(finish_reason: FinishReason, metrics: SpeculationMetrics) -> EditResult:
            is_stopped = stop_tokens.has_stopped or answer.answer.is_stopped
            return _edit_result(request, prompt, answer, finish_reason, metrics, is_stopped=is_stopped)

        return self._open(request, prompt, answer, is_cancelled, cache_group, conclude, stop_tokens)

    def _open(
        self,
        request: EditRequest | GenerateRequest,
        prompt: Prompt,
        answer: AnswerText,
        is_cancelled: Callable[[], bool],
        cache_group: str | None,
        conclude: Callable[[FinishReason, SpeculationMetrics], Result],
        stop_tokens: EndTokenRule | None = None,
    ) -> LiveRequest[Result]:
        metrics = SpeculationMetrics(num_prompt_tokens=len(prompt.tokens))
        stop_tokens = stop_tokens or self._stop_tokens(request)
        metrics.disabled_reason = _disabled_reason(request.speculation)
        metrics.unused_prediction = prompt.unused_prediction
        decoder = TextDecoder(self.tokenizer.decode, int(prompt.tokens[-1]), self._known_pairs)
        text = AnswerRule(decoder, answer)
        started = time.perf_counter()
        sequence = Sequence(
            prompt.tokens,
            drafter=self._make_drafter(request.speculation, request.sampling),
            sampling=request.sampling,
            max_tokens=prompt.max_tokens,
            max_context_tokens=self._max_context_tokens(request),
            stop_rules=[EndTokenRule(self.tokenizer.eos_token_ids), stop_tokens, text],
            sources=prompt.sources,
            is_cancelled=is_cancelled,
            cache_group=cache_group,
            max_draft_tokens=request.speculation.draft_limit,
            is_draft_forced=request.speculation.policy == "fixed",
        )
        metrics.count_index_build(time.perf_counter() - started)
        return LiveRequest(sequence, text, metrics, conclude, prompt.sources)

    def _make_drafter(self, speculation: SpeculationConfig, sampling: SamplingConfig | None = None) -> Drafter:
        return make_drafter(speculation, self.tokenizer, sampling, self.drafters)

    def _stop_tokens(self, request: EditRequest | GenerateRequest) -> EndTokenRule:
        """Special tokens leave no text behind, so as stop strings they are looked for among the tokens.

        Those that end every answer are none: an answer that they end is whole.
        """
        special_texts = set(self.tokenizer.special_texts)
        tokens = frozenset(int(self.tokenizer.encode(stop)[0]) for stop in request.stop if stop in special_texts)
        return EndTokenRule(tokens - self.tokenizer.eos_token_ids)


def _disabled_reason(speculation: SpeculationConfig) -> str | None:
    """Why nothing can be drafted, whatever the texts are."""
    if not speculation.enabled:
        return "speculation is off for this request"
    if speculation.drafter == "none":
        return 'the drafter "none" never drafts'
    return "drafts of at most 0 tokens are allowed" if speculation.draft_limit == 0 else None


def _edit_result(
    request: EditRequest,
    prompt: RegionPrompt,
    answer: AnswerStream,
    finish_reason: FinishReason,
    metrics: SpeculationMetrics,
    *,
    is_stopped: bool,
) -> EditResult:
    region, text = prompt.region, answer.answer.text
    restored: list[str] = []
    if prompt.unwritable is not None:
        text, restored = prompt.unwritable.put_back(text, is_cut_off=is_stopped or finish_reason == "length")
    after = region.apply(text)
    placeholders = placeholder_lines(request.text, after)
    warnings = [*prompt.warnings, *restored]
    warnings += [f"line {line.number} stands for code that is missing: {line.text}" for line in placeholders]
    if region.body and not answer.answer.text:
        warnings.append("the answer is empty, so the text to be edited was removed")
    return EditResult(
        before=request.text,
        text=after,
        finish_reason=finish_reason,
        metrics=metrics,
        path=request.path,
        eol=region.line_end,
        final_newline=region.ends_with_newline,
        fence_stripped=answer.answer.fence_stripped,
        warnings=tuple(warnings),
        is_stopped=is_stopped,
    )
