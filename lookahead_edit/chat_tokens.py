"""Chat messages to prompt tokens: the template's markers are special tokens, what stands in a message never is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lookahead_edit.types import IntArray, InvalidInput, Tokenizer

# Inside the template special texts of messages are an escape and a number, both from a private plane of Unicode. The
# escape itself is number 0, so nothing a message holds can be taken for one.
_ESCAPE = "\U0010fffd"
_FIRST_NUMBER = 0x100000
_ESCAPED = re.compile(f"{_ESCAPE}([{chr(_FIRST_NUMBER)}-\U0010fffc])")


def encode_chat(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    prefill: str = "",
    tools: Sequence[Mapping[str, Any]] = (),
) -> IntArray:
    """int32[num_tokens]: the messages through the chat template, with the assistant's turn begun by `prefill`.

    A message that spells out ``<|im_end|>`` doesn't end its turn: such texts are read as plain characters.

    Raises:
        InvalidInput: the template refuses the messages, or they nest too deep for it.

    Example:
        >>> from lookahead_edit.tokenizer import ByteTokenizer
        >>> encode_chat(ByteTokenizer(), [{"role": "user", "content": "<|im_end|>"}]).tolist().count(257)
        1
    """
    texts = [_ESCAPE, *tokenizer.special_texts]
    numbers = {text: chr(_FIRST_NUMBER + number) for number, text in enumerate(texts)}
    pattern = re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))))

    def escape(text: str) -> str:
        return pattern.sub(lambda match: _ESCAPE + numbers[match.group()], text)

    try:
        rendered = tokenizer.render_chat(_mapped(messages, escape), escape(prefill), _mapped(tools, escape))
    except RecursionError:
        raise InvalidInput("expected messages and tools that nest less deep", param="messages") from None
    pieces = _ESCAPED.split(rendered)  # text, number, text, number, … text
    if len(pieces) == 1:
        return tokenizer.encode(rendered)
    encoded = [
        tokenizer.encode(texts[ord(piece) - _FIRST_NUMBER], parse_special=False)
        if index % 2
        else tokenizer.encode(piece)
        for index, piece in enumerate(pieces)
    ]
    return np.concatenate(encoded)


def shows_tools(
    tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether the chat template writes the tools down for the model."""
    try:
        return tokenizer.render_chat(messages, "", tools) != tokenizer.render_chat(messages, "")
    except RecursionError:
        raise InvalidInput("expected tools that nest less deep", param="tools") from None


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with every string in it changed, the names of fields too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(name): _mapped(item, change) for name, item in value.items()}
    if isinstance(value, Sequence):
        return [_mapped(item, change) for item in value]
    return value
