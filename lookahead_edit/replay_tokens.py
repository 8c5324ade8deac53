"""From a logged trace to tokens: prompt, output and what may be copied from. Knows no drafter and no engine.

Prompt and output are tokenised apart, so a token that would have run across their border is two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lookahead_edit.traces import Trace
from lookahead_edit.types import IntArray, InvalidInput, Source, SourceKind, Tokenizer


@dataclass(frozen=True, slots=True)
class TokenTrace:
    """A trace as tokens, made once and replayed many times."""

    id: str
    prompt: IntArray  # int32[num_prompt_tokens]
    output: IntArray  # int32[num_output_tokens], without the end token
    sources: tuple[Source, ...]  # the file first, if there is one
    end_token_id: int


def tokenize_trace(trace: Trace, tokenizer: Tokenizer) -> TokenTrace:
    """Tokens of prompt, output and sources.

    The file is found among the prompt's tokens where its borders fall between tokens, at its last occurrence: behind
    the instruction. Else, or where the tokenizer gives no offsets, it is a source of its own.

    Raises:
        InvalidInput: prompt or output have no token.
    """
    prompt, file = _tokenize_prompt(trace, tokenizer)
    output = tokenizer.encode(trace.output, parse_special=False)
    for name, tokens in (("prompt", prompt), ("output", output)):
        if not len(tokens):
            raise InvalidInput(f"expected {name} of at least one token, got none", param="traces")
    others = tuple(
        Source(SourceKind.CONTEXT, tokenizer.encode(other.text, parse_special=False), path=other.path)
        for other in trace.context
    )
    if trace.prediction:
        others = (Source(SourceKind.PREDICTION, tokenizer.encode(trace.prediction, parse_special=False)), *others)
    sources = others if file is None else (file, *others)
    return TokenTrace(trace.id, prompt, output, sources, _end_token_id(tokenizer, prompt, output, sources))


def _tokenize_prompt(trace: Trace, tokenizer: Tokenizer) -> tuple[IntArray, Source | None]:
    source = trace.source
    if not source:
        return tokenizer.encode(trace.prompt), None
    start = trace.prompt.rfind(source)
    if start < 0:
        raise InvalidInput("expected source to stand verbatim in prompt, got one that doesn't", param="traces")
    end = start + len(source)
    if any(special in source for special in tokenizer.special_texts):
        # A file that spells out "<|im_end|>" is text to the model, as in `editor.py`.
        head, tail = tokenizer.encode(trace.prompt[:start]), tokenizer.encode(trace.prompt[end:])
        file = tokenizer.encode(source, parse_special=False)
        return np.concatenate([head, file, tail]), Source(SourceKind.FILE, file, prompt_start=len(head))
    tokens, offsets = tokenizer.encode_with_offsets(trace.prompt)
    inside = np.flatnonzero((offsets[:, 0] >= start) & (offsets[:, 1] <= end) & (offsets[:, 0] < offsets[:, 1]))
    if len(inside) and offsets[inside[0], 0] == start and offsets[inside[-1], 1] == end:
        first, last = int(inside[0]), int(inside[-1])
        return tokens, Source(SourceKind.FILE, tokens[first : last + 1], prompt_start=first)
    return tokens, Source(SourceKind.FILE, tokenizer.encode(source, parse_special=False))


def _end_token_id(tokenizer: Tokenizer, prompt: IntArray, output: IntArray, sources: Sequence[Source]) -> int:
    """The tokenizer's end token; one that is nowhere else where it has none, or where the output itself holds it."""
    for token in sorted(tokenizer.eos_token_ids):
        if token not in output:
            return token
    return 1 + max(int(tokens.max(initial=0)) for tokens in (prompt, output, *(source.tokens for source in sources)))
