"""What one request wants of the proposer: `vllm_xargs` in, a plain record out. Knows no batch.

Requests say it as ``"vllm_xargs": {"lookahead_prediction": "…"}`` (HTTP) or
``SamplingParams(extra_args={…})`` (Python). vLLM passes any such name through; values of other names are not ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lookahead_edit.types import IntArray, Source, SourceKind, Tokenizer

OPTIONS = ("enabled", "max_draft", "prediction", "context", "file")
MAX_NAME_CHARACTERS = 60  # of an unknown option, in the log
PREFIX = "lookahead_"
BETWEEN_TEXTS = -1  # in a list of tokens that holds several texts
MAX_TOKEN = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Wishes:
    """Of a request that says nothing, the defaults."""

    max_draft_tokens: int | None = None  # 0: no drafts for this request
    file: tuple[int, int] | None = None  # where the edited file stands in the prompt: first token, one after the last
    sources: tuple[Source, ...] = ()  # texts that don't stand in the prompt: a prediction, other files
    name: str | None = None  # what reports call the request


def read_wishes(extra_args: Mapping[str, Any] | None, tokenizer: Tokenizer | None) -> tuple[Wishes, list[str]]:
    """The wishes, and what of them can't be fulfilled: a bad value is left out, for drafts never change a text.

    Example:
        >>> read_wishes({"lookahead_enabled": 0, "lookahead_file": [3, 9]}, None)
        (Wishes(max_draft_tokens=0, file=(3, 9), sources=(), name=None), [])
    """
    given = {name: value for name, value in (extra_args or {}).items() if name.startswith(PREFIX)}
    problems: list[str] = []
    most: int | None = None
    file: tuple[int, int] | None = None
    sources: list[Source] = []
    name: str | None = None
    for option, value in given.items():
        match option.removeprefix(PREFIX), value:
            case "enabled", bool() | int() | float():
                most = most if value else 0
            case "max_draft", int() if value >= 0:
                most = value if most is None else min(most, value)
            case "file", [int() as start, int() as end] if 0 <= start < end:
                file = (start, end)
            case "name", str():
                name = value
            case ("prediction" | "context") as what, str() | list() | tuple():
                kind = SourceKind.PREDICTION if what == "prediction" else SourceKind.CONTEXT
                texts = _texts(value, tokenizer)
                if texts is None:
                    problems.append(f"expected {option} to be text that can be tokenized, or token ids")
                else:
                    sources += [Source(kind, tokens) for tokens in texts if len(tokens)]
            case what, _ if what not in OPTIONS:
                known = ", ".join(PREFIX + each for each in OPTIONS)
                problems.append(f"expected one of {known}, got {option[:MAX_NAME_CHARACTERS]}")
            case _:  # texts are nobody's business who reads a log
                got = value if isinstance(value, int | float) else type(value).__name__
                problems.append(f"expected a usable {option}, got {got}")
    return Wishes(most, file, tuple(sources), name), problems


def to_extra_args(wishes: Wishes) -> dict[str, Any]:
    """What `read_wishes` takes, with numbers and strings only."""
    extra_args: dict[str, Any] = {}
    if wishes.max_draft_tokens is not None:
        extra_args["lookahead_max_draft"] = wishes.max_draft_tokens
    if wishes.file is not None:
        extra_args["lookahead_file"] = list(wishes.file)
    if wishes.name is not None:
        extra_args["lookahead_name"] = wishes.name
    for option, kind in (("prediction", SourceKind.PREDICTION), ("context", SourceKind.CONTEXT)):
        texts = [source.tokens.tolist() for source in wishes.sources if source.kind == kind]
        if texts:
            extra_args[PREFIX + option] = [token for text in texts for token in (*text, BETWEEN_TEXTS)][:-1]
    return extra_args


def _texts(value: str | Sequence[Any], tokenizer: Tokenizer | None) -> list[IntArray] | None:
    if isinstance(value, str):
        return None if tokenizer is None else [tokenizer.encode(value, parse_special=False)]
    if value and all(isinstance(text, str) for text in value):
        return None if tokenizer is None else [tokenizer.encode(text, parse_special=False) for text in value]
    if not all(isinstance(token, int) and BETWEEN_TEXTS <= token <= MAX_TOKEN for token in value):
        return None
    tokens = np.asarray(value, dtype=np.int32)
    borders = np.flatnonzero(tokens == BETWEEN_TEXTS)
    return [text[text != BETWEEN_TEXTS] for text in np.split(tokens, borders)]
