"""Logged traffic: one prompt and what the model answered, one JSON object a line. Knows texts only.

A line: ``{"id", "prompt", "output", "source"?, "context"?: [{"path", "text"}]}``. Further fields are ignored.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, BinaryIO

from lookahead_edit.types import ContextFile, InvalidInput

# The longest line that is read, its end not counted: a bound on memory, and far above any model's context.
MAX_LINE_BYTES = 64 * 1024 * 1024
PIECE_BYTES = 1024 * 1024
GZIP_MAGIC = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Trace:
    """A prompt and its answer.

    `source` is the text being edited and stands verbatim in `prompt`; None where nothing is edited. `context` is
    draft-only text: other files of the workspace, that never enter the prompt.
    """

    id: str
    prompt: str
    output: str
    source: str | None = None
    context: tuple[ContextFile, ...] = ()


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that holds no trace, and why; lines count from 1, blank ones included."""

    line_number: int
    message: str  # one line, "expected X, got Y"

    def __str__(self) -> str:
        return f"line {self.line_number}: {self.message}"


def refuse(bad_line: BadLine) -> None:
    """Raises InvalidInput for the first bad line: what `read_traces` does unless told otherwise."""
    raise InvalidInput(str(bad_line), param="traces", code="invalid_json")


def read_traces(
    file: BufferedReader, on_bad_line: Callable[[BadLine], None] = refuse, *, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[tuple[int, Trace]]:
    """Yields line numbers and traces, a line at a time: memory is bounded by the longest line, however long the file.

    Args:
        file: ``open(path, "rb")`` or ``sys.stdin.buffer``; plain or, by its first bytes, gzip.
        on_bad_line: hears of every line that holds no trace, then reading goes on with the next. Blank lines are none.
        max_line_bytes: a longer line is a bad one, and is never held as a whole.

    Example:
        >>> list(read_traces(BufferedReader(BytesIO(b'{"id": "a", "prompt": "1 2", "output": "1"}'))))
        [(1, Trace(id='a', prompt='1 2', output='1', source=None, context=()))]
    """
    line_number = 0
    lines: BufferedReader | gzip.GzipFile = file
    while True:
        line_number += 1
        try:
            if line_number == 1 and file.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC):
                lines = gzip.GzipFile(fileobj=file)
            line = _read_line(lines, max_line_bytes)
            if not line:
                return
            if line_number == 1:
                line = line.removeprefix(BOM)
            trace = None if line.isspace() else parse_trace(line)
        except InvalidInput as error:
            on_bad_line(BadLine(line_number, str(error)))
            continue
        except (OSError, EOFError, zlib.error) as error:
            on_bad_line(BadLine(line_number, f"expected more of the file, got an error: {error}"))
            return
        if trace is not None:
            yield line_number, trace


def parse_trace(line: bytes) -> Trace:
    """The trace of one line.

    Raises InvalidInput: too long, not UTF-8, broken JSON, no object, a missing field or one of another type, empty
    prompt or output, half a surrogate pair, a source that doesn't stand in the prompt.
    """
    try:
        document = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _invalid(f"expected UTF-8, got the byte 0x{line[error.start]:02x} at offset {error.start}") from None
    except json.JSONDecodeError as error:
        raise _invalid(f"expected JSON, got an error at character {error.pos + 1} ({error.msg})") from None
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, nesting of thousands of levels
        raise _invalid(f"expected JSON, got {type(error).__name__}") from None
    if not isinstance(document, dict):
        raise _invalid(f"expected an object, got {_type_name(document)}")
    context = document.get("context")
    if context is not None and not isinstance(context, list):
        raise _invalid(f"expected context to be an array, got {_type_name(context)}")
    trace = Trace(
        id=_text(document, "id"),
        prompt=_text(document, "prompt"),
        output=_text(document, "output"),
        source=None if document.get("source") is None else _text(document, "source"),
        context=tuple(_context_file(number, value) for number, value in enumerate(context or ())),
    )
    check_trace(trace)
    return trace


def check_trace(trace: Trace) -> None:
    """Raises InvalidInput for a trace that can't be replayed or written; what `parse_trace` checks beyond types."""
    texts = {"id": trace.id, "prompt": trace.prompt, "output": trace.output, "source": trace.source or ""}
    for number, file in enumerate(trace.context):
        texts |= {f"context[{number}].path": file.path, f"context[{number}].text": file.text}
    for name, text in texts.items():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise _invalid(
                f"expected {name} to be Unicode text, got half a surrogate pair (U+{ord(text[error.start]):04X}) at "
                f"character {error.start + 1}"
            ) from None
    for name in ("prompt", "output"):
        if not texts[name]:
            raise _invalid(f"expected {name} of at least one character, got an empty one")
    if texts["source"] not in trace.prompt:
        raise _invalid("expected source to stand verbatim in prompt, got one that doesn't")


def format_trace(trace: Trace) -> bytes:
    """One line with its end, so that a single write appends it whole.

    Raises InvalidInput where `check_trace` does, so that what is written can be read again.
    """
    check_trace(trace)
    document: dict[str, Any] = {"id": trace.id, "prompt": trace.prompt, "output": trace.output}
    if trace.source is not None:
        document["source"] = trace.source
    if trace.context:
        document["context"] = [{"path": file.path, "text": file.text} for file in trace.context]
    return json.dumps(document, ensure_ascii=False).encode("utf-8") + b"\n"


def write_traces(file: BinaryIO, traces: Iterable[Trace]) -> None:
    """Writes a line for each trace; InvalidInput as in `format_trace`."""
    for trace in traces:
        file.write(format_trace(trace))


def _read_line(file: BufferedReader | gzip.GzipFile, max_line_bytes: int) -> bytes:
    """The next line with its end; empty at the file's end. Of one that is too long, only pieces are ever held."""
    line = file.readline(max_line_bytes + 1)
    if len(line) <= max_line_bytes or line.endswith(b"\n"):
        return line
    num_bytes = len(line)
    del line
    while piece := file.readline(PIECE_BYTES):
        num_bytes += len(piece.removesuffix(b"\n"))
        if piece.endswith(b"\n"):
            break
    raise _invalid(f"expected a line of at most {max_line_bytes} bytes, got {num_bytes}")


def _context_file(number: int, value: object) -> ContextFile:
    if not isinstance(value, dict):
        raise _invalid(f"expected context[{number}] to be an object, got {_type_name(value)}")
    prefix = f"context[{number}]."
    return ContextFile(path=_text(value, "path", prefix), text=_text(value, "text", prefix))


def _text(document: Mapping[str, Any], name: str, prefix: str = "") -> str:
    if name not in document:
        raise _invalid(f"expected a field {prefix}{name}, got none")
    value = document[name]
    if not isinstance(value, str):
        raise _invalid(f"expected {prefix}{name} to be a string, got {_type_name(value)}")
    return value


def _type_name(value: object) -> str:
    """What JSON calls it."""
    if value is None:
        return "null"
    names = {
        dict: "an object",
        list: "an array",
        str: "a string",
        bool: "a boolean",
        int: "a number",
        float: "a number",
    }
    return names[type(value)]


def _invalid(message: str) -> InvalidInput:
    return InvalidInput(message, param="traces", code="invalid_json")
