"""From a request to what the model reads: prompt tokens, draft sources and the output's limit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from lookahead_edit.chat_tokens import encode_chat, shows_tools
from lookahead_edit.config import EditConfig
from lookahead_edit.edit_text import EditPrompt, build_edit_prompt
from lookahead_edit.long_texts import CHARACTERS_PER_TOKEN, LongTexts
from lookahead_edit.tasks import EditRequest, GenerateRequest, check_fields
from lookahead_edit.text_lines import BOM, split_lines, to_lf, with_final_newline
from lookahead_edit.text_region import Region
from lookahead_edit.text_unwritable import UnwritableCharacters, WrittenText
from lookahead_edit.types import (
    ContextLengthExceeded,
    IntArray,
    InvalidInput,
    Source,
    SourceKind,
    Tokenizer,
    never,
)

LINE_BEFORE = "a\n"  # some tokenizers treat the beginning of a text in a way of its own


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model reads, what may be copied from, and how much may be written."""

    tokens: IntArray  # int32[num_prompt_tokens]
    sources: tuple[Source, ...]
    max_tokens: int
    warnings: tuple[str, ...] = ()
    unused_prediction: str | None = None  # why the request's prediction is none of the sources


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionPrompt(Prompt):
    """An edit's: also the text around the model's answer."""

    region: Region
    edit_prompt: EditPrompt
    unwritable: UnwritableCharacters | None = None  # what the model's tokenizer loses of the region or the update


class PromptBuilder:
    """Builds prompts for one tokenizer and one context length. Threads may share it.

    Args:
        tokenizer: the model's.
        max_context_tokens: of prompt and answer together.
        vocab_size: token ids are below it.
        config: how an edit is asked for, and how much of other files is read.
        is_cancelled: asked between pieces of long texts.
        reads_sources: False, for a check: texts that are only drafted from are left out, since nothing depends on them.

    Errors: InvalidInput (no instruction, region outside the text), ContextLengthExceeded, RequestCancelled.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        max_context_tokens: int,
        vocab_size: int,
        config: EditConfig,
        is_cancelled: Callable[[], bool] = never,
        reads_sources: bool = True,
    ) -> None:
        self.tokenizer = tokenizer
        self.max_context_tokens = max_context_tokens
        self.vocab_size = vocab_size
        self.config = config
        self.reads_sources = reads_sources
        self._texts = LongTexts(tokenizer, max_context_tokens, is_cancelled)

    def for_edit(self, request: EditRequest) -> RegionPrompt:
        """The file, or a part of it, in a chat message, and the answer begun."""
        check_fields(request)
        update = request.update if (request.update or "").strip() else None
        if update is None and not (request.instruction or "").strip():
            expected, got = "an instruction", "an empty one"
            if request.instruction is None:
                expected, got = "an instruction or an update", "neither"
            raise InvalidInput(f"expected {expected}, got {got}", param="instruction", code="missing_field")
        region = Region.of(request.text, request.region)
        prompt = build_edit_prompt(
            region,
            num_context_lines=self.config.num_context_lines,
            instruction=request.instruction,
            update=update,
            path=request.path,
            language=request.language,
            file_first=self.config.file_first,
        )
        self._texts.require_room(prompt.user)
        tokens, file = self._encode_chat(prompt.messages, prompt.prefill, prompt.region_start, prompt.region_end)
        num_region_tokens = len(file.tokens)
        if len(tokens) + num_region_tokens >= self.max_context_tokens:
            raise ContextLengthExceeded(len(tokens), self.max_context_tokens, num_region_tokens)
        default = int(num_region_tokens * self.config.output_tokens_per_region_token) + self.config.extra_output_tokens
        others, warnings = self._draft_only(request)
        warnings = [*_ignored(request), *warnings]
        max_tokens = _limited(default if request.max_tokens is None else request.max_tokens, request)
        return RegionPrompt(
            tokens,
            (file, *others),
            max_tokens,
            tuple(warnings),
            region=region,
            edit_prompt=prompt,
            unwritable=self._unwritable(region, file, update),
        )

    def for_text(self, request: GenerateRequest) -> Prompt:
        """A text or tokens to go on with, or messages through the chat template."""
        check_fields(request)
        is_chat = bool(request.messages or request.prefill)
        given = [request.prompt is not None, request.prompt_tokens is not None, is_chat]
        if sum(given) != 1:
            got = "both" if any(given) else "neither"
            raise InvalidInput(f"expected a prompt or messages, got {got}", param="prompt", code="missing_field")
        warnings: list[str] = []
        if request.prompt is not None:
            self._texts.require_room(request.prompt)
            tokens = self._encode_start(request.prompt)
        elif request.prompt_tokens is not None:
            self._require_in_vocabulary(request.prompt_tokens, "prompt")
            tokens = np.asarray(request.prompt_tokens, dtype=np.int32)
        else:
            tools, warnings = self._tools_to_show(request)
            self._require_room_for_chat(request, tools)
            tokens = encode_chat(self.tokenizer, request.messages, request.prefill, tools)
        if not len(tokens) or request.prompt == "":
            raise InvalidInput("expected a prompt of at least one token, got an empty one", param="prompt")
        self._require_in_vocabulary(request.sampling.logit_bias, "logit_bias")
        sources, prediction_warnings, unused = self._predictions(request)
        rest = max(1, self.max_context_tokens - len(tokens))
        max_tokens = _limited(rest if request.max_tokens is None else request.max_tokens, request)
        return Prompt(tokens, sources, max_tokens, (*warnings, *prediction_warnings), unused)

    def _draft_only(self, request: EditRequest) -> tuple[list[Source], list[str]]:
        """The prediction and the other files, as far as they are read."""
        if not self.reads_sources:
            return [], []
        sources: list[Source] = []
        warnings: list[str] = []
        if request.prediction:
            text = with_final_newline(to_lf(request.prediction))
            prediction, warnings = self._prediction(text)
            sources.append(prediction)
        num_left = self.config.max_context_characters
        files = request.context[: self.config.max_context_files]
        for other in files:
            text = other.text[:num_left]
            num_left -= len(text)
            sources.append(Source(SourceKind.CONTEXT, self._texts.encode(to_lf(text)), path=other.path))
        num_given = sum(len(other.text) for other in request.context)
        if len(request.context) > len(files) or num_given > self.config.max_context_characters:
            warnings.append(
                f"context was cut to {self.config.max_context_files} files and {self.config.max_context_characters} "
                f"characters, of {len(request.context)} and {num_given}: less is drafted, the text is the same"
            )
        return sources, warnings

    def _prediction(self, text: str) -> tuple[Source, list[str]]:
        """No answer is longer than the context, and an index takes some 100 bytes a token."""
        tokens = self._texts.encode(text, self.max_context_tokens + 1)
        if len(tokens) <= self.max_context_tokens:
            return Source(SourceKind.PREDICTION, tokens), []
        warning = f"a prediction of {len(text)} characters was cut to {self.max_context_tokens} tokens, the context"
        return Source(SourceKind.PREDICTION, tokens[: self.max_context_tokens]), [warning]

    def _predictions(self, request: GenerateRequest) -> tuple[tuple[Source, ...], list[str], str | None]:
        """The sources, warnings, and why there is no source."""
        if request.prediction is None or not self.reads_sources:
            return (), [], None
        prediction, warnings = self._prediction(request.prediction)
        num_tokens = len(prediction.tokens)
        if num_tokens >= request.speculation.min_prediction_tokens:
            return (prediction,), warnings, None
        size = "1 token" if num_tokens == 1 else f"{num_tokens} tokens"
        unused = f"a prediction of {size} is too short to pay and was not used"
        return (), [unused], unused

    def _require_room_for_chat(self, request: GenerateRequest, tools: tuple[Mapping[str, Any], ...]) -> None:
        """A template may leave out parts of messages, so only what it makes of them can be counted."""
        num_characters = sum(len(str(message.get("content", ""))) for message in request.messages)
        if num_characters + len(request.prefill) > CHARACTERS_PER_TOKEN * self.max_context_tokens:
            with suppress(RecursionError):  # which is refused where the messages are encoded
                self._texts.require_room(self.tokenizer.render_chat(request.messages, request.prefill, tools))

    def _encode_start(self, text: str) -> IntArray:
        tokens = self.tokenizer.encode(text)
        start = np.asarray(self.tokenizer.start_token_ids, dtype=np.int32)
        is_there = np.array_equal(tokens[: len(start)], start)
        return tokens if is_there else np.concatenate([start, tokens])

    def _tools_to_show(self, request: GenerateRequest) -> tuple[tuple[Mapping[str, Any], ...], list[str]]:
        if not request.tools:
            return (), []
        if shows_tools(self.tokenizer, request.messages, request.tools):
            return request.tools, ["calls of tools come as text, in the model's own format"]
        if request.requires_tool:
            raise InvalidInput(
                "expected a tool_choice of none or auto, got a required tool: the model's chat template shows none",
                param="tool_choice",
                code="unsupported_parameter",
            )
        return (), ["ignored tools: the model's chat template shows none"]

    def _require_in_vocabulary(self, tokens: Collection[int], param: str) -> None:
        outside = [
            token for token in (min(tokens, default=0), max(tokens, default=0)) if not 0 <= token < self.vocab_size
        ]
        if outside:
            got = outside[0] if abs(outside[0]) < 10**10 else "a very large number"
            raise InvalidInput(
                f"expected {param} to hold token ids from 0 to {self.vocab_size - 1}, got {got}", param=param
            )

    def _source(self, kind: SourceKind, text: str, path: str | None = None) -> Source:
        return Source(kind, self.tokenizer.encode(text, parse_special=False), path=path)

    def _unwritable(self, region: Region, file: Source, update: str | None) -> UnwritableCharacters | None:
        view, decoded = region.model_view, self.tokenizer.decode(file.tokens)
        start = view.find(decoded)
        rest = view if start < 0 else view[:start] + view[start + len(decoded) :]
        # Blanks beside the region may share tokens with it, and a first one is dropped by some decoders.
        body = self._written(view) if rest.strip(" \t\n") else WrittenText(view, view)
        snippet = None if update is None else self._written(with_final_newline(to_lf(update.removeprefix(BOM))))
        if not body.is_lossy and (snippet is None or not snippet.is_lossy):
            return None
        return UnwritableCharacters(body, snippet, first_line=len(split_lines(region.before + "x")))

    def _written(self, text: str) -> WrittenText:
        written = self.tokenizer.decode(self.tokenizer.encode(LINE_BEFORE + text, parse_special=False))
        return WrittenText(text, written.removeprefix(LINE_BEFORE))

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


def _ignored(request: EditRequest) -> list[str]:
    """Instruction and update are both told to the model, but for one that says nothing."""
    if request.update is not None and not request.update.strip():
        return ["ignored an empty update: the instruction alone says what to change"]
    if request.update is not None and request.instruction is not None and not request.instruction.strip():
        return ["ignored an empty instruction: the update alone says what to change"]
    return []


def _limited(max_tokens: int, request: EditRequest | GenerateRequest) -> int:
    return max_tokens if request.max_tokens_limit is None else min(max_tokens, request.max_tokens_limit)
