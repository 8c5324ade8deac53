"""From a request to what the model reads: prompt tokens, draft sources and the output's limit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lookahead_edit.chat_tokens import encode_chat, shows_tools
from lookahead_edit.config import EditConfig
from lookahead_edit.edit_text import EditPrompt, build_edit_prompt
from lookahead_edit.tasks import EditRequest, GenerateRequest
from lookahead_edit.text_lines import to_lf, with_final_newline
from lookahead_edit.text_region import Region
from lookahead_edit.types import (
    ContextLengthExceeded,
    IntArray,
    InvalidInput,
    Source,
    SourceKind,
    Tokenizer,
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model reads, what may be copied from, and how much may be written."""

    tokens: IntArray  # int32[num_prompt_tokens]
    sources: tuple[Source, ...]
    max_tokens: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionPrompt(Prompt):
    """An edit's: also the text around the model's answer."""

    region: Region
    edit_prompt: EditPrompt


class PromptBuilder:
    """Builds prompts for one tokenizer and one context length. Threads may share it.

    Errors: InvalidInput (no instruction, region outside the text), ContextLengthExceeded.
    """

    def __init__(self, tokenizer: Tokenizer, *, max_context_tokens: int, vocab_size: int, config: EditConfig) -> None:
        self.tokenizer = tokenizer
        self.max_context_tokens = max_context_tokens
        self.vocab_size = vocab_size
        self.config = config

    def for_edit(self, request: EditRequest) -> RegionPrompt:
        """The file, or a part of it, in a chat message, and the answer begun."""
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
        if len(tokens) + num_region_tokens >= self.max_context_tokens:
            raise ContextLengthExceeded(len(tokens), self.max_context_tokens, num_region_tokens)
        default = int(num_region_tokens * self.config.output_tokens_per_region_token) + self.config.extra_output_tokens
        others = [self._source(SourceKind.CONTEXT, to_lf(other.text), other.path) for other in request.context]
        if request.prediction:
            others.insert(0, self._source(SourceKind.PREDICTION, with_final_newline(to_lf(request.prediction))))
        max_tokens = _limited(default if request.max_tokens is None else request.max_tokens, request)
        return RegionPrompt(tokens, (file, *others), max_tokens, region=region, edit_prompt=prompt)

    def for_text(self, request: GenerateRequest) -> Prompt:
        """A text or tokens to go on with, or messages through the chat template."""
        is_chat = bool(request.messages or request.prefill)
        given = [request.prompt is not None, request.prompt_tokens is not None, is_chat]
        if sum(given) != 1:
            got = "both" if any(given) else "neither"
            raise InvalidInput(f"expected a prompt or messages, got {got}", param="prompt", code="missing_field")
        warnings: list[str] = []
        if request.prompt is not None:
            tokens = self._encode_start(request.prompt)
        elif request.prompt_tokens is not None:
            self._require_in_vocabulary(request.prompt_tokens, "prompt")
            tokens = np.asarray(request.prompt_tokens, dtype=np.int32)
        else:
            tools, warnings = self._tools_to_show(request)
            tokens = encode_chat(self.tokenizer, request.messages, request.prefill, tools)
        if not len(tokens) or request.prompt == "":
            raise InvalidInput("expected a prompt of at least one token, got an empty one", param="prompt")
        self._require_in_vocabulary(request.sampling.logit_bias, "logit_bias")
        sources, prediction_warnings = self._predictions(request)
        rest = max(1, self.max_context_tokens - len(tokens))
        max_tokens = _limited(rest if request.max_tokens is None else request.max_tokens, request)
        return Prompt(tokens, sources, max_tokens, (*warnings, *prediction_warnings))

    def _predictions(self, request: GenerateRequest) -> tuple[tuple[Source, ...], list[str]]:
        if not request.prediction:
            return (), []
        tokens = self._source(SourceKind.PREDICTION, request.prediction).tokens
        if len(tokens) < request.speculation.min_prediction_tokens:
            return (), [f"a prediction of {len(tokens)} tokens is too short to pay and was not used"]
        warnings = []
        if len(tokens) > self.max_context_tokens:  # no answer is longer, and an index takes some 100 bytes a token
            warnings.append(f"a prediction of {len(tokens)} tokens was cut to {self.max_context_tokens}, the context")
        return (Source(SourceKind.PREDICTION, tokens[: self.max_context_tokens]),), warnings

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


def _limited(max_tokens: int, request: EditRequest | GenerateRequest) -> int:
    return max_tokens if request.max_tokens_limit is None else min(max_tokens, request.max_tokens_limit)
