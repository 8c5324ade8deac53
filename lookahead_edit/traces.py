"""Logged traffic: one prompt and what the model answered, one JSON object a line. Knows texts only.

A line: ``{"id", "prompt", "output", "source"?, "prediction"?, "context"?: [{"path", "text"}]}``. Further fields are
ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, BinaryIO

from lookahead_edit.text_json_lines import (
    MAX_LINE_BYTES,
    BadLine,
    invalid_line,
    json_type,
    parse_object,
    read_objects,
    refuse,
    require_unicode,
)
from lookahead_edit.types import ContextFile, InvalidInput


@dataclass(frozen=True, slots=True)
class Trace:
    """A prompt and its answer.

    `source` is the text being edited and stands verbatim in `prompt`; None where nothing is edited. `context` is
    draft-only text: other files of the workspace, that never enter the prompt. `prediction` is a guess of the answer,
    which the model never reads either.
    """

    id: str
    prompt: str
    output: str
    source: str | None = None
    context: tuple[ContextFile, ...] = ()
    prediction: str | None = None


def read_traces(
    file: BufferedReader, on_bad_line: Callable[[BadLine], None] = refuse, *, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[tuple[int, Trace]]:
    """Yields line numbers and traces, a line at a time; arguments and bounds are those of `read_objects`.

    Example:
        >>> list(read_traces(BufferedReader(BytesIO(b'{"id": "a", "prompt": "1 2", "output": "1"}'))))
        [(1, Trace(id='a', prompt='1 2', output='1', source=None, context=(), prediction=None))]
    """
    for line_number, document in read_objects(file, on_bad_line, max_line_bytes=max_line_bytes):
        try:
            trace = _trace(document)
        except InvalidInput as error:
            on_bad_line(BadLine(line_number, str(error)))
            continue
        yield line_number, trace


def parse_trace(line: bytes) -> Trace:
    """The trace of one line.

    Raises InvalidInput: not UTF-8, broken JSON, no object, a missing field or one of another type, empty prompt or
    output, half a surrogate pair, a source that doesn't stand in the prompt.
    """
    return _trace(parse_object(line))


def _trace(document: Mapping[str, Any]) -> Trace:
    context = document.get("context")
    if context is not None and not isinstance(context, list):
        raise invalid_line(f"expected context to be an array, got {json_type(context)}")
    trace = Trace(
        id=_text(document, "id"),
        prompt=_text(document, "prompt"),
        output=_text(document, "output"),
        source=None if document.get("source") is None else _text(document, "source"),
        context=tuple(_context_file(number, value) for number, value in enumerate(context or ())),
        prediction=None if document.get("prediction") is None else _text(document, "prediction"),
    )
    check_trace(trace)
    return trace


def check_trace(trace: Trace) -> None:
    """Raises InvalidInput for a trace that can't be replayed or written; what `parse_trace` checks beyond types."""
    texts = {"id": trace.id, "prompt": trace.prompt, "output": trace.output, "source": trace.source or ""}
    texts["prediction"] = trace.prediction or ""
    for number, file in enumerate(trace.context):
        texts |= {f"context[{number}].path": file.path, f"context[{number}].text": file.text}
    for name, text in texts.items():
        require_unicode(text, name)
    for name in ("prompt", "output"):
        if not texts[name]:
            raise invalid_line(f"expected {name} of at least one character, got an empty one")
    if texts["source"] not in trace.prompt:
        raise invalid_line("expected source to stand verbatim in prompt, got one that doesn't")


def format_trace(trace: Trace) -> bytes:
    """One line with its end, so that a single write appends it whole.

    Raises InvalidInput where `check_trace` does, so that what is written can be read again.
    """
    check_trace(trace)
    document: dict[str, Any] = {"id": trace.id, "prompt": trace.prompt, "output": trace.output}
    if trace.source is not None:
        document["source"] = trace.source
    if trace.prediction is not None:
        document["prediction"] = trace.prediction
    if trace.context:
        document["context"] = [{"path": file.path, "text": file.text} for file in trace.context]
    return json.dumps(document, ensure_ascii=False).encode("utf-8") + b"\n"


def write_traces(file: BinaryIO, traces: Iterable[Trace]) -> None:
    """Writes a line for each trace; InvalidInput as in `format_trace`."""
    for trace in traces:
        file.write(format_trace(trace))


def _context_file(number: int, value: object) -> ContextFile:
    if not isinstance(value, dict):
        raise invalid_line(f"expected context[{number}] to be an object, got {json_type(value)}")
    prefix = f"context[{number}]."
    return ContextFile(path=_text(value, "path", prefix), text=_text(value, "text", prefix))


def _text(document: Mapping[str, Any], name: str, prefix: str = "") -> str:
    if name not in document:
        raise invalid_line(f"expected a field {prefix}{name}, got none")
    value = document[name]
    if not isinstance(value, str):
        raise invalid_line(f"expected {prefix}{name} to be a string, got {json_type(value)}")
    return value
